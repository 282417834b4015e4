import type { JobRow } from './jobs.ts';

/** Of each of the last days, what each owner's jobs took. */
export interface Days {
  /** Local midnights, milliseconds, oldest first. */
  days: number[];
  /** By owner, who took most first: an amount for each day. */
  owners: { name: string; amounts: number[]; total: number }[];
  most: number;
}

/** `amount` of each job is laid evenly over the time from its first start to its end, or to `now`. */
export function byDay(
  rows: readonly JobRow[],
  amount: (row: JobRow) => number,
  now: number,
  count: number,
): Days {
  const today = new Date(now);
  const midnight = (back: number) =>
    new Date(today.getFullYear(), today.getMonth(), today.getDate() - back).getTime();
  const days = Array.from({ length: count }, (_, i) => midnight(count - 1 - i));
  const ends = [...days.slice(1), midnight(-1)];
  const found = new Map<string, number[]>();
  for (const row of rows) {
    const all = amount(row);
    const from = Number(row.job.started_us) / 1000;
    const to = Number(row.job.ended_us) / 1000 || now;
    if (!(all > 0 && from > 0 && to > days[0]!)) continue;
    const amounts = found.get(row.owner) ?? new Array(count).fill(0);
    found.set(row.owner, amounts);
    for (const [i, day] of days.entries()) {
      const part = Math.min(to, ends[i]!) - Math.max(from, day);
      if (part > 0) amounts[i] += (all * part) / Math.max(to - from, 1);
    }
  }
  const owners = [...found]
    .map(([name, amounts]) => ({ name, amounts, total: amounts.reduce((a, b) => a + b, 0) }))
    .sort((a, b) => b.total - a.total);
  const sums = days.map((_, i) => owners.reduce((sum, one) => sum + one.amounts[i]!, 0));
  return { days, owners, most: Math.max(...sums, 0) };
}
