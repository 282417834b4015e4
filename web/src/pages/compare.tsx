import { useEffect, useMemo, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { meanSpeed } from '../api/job_data.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import type { GetJobResponse, MetricAxis, MetricPoint } from '../api/types.ts';
import { jobsIn, look, MOST_COMPARED } from '../lib/compare.ts';
import { differences } from '../lib/flat_yaml.ts';
import { duration, figure, fixed, hours, money, num, percent, plural } from '../lib/format.ts';
import { everRan, isOver, ranFor, stateOf } from '../lib/jobs.ts';
import { current, setQuery } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Segments, State, Trouble } from '../ui/bits.tsx';
import { Chart, Swatch } from '../ui/chart.tsx';
import type { Line } from '../ui/plot_table.ts';
import { useData, useEvery } from '../ui/use_data.ts';

// How often what still runs is asked for anew.
const EVERY_MS = 5000;
const METRICS = [
  ['val_top1', 'Validation top-1'],
  ['loss', 'Training loss'],
  ['val_loss', 'Validation loss'],
  ['val_top5', 'Top-5'],
  ['top1', 'Training top-1'],
  ['images_per_second', 'Images/s'],
  ['learning_rate', 'Learning rate'],
] as const;
type Name = (typeof METRICS)[number][0];
const AXES = [
  ['epoch', 'Epoch'],
  ['step', 'Step'],
  ['images', 'Images'],
  ['time', 'Time'],
] as const;

/** Up to 20 runs beside one another: curves, figures, and the settings that differ. */
export function ComparePage() {
  const { query } = useStore(current);
  const text = query.get('jobs') ?? '';
  const asked = useMemo(() => jobsIn(text), [text]);
  const ids = useMemo(() => asked.slice(0, MOST_COMPARED), [asked]);
  const loaded = useData(`compare ${ids.join()}`, (signal) =>
    Promise.all(ids.map((id) => api.job(id, signal))),
  );
  const live = loaded.data?.some(({ job }) => !isOver(stateOf(job))) ?? false;
  useEvery(live ? EVERY_MS : 0, loaded.reload);
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Compare</h1>
        <span class="sub">{ids.length > 0 ? plural(ids.length, 'job') : ''}</span>
        <span class="grow" />
        {ids.length > 0 && <AddJob ids={asked} />}
      </div>
      {ids.length === 0 && <Choose />}
      <TooMany over={asked.slice(MOST_COMPARED)} />
      {loaded.error && <Trouble text={loaded.error} retry={loaded.reload} />}
      {loaded.data && ids.length > 0 && (
        <div class="stack">
          <Curves ids={ids} jobs={loaded.data} />
          <Figures ids={ids} jobs={loaded.data} leaveOut={(id) => set(asked.filter((one) => one !== id))} />
          <Settings jobs={loaded.data} />
        </div>
      )}
    </>
  );
}

const set = (ids: readonly string[]) => setQuery({ jobs: ids.join(',') }, true);

/** Says which of the asked ones are not shown; they come in as others are left out. */
function TooMany({ over }: { over: readonly string[] }) {
  return (
    <div aria-live="polite">
      {over.length > 0 && (
        <p class="why">
          At most {MOST_COMPARED} jobs can be compared: {over.join(', ')} {over.length === 1 ? 'is' : 'are'}{' '}
          not shown. Leave others out to see {over.length === 1 ? 'it' : 'them'}.
        </p>
      )}
    </div>
  );
}

function Choose() {
  useEffect(followJobs, []);
  const { rows } = useStore(jobsState);
  const best = [...rows]
    .filter((row) => Number.isFinite(row.top1))
    .sort((a, b) => b.id - a.id)
    .slice(0, 2);
  return (
    <div class="panel">
      <Empty
        title="Which jobs?"
        text="Choose two to twenty in the table of jobs, by their boxes or the key x, and then Compare. Or type their numbers:"
      >
        <AddJob ids={[]} />
        {best.length === 2 && (
          <a href={`/compare?jobs=${best.map((row) => row.id).join(',')}`}>
            The two newest: {best.map((row) => row.name).join(' and ')}
          </a>
        )}
      </Empty>
    </div>
  );
}

function AddJob({ ids }: { ids: readonly string[] }) {
  const [text, setText] = useState('');
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const more = jobsIn(text);
    if (more.length > 0) set([...new Set([...ids, ...more])]);
    setText('');
  };
  return (
    <form class="row" onSubmit={submit}>
      <input
        type="text"
        aria-label="Numbers of jobs"
        placeholder="Numbers of jobs"
        size={16}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit">Add</button>
    </form>
  );
}

function Curves({ ids, jobs }: { ids: readonly string[]; jobs: readonly GetJobResponse[] }) {
  const { query } = useStore(current);
  const name = (METRICS.find(([key]) => key === query.get('metric'))?.[0] ?? 'val_top1') as Name;
  const axis = (AXES.find(([key]) => key === query.get('x'))?.[0] ?? 'epoch') as MetricAxis;
  const [smoothing, setSmoothing] = useState(0.6);
  const smooth = name.startsWith('val_') ? 0 : smoothing;
  const { data, error, reload } = useData(`curves ${ids.join()} ${name} ${axis} ${smooth}`, (signal) =>
    Promise.all(ids.map((id) => api.metrics(id, [name], axis, { points: 600, smooth }, signal))),
  );
  useEvery(jobs.some(({ job }) => !isOver(stateOf(job))) ? EVERY_MS : 0, reload);
  const lines = useMemo((): Line[] => {
    if (!data || data.length !== jobs.length) return [];
    return jobs.map(({ job }, i) => ({
      label: `${job.id} ${job.name}`,
      points: fromStart(data[i]?.series[0]?.points ?? [], axis),
      sparse: name.startsWith('val_'),
      ...look(i),
    }));
  }, [data, jobs, axis, name]);
  const title = METRICS.find(([key]) => key === name)![1];
  const share = /top\d$/.test(name);
  return (
    <section>
      <div class="row" style={{ marginBottom: '12px' }}>
        <Segments label="Figure" options={METRICS} value={name} onChange={(metric) => setQuery({ metric })} />
        <Segments label="Horizontal axis" options={AXES} value={axis} onChange={(x) => setQuery({ x })} />
        {!name.startsWith('val_') && (
          <label class="inline">
            Smoothing
            <input
              type="range"
              min="0"
              max="0.99"
              step="0.01"
              value={smoothing}
              onInput={(event) => setSmoothing(Number(event.currentTarget.value))}
            />
          </label>
        )}
      </div>
      {error && !data ? (
        <div class="panel">
          <Trouble text={error} retry={reload} />
        </div>
      ) : (
        <Chart
          title={title}
          lines={lines}
          axis={axis}
          smoothing={smoothing}
          height={340}
          elapsed
          share={share}
          cutPeaks={name.endsWith('loss')}
        />
      )}
    </section>
  );
}

/** Runs of different days lie on one another by the time since their first figure. */
function fromStart(points: readonly MetricPoint[], axis: MetricAxis): MetricPoint[] {
  if (axis !== 'time' || points.length === 0) return [...points];
  const start = points[0]![0];
  return points.map(([x, ...rest]) => [x - start, ...rest] as MetricPoint);
}

function Figures(props: {
  ids: readonly string[];
  jobs: readonly GetJobResponse[];
  leaveOut: (id: string) => void;
}) {
  const { ids, jobs } = props;
  const speeds = useData(`speeds ${ids.join()}`, (signal) =>
    Promise.all(ids.map((id) => meanSpeed(id, signal))),
  );
  useEvery(jobs.some(({ job }) => !isOver(stateOf(job))) ? EVERY_MS : 0, speeds.reload);
  const costs = jobs.some(({ job }) => job.cost > 0);
  const best = Math.max(...jobs.map(({ job }) => num(job.last_epoch?.val_top1)).filter(Number.isFinite));
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Figures">
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col" class="num">
              Epoch
            </th>
            <th scope="col" class="num">
              Validation top-1
            </th>
            <th scope="col" class="num">
              Top-5
            </th>
            <th scope="col" class="num">
              Validation loss
            </th>
            <th scope="col" class="num">
              Training loss
            </th>
            <th scope="col" class="num">
              Images/s, mean
            </th>
            <th scope="col" class="num">
              Ran for
            </th>
            <th scope="col" class="num">
              Device-hours
            </th>
            {costs && (
              <th scope="col" class="num">
                Spend
              </th>
            )}
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map(({ job }, i) => {
            const state = stateOf(job);
            const top1 = num(job.last_epoch?.val_top1);
            return (
              <tr key={job.id}>
                <th scope="row">
                  <span class="row" style={{ flexWrap: 'nowrap' }}>
                    <Swatch {...look(i)} />
                    <a href={`/jobs/${job.id}`}>{job.name}</a> <span class="muted">#{job.id}</span>
                  </span>
                </th>
                <td>
                  <State state={state} />
                </td>
                <td class="num">{fixed(job.last_step?.epoch, 1)}</td>
                <td class="num">
                  {top1 === best && jobs.length > 1 && <span class="badge run">best</span>} {percent(top1, 2)}
                </td>
                <td class="num">{percent(job.last_epoch?.val_top5, 2)}</td>
                <td class="num">{fixed(job.last_epoch?.val_loss, 4)}</td>
                <td class="num">{fixed(job.last_step?.loss, 4)}</td>
                <td class="num">{figure(speeds.data?.[i] ?? Number.NaN)}</td>
                <td class="num">{everRan(jobs[i]!) ? duration(ranFor(job, Date.now())) : 'never started'}</td>
                <td class="num">{hours(job.device_hours)}</td>
                {costs && <td class="num">{money(job.cost, '')}</td>}
                <td class="num">
                  <button
                    type="button"
                    class="small plain"
                    aria-label={`Leave out job ${job.id}`}
                    onClick={() => props.leaveOut(job.id)}
                  >
                    Leave out
                  </button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function Settings({ jobs }: { jobs: readonly GetJobResponse[] }) {
  const rows = useMemo(
    // Their names are above.
    () => differences(jobs.map(({ job }) => job.job_yaml)).filter((row) => row.name !== 'name'),
    [jobs],
  );
  if (jobs.length < 2) return null;
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Settings that differ">
      <header>
        <h2>Settings that differ</h2>
        <span class="muted">
          {rows.length === 0 ? 'none: the files are the same' : plural(rows.length, 'setting')}
        </span>
      </header>
      {rows.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Setting</th>
              {jobs.map(({ job }, i) => (
                <th scope="col" key={job.id}>
                  <Swatch {...look(i)} /> {job.id} {job.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <th scope="row" class="mono">
                  {row.name}
                </th>
                {row.values.map((value, i) => (
                  <td key={jobs[i]!.job.id} class={`mono ${value === undefined ? 'muted' : ''}`}>
                    {value ?? 'not set'}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
