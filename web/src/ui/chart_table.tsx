import { useMemo, useState } from 'preact/hooks';
import type { MetricAxis } from '../api/types.ts';
import { count, figure, stamp, tick, unit } from '../lib/format.ts';
import { type ChartCell, rowsOf } from './chart_rows.ts';
import { isSmoothed, type Line } from './plot_table.ts';

export const AXIS_NAMES: Record<MetricAxis, string> = {
  step: 'Step',
  epoch: 'Epoch',
  images: 'Images',
  time: 'Time',
};

export function axisText(axis: MetricAxis, x: number, elapsed: boolean): string {
  if (axis === 'time') return elapsed ? unit(figure(x / 3600), 'h') : stamp(x * 1000);
  return tick(axis === 'epoch' ? Math.round(x * 1000) / 1000 : x);
}

interface Props {
  title: string;
  lines: readonly Line[];
  smoothing: number;
  axis: MetricAxis;
  elapsed: boolean;
  format: (value: number) => string;
}

/** Rows that are drawn at once: many runs have many places on the axis. */
const FIRST_ROWS = 500;

/** What a chart shows, in figures: each line's values, from the least to the most where a row stands for several, and smoothed
 * where the chart is. */
export function ChartTable(props: Props) {
  const { lines, smoothing, axis, elapsed, format } = props;
  const { rows, each } = useMemo(() => rowsOf(lines), [lines]);
  const columns = useMemo(() => columnsOf(props, rows), [lines, smoothing, rows, format]);
  const [all, setAll] = useState(false);
  const shown = all ? rows : rows.slice(0, FIRST_ROWS);
  return (
    <section class="chart-table" tabIndex={0} aria-label={`${props.title}, table`}>
      <table>
        {each > 1 && (
          <caption class="muted">
            A row stands for up to {each} points and has the last one’s value
            {lines.some((one) => one.sparse) && '; each validation has a row'}.
          </caption>
        )}
        <thead>
          <tr>
            <th scope="col" class="num">
              {AXIS_NAMES[axis]}
            </th>
            {columns.map((one) => (
              <th scope="col" class="num" key={one.name}>
                {one.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.x}>
              <td class="num">{axisText(axis, row.x, elapsed)}</td>
              {columns.map((one) => {
                const cell = row.cells[one.line];
                return (
                  <td class="num" key={one.name}>
                    {cell ? one.text(cell) : '–'}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < rows.length && (
        <button type="button" class="small" onClick={() => setAll(true)}>
          Show the other {count(rows.length - shown.length)}
        </button>
      )}
    </section>
  );
}

interface Column {
  name: string;
  /** Which of the lines. */
  line: number;
  text: (cell: ChartCell) => string;
}

function columnsOf(
  { lines, smoothing, format: text }: Props,
  rows: ReturnType<typeof rowsOf>['rows'],
): Column[] {
  return lines.flatMap((one, line): Column[] => {
    const columns: Column[] = [{ name: one.label, line, text: (cell) => text(cell.value) }];
    if (rows.some(({ cells }) => cells[line] && cells[line].least < cells[line].most))
      columns.push({ name: `${one.label}, least to most`, line, text: (cell) => spread(cell, text) });
    if (isSmoothed(one, smoothing))
      columns.push({ name: `${one.label}, smoothed`, line, text: (cell) => text(cell.smoothed) });
    return columns;
  });
}

function spread({ least, most }: ChartCell, text: (value: number) => string): string {
  const [from, to] = [text(least), text(most)];
  return from === to ? from : `${from} to ${to}`;
}
