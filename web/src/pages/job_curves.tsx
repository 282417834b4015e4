import { useMemo, useState } from 'preact/hooks';
import { type Metrics, type Range, useMetrics } from '../api/job_data.ts';
import type { GetJobResponse, Job, MetricAxis, MetricPoint } from '../api/types.ts';
import { interpolate } from '../lib/downsample.ts';
import { count, ms, num } from '../lib/format.ts';
import { stateOf } from '../lib/jobs.ts';
import { current, setQuery } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Segments, Trouble } from '../ui/bits.tsx';
import { Chart, type Line, type Mark } from '../ui/chart.tsx';
import { JobSide } from './job_side.tsx';

const NAMES = ['loss', 'val_loss', 'top1', 'val_top1', 'learning_rate', 'images_per_second'] as const;
const AXES = [
  ['step', 'Step'],
  ['epoch', 'Epoch'],
  ['images', 'Images'],
  ['time', 'Time'],
] as const;
// What marks need to find their place.
const TIMES = ['step', 'epoch', 'images'] as const;

/** What a job learned, how fast, and where its time goes. */
export function JobCurves({ data }: { data: GetJobResponse }) {
  const { job } = data;
  const { query } = useStore(current);
  const axis = (AXES.find(([key]) => key === query.get('x'))?.[0] ?? 'step') as MetricAxis;
  const smoothing = Math.min(num(query.get('smooth') ?? 0.6), 0.99);
  const [range, setRange] = useState<Range | null>(null);
  const metrics = useMetrics(job.id, NAMES, axis, range);
  const marks = useMarks(data, axis);
  const lines = useMemo(() => linesOf(metrics.data ?? new Map()), [metrics.data]);
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
        <label class="inline">
          Smoothing
          <input
            type="range"
            min="0"
            max="0.99"
            step="0.01"
            value={smoothing}
            onInput={(event) => setQuery({ smooth: event.currentTarget.value })}
          />
          <output>{smoothing.toFixed(2)}</output>
        </label>
        <span class="grow" />
        {range ? (
          <button type="button" class="small" onClick={() => setRange(null)}>
            Show all
          </button>
        ) : (
          <span class="muted">Drag over a chart to look closer</span>
        )}
      </div>
      <div class="split">
        <div>
          {metrics.error && !metrics.data ? (
            <div class="panel">
              {metrics.status === 404 ? (
                <Empty
                  title="No history"
                  text="This imgd does not serve the history of figures. The newest ones are above."
                />
              ) : (
                <Trouble text={metrics.error} retry={metrics.reload} />
              )}
            </div>
          ) : (
            <div class="charts">
              <Chart title="Loss" lines={lines.loss} {...chart} none={waiting(job)} />
              <Chart title="Top-1" lines={lines.top1} share {...chart} none={waiting(job)} />
              <Chart title="Learning rate" lines={lines.rate} {...chart} smoothing={0} none={waiting(job)} />
              <Chart title="Images per second" lines={lines.speed} {...chart} none={waiting(job)} />
            </div>
          )}
        </div>
        <JobSide job={job} />
      </div>
    </>
  );
}

function waiting(job: Job): string {
  return stateOf(job) === 'QUEUED' ? 'It has not begun' : 'No figures yet';
}

function linesOf(metrics: Metrics): Record<'loss' | 'top1' | 'rate' | 'speed', Line[]> {
  const points = (name: string): MetricPoint[] => metrics.get(name) ?? [];
  const pair = (train: string, val: string): Line[] => {
    const lines: Line[] = [{ label: 'training', points: points(train), colour: 's1' }];
    if (points(val).length > 0)
      lines.push({ label: 'validation', points: points(val), colour: 's2', sparse: true });
    return lines;
  };
  return {
    loss: pair('loss', 'val_loss'),
    top1: pair('top1', 'val_top1'),
    rate: [{ label: 'learning rate', points: points('learning_rate'), colour: 's1' }],
    speed: [{ label: 'images/s', points: points('images_per_second'), colour: 's3' }],
  };
}

/** Starts, preemptions, failures and the like as marks. They have a time; where it is on another axis, figures tell. */
function useMarks(data: GetJobResponse, axis: MetricAxis): Mark[] {
  const times = useMetrics(data.job.id, TIMES, 'time', null).data;
  const { history, job } = data;
  return useMemo(() => {
    const place = (at: number) => (axis === 'time' ? at : interpolate(times?.get(axis) ?? [], at));
    const marks = history.flatMap((event): Mark[] => {
      const change = event.state_change;
      if (!change) return [];
      const tone = { PREEMPTING: 'warn', PAUSED: 'warn', FAILED: 'bad' }[change.to.slice(10)];
      const again = change.to === 'JOB_STATE_RUNNING' && num(event.generation) > 1;
      const failed =
        change.to === 'JOB_STATE_QUEUED' &&
        change.from !== 'JOB_STATE_UNSPECIFIED' &&
        change.from !== 'JOB_STATE_PREEMPTING' &&
        change.from !== 'JOB_STATE_PAUSED';
      if (!tone && !again && !failed) return [];
      return [
        {
          x: place(ms(event.time_us) / 1000),
          text: change.text,
          tone: failed ? 'bad' : again ? 'ok' : (tone as Mark['tone']),
        },
      ];
    });
    const saved = job.last_checkpoint;
    if (saved && axis === 'step') {
      marks.push({ x: num(saved.step), text: `checkpoint at step ${count(saved.step)}`, tone: 'muted' });
    }
    return marks.filter((mark) => Number.isFinite(mark.x));
  }, [history, job.last_checkpoint, axis, times]);
}
