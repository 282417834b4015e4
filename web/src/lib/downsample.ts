import type { MetricPoint } from '../api/types.ts';

/** Merges neighbours until at most `most` points are left: the least and the most of each stretch are kept, so that no
 * peak goes. For what a page itself has gathered live; history comes from the server like this. */
export function downsample(points: readonly MetricPoint[], most: number): MetricPoint[] {
  if (points.length <= most) return [...points];
  const out: MetricPoint[] = [];
  const size = points.length / most;
  for (let i = 0; i < most; i++) {
    const part = points.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    const end = part[part.length - 1]!;
    const low = least(part.map((p) => p[1]));
    const high = -least(part.map((p) => -p[2]));
    out.push([end[0], low, high, end[3]]);
  }
  return out;
}

function least(values: number[]): number {
  return values.reduce((a, b) => (b < a || Number.isNaN(a) ? b : a), Number.NaN);
}

/** The curve through the peaks: of each two neighbours one has the least of both, the other the most, in the order in which
 * the curve goes. Where each point is one value, that is the curve itself. What is no number stays. */
export function throughPeaks(points: readonly MetricPoint[]): MetricPoint[] {
  const out = [...points];
  const places = [...points.keys()].filter((at) => Number.isFinite(points[at]![3]));
  for (let i = 0; i < places.length; ) {
    // Where an odd one is left and stands for several values, it goes with the two before.
    const last = points[places[i + 2] ?? 0]!;
    const size = places.length - i === 3 && last[1] < last[2] ? 3 : 2;
    const group = places.slice(i, i + size);
    i += size;
    const end = points[group[group.length - 1]!]![3];
    const low = Math.min(...group.map((at) => points[at]![1]));
    const high = Math.max(...group.map((at) => points[at]![2]));
    const values =
      group.length === 1 ? [end] : points[group[0]!]![3] > end ? [high, low, end] : [low, high, end];
    group.forEach((at, k) => {
      out[at] = [points[at]![0], values[k]!, values[k]!, values[k]!];
    });
  }
  return out;
}

/** Adds points that came live to what the server gave: those up to its last x are there already. */
export function append(points: MetricPoint[], more: readonly MetricPoint[]): MetricPoint[] {
  const end = points.length > 0 ? points[points.length - 1]![0] : Number.NEGATIVE_INFINITY;
  const fresh = more.filter((p) => p[0] > end);
  return fresh.length > 0 ? [...points, ...fresh] : points;
}

/** The stream's points are not smoothed: until the history has them, each counts for one report. As there, what is no number
 * has no mean. */
export function goOnSmoothing(points: MetricPoint[], weight: number): MetricPoint[] {
  const smoothed = points.filter((p) => p[4] !== undefined);
  if (weight <= 0 || smoothed.length === 0) return points;
  let mean = smoothed.findLast((p) => Number.isFinite(p[4]))?.[4] ?? Number.NaN;
  return points.map((p) => {
    if (p[4] !== undefined) return p;
    const known = Number.isFinite(p[3]);
    if (known) mean = Number.isFinite(mean) ? mean + (1 - weight) * (p[3] - mean) : p[3];
    return [p[0], p[1], p[2], p[3], known ? mean : Number.NaN];
  });
}

/** One table of several series, by x: uPlot's form, with null where a series has no point. */
export function align(
  series: readonly (readonly MetricPoint[])[],
  pick: 1 | 2 | 3 | 4 = 3,
): (number | null)[][] {
  const xs = [...new Set(series.flatMap((points) => points.map((p) => p[0])))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, i) => [x, i]));
  const columns = series.map((points) => {
    const column: (number | null)[] = new Array(xs.length).fill(null);
    for (const p of points) {
      const value = p[pick] ?? Number.NaN;
      column[place.get(p[0])!] = Number.isFinite(value) ? value : null;
    }
    return column;
  });
  return [xs, ...columns];
}

/** The value of `points` at x between its neighbours; NaN outside. */
export function interpolate(points: readonly MetricPoint[], x: number): number {
  const after = points.findIndex((p) => p[0] >= x);
  if (after < 0) return Number.NaN;
  const b = points[after]!;
  if (b[0] === x) return b[3];
  if (after === 0) return Number.NaN;
  const a = points[after - 1]!;
  return a[3] + ((b[3] - a[3]) * (x - a[0])) / (b[0] - a[0]);
}
