import type { MetricPoint } from '../api/types.ts';

/** Who was the slowest of a job's ranks, and by how much, over its steps. */
export interface Stragglers {
  /** x of the last report of each column. */
  ends: number[];
  /** By number; those that were the slowest at least once, the worst of them where there are many. */
  ranks: {
    rank: number;
    /** Part of the reports in which it was the slowest, from 0 to 1. */
    share: number;
    /** How much longer than the fastest it then took, in the mean: 0.2 for a fifth. */
    late: number;
    /** For each column: how late it was, over all reports of the column. */
    cells: number[];
  }[];
}

/** Of the figures slowest_rank, own_least_seconds and own_most_seconds, where all three are known. */
export function stragglers(
  slowest: readonly MetricPoint[],
  least: readonly MetricPoint[],
  most: readonly MetricPoint[],
  columns: number,
  rows: number,
): Stragglers {
  const at = (points: readonly MetricPoint[]) => new Map(points.map((p) => [p[0], p[3]]));
  const [low, high] = [at(least), at(most)];
  const reports = slowest.flatMap(([x, , , rank]) => {
    const late = high.get(x)! / low.get(x)! - 1;
    return Number.isFinite(late) && Number.isFinite(rank) ? [{ x, rank, late: Math.max(late, 0) }] : [];
  });
  const width = Math.min(columns, reports.length);
  const found = new Map<number, { count: number; sum: number; cells: number[] }>();
  const counts: number[] = new Array(width).fill(0);
  const ends: number[] = new Array(width).fill(Number.NaN);
  reports.forEach(({ x, rank, late }, i) => {
    const column = Math.floor((i * width) / reports.length);
    const one = found.get(rank) ?? { count: 0, sum: 0, cells: new Array(width).fill(0) };
    found.set(rank, one);
    one.count += 1;
    one.sum += late;
    one.cells[column]! += late;
    counts[column]! += 1;
    ends[column] = x;
  });
  const ranks = [...found]
    .sort((a, b) => b[1].sum - a[1].sum)
    .slice(0, rows)
    .sort((a, b) => a[0] - b[0])
    .map(([rank, one]) => ({
      rank,
      share: one.count / reports.length,
      late: one.sum / one.count,
      cells: one.cells.map((sum, i) => sum / counts[i]!),
    }));
  return { ends, ranks };
}
