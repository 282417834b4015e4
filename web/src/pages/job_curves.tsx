import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { AXES, curvesIn, FIRST } from '../api/first_questions.ts';
import { type Metrics, useMetrics } from '../api/job_data.ts';
import type { Range } from '../api/paths.ts';
import type { GetJobResponse, Job, MetricAxis, MetricPoint } from '../api/types.ts';
import { isOver, stateOf } from '../lib/jobs.ts';
import { MARK_TONES, type Mark, type MarkTone, marksOf } from '../lib/marks.ts';
import { KNOWS_NOTHING } from '../lib/outliers.ts';
import { resumedAt } from '../lib/pauses.ts';
import { current, setQuery } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Segments, Trouble } from '../ui/bits.tsx';
import { Chart, Zoom } from '../ui/chart.tsx';
import { has, type Line } from '../ui/plot_table.ts';
import { Smoothing } from '../ui/smoothing.tsx';
import { useData, useKept } from '../ui/use_data.ts';
import { JobSide } from './job_side.tsx';
import { RankMap } from './rank_map.tsx';

const STAGES = [
  ['input_seconds', 'input', 's2', [6, 3]],
  ['forward_seconds', 'forward', 's1', []],
  ['backward_seconds', 'backward', 's4', [12, 4]],
  ['communication_seconds', 'other ranks', 's6', [2, 3]],
  ['optimizer_seconds', 'optimizer', 's3', [8, 3, 2, 3]],
] as const;
const OTHERS = [
  ...['top1', 'val_top1', 'val_top5', 'learning_rate', 'images_per_second'],
  ...['own_least_seconds', 'own_most_seconds', 'slowest_rank'],
  ...['gpu_busy_most_ratio', 'gpu_busy_mean_ratio', 'gpu_busy_least_ratio'],
  ...STAGES.map(([name]) => name),
];

/** What a job learned, how fast, and where its time goes. */
export function JobCurves({ data }: { data: GetJobResponse }) {
  const { job } = data;
  const { query } = useStore(current);
  const { axis, smoothing } = curvesIn(query);
  const log = query.get('log') === '1';
  const axisName = AXES.find(([key]) => key === axis)![1];
  const [range, setRange] = useState<Range | null>(null);
  const first = useMetrics(job.id, FIRST, axis, range, smoothing);
  const drawn = useDrawn(first.data);
  const others = useMetrics(drawn ? job.id : '', OTHERS, axis, range, smoothing);
  // A part of the curves tells of no place outside it.
  const whole = useKept<Metrics>(
    `${job.id} ${axis}`,
    first.whole ? first : { ...first, data: null, error: '' },
  );
  const marks = useMarks(data, axis, whole.data, drawn);
  const validated = `${job.last_epoch?.epoch} ${job.state}`;
  const known = useRef(validated);
  useEffect(() => {
    // The stream tells of steps only, and not of each.
    if (known.current !== validated) for (const one of [first, others]) one.reload();
    known.current = validated;
  }, [validated]);
  // By what else than time nothing is between what was before a pause and what came after it.
  const resumed = useMemo(() => (axis === 'time' ? resumedAt(data.history) : []), [axis, data.history]);
  const loss = useMemo(
    () => lossOf(first.data ?? new Map()).map((one) => ({ ...one, resumed })),
    [first.data, resumed],
  );
  const lines = useMemo(() => linesOf(others.data ?? new Map(), resumed), [others.data, resumed]);
  if (job.kind === 'JOB_KIND_COMMAND' || job.kind === 'JOB_KIND_CONVERSION') {
    return (
      <div class="split">
        <div class="panel">
          <Empty
            title="No curves"
            text="What is known of a job that is no training is in its log and its timeline."
          />
        </div>
        <JobSide job={job} />
      </div>
    );
  }
  const chart = { axis, smoothing, marks, onZoom: setRange };
  return (
    <>
      <div class="row" style={{ marginBottom: '12px' }}>
        <Segments
          label="Horizontal axis"
          options={AXES}
          value={axis}
          onChange={(x) => {
            setRange(null);
            setQuery({ x: x === 'step' ? '' : x });
          }}
        />
        <Smoothing value={smoothing} onChange={(smooth) => setQuery({ smooth: String(smooth) })} />
        <label class="inline">
          <input
            type="checkbox"
            checked={log}
            onChange={(event) => setQuery({ log: event.currentTarget.checked ? '1' : '' })}
          />
          Loss on a log scale
        </label>
        <span class="grow" />
        <Zoom range={range} showAll={() => setRange(null)} />
      </div>
      <div class="split">
        <div>
          {first.error && !first.data ? (
            <div class="panel">
              {first.status === 404 ? (
                <Empty
                  title="No history"
                  text="This imgd does not serve the history of figures. The newest ones are above."
                />
              ) : (
                <Trouble text={first.error} retry={first.reload} />
              )}
            </div>
          ) : (
            <div class="charts">
              <MarksLegend marks={marks} />
              <Chart
                title="Loss"
                lines={loss}
                {...chart}
                log={log}
                cutPeaks={KNOWS_NOTHING}
                none={waiting(job)}
                atOnce
              />
              {others.error && !others.data ? (
                <div class="panel">
                  <Trouble text={others.error} retry={others.reload} />
                </div>
              ) : (
                <>
                  <Chart title="Accuracy" lines={lines.top1} share {...chart} none={waiting(job)} />
                  <Chart
                    title="Learning rate"
                    lines={lines.rate}
                    {...chart}
                    smoothing={0}
                    none={waiting(job)}
                  />
                  <Chart title="Images per second" lines={lines.speed} {...chart} none={waiting(job)} />
                  {has(lines.busy) && <Chart title="GPU busy" lines={lines.busy} share {...chart} />}
                  {has(lines.stages) && (
                    <Chart
                      title="Time of a step by stage"
                      lines={lines.stages}
                      seconds
                      {...chart}
                      cutPeaks={0}
                    />
                  )}
                  {has(lines.ranks) && (
                    <Chart
                      title="Own work of the ranks"
                      lines={lines.ranks}
                      seconds
                      {...chart}
                      cutPeaks={0}
                    />
                  )}
                  {others.data && (
                    <RankMap
                      id={job.id}
                      metrics={others.data}
                      axis={axisName}
                      live={stateOf(job) === 'RUNNING'}
                    />
                  )}
                </>
              )}
            </div>
          )}
        </div>
        <JobSide job={job} />
      </div>
    </>
  );
}

/** Whether data have been painted: what is asked for only then does not keep them from being so. */
function useDrawn(data: unknown): boolean {
  const [drawn, setDrawn] = useState(false);
  const there = data !== null;
  useEffect(() => {
    if (there) setDrawn(true);
  }, [there]);
  return drawn;
}

function waiting(job: Job): string {
  const state = stateOf(job);
  if (isOver(state)) return 'No figures: it reported none, or they are not kept any more';
  return state === 'QUEUED' ? 'It has not begun' : 'No figures yet';
}

const pointsIn =
  (metrics: Metrics) =>
  (name: string): MetricPoint[] =>
    metrics.get(name) ?? [];

/** A figure of the training with that of the validations. */
function pair(training: MetricPoint[], validation: MetricPoint[], what = ''): Line[] {
  const lines: Line[] = [{ label: `training${what}`, points: training, colour: 's1' }];
  if (validation.length > 0)
    lines.push({ label: `validation${what}`, points: validation, colour: 's2', sparse: true });
  return lines;
}

function lossOf(metrics: Metrics): Line[] {
  const points = pointsIn(metrics);
  return pair(points('loss'), points('val_loss'));
}

type Name = 'top1' | 'rate' | 'speed' | 'busy' | 'stages' | 'ranks';

function linesOf(metrics: Metrics, resumed: readonly number[]): Record<Name, Line[]> {
  const points = pointsIn(metrics);
  // Of reports at which no GPU could be read there is none.
  const read = (name: string) => points(name).filter((p) => Number.isFinite(p[3]));
  const five = points('val_top5');
  const top5: Line[] =
    five.length > 0
      ? [{ label: 'validation top-5', points: five, colour: 's3', dash: [5, 3], sparse: true }]
      : [];
  const all: Record<Name, Line[]> = {
    top1: [...pair(points('top1'), points('val_top1'), ' top-1'), ...top5],
    rate: [{ label: 'learning rate', points: points('learning_rate'), colour: 's1' }],
    speed: [{ label: 'images/s', points: points('images_per_second'), colour: 's3' }],
    busy: [
      { label: 'busiest GPU', points: read('gpu_busy_most_ratio'), colour: 's2', dash: [5, 3] },
      { label: 'mean of the GPUs', points: read('gpu_busy_mean_ratio'), colour: 's1' },
      { label: 'least busy GPU', points: read('gpu_busy_least_ratio'), colour: 's6', dash: [2, 3] },
    ],
    stages: STAGES.map(([name, label, colour, dash]) => ({
      label,
      points: points(name),
      colour,
      dash: [...dash],
    })),
    ranks: [
      { label: 'slowest rank', points: points('own_most_seconds'), colour: 's2' },
      { label: 'fastest rank', points: points('own_least_seconds'), colour: 's1', dash: [5, 3] },
    ],
  };
  for (const line of Object.values(all).flat()) line.resumed = resumed;
  return all;
}

/** What happened to the job, as marks. It has a time or an epoch; where that is on another axis, figures tell. */
function useMarks(data: GetJobResponse, axis: MetricAxis, figures: Metrics | null, drawn: boolean): Mark[] {
  const { job } = data;
  // There is nothing to mark before there are curves, and these come the sooner.
  const id = drawn ? job.id : '';
  const time = useMetrics(id, FIRST, 'time', null).data;
  const epoch = useMetrics(id, FIRST, 'epoch', null).data;
  const saved = useData(id && `checkpoints ${id} ${job.last_checkpoint?.step}`, (signal) =>
    job.last_checkpoint ? api.checkpoints(job.id, signal) : Promise.resolve({ checkpoints: [] }),
  ).data;
  return useMemo(() => {
    const all = (metrics: Metrics | null) => FIRST.map((name) => metrics?.get(name) ?? []);
    const layouts = { time: all(time), epoch: all(epoch), axis: all(figures) };
    return marksOf(data, saved?.checkpoints ?? [], axis, layouts);
  }, [data, saved, axis, time, epoch, figures]);
}

/** What the marks on the charts stand for, as far as there are any. */
function MarksLegend({ marks }: { marks: readonly Mark[] }) {
  const tones = (Object.keys(MARK_TONES) as MarkTone[]).filter((tone) =>
    marks.some((one) => one.tone === tone),
  );
  if (tones.length === 0) return null;
  return (
    <p class="marks">
      {tones.map((tone) => (
        <span key={tone}>
          <i aria-hidden="true" style={{ color: `var(--${tone})` }}>
            {MARK_TONES[tone].sign}
          </i>{' '}
          {MARK_TONES[tone].text}
        </span>
      ))}
    </p>
  );
}
