import type uPlot from 'uplot';
import type { MetricPoint } from '../api/types.ts';
import { align } from '../lib/downsample.ts';

export interface Line {
  label: string;
  points: readonly MetricPoint[];
  /** Of the palette s1 to s8. */
  colour: string;
  dash?: number[];
  /** Points far apart, each a figure of its own: dots on the line, and no smoothing. */
  sparse?: boolean;
}

/** One column of a plot: a curve, what is behind it, or an edge of the band of its peaks. */
export interface PlotSeries {
  kind: 'line' | 'dots' | 'raw' | 'high' | 'low';
  label: string;
  colour: string;
  dash: number[];
}

// More would hide one another's bands.
const MOST_BANDS = 3;

/** uPlot's table, and what each column of it is, from the back to the front. */
export function tableOf(
  lines: readonly Line[],
  smoothing: number,
): { data: (number | null)[][]; series: PlotSeries[] } {
  const all = lines.map((line) => line.points);
  const [xs = [], ...last] = align(all);
  const [, ...smoothed] = align(all, 4);
  const bands = lines.length <= MOST_BANDS;
  const [, ...highs] = bands ? align(all, 2) : [];
  const [, ...lows] = bands ? align(all, 1) : [];
  const data: (number | null)[][] = [xs];
  const series: PlotSeries[] = [];
  lines.forEach((line, i) => {
    const { colour, label } = line;
    const dash = line.dash ?? [];
    if (bands && !line.sparse && line.points.some((p) => p[2] > p[1])) {
      data.push(highs[i]!, lows[i]!);
      series.push({ kind: 'high', colour, label, dash }, { kind: 'low', colour, label, dash });
    }
    const raw = last[i]!;
    if (smoothing > 0 && !line.sparse && line.points.some((p) => p[4] !== undefined)) {
      data.push(raw, smoothed[i]!);
      series.push({ kind: 'raw', colour, label, dash }, { kind: 'line', colour, label, dash });
    } else {
      data.push(raw);
      series.push({ kind: line.sparse ? 'dots' : 'line', colour, label, dash });
    }
  });
  return { data, series };
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
    spanGaps: true,
    points: one.kind === 'dots' ? { show: true, size: 5, fill: colour, stroke: colour } : { show: false },
  };
}
