import type { MetricPoint } from '../api/types.ts';
import type { Line } from './plot_table.ts';

/** What a row of the table behind a chart says of a line. NaN for what is no number. */
export interface ChartCell {
  /** The last of the row's points, and the same smoothed. */
  value: number;
  smoothed: number;
  /** Of all reports that the row stands for. */
  least: number;
  most: number;
}

export interface ChartRow {
  /** Of its last point. */
  x: number;
  /** By line; undefined where it has no point. */
  cells: (ChartCell | undefined)[];
}

/** Of many points a row stands for several. */
const MOST_ROWS = 200;

/** The table's rows, the newest first, and how many places on the axis each stands for at most. One that has a point of a sparse
 * line is the last of its row: all of these are in the table. */
export function rowsOf(lines: readonly Line[]): { rows: ChartRow[]; each: number } {
  const at = new Map<number, (MetricPoint | undefined)[]>();
  const sparse = new Set<number>();
  lines.forEach((line, i) => {
    for (const point of line.points) {
      const points = at.get(point[0]) ?? new Array(lines.length).fill(undefined);
      points[i] = point;
      at.set(point[0], points);
      if (line.sparse) sparse.add(point[0]);
    }
  });
  const xs = [...at.keys()].sort((a, b) => a - b);
  const each = Math.max(Math.ceil(xs.length / MOST_ROWS), 1);
  const rows: ChartRow[] = [];
  let stretch: number[] = [];
  xs.forEach((x, place) => {
    stretch.push(x);
    if (stretch.length < each && !sparse.has(x) && place < xs.length - 1) return;
    const points = stretch.map((one) => at.get(one)!);
    rows.push({ x, cells: lines.map((_, i) => cellOf(points.flatMap((row) => (row[i] ? [row[i]] : [])))) });
    stretch = [];
  });
  return { rows: rows.reverse(), each };
}

function cellOf(points: readonly MetricPoint[]): ChartCell | undefined {
  const last = points.at(-1);
  if (!last) return undefined;
  const all = points.flatMap((p) => [p[1], p[2]]).filter(Number.isFinite);
  const known = all.length > 0;
  return {
    value: last[3],
    smoothed: last[4] ?? Number.NaN,
    least: known ? Math.min(...all) : Number.NaN,
    most: known ? Math.max(...all) : Number.NaN,
  };
}
