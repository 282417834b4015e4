import { smoothingIn } from '../lib/smoothing.ts';
import { askAhead } from './ahead.ts';
import { jobPath, metricsPath, rangeOf } from './paths.ts';
import type { MetricAxis } from './types.ts';

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

/** Asks for what the page of a job draws first. */
export function askFirst(id: string, tab: string, asked: URLSearchParams): void {
  askAhead(jobPath(id));
  const { axis, smoothing } = curvesIn(asked);
  if (!tab) askAhead(metricsPath(id, FIRST, axis, rangeOf(null, smoothing)));
}
