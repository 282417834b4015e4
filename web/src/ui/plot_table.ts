import type uPlot from 'uplot';
import type { MetricPoint } from '../api/types.ts';
import { align, throughPeaks } from '../lib/downsample.ts';
import { aloneIn, breaksIn } from '../lib/pauses.ts';

export interface Line {
  label: string;
  points: readonly MetricPoint[];
  /** Of the palette s1 to s8. */
  colour: string;
  dash?: number[];
  /** Points far apart, each a figure of its own: dots on the line, and no smoothing. */
  sparse?: boolean;
  /** What is written at its end, in a few characters. */
  tag?: string;
  /** Where on the axis the job went on after a time in which nothing ran: no line leads there. */
  resumed?: readonly number[];
}

/** One column of a plot: a curve, what is behind it, or an edge of the band of its peaks. */
export interface PlotSeries {
  kind: 'line' | 'dots' | 'raw' | 'high' | 'low';
  label: string;
  colour: string;
  dash: number[];
  tag: string;
  /** Where on the axis no line leads across, ascending: a time in which nothing ran, a value that is no number. */
  breaks: readonly number[];
}

// More would hide one another's bands: the raw curve goes through the peaks then.
const MOST_BANDS = 3;

/** uPlot's table, and what each column of it is, from the back to the front. */
export function tableOf(
  lines: readonly Line[],
  smoothing: number,
): { data: (number | null)[][]; series: PlotSeries[] } {
  const all = lines.map((line) => line.points);
  const bands = lines.length <= MOST_BANDS;
  const [xs = [], ...last] = align(all);
  const [, ...smoothed] = align(all, 4);
  const [, ...highs] = align(bands ? all : all.map(throughPeaks), 2);
  const [, ...lows] = bands ? align(all, 1) : [];
  const data: (number | null)[][] = [xs];
  const series: PlotSeries[] = [];
  lines.forEach((line, i) => {
    const { colour, label, tag = '' } = line;
    const breaks = breaksOf(line);
    const add = (kind: PlotSeries['kind'], column: (number | null)[], dash = line.dash ?? []) => {
      data.push(column);
      series.push({ kind, colour, label, dash, tag, breaks });
    };
    const peaks = !line.sparse && line.points.some((p) => p[2] > p[1]);
    const smooth = isSmoothed(line, smoothing);
    if (peaks && bands) {
      add('high', highs[i]!);
      add('low', lows[i]!);
    }
    // No dashes: a peak may be as thin as the gap between two.
    if (peaks && !bands) add('raw', highs[i]!, []);
    else if (smooth) add('raw', last[i]!);
    add(line.sparse ? 'dots' : 'line', smooth ? smoothed[i]! : last[i]!);
  });
  return { data, series };
}

function breaksOf({ points, resumed = [] }: Line): number[] {
  const noNumber = points.filter((p) => !Number.isFinite(p[3])).map((p) => p[0]);
  return [...resumed, ...noNumber].sort((a, b) => a - b);
}

/** Whether there is anything to draw: of one rank imgd has points of how the ranks differ, and no number in them. */
export function has(lines: readonly Line[]): boolean {
  return lines.some((line) => line.points.some((p) => Number.isFinite(p[3])));
}

export function isSmoothed({ sparse, points }: Line, smoothing: number): boolean {
  return smoothing > 0 && !sparse && points.some((p) => p[4] !== undefined);
}

/** What a line says at x: that of its last point at or before it, since lines have points at places of their own. Null where
 * there is none; NaN where that is no number. */
export function valueAt(line: Line, x: number, smoothing: number): number | null {
  const point = line.points.findLast((p) => p[0] <= x);
  if (!point) return null;
  const value = isSmoothed(line, smoothing) && Number.isFinite(point[3]) ? point[4] : point[3];
  return value ?? Number.NaN;
}

/** A colour ("rgb(1, 2, 3)") with a share of its strength. */
export const faint = (colour: string, share: number) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);

/** How a column is drawn. */
export function seriesFor(one: PlotSeries, colour: string): uPlot.Series {
  const edge = one.kind === 'high' || one.kind === 'low';
  return {
    label: one.label,
    stroke: edge ? 'transparent' : one.kind === 'raw' ? faint(colour, 0.38) : colour,
    width: edge ? 0 : one.kind === 'raw' ? 1 : 1.5,
    dash: one.dash,
    // Between its own values it goes over the places of others.
    gaps: (u, i) => {
      const place = (at: number) => u.valToPos(u.data[0][at]!, 'x', true);
      return breaksIn(u.data[0], u.data[i]!, one.breaks).map(([from, to]) => [place(from), place(to)]);
    },
    points: {
      show: one.kind === 'dots',
      // One value alone is no line.
      filter: (u, i) => {
        const alone = one.kind === 'line' ? aloneIn(u.data[0], u.data[i]!, one.breaks) : [];
        return alone.length > 0 ? alone : null;
      },
      size: 5,
      fill: colour,
      stroke: colour,
    },
  };
}
