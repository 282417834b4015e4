/** The questions for a list that is asked for as a whole, while the stream tells of its members: answers come out of turn, and may
 * be older than what was told since they were asked for. */
export class ListQuestions {
  #asked = 0;
  #answered = 0;
  /** By name, the newest question when the stream last told of it. */
  readonly #told = new Map<string, number>();

  /** The number of a new question. */
  ask(): number {
    this.#asked += 1;
    return this.#asked;
  }

  /** Whether what question `number` brings is news; not where a later one was answered. */
  isNews(number: number): boolean {
    return number > this.#answered;
  }

  /** How `name` is, or that it is gone, is known from now on. */
  tell(name: string): void {
    this.#told.set(name, this.#asked);
  }

  /** What is known once question `number` brought `answer`: of what was told since then, what was told. In no order. */
  merge<T extends { name: string }>(number: number, answer: readonly T[], known: readonly T[]): T[] {
    this.#answered = number;
    const isTold = ({ name }: T) => (this.#told.get(name) ?? 0) >= number;
    return [...answer.filter((one) => !isTold(one)), ...known.filter(isTold)];
  }
}
