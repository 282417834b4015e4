import type { LogLine } from '../api/types.ts';

/** Name of a line in its job: generation, rank and number. */
export function lineName(line: LogLine): string {
  return `${line.generation}.${line.rank}.${line.line_number}`;
}

/** `before` with the lines of `more` that are new, by time; of one rank in the order of their numbers. */
export function mergeLogs(before: readonly LogLine[], more: readonly LogLine[]): LogLine[] {
  const last = new Map<string, number>();
  for (const line of before) {
    const key = `${line.generation}.${line.rank}`;
    last.set(key, Math.max(last.get(key) ?? 0, Number(line.line_number)));
  }
  const fresh = more.filter(
    (line) => Number(line.line_number) > (last.get(`${line.generation}.${line.rank}`) ?? 0),
  );
  if (fresh.length === 0) return before as LogLine[];
  const inOrder = (a: LogLine, b: LogLine) =>
    a.generation === b.generation && a.rank === b.rank
      ? Number(a.line_number) - Number(b.line_number)
      : Number(a.time_us) - Number(b.time_us);
  return [...before, ...[...fresh].sort(inOrder)];
}
