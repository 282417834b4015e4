import { useMemo } from 'preact/hooks';
import { forgetAhead } from '../api/ahead.ts';
import { useCurrency } from '../api/currency.ts';
import { askFirst } from '../api/first_questions.ts';
import { meanSpeed, useJob } from '../api/job_data.ts';
import type { GetJobResponse, Job } from '../api/types.ts';
import {
  count,
  duration,
  figure,
  fixed,
  money,
  ms,
  NONE,
  num,
  percent,
  plural,
  ranText,
  sentence,
  unit as withUnit,
} from '../lib/format.ts';
import {
  costOf,
  everStarted,
  isJobNumber,
  isOver,
  progressOf,
  ranFor,
  secondsLeft,
  speedOf,
  stateOf,
  totalEpochs,
} from '../lib/jobs.ts';
import { current } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Meter, now, State, Trouble } from '../ui/bits.tsx';
import { useData } from '../ui/use_data.ts';
import { JobActions } from './job_actions.tsx';
import { JobConfig } from './job_config.tsx';
import { JobCurves } from './job_curves.tsx';
import { JobLogs } from './job_logs.tsx';
import { JobResults } from './job_results.tsx';
import { JobTimeline } from './job_timeline.tsx';

const TABS = [
  ['', 'Curves'],
  ['logs', 'Logs'],
  ['results', 'Results'],
  ['timeline', 'Timeline'],
  ['config', 'Configuration'],
] as const;

const AHEAD_MS = 3000;

/** Everything about one job. */
export function JobPage({ id, tab }: { id: string; tab: string }) {
  useMemo(() => {
    askFirst(id, tab, current.value.query);
    setTimeout(forgetAhead, AHEAD_MS);
  }, [id]);
  const { data, error, status, reload, gone } = useJob(id);
  if (status === 404 || !isJobNumber(id)) return <NoSuchJob id={id} deleted={gone} />;
  if (!data) {
    return error ? <Trouble page text={error} retry={reload} /> : <p class="muted">Loading …</p>;
  }
  const { job } = data;
  const state = stateOf(job);
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>
          {job.name} <span class="muted">#{job.id}</span>
        </h1>
        <State state={state} />
        {num(job.rerun_of) > 0 && (
          <a class="badge" href={`/jobs/${job.rerun_of}`}>
            rerun of {job.rerun_of}
          </a>
        )}
        {num(job.sweep_id) > 0 && <span class="badge">sweep {job.sweep_id}</span>}
        {job.external && <span class="badge">started by hand</span>}
        <span class="grow" />
        <JobActions job={job} state={state} />
      </div>
      {job.reason_text && state !== 'RUNNING' && (
        <p class={`why ${state === 'FAILED' ? 'bad' : ''}`}>{sentence(job.reason_text)}</p>
      )}
      <Facts data={data} />
      <nav class="tabs" aria-label={`Job ${job.id}`}>
        {TABS.map(([key, text]) => (
          <a
            key={key}
            href={`/jobs/${job.id}${key ? `/${key}` : ''}`}
            aria-current={key === tab ? 'page' : undefined}
          >
            {text}
          </a>
        ))}
      </nav>
      <Tab data={data} tab={tab} />
    </>
  );
}

function NoSuchJob({ id, deleted }: { id: string; deleted: boolean }) {
  return (
    <div class="panel" role="alert">
      <Empty
        page
        title={deleted ? `Job ${id} was deleted` : `There is no job ${id}`}
        text={
          deleted ? 'Its file, history, figures and log are gone.' : 'It was deleted, or never submitted.'
        }
      >
        <a class="button" href="/jobs">
          All jobs
        </a>
      </Empty>
    </div>
  );
}

function Tab({ data, tab }: { data: GetJobResponse; tab: string }) {
  if (tab === 'logs') return <JobLogs job={data.job} />;
  if (tab === 'results') return <JobResults job={data.job} />;
  if (tab === 'timeline') return <JobTimeline data={data} />;
  if (tab === 'config') return <JobConfig job={data.job} />;
  return <JobCurves data={data} />;
}

function Facts({ data }: { data: GetJobResponse }) {
  const { job } = data;
  const step = job.last_step;
  const state = stateOf(job);
  const share = progressOf(job);
  const epochs = useMemo(() => totalEpochs(job), [job.job_yaml, job.last_epoch]);
  const training = job.kind === 'JOB_KIND_TRAINING' || job.kind === 'JOB_KIND_UNSPECIFIED';
  return (
    <dl class="facts panel" style={{ marginBottom: '14px' }}>
      {training && (
        <div>
          <dt>Progress</dt>
          <dd class="progress">
            {Number.isFinite(share) ? withUnit(Math.floor(share * 100), '%') : NONE}{' '}
            <Meter share={share} tone={state === 'RUNNING' ? '' : 'off'} />
          </dd>
        </div>
      )}
      {training && (
        <Fact
          name="Epoch"
          value={fixed(step?.epoch, 2)}
          unit={Number.isFinite(epochs) ? `of ${count(Math.round(epochs))}` : ''}
        />
      )}
      {training && (
        <Fact name="Step" value={count(step?.step)} unit={step ? `of ${count(step.total_steps)}` : ''} />
      )}
      <Fact
        name={isOver(state) ? 'Ran for' : 'Time left'}
        value={
          isOver(state)
            ? everStarted(job)
              ? ranText(ranFor(job, Date.now()))
              : 'never started'
            : duration(secondsLeft(job))
        }
      />
      {training &&
        (isOver(state) ? <MeanSpeed job={job} /> : <Fact name="Images/s" value={figure(speedOf(job))} />)}
      {training && <Fact name="Training loss" value={fixed(step?.loss, 4)} />}
      {training && <Fact name="Validation top-1" value={percent(job.last_epoch?.val_top1, 2)} />}
      <Fact
        name={!everStarted(job) ? 'Needs' : isOver(state) ? 'Ran on' : 'Runs on'}
        value={plural(job.nodes_now || job.nodes, 'node')}
        unit={job.per_node ? '' : `× ${job.ranks_per_node}`}
      />
      <Held job={job} />
      {job.cost > 0 && <Spend job={job} />}
    </dl>
  );
}

function Spend({ job }: { job: Job }) {
  return <Fact name="Spend" value={money(costOf(job, useStore(now)), '')} unit={useCurrency()} />;
}

/** Of a run that has ended: its last report was of its last moment. */
function MeanSpeed({ job }: { job: Job }) {
  const { data } = useData(`speed ${job.id} ${job.state}`, (signal) => meanSpeed(job.id, signal));
  return <Fact name="Images/s, mean" value={figure(data ?? Number.NaN)} />;
}

function Held({ job }: { job: Job }) {
  const time = useStore(now);
  const started = ms(job.started_us);
  if (stateOf(job) !== 'RUNNING' || !Number.isFinite(started))
    return <Fact name="Starts" value={job.generation} />;
  return <Fact name="Running for" value={duration(Math.max(time - started, 0) / 1000)} />;
}

function Fact({ name, value, unit = '' }: { name: string; value: string | number; unit?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value} {unit && <small>{unit}</small>}
      </dd>
    </div>
  );
}
