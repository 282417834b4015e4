import type { RankStretch } from '../api/types.ts';
import { num } from './format.ts';

/** Where each rank's time went over the whole run. */
export interface RankTimes {
  /** The last step of each column. */
  ends: number[];
  /** By number; of many the latest. */
  ranks: {
    rank: number;
    /** Seconds a step of its own work and of waiting for others, in the mean. */
    own: number;
    wait: number;
    /** Part of the columns in which it was the slowest, from 0 to 1. */
    share: number;
    /** How much longer than the fastest its own work took, in the mean: 0.2 for a fifth. */
    late: number;
    /** The same of each column; NaN where nothing is known of it. */
    cells: number[];
  }[];
}

const mean = (values: readonly number[]): number => {
  const known = values.filter(Number.isFinite);
  return known.length > 0 ? known.reduce((a, b) => a + b, 0) / known.length : Number.NaN;
};

export function rankTimes(stretches: readonly RankStretch[], rows: number): RankTimes {
  // A step takes some time: 0 is said of a rank that nothing is known of.
  const own = stretches.map((one) =>
    one.own_seconds.map((value) => (num(value) > 0 ? num(value) : Number.NaN)),
  );
  const wait = stretches.map((one) => one.wait_seconds.map(num));
  const count = Math.max(0, ...own.map((values) => values.length));
  const bounds = own.map((values) => {
    const known = values.filter(Number.isFinite);
    return { least: Math.min(...known), slowest: values.indexOf(Math.max(...known)), of: known.length };
  });
  const ranks = Array.from({ length: count }, (_, rank) => {
    const cells = own.map((values, i) => (values[rank] ?? Number.NaN) / bounds[i]!.least - 1);
    return {
      rank,
      own: mean(own.map((values) => values[rank] ?? Number.NaN)),
      wait: mean(wait.map((values) => values[rank] ?? Number.NaN)),
      share: bounds.filter((one) => one.of > 1 && one.slowest === rank).length / Math.max(own.length, 1),
      late: mean(cells),
      cells,
    };
  });
  const latest = ranks
    .filter((row) => Number.isFinite(row.late))
    .sort((a, b) => b.late - a.late)
    .slice(0, rows)
    .sort((a, b) => a.rank - b.rank);
  return { ends: stretches.map((one) => num(one.first_step) + num(one.steps) - 1), ranks: latest };
}
