import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { MetricAxis } from '../api/types.ts';
import { figure, millis, NAN, NONE, percent } from '../lib/format.ts';
import { MARK_TONES, type Mark, markAt } from '../lib/marks.ts';
import { cutOf } from '../lib/outliers.ts';
import { useStore } from '../lib/store.ts';
import { optionsFor, type Unit } from './chart_options.ts';
import { AXIS_NAMES, axisText, ChartTable } from './chart_table.tsx';
import { Icon } from './icons.tsx';
import { type Line, type PlotSeries, tableOf, valueAt } from './plot_table.ts';
import { paint } from './theme.tsx';

interface Props {
  title: string;
  lines: readonly Line[];
  axis: MetricAxis;
  /** Values are shares from 0 to 1, shown in percent. */
  share?: boolean;
  /** Values are seconds, shown in milliseconds. */
  seconds?: boolean;
  /** The points are smoothed, by the server, from every value; the curve itself stays faint behind. */
  smoothing?: number;
  marks?: readonly Mark[];
  height?: number;
  log?: boolean;
  /** A few values far above all others do not flatten the curve: it is cut off there, until all is asked for. Where there
   * are few, none up to this is far above. */
  cutPeaks?: number | undefined;
  /** The time axis counts from the start. */
  elapsed?: boolean;
  none?: string;
  onZoom?: (range: { from: number; to: number } | null) => void;
  /** Drawn in the frame of the figures below it, not in the next: for one chart of a page, since many at once are a stall.
   * Never changes. */
  atOnce?: boolean;
}

/** Of a value that a line has. */
const FORMATS: Record<Unit, (value: number) => string> = {
  plain: (value) => figure(orNaN(value)),
  share: (value) => percent(orNaN(value)),
  seconds: (value) => (Number.isNaN(value) ? NAN : millis(value)),
};

const orNaN = (value: number) => (Number.isNaN(value) ? NAN : value);

export function Chart(props: Props) {
  const { title, lines, axis, smoothing = 0, height = 210, marks = [], log = false, elapsed = false } = props;
  const unit = props.share ? 'share' : props.seconds ? 'seconds' : 'plain';
  const format = FORMATS[unit];
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef({ marks, onZoom: props.onZoom, top: null as number | null });
  latest.current = { ...latest.current, marks, onZoom: props.onZoom };
  const [cursor, setCursor] = useState<number | null>(null);
  const [table, setTable] = useState(false);
  const painted = useStore(paint);
  const { data, series } = useMemo(() => tableOf(lines, smoothing), [lines, smoothing]);
  const cut = useMemo(
    () => (props.cutPeaks !== undefined && !log ? cutOfTable(data, series, props.cutPeaks) : null),
    [data, series, props.cutPeaks, log],
  );
  const [peaks, setPeaks] = useState(false);
  latest.current.top = cut && !peaks ? cut.top : null;
  const empty = data[0]!.length === 0;
  const shape = empty ? '' : JSON.stringify([series, axis, height, painted, log, elapsed, peaks]);

  const useDrawing = props.atOnce ? useLayoutEffect : useEffect;
  useDrawing(() => {
    if (shape === '') return;
    const element = host.current!;
    const options = optionsFor({
      series,
      axis,
      elapsed,
      log,
      unit,
      width: element.clientWidth || 400,
      height,
      marks: () => latest.current.marks,
      top: () => latest.current.top,
      onCursor: setCursor,
      onZoom: (range) => latest.current.onZoom?.(range),
    });
    const made = new uPlot(options, data as uPlot.AlignedData, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);
  useDrawing(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data as uPlot.AlignedData);
  }, [data]);
  useEffect(() => {
    plot.current?.redraw(false);
  }, [marks]);

  const x = data[0]![cursor ?? data[0]!.length - 1] ?? Number.NaN;
  const shown = lines.map((line) => ({ ...line, value: valueAt(line, x, smoothing) }));
  const xText = axisText(axis, x, elapsed);
  const mark = nearMark(marks, data[0] as number[], cursor);
  return (
    <figure class="chart panel" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="grow" />
        {cut && (
          <button
            type="button"
            class="plain small"
            aria-pressed={peaks}
            title={`Peaks up to ${format(cut.highest)} are cut off above ${format(cut.top)}`}
            onClick={() => setPeaks(!peaks)}
          >
            Peaks up to {format(cut.highest)}
          </button>
        )}
        <button
          type="button"
          class="plain small"
          aria-pressed={table}
          aria-label={`${title} as a table`}
          onClick={() => setTable(!table)}
        >
          <Icon name="table" /> Table
        </button>
      </header>
      <div
        class="plot"
        role="img"
        tabIndex={0}
        aria-label={summary(title, shown, format, xText, mark)}
        hidden={table}
        onKeyDown={(event) => {
          if (plot.current && steer(plot.current, event.key, event.shiftKey, latest.current.onZoom))
            event.preventDefault();
        }}
      >
        <div ref={host} style={{ minHeight: `${height}px` }} />
        {empty && <p class="none">{props.none ?? 'No figures yet'}</p>}
      </div>
      {table && (
        <ChartTable
          title={title}
          lines={lines}
          smoothing={smoothing}
          axis={axis}
          elapsed={elapsed}
          format={format}
        />
      )}
      <div class="legend" aria-hidden="true">
        {!empty && (
          <span>
            {AXIS_NAMES[axis]} <b>{xText}</b>
          </span>
        )}
        {shown.map((one) => (
          <span key={one.label}>
            <Swatch colour={one.colour} dash={one.dash ?? []} dots={one.sparse ?? false} />
            {one.label} <b>{one.value === null ? NONE : format(one.value)}</b>
          </span>
        ))}
        {mark && (
          <span class={mark.tone}>
            {MARK_TONES[mark.tone].sign} {mark.text}
          </span>
        )}
      </div>
    </figure>
  );
}

const STEPS = 100;

/** By the keys alone: arrows go along the curve, + looks closer at where they are, 0 and - show all. */
function steer(plot: uPlot, key: string, far: boolean, onZoom: Props['onZoom']): boolean {
  const xs = plot.data[0];
  const at = plot.cursor.idx ?? xs.length - 1;
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const step = Math.max(Math.round(xs.length / STEPS), 1) * (far ? 10 : 1) * (key === 'ArrowLeft' ? -1 : 1);
    const x = xs[Math.min(Math.max(at + step, 0), xs.length - 1)];
    if (x !== undefined) plot.setCursor({ left: plot.valToPos(x, 'x'), top: plot.over.clientHeight / 2 });
    return true;
  }
  if (key === '+' || key === '=') {
    const { min, max } = plot.scales.x ?? {};
    const x = xs[at];
    if (typeof min !== 'number' || typeof max !== 'number' || x === undefined) return true;
    onZoom?.({ from: Math.max(x - (max - min) / 4, min), to: Math.min(x + (max - min) / 4, max) });
    return true;
  }
  if (key === '0' || key === '-') {
    onZoom?.(null);
    return true;
  }
  return false;
}

/** What a curve looks like; `dots` are on that of validations. */
export function Swatch(props: { colour: string; dash?: number[]; dots?: boolean }) {
  const colour = `var(--${props.colour})`;
  return (
    <svg width="16" height="8" aria-hidden="true">
      <path d="M0 4h16" stroke={colour} stroke-width="2.5" stroke-dasharray={props.dash?.join(' ')} />
      {props.dots && <circle cx="8" cy="4" r="4" fill={colour} />}
    </svg>
  );
}

/** How to look closer, or the way back. */
export function Zoom({ range, showAll }: { range: unknown; showAll: () => void }) {
  return range ? (
    <button type="button" class="small" onClick={showAll}>
      Show all
    </button>
  ) : (
    <span class="muted">Drag over a chart to look closer</span>
  );
}

function summary(
  title: string,
  shown: readonly { label: string; value: number | null }[],
  format: (v: number) => string,
  x: string,
  mark: Mark | undefined,
): string {
  const said = shown
    .map((one) => `${one.label} ${one.value === null ? 'none' : format(one.value)}`)
    .join(', ');
  const marked = mark ? ` ${MARK_TONES[mark.tone].text}: ${mark.text}.` : '';
  return `Chart: ${title}. At ${x}: ${said}.${marked} The button before it shows a table; the keys left, right, + and 0 move and zoom.`;
}

function cutOfTable(data: readonly (number | null)[][], series: readonly PlotSeries[], usual: number) {
  const columns = (dots: boolean) => data.slice(1).filter((_, i) => (series[i]!.kind === 'dots') === dots);
  return cutOf(columns(false), usual, columns(true));
}

function nearMark(marks: readonly Mark[], xs: readonly number[], cursor: number | null): Mark | undefined {
  const x = cursor === null ? undefined : xs[cursor];
  if (x === undefined || xs.length < 2) return undefined;
  return markAt(marks, x, (xs[xs.length - 1]! - xs[0]!) / 80);
}
