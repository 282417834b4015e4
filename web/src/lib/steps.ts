import type { Job, LiveStep } from '../api/types.ts';
import { num } from './format.ts';

/** Whether a step that was told comes after the last one that a job is described with; `since`: it was told after that was. Of
 * two starts the later one has the later steps, also where it goes on from a checkpoint before them. */
export function isLater(step: LiveStep, job: Job, since: boolean): boolean {
  const starts = num(step.generation) - num(job.generation);
  if (starts !== 0) return starts > 0;
  // What a job is described with may be of an earlier start, where there was one.
  return (since && num(job.generation) > 1) || !(num(step.step) <= num(job.last_step?.step));
}

/** The job with the step as its last one. */
export function withStep(job: Job, step: LiveStep): Job {
  const { job_id: _, generation: __, ...figures } = step;
  return { ...job, last_step: { ...(job.last_step as NonNullable<Job['last_step']>), ...figures } };
}

/** Watches the numbers of steps that come live, of which some may be missing: the stream tells at most one a second, and
 * after a break only the newest. */
export class StepWatch {
  #last = Number.NaN;
  #usual = 0;

  /** Whether more than usual was left out before this step, or steps are done again: the history tells what was. */
  take(step: number): boolean {
    const gap = step - this.#last;
    this.#last = step;
    if (Number.isNaN(gap) || gap === 0) return false;
    if (gap < 0) return true;
    const odd = this.#usual > 0 && gap > this.#usual * 3 + 2;
    if (!odd) this.#usual = this.#usual > 0 ? this.#usual * 0.7 + gap * 0.3 : gap;
    return odd;
  }
}
