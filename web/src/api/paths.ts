import type { MetricAxis } from './types.ts';

export const seg = encodeURIComponent;

type Query = Record<string, string | number | boolean | undefined>;

export function query(values: Query): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== '') out.set(name, String(value));
  }
  const text = out.toString();
  return text ? `?${text}` : '';
}

export const jobPath = (id: string): string => `/jobs/${seg(id)}`;

export interface Range {
  from: number;
  to: number;
}

export interface MetricRange extends Partial<Range> {
  points: number;
  smooth?: number;
  mean?: boolean;
}

export function metricsPath(id: string, names: readonly string[], x: MetricAxis, range: MetricRange): string {
  return `${jobPath(id)}/metrics${query({ names: names.join(','), x, ...range })}`;
}

/** Of a chart's curves, smoothed by the server. */
export const rangeOf = (range: Range | null, smooth: number): MetricRange => ({
  points: 1000,
  ...range,
  ...(smooth > 0 ? { smooth } : {}),
});
