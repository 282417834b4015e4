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
