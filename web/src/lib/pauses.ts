import type { GetJobResponse, JobEvent } from '../api/types.ts';
import { ms } from './format.ts';
import { HOLDS } from './jobs.ts';

/** The moments, seconds, at which the job had devices again after it had held none: nothing ran just before. */
export function resumedAt(history: readonly JobEvent[]): number[] {
  const out: number[] = [];
  let left = Number.NaN;
  let held = false;
  for (const { state_change: change, time_us } of history) {
    if (!change) continue;
    const holds = HOLDS.some((state) => change.to === `JOB_STATE_${state}`);
    const at = ms(time_us) / 1000;
    if (held && !holds) left = at;
    if (!held && holds && at > left) out.push(at);
    held = holds;
  }
  return out;
}

/** The moment, seconds, at which the job trained first; where it never did, when it was submitted. */
export function beganAt({ job, history }: Pick<GetJobResponse, 'job' | 'history'>): number {
  const first = history.find((event) => event.state_change?.to === 'JOB_STATE_RUNNING');
  return ms(first?.time_us ?? job.submitted_us) / 1000;
}

type Column = ArrayLike<number | null | undefined>;

/** The pairs of neighbouring values between which a break is, by their places: no line leads from one to the other. */
export function breaksIn(
  xs: ArrayLike<number>,
  column: Column,
  breaks: readonly number[],
): [number, number][] {
  const out: [number, number][] = [];
  let before = -1;
  let next = 0;
  for (let i = 0; i < xs.length && next < breaks.length; i++) {
    if (typeof column[i] !== 'number') continue;
    const from = next;
    while (next < breaks.length && breaks[next]! <= xs[i]!) next++;
    if (next > from && before >= 0) out.push([before, i]);
    before = i;
  }
  return out;
}

/** The places of values to which no line leads and from which none goes. */
export function aloneIn(xs: ArrayLike<number>, column: Column, breaks: readonly number[]): number[] {
  const begins = new Set(breaksIn(xs, column, breaks).map(([, to]) => to));
  const out: number[] = [];
  let stretch: number[] = [];
  const end = () => {
    if (stretch.length === 1) out.push(stretch[0]!);
    stretch = [];
  };
  for (let i = 0; i < xs.length; i++) {
    if (typeof column[i] !== 'number') continue;
    if (begins.has(i)) end();
    // Two tell as much as many.
    if (stretch.length < 2) stretch.push(i);
  }
  end();
  return out;
}
