import uPlot from 'uplot';
import type { MetricAxis } from '../api/types.ts';
import { padded } from '../lib/axis.ts';
import { shortTick, tick, unit } from '../lib/format.ts';
import { MARK_TONES, type MarkTone, toDraw } from '../lib/marks.ts';
import { placeTags } from '../lib/tags.ts';
import { faint, type PlotSeries, seriesFor } from './plot_table.ts';
import { colours } from './theme.tsx';

/** What the values are. */
export type Unit = 'plain' | 'share' | 'seconds';
const TICKS: Record<Unit, (value: number) => string> = {
  plain: shortTick,
  share: (value) => unit(shortTick(value * 100), '%'),
  seconds: (value) => (Math.abs(value) < 10 ? unit(tick(value * 1000), 'ms') : unit(shortTick(value), 's')),
};

interface Wanted {
  series: readonly PlotSeries[];
  axis: MetricAxis;
  elapsed: boolean;
  log: boolean;
  unit: Unit;
  width: number;
  height: number;
  marks: () => readonly { x: number; tone: MarkTone }[];
  /** Where the curve is to be cut off above; null for nowhere. */
  top: () => number | null;
  onCursor: (index: number | null) => void;
  onZoom: (range: { from: number; to: number } | null) => void;
}

const FONT = '11px -apple-system, "Segoe UI", Inter, Roboto, "Noto Sans", system-ui, sans-serif';

/** Charts whose cursors move together. */
const sync = uPlot.sync('imgd');

export function optionsFor(wanted: Wanted): uPlot.Options {
  const names = [
    ...new Set(wanted.series.map((one) => one.colour)),
    ...['line', 'surface', ...Object.keys(MARK_TONES)],
  ];
  const found = colours(names);
  const colour = (name: string) => found[names.indexOf(name)] ?? 'gray';
  const axisLook = {
    stroke: colour('muted'),
    font: FONT,
    grid: { stroke: colour('line'), width: 1 },
    ticks: { show: false },
  };
  const longest = Math.max(...wanted.series.map((one) => one.tag.length), 0);
  return {
    width: wanted.width,
    height: wanted.height,
    padding: [10, 10 + longest * TAG_LETTER, 0, 0],
    scales: {
      x: { time: wanted.axis === 'time' && !wanted.elapsed },
      y: wanted.log ? { distr: 3 } : { range: (_, low, high) => padded(low, high, wanted.top()) },
    },
    axes: [
      {
        ...axisLook,
        size: 26,
        gap: 4,
        space: 70,
        ...ticksOf(wanted.axis, wanted.elapsed),
      },
      {
        ...axisLook,
        size: 54,
        gap: 4,
        space: 34,
        values: (_, ticks) => ticks.map((at) => (at === null ? '' : TICKS[wanted.unit](at))),
      },
    ],
    legend: { show: false },
    cursor: {
      sync: { key: sync.key, setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
    },
    series: [{}, ...wanted.series.map((one) => seriesFor(one, colour(one.colour)))],
    bands: wanted.series.flatMap((one, i) =>
      one.kind === 'high'
        ? [{ series: [i + 1, i + 2] as [number, number], fill: faint(colour(one.colour), 0.16) }]
        : [],
    ),
    hooks: {
      setCursor: [(u) => wanted.onCursor(u.cursor.idx ?? null)],
      setSelect: [
        (u) => {
          if (u.select.width < 8) return;
          const from = u.posToVal(u.select.left, 'x');
          const to = u.posToVal(u.select.left + u.select.width, 'x');
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          wanted.onZoom({ from, to });
        },
      ],
      draw: [(u) => drawMarks(u, wanted.marks(), colour), (u) => drawTags(u, wanted.series, longest, colour)],
      ready: [(u) => u.over.addEventListener('dblclick', () => wanted.onZoom(null))],
    },
  };
}

/** What the ticks of the horizontal axis say, and how far they are from one another. */
function ticksOf(axis: MetricAxis, elapsed: boolean): uPlot.Axis {
  if (axis !== 'time')
    return {
      values: (_, ticks) => ticks.map(tick),
      // Of steps, epochs and images no part of one, unless hardly one is shown.
      incrs: (_, __, from, to) => distances(to - from >= 2 ? 0 : -6),
    };
  // uPlot rounds ticks to the decimals of a distance, which it knows of a list alone.
  if (elapsed)
    return {
      values: (_, ticks) => ticks.map((at) => unit(tick(at / 3600), 'h')),
      incrs: distances(-3, 3600),
    };
  return { values: (_, ticks, __, ___, step) => ticks.map((at) => clockTick(at, step)) };
}

/** 1, 2 and 5 of each power of ten from the least on, in units of `one`. */
function distances(least: number, one = 1): number[] {
  return Array.from({ length: 19 - least }, (_, i) => one * 10 ** (least + i)).flatMap((at) => [
    at,
    2 * at,
    5 * at,
  ]);
}

// Of checkpoints, pixels: nearer ones would be one bar.
const APART = 14;

function drawMarks(
  u: uPlot,
  marks: readonly { x: number; tone: MarkTone }[],
  colour: (name: string) => string,
): void {
  const { ctx, bbox } = u;
  const { min, max } = u.scales.x ?? {};
  if (typeof min !== 'number' || typeof max !== 'number') return;
  const place = (x: number) => Math.round(u.valToPos(x, 'x', true));
  const inside = marks.filter((mark) => mark.x >= min && mark.x <= max);
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  for (const mark of toDraw(inside, place, APART * devicePixelRatio)) {
    const x = place(mark.x);
    ctx.strokeStyle = colour(mark.tone);
    ctx.fillStyle = colour(mark.tone);
    // Checkpoints are many and change nothing: lines of theirs would hide the curve.
    if (mark.tone !== 'muted') {
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.font = `${(mark.tone === 'muted' ? 8 : 11) * devicePixelRatio}px sans-serif`;
    ctx.fillText(MARK_TONES[mark.tone].sign, x, bbox.top);
  }
  ctx.restore();
}

// Pixels.
const TAG_LETTER = 7;
const TAG_HEIGHT = 12;

/** Names curves where they end: colours and dashes alone nobody tells apart when there are many. */
function drawTags(
  u: uPlot,
  series: readonly PlotSeries[],
  longest: number,
  colour: (name: string) => string,
): void {
  const { ctx, bbox } = u;
  const ends = series.flatMap((one, i) => {
    const column = u.data[i + 1] as (number | null)[];
    const at = column.findLastIndex((value) => value !== null);
    if (one.tag === '' || (one.kind !== 'line' && one.kind !== 'dots') || at < 0) return [];
    return [{ one, x: u.valToPos(u.data[0][at]!, 'x', true), y: u.valToPos(column[at]!, 'y', true) }];
  });
  const scale = devicePixelRatio;
  const size = { width: (longest * TAG_LETTER + 4) * scale, height: TAG_HEIGHT * scale };
  const heights = placeTags(ends, size, bbox.top, bbox.top + bbox.height);
  ctx.save();
  ctx.font = `${11 * scale}px sans-serif`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  ctx.lineJoin = 'round';
  ends.forEach(({ one, x, y }, i) => {
    const height = heights[i]!;
    const left = x + 5 * scale;
    ctx.strokeStyle = colour(one.colour);
    ctx.lineWidth = scale;
    ctx.beginPath();
    ctx.moveTo(x, Math.min(Math.max(y, bbox.top), bbox.top + bbox.height));
    ctx.lineTo(left - scale, height);
    ctx.stroke();
    // Curves behind it leave it readable.
    ctx.strokeStyle = colour('surface');
    ctx.lineWidth = 3 * scale;
    ctx.strokeText(one.tag, left, height);
    ctx.fillStyle = colour(one.colour);
    ctx.fillText(one.tag, left, height);
  });
  ctx.restore();
}

/** A moment on the axis of time, as fine as the axis is. */
function clockTick(seconds: number, step: number): string {
  const at = new Date(seconds * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  if (step >= 86400) return day;
  if (step >= 3600) return at.getHours() === 0 ? day : `${two(at.getHours())}:00`;
  return `${two(at.getHours())}:${two(at.getMinutes())}${step < 60 ? `:${two(at.getSeconds())}` : ''}`;
}
