import { useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError, api } from '../api/client.ts';
import { useCurrency } from '../api/currency.ts';
import { meanSpeed } from '../api/job_data.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import { onLive } from '../api/live.ts';
import type { JobGone } from '../api/types.ts';
import { jobsIn, look, MOST_COMPARED } from '../lib/compare.ts';
import { differences } from '../lib/flat_yaml.ts';
import { figure, fixed, hours, money, num, percent, plural, ranText } from '../lib/format.ts';
import { costOf, deviceHours, everStarted, isJobNumber, ranFor, stateOf } from '../lib/jobs.ts';
import { current, setQuery } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Later, State, Trouble } from '../ui/bits.tsx';
import { Swatch } from '../ui/chart.tsx';
import { useData } from '../ui/use_data.ts';
import { Curves, type Run, useWhileLive } from './compare_curves.tsx';

/** Null where there is no such job. */
const jobOrNone = (id: string, signal: AbortSignal) =>
  api.job(id, signal).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  });

/** Up to 20 runs beside one another: curves, figures, and the settings that differ. */
export function ComparePage() {
  const { query } = useStore(current);
  const text = query.get('jobs') ?? '';
  const named = useMemo(() => jobsIn(text), [text]);
  const asked = useMemo(() => named.filter(isJobNumber), [named]);
  const ids = useMemo(() => asked.slice(0, MOST_COMPARED), [asked]);
  const loaded = useData(`compare ${ids.join()}`, (signal) =>
    Promise.all(ids.map((id) => jobOrNone(id, signal))),
  );
  const { data, reload } = loaded;
  const runs = useMemo(
    () => ids.flatMap((id, i): Run[] => (data?.[i] ? [{ ...data[i], id, look: look(i) }] : [])),
    [ids, data],
  );
  useWhileLive(runs, loaded);
  useEffect(
    () =>
      onLive('job_gone', (gone) => {
        if (ids.includes((gone as JobGone).id)) reload();
      }),
    [ids, reload],
  );
  const leaveOut = (out: readonly string[]) => set(asked.filter((id) => !out.includes(id)));
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Compare</h1>
        <span class="sub">{ids.length > 0 ? plural(data ? runs.length : ids.length, 'job') : ''}</span>
        <span class="grow" />
        {ids.length > 0 && <AddJob ids={asked} />}
      </div>
      {ids.length === 0 && <Choose />}
      <Impossible ids={named.filter((id) => !isJobNumber(id))} />
      <TooMany over={asked.slice(MOST_COMPARED)} />
      <Gone ids={data ? ids.filter((_, i) => !data[i]) : []} leaveOut={leaveOut} />
      {loaded.error && <Trouble text={loaded.error} retry={reload} />}
      {runs.length > 0 && (
        <div class="stack">
          <Curves runs={runs} />
          <Later>
            <Figures runs={runs} leaveOut={leaveOut} />
          </Later>
          <Later>
            <Settings runs={runs} />
          </Later>
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

/** Says which of the numbers are left out, since no job can have them. */
function Impossible({ ids }: { ids: readonly string[] }) {
  return (
    <div aria-live="polite">
      {ids.length > 0 && (
        <p class="why">
          No job can have the number {ids.join(', ')}: {ids.length === 1 ? 'it is' : 'they are'} left out.
        </p>
      )}
    </div>
  );
}

/** Says which of the asked ones were deleted, or never were; the others are compared all the same. */
function Gone({ ids, leaveOut }: { ids: readonly string[]; leaveOut: (ids: readonly string[]) => void }) {
  return (
    <div aria-live="polite">
      {ids.length > 0 && (
        <p class="why">
          {ids.length === 1 ? `Job ${ids[0]} is` : `Jobs ${ids.join(', ')} are`} not there: deleted, or never
          submitted.{' '}
          <button type="button" class="small" onClick={() => leaveOut(ids)}>
            Leave {ids.length === 1 ? 'it' : 'them'} out
          </button>
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

function Figures(props: { runs: readonly Run[]; leaveOut: (ids: readonly string[]) => void }) {
  const { runs } = props;
  const speeds = useData(`speeds ${runs.map(({ id }) => id).join()}`, (signal) =>
    Promise.all(runs.map(({ id }) => meanSpeed(id, signal))),
  );
  useWhileLive(runs, speeds);
  const costs = runs.some(({ job }) => job.cost > 0);
  const currency = useCurrency();
  const best = Math.max(...runs.map(({ job }) => num(job.last_epoch?.val_top1)).filter(Number.isFinite));
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
          {runs.map((run, i) => {
            const { job } = run;
            const state = stateOf(job);
            const top1 = num(job.last_epoch?.val_top1);
            return (
              <tr key={job.id}>
                <th scope="row">
                  <span class="row" style={{ flexWrap: 'nowrap' }}>
                    <Swatch {...run.look} />
                    <a class="in-text" href={`/jobs/${job.id}`}>
                      {job.name}
                    </a>{' '}
                    <span class="muted">#{job.id}</span>
                  </span>
                </th>
                <td>
                  <State state={state} />
                </td>
                <td class="num">{fixed(job.last_step?.epoch, 1)}</td>
                <td class="num">
                  {top1 === best && runs.length > 1 && <span class="badge run">best</span>} {percent(top1, 2)}
                </td>
                <td class="num">{percent(job.last_epoch?.val_top5, 2)}</td>
                <td class="num">{fixed(job.last_epoch?.val_loss, 4)}</td>
                <td class="num">{fixed(job.last_step?.loss, 4)}</td>
                <td class="num">{figure(speeds.data?.[i] ?? Number.NaN)}</td>
                <td class="num">{everStarted(job) ? ranText(ranFor(job, Date.now())) : 'never started'}</td>
                <td class="num">{hours(deviceHours(job, Date.now()))}</td>
                {costs && <td class="num">{money(costOf(job, Date.now()), currency)}</td>}
                <td class="num">
                  <button
                    type="button"
                    class="small plain"
                    aria-label={`Leave out job ${job.id}`}
                    onClick={() => props.leaveOut([job.id])}
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

function Settings({ runs }: { runs: readonly Run[] }) {
  const rows = useMemo(
    // Their names are above.
    () => differences(runs.map(({ job }) => job.job_yaml)).filter((row) => row.name !== 'name'),
    [runs],
  );
  if (runs.length < 2) return null;
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
              {runs.map(({ job, look }) => (
                <th scope="col" key={job.id}>
                  <Swatch {...look} /> {job.id} {job.name}
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
                  <td key={runs[i]!.id} class={`mono ${value === undefined ? 'muted' : ''}`}>
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
