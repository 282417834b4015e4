import type {
  GetJobResponse,
  MetricAxis,
  MetricPoint,
  ReportedCheckpoint,
  StateChange,
} from '../api/types.ts';
import { interpolate } from './downsample.ts';
import { flatYaml, itemsOf } from './flat_yaml.ts';
import { count, ms, num, shortEnum } from './format.ts';
import { placesByTime } from './places.ts';

/** What happened to a job, drawn over its curves. */
export interface Mark {
  x: number;
  text: string;
  tone: MarkTone;
}
/** What each colour stands for, and the sign that it has besides. */
export const MARK_TONES = {
  bad: { text: 'failed', sign: '▼' },
  warn: { text: 'preempted, paused', sign: '■' },
  s5: { text: 'started again, resized', sign: '▶' },
  muted: { text: 'checkpoint', sign: '◆' },
  text: { text: 'next phase', sign: '▲' },
} as const;
export type MarkTone = keyof typeof MARK_TONES;

/** Those to draw, from the back to the front: all but checkpoints, and of these as many as are `apart` from one another,
 * the newest among them. `place` is where a mark lies. */
export function toDraw<T extends { x: number; tone: MarkTone }>(
  marks: readonly T[],
  place: (x: number) => number,
  apart: number,
): T[] {
  const drawn: T[] = [];
  let last = Number.POSITIVE_INFINITY;
  for (const mark of marks.filter((one) => one.tone === 'muted').sort((a, b) => b.x - a.x)) {
    const at = place(mark.x);
    if (last - at < apart) continue;
    drawn.push(mark);
    last = at;
  }
  return [...drawn, ...marks.filter((one) => one.tone !== 'muted')];
}

/** The mark to name at `x`: within `reach` the nearest, checkpoints after all others. */
export function markAt(marks: readonly Mark[], x: number, reach: number): Mark | undefined {
  const rank = (one: Mark) => Math.abs(one.x - x) + (one.tone === 'muted' ? reach : 0);
  return marks.filter((one) => Math.abs(one.x - x) <= reach).sort((a, b) => rank(a) - rank(b))[0];
}

/** The same figures laid out by time, by epoch, and by the axis that is shown: they tell where on it a moment is. */
export interface Layouts {
  time: readonly (readonly MetricPoint[])[];
  epoch: readonly (readonly MetricPoint[])[];
  axis: readonly (readonly MetricPoint[])[];
}

export function marksOf(
  data: GetJobResponse,
  checkpoints: readonly ReportedCheckpoint[],
  axis: MetricAxis,
  layouts: Layouts,
): Mark[] {
  const byTime = axis === 'time' ? [] : placesByTime(layouts.time, layouts.axis);
  const byEpoch = axis === 'epoch' ? [] : placesByTime(layouts.epoch, layouts.axis);
  // What comes after the last report, such as the failure that ended all, is where the curves end.
  const end = Math.max(
    ...layouts.time.map((points) => points[points.length - 1]?.[0] ?? Number.NEGATIVE_INFINITY),
  );
  const atTime = (seconds: number) => {
    const at = Math.min(seconds, end);
    return axis === 'time' ? at : interpolate(byTime, at);
  };
  const atEpoch = (epoch: number) => (axis === 'epoch' ? epoch : interpolate(byEpoch, epoch));
  const marks = [
    ...changes(data, atTime),
    ...checkpoints.map(
      ({ checkpoint, time_us }): Mark => ({
        x: axis === 'step' ? num(checkpoint.step) : atTime(ms(time_us) / 1000),
        text: `checkpoint at step ${count(checkpoint.step)}`,
        tone: 'muted',
      }),
    ),
    ...phaseStarts(data.job.job_yaml).map(
      ([epoch, phase]): Mark => ({
        x: atEpoch(epoch),
        text: `phase ${phase}, from epoch ${epoch}`,
        tone: 'text',
      }),
    ),
  ];
  return marks.filter((mark) => Number.isFinite(mark.x));
}

function changes({ history }: GetJobResponse, place: (seconds: number) => number): Mark[] {
  return history.flatMap((event): Mark[] => {
    const change = event.state_change;
    // Another priority is told as a change, too, and changes no state.
    if (!change || change.from === change.to) return [];
    const tone = toneOf(change, num(event.generation));
    return tone ? [{ x: place(ms(event.time_us) / 1000), text: change.text, tone }] : [];
  });
}

/** Why a run was to give its devices back, so that it did not fail. */
const GIVES_BACK = ['PREEMPTED', 'PAUSED_BY_USER', 'MOVED_BY_USER', 'NODE_DRAINED', 'SPOT_NOTICE'];
const GROWS = ['GROWS', 'RESIZED'];

function toneOf({ from, to, reason }: StateChange, generation: number): MarkTone | null {
  const why = shortEnum(reason, 'REASON_CODE_');
  switch (shortEnum(to, 'JOB_STATE_')) {
    case 'FAILED':
      return 'bad';
    case 'PAUSED':
      return 'warn';
    case 'PREEMPTING':
      return GROWS.includes(why) ? 's5' : 'warn';
    case 'STARTING':
      return why === 'RESIZED' ? 's5' : null;
    case 'RUNNING':
      return generation > 1 ? 's5' : null;
    case 'QUEUED':
      if (!['STARTING', 'RUNNING'].includes(shortEnum(from, 'JOB_STATE_')) || GROWS.includes(why))
        return null;
      return GIVES_BACK.includes(why) ? 'warn' : 'bad';
    default:
      return null;
  }
}

/** The epochs at which the phases after the first begin, and their numbers. */
export function phaseStarts(yaml: string): [number, number][] {
  const settings = flatYaml(yaml);
  const out: [number, number][] = [];
  let epoch = 0;
  for (let phase = 1; phase < itemsOf(settings, 'phases'); phase++) {
    const setting = (name: string) => Number(settings.get(`phases.${phase}.${name}`) ?? Number.NaN);
    const until = setting('until');
    epoch = Number.isNaN(until) ? epoch + setting('epochs') : until;
    if (Number.isNaN(epoch)) break;
    out.push([epoch, phase + 1]);
  }
  return out;
}
