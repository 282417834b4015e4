import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import type { Range } from '../api/paths.ts';
import type { GetJobResponse, MetricAxis, MetricPoint } from '../api/types.ts';
import type { look } from '../lib/compare.ts';
import { isOver, stateOf } from '../lib/jobs.ts';
import { KNOWS_NOTHING } from '../lib/outliers.ts';
import { beganAt, resumedAt } from '../lib/pauses.ts';
import { current, setQuery } from '../lib/route.ts';
import { smoothingIn } from '../lib/smoothing.ts';
import { useStore } from '../lib/store.ts';
import { Segments, Trouble } from '../ui/bits.tsx';
import { Chart, Zoom } from '../ui/chart.tsx';
import type { Line } from '../ui/plot_table.ts';
import { Smoothing } from '../ui/smoothing.tsx';
import { type Loaded, useData, useEvery, useKept } from '../ui/use_data.ts';

/** How often what still runs is asked for anew. */
const EVERY_MS = 5000;
/** Of each curve. */
const POINTS = 600;
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

/** A job that is compared. */
export interface Run extends GetJobResponse {
  id: string;
  /** How it is drawn: by its place among those asked for, so that others keep theirs when one goes. */
  look: ReturnType<typeof look>;
}

const isLive = ({ job }: Run) => !isOver(stateOf(job));

/** Asks again while any of the runs goes on, and once more when one has ended: then all of it is there. */
export function useWhileLive(runs: readonly Run[], { poll, reload }: Loaded<unknown>): void {
  const live = runs.filter(isLive).length;
  useEvery(live > 0 ? EVERY_MS : 0, poll);
  const known = useRef(live);
  useEffect(() => {
    if (live < known.current) reload();
    known.current = live;
  }, [live, reload]);
}

/** Where on the axis a run begins. By time that is 0 of the chart: runs of different days lie on one another. What was
 * reported of it while imgd was away, from `first` on, is from before imgd knew that it trains. */
const startOf = (run: Run, axis: MetricAxis, first = Number.POSITIVE_INFINITY) =>
  axis === 'time' ? Math.min(beganAt(run), first) : 0;

/** A figure's curves over one another. */
export function Curves({ runs }: { runs: readonly Run[] }) {
  const { query } = useStore(current);
  const name = (METRICS.find(([key]) => key === query.get('metric'))?.[0] ?? 'val_top1') as Name;
  const axis = (AXES.find(([key]) => key === query.get('x'))?.[0] ?? 'epoch') as MetricAxis;
  const smoothing = smoothingIn(query);
  const [range, setRange] = useState<Range | null>(null);
  const validation = name.startsWith('val_');
  const { data, error, reload } = useFigure(runs, name, axis, range, validation ? 0 : smoothing);
  const lines = useMemo((): Line[] => {
    if (!data || data.length !== runs.length) return [];
    return runs.map((run, i) => {
      const { job, history, look } = run;
      const { start, points } = data[i]!;
      return {
        label: `${job.id} ${job.name}`,
        tag: job.id,
        points: start === 0 ? points : points.map(([x, ...rest]) => [x - start, ...rest] as MetricPoint),
        sparse: validation,
        resumed: axis === 'time' ? resumedAt(history).map((at) => at - start) : [],
        ...look,
      };
    });
  }, [data, runs, validation, axis]);
  const choose = (what: { metric?: string; x?: string }) => {
    setRange(null);
    setQuery(what);
  };
  return (
    <section>
      <div class="row" style={{ marginBottom: '12px' }}>
        <Segments label="Figure" options={METRICS} value={name} onChange={(metric) => choose({ metric })} />
        <Segments label="Horizontal axis" options={AXES} value={axis} onChange={(x) => choose({ x })} />
        {!validation && (
          <Smoothing value={smoothing} onChange={(smooth) => setQuery({ smooth: String(smooth) })} />
        )}
        <span class="grow" />
        <Zoom range={range} showAll={() => setRange(null)} />
      </div>
      {error && !data ? (
        <div class="panel">
          <Trouble text={error} retry={reload} />
        </div>
      ) : (
        <Chart
          title={METRICS.find(([key]) => key === name)![1]}
          lines={lines}
          axis={axis}
          smoothing={smoothing}
          height={340}
          elapsed
          share={/top\d$/.test(name)}
          cutPeaks={name.endsWith('loss') ? KNOWS_NOTHING : undefined}
          onZoom={setRange}
        />
      )}
    </section>
  );
}

/** A figure of each run, the whole of it or a part that is counted from where each begins. */
function useFigure(runs: readonly Run[], name: Name, axis: MetricAxis, range: Range | null, smooth: number) {
  const firsts = useRef(new Map<string, number>());
  const one = async (run: Run, signal: AbortSignal) => {
    const from = startOf(run, axis, firsts.current.get(run.id));
    const part = range && { from: range.from + from, to: range.to + from };
    const { series } = await api.metrics(run.id, [name], axis, { points: POINTS, smooth, ...part }, signal);
    const points = series[0]?.points ?? [];
    if (!range && axis === 'time' && points[0]) firsts.current.set(run.id, points[0][0]);
    return { start: range ? from : startOf(run, axis, points[0]?.[0]), points };
  };
  const key = `curves ${runs.map(({ id }) => id).join()} ${name} ${axis}`;
  const loaded = useKept(
    key,
    useData(`${key} ${range?.from} ${range?.to} ${smooth}`, (signal) =>
      Promise.all(runs.map((run) => one(run, signal))),
    ),
  );
  useWhileLive(runs, loaded);
  return loaded;
}
