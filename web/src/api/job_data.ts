import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { append, goOnSmoothing } from '../lib/downsample.ts';
import { num } from '../lib/format.ts';
import { toldNow } from '../lib/jobs.ts';
import { isLater, StepWatch, withStep } from '../lib/steps.ts';
import { type Loaded, useData, useEvery, useKept, useOnceTold } from '../ui/use_data.ts';
import { api } from './client.ts';
import { onLive } from './live.ts';
import { type Range, rangeOf } from './paths.ts';
import type {
  Decision,
  DeviceSpread,
  GetJobResponse,
  Job,
  JobGone,
  LiveStep,
  MetricAxis,
  MetricPoint,
  StepTimes,
} from './types.ts';

const SOON_MS = 200;

/** One job, kept up to date by the stream; `gone` once that says that it was deleted. */
export function useJob(id: string): Loaded<GetJobResponse> & { gone: boolean } {
  // What was told since a question is newer than its answer.
  const asked = useRef(0);
  const loaded = useData(`job ${id}`, async (signal) => {
    asked.current += 1;
    const number = asked.current;
    return { number, ...(await api.job(id, signal)) };
  });
  const [summary, setSummary] = useState<{ id: string; job: Job; asked: number } | null>(null);
  const [goneId, setGoneId] = useState('');
  useOnceTold(loaded);
  const { reload } = loaded;
  // As early as it is asked for: what happens in between is in neither.
  useLayoutEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ends = [
      onLive('job', (data) => {
        if ((data as Job).id === id) setSummary({ id, job: toldNow(data as Job), asked: asked.current });
      }),
      onLive('job_gone', (data) => {
        if ((data as JobGone).id !== id) return;
        setGoneId(id);
        reload();
      }),
      onLive('event', (data) => {
        if ((data as Decision).job_id !== id) return;
        timer ??= setTimeout(() => {
          timer = undefined;
          reload();
        }, SOON_MS);
      }),
    ];
    return () => {
      clearTimeout(timer);
      for (const end of ends) end();
    };
  }, [id, reload]);
  const newer = useMemo(() => {
    if (summary?.id !== id || !loaded.data || summary.asked < loaded.data.number) return null;
    const { job } = summary;
    return num(job.last_event_number) >= num(loaded.data.job.last_event_number) ? job : null;
  }, [loaded.data, summary, id]);
  // All of another reason is not told.
  const lacks = newer && loaded.data && !saysMore(loaded.data.job.reason_text, newer.reason_text);
  useEffect(() => {
    if (!lacks) return;
    const timer = setTimeout(reload, SOON_MS);
    return () => clearTimeout(timer);
  }, [lacks, loaded.data, reload]);
  const told = useLiveStep(id, loaded.data);
  const data = useMemo(() => {
    if (!loaded.data) return null;
    const job: Job = newer ? withMore(newer, loaded.data.job) : loaded.data.job;
    const later = told && job.last_step && isLater(told.step, job, told.since);
    return { ...loaded.data, job: later ? withStep(job, told.step) : job };
  }, [loaded.data, newer, told]);
  return { ...loaded, data, gone: goneId === id };
}

/** Whether one reason is the other, or goes on from it: of one job imgd says more than in a list. */
function saysMore(reason: string, than: string): boolean {
  return than === '' || reason === than || reason.startsWith(`${than}; `);
}

/** What the stream told, with what is only known of a job that was asked for by itself. */
function withMore(told: Job, known: Job): Job {
  const { job_yaml } = known;
  return saysMore(known.reason_text, told.reason_text)
    ? { ...told, job_yaml, reason_text: known.reason_text }
    : { ...told, job_yaml };
}

/** The last step that was told, and whether that was since the job was described, by what is loaded or by the stream. */
function useLiveStep(id: string, loaded: unknown): { step: LiveStep; since: boolean } | null {
  const [told, setTold] = useState<{ step: LiveStep; since: boolean } | null>(null);
  useLayoutEffect(() => {
    const described = () => setTold((last) => last && { ...last, since: false });
    described();
    const ends = [
      onLive('step', (data) => {
        if ((data as LiveStep).job_id === id) setTold({ step: data as LiveStep, since: true });
      }),
      onLive('job', (data) => {
        if ((data as Job).id === id) described();
      }),
    ];
    return () => {
      for (const end of ends) end();
    };
  }, [id, loaded]);
  return told?.step.job_id === id ? told : null;
}

/** Of a step's time, the mean over the steps of the report. */
const stage = (key: keyof StepTimes) => (step: LiveStep) =>
  num(step.times?.[key]) / Math.max(num(step.times?.steps), 1);

/** Where none could be read it is no number. */
const busy = (key: keyof DeviceSpread) => (step: LiveStep) =>
  step.devices ? num(step.devices[key]) : Number.NaN;

type LiveValue = (step: LiveStep) => number;
const LIVE_VALUES: Record<string, LiveValue> = {
  loss: (step) => num(step.loss),
  top1: (step) => num(step.top1),
  learning_rate: (step) => num(step.learning_rate),
  images_per_second: (step) => num(step.images_per_second),
  input_seconds: stage('input_seconds'),
  forward_seconds: stage('forward_seconds'),
  backward_seconds: stage('backward_seconds'),
  communication_seconds: stage('communication_seconds'),
  optimizer_seconds: stage('optimizer_seconds'),
  own_least_seconds: (step) => num(step.ranks?.own_least_seconds),
  own_most_seconds: (step) => num(step.ranks?.own_most_seconds),
  gpu_busy_least_ratio: busy('busy_least_ratio'),
  gpu_busy_mean_ratio: busy('busy_mean_ratio'),
  gpu_busy_most_ratio: busy('busy_most_ratio'),
  slowest_rank: (step) => num(step.ranks?.slowest_rank),
};

export type Metrics = Map<string, MetricPoint[]>;
// The stream tells a step a second; what was between them the history has.
const ANEW_MS = 20_000;
const SKIPPED_MS = 700;

/** History of a job's figures by name, with what came live since; a range is loaded anew, at its own resolution. Without an
 * id nothing is asked yet. `whole`: what is there is no range. */
export function useMetrics(
  id: string,
  names: readonly string[],
  axis: MetricAxis,
  range: Range | null,
  smooth = 0,
): Loaded<Metrics> & { whole: boolean } {
  const key = id && `metrics ${id} ${names.join()} ${axis}`;
  const loaded = useKept(
    key,
    useData(key && `${key} ${range?.from} ${range?.to} ${smooth}`, async (signal) => ({
      whole: !range,
      ...(await api.metrics(id, names, axis, rangeOf(range, smooth), signal)),
    })),
  );
  const [live, setLive] = useState<{ at: number; step: LiveStep }[]>([]);
  const { reload } = loaded;
  const watch = useRef(new StepWatch());
  const empty = loaded.data?.whole && loaded.data.series.every(({ points }) => points.length === 0);
  // Of what the history lacks as yet it is known that it has come.
  useEffect(() => {
    if (!empty) setLive([]);
  }, [loaded.data]);
  useLayoutEffect(() => {
    if (range) return;
    let soon: ReturnType<typeof setTimeout> | undefined;
    let came = false;
    const later = setInterval(() => {
      if (came && !document.hidden) reload();
      came = false;
    }, ANEW_MS);
    const end = onLive('step', (data) => {
      const step = data as LiveStep;
      if (step.job_id !== id) return;
      came = true;
      if (watch.current.take(num(step.step))) {
        clearTimeout(soon);
        soon = setTimeout(reload, SKIPPED_MS);
      }
      setLive((before) => [...before.slice(-5000), { at: Date.now() / 1000, step }]);
    });
    return () => {
      clearTimeout(soon);
      clearInterval(later);
      end();
    };
  }, [id, range, reload]);
  // Steps that come live go on from those of the history: as long as that has none, they are not drawn.
  useEvery(empty && live.length > 0 ? SKIPPED_MS : 0, loaded.poll);
  const data = useMemo(() => {
    if (!loaded.data) return null;
    const out: Metrics = new Map();
    for (const series of loaded.data.series) {
      const points = series.points.map((one) => one.map(num) as MetricPoint);
      const value = LIVE_VALUES[series.name];
      const perEpoch = loaded.data.images_per_epoch;
      const fresh =
        value && points.length > 0 ? live.map((one) => livePoint(one, value, axis, perEpoch)) : [];
      out.set(series.name, goOnSmoothing(append(points, fresh), smooth));
    }
    return out;
  }, [loaded.data, live, axis, smooth]);
  return { ...loaded, data, whole: loaded.data?.whole ?? false };
}

function livePoint(
  { at, step }: { at: number; step: LiveStep },
  value: LiveValue,
  axis: MetricAxis,
  imagesPerEpoch: number,
): MetricPoint {
  const figure = value(step);
  const places = {
    step: num(step.step),
    epoch: num(step.epoch),
    images: num(step.epoch) * imagesPerEpoch,
    time: step.time_us ? num(step.time_us) / 1e6 : at,
  };
  const x = places[axis];
  return [x, figure, figure, figure];
}

/** Over the whole run: the last report alone may be of a bad moment. */
export async function meanSpeed(id: string, signal?: AbortSignal): Promise<number> {
  const { series } = await api.metrics(id, ['images_per_second'], 'step', { points: 1, mean: true }, signal);
  return series[0]?.mean ?? Number.NaN;
}
