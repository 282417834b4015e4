import type { MetricPoint } from '../api/types.ts';

/** Where a run was when: points [time, x, x, x], made of the same figures laid out by time and by another axis. The last
 * value of a stretch is that of one report; where both have it they tell of the same moment. Of values that are alike the
 * last are the same, and so on backwards: what was done twice is taken as it was the last time. */
export function placesByTime(
  byTime: readonly (readonly MetricPoint[])[],
  byAxis: readonly (readonly MetricPoint[])[],
): MetricPoint[] {
  const out: MetricPoint[] = [];
  byAxis.forEach((points, i) => {
    const alike = Map.groupBy(byTime[i] ?? [], (p) => p[3]);
    for (const p of points.toReversed()) {
      const time = alike.get(p[3])?.pop()?.[0];
      if (time !== undefined && Number.isFinite(p[0])) out.push([time, p[0], p[0], p[0]]);
    }
  });
  return out.sort((a, b) => a[0] - b[0]);
}
