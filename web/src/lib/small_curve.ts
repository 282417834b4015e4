/** A curve over all steps, of few values however many come: the last of each stretch, all stretches as long. */
export class SmallCurve {
  readonly #most: number;
  /** Of the stretches, in steps; it doubles when there are too many. */
  #width = 1;
  #points: { step: number; value: number }[];

  /** `points`: what is there already, by step, of stretches as long. */
  constructor(most: number, points: { step: number; value: number }[] = []) {
    this.#most = most;
    this.#points = points.slice(-most);
    const [first, last] = [this.#points[0], this.#points.at(-1)];
    if (first && last && this.#points.length > 1)
      this.#width = Math.max((last.step - first.step) / (this.#points.length - 1), 1);
  }

  /** A later start does steps again: what was told of them goes. */
  add(step: number, value: number): void {
    const before = this.#points.filter((point) => point.step < step);
    this.#points = [...before, { step, value }];
    const last = before.at(-1);
    if (last && this.#cellOf(last.step) === this.#cellOf(step)) this.#points.splice(-2, 1);
    while (this.#points.length > this.#most) this.#double();
  }

  get values(): number[] {
    return this.#points.map((point) => point.value);
  }

  #cellOf(step: number): number {
    // A stretch ends with the step that is a multiple of its length.
    return Math.ceil(step / this.#width);
  }

  #double(): void {
    this.#width *= 2;
    this.#points = this.#points.filter(({ step }, i) => {
      const next = this.#points[i + 1];
      return !next || this.#cellOf(next.step) !== this.#cellOf(step);
    });
  }
}
