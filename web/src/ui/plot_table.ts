import type uPlot from 'uplot';
import type { MetricPoint } from '../api/types.ts';
import { align, throughPeaks } from '../lib/downsample.ts';

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
}

/** One column of a plot: a curve, what is behind it, or an edge of the band of its peaks. */
export interface PlotSeries {
  kind: 'line' | 'dots' | 'raw' | 'high' | 'low';
  label: string;
  colour: string;
  dash: number[];
  tag: string;
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
  const add = (line: Line, kind: PlotSeries['kind'], column: (number | null)[]) => {
    const { colour, label, dash = [], tag = '' } = line;
    data.push(column);
    series.push({ kind, colour, label, dash, tag });
  };
  lines.forEach((line, i) => {
    const peaks = !line.sparse && line.points.some((p) => p[2] > p[1]);
    const smooth = smoothing > 0 && !line.sparse && line.points.some((p) => p[4] !== undefined);
    if (peaks && bands) {
      add(line, 'high', highs[i]!);
      add(line, 'low', lows[i]!);
    }
    // No dashes: a peak may be as thin as the gap between two.
    if (peaks && !bands) add({ ...line, dash: [] }, 'raw', highs[i]!);
    else if (smooth) add(line, 'raw', last[i]!);
    add(line, line.sparse ? 'dots' : 'line', smooth ? smoothed[i]! : last[i]!);
  });
  return { data, series };
}

/** A colour ("rgb(1, 2, 3)") with a share of its strength. */
export const faint = (colour: string, share: number) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);

/** Whether there is one value only, which is no line. */
export function isAlone(column: ArrayLike<number | null | undefined>): boolean {
  let values = 0;
  for (let i = 0; i < column.length && values < 2; i++) if (typeof column[i] === 'number') values++;
  return values === 1;
}

/** How a column is drawn. */
export function seriesFor(one: PlotSeries, colour: string): uPlot.Series {
  const edge = one.kind === 'high' || one.kind === 'low';
  return {
    label: one.label,
    stroke: edge ? 'transparent' : one.kind === 'raw' ? faint(colour, 0.38) : colour,
    width: edge ? 0 : one.kind === 'raw' ? 1 : 1.5,
    dash: one.dash,
    spanGaps: true,
    points: {
      show:
        one.kind === 'dots' || (one.kind === 'line' && ((u: uPlot, i: number) => isAlone(u.data[i] ?? []))),
      size: 5,
      fill: colour,
      stroke: colour,
    },
  };
}
