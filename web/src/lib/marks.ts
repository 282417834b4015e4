import type { GetJobResponse, MetricAxis, MetricPoint, ReportedCheckpoint } from '../api/types.ts';
import { interpolate } from './downsample.ts';
import { flatYaml } from './flat_yaml.ts';
import { count, ms, num } from './format.ts';
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
  const atTime = (seconds: number) => (axis === 'time' ? seconds : interpolate(byTime, seconds));
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
    const resized = change.reason === 'REASON_CODE_RESIZED';
    const tone = { PREEMPTING: 'warn', PAUSED: 'warn', FAILED: 'bad' }[change.to.slice(10)] as
      | MarkTone
      | undefined;
    const again = change.to === 'JOB_STATE_RUNNING' && num(event.generation) > 1;
    const failed =
      change.to === 'JOB_STATE_QUEUED' &&
      change.from !== 'JOB_STATE_UNSPECIFIED' &&
      change.from !== 'JOB_STATE_PREEMPTING' &&
      change.from !== 'JOB_STATE_PAUSED';
    if (!tone && !again && !failed) return [];
    const shown = failed ? 'bad' : again || resized ? 's5' : tone!;
    return [{ x: place(ms(event.time_us) / 1000), text: change.text, tone: shown }];
  });
}

/** The epochs at which the phases after the first begin, and their numbers. */
export function phaseStarts(yaml: string): [number, number][] {
  const lengths = [...(flatYaml(yaml).get('phases') ?? '').matchAll(/\bepochs:\s*(\d+)/g)].map((one) =>
    Number(one[1]),
  );
  let epoch = 0;
  const out: [number, number][] = [];
  for (const [i, length] of lengths.slice(0, -1).entries()) {
    epoch += length;
    out.push([epoch, i + 2]);
  }
  return out;
}
