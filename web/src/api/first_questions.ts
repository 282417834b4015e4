import { smoothingIn } from '../lib/smoothing.ts';
import { askAhead } from './ahead.ts';
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

export interface MetricRange {
  points: number;
  from?: number;
  to?: number;
  smooth?: number;
  mean?: boolean;
}

export const jobPath = (id: string): string => `/jobs/${seg(id)}`;

export function metricsPath(id: string, names: readonly string[], x: MetricAxis, range: MetricRange): string {
  return `${jobPath(id)}/metrics${query({ names: names.join(','), x, ...range })}`;
}

export interface Range {
  from: number;
  to: number;
}

/** Of a chart's curves, smoothed by the server. */
export const rangeOf = (range: Range | null, smooth: number): MetricRange => ({
  points: 1000,
  ...range,
  ...(smooth > 0 ? { smooth } : {}),
});

/** Of the first chart: asked for by themselves, since imgd smooths a curve of 100,000 reports in some milliseconds, and all in a
 * tenth of a second. They tell too where on another axis a moment is. */
export const FIRST = ['loss', 'val_loss'];
export const AXES = [
  ['step', 'Step'],
  ['epoch', 'Epoch'],
  ['images', 'Images'],
  ['time', 'Time'],
] as const;

/** What the address says of a job's curves. */
export function curvesIn(asked: URLSearchParams): { axis: MetricAxis; smoothing: number } {
  const axis = AXES.find(([key]) => key === asked.get('x'))?.[0] ?? 'step';
  return { axis, smoothing: smoothingIn(asked) };
}

/** Asks for what the page of a job draws first, where the address is of one. */
export function askFirst(): void {
  const [, jobs, id, tab] = location.pathname.split('/');
  if (jobs !== 'jobs' || !/^\d+$/.test(id ?? '')) return;
  askAhead(jobPath(id!));
  const { axis, smoothing } = curvesIn(new URLSearchParams(location.search));
  if (!tab) askAhead(metricsPath(id!, FIRST, axis, rangeOf(null, smoothing)));
}
