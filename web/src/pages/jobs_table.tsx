import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useCurrency } from '../api/currency.ts';
import type { JobRow, SortKey } from '../lib/jobs.ts';
import { go } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { now } from '../ui/bits.tsx';
import { Icon } from '../ui/icons.tsx';
import type { Column } from './jobs_columns.tsx';

const ROW = 34;
const BEYOND = 10;

interface Props {
  rows: readonly JobRow[];
  columns: readonly Column[];
  sort: SortKey;
  descending: boolean;
  onSort: (key: SortKey) => void;
  chosen: ReadonlySet<number>;
  onChoose: (id: number) => void;
}

/** Ten thousand rows, of which those in view are in the document. */
export function JobsTable(props: Props) {
  const { rows, columns, chosen, onChoose } = props;
  useStore(now);
  const wrap = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(800);
  // A job and not a place: others may come before it while one looks.
  const [chosenId, setChosenId] = useState(0);
  const at = useMemo(() => rows.findIndex((row) => row.id === chosenId), [rows, chosenId]);
  const setAt = (place: number) => setChosenId(rows[place]?.id ?? 0);
  useEffect(() => {
    const element = wrap.current!;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  // Where it was goes on between its neighbours, once it is in the table no more.
  const last = useRef(0);
  if (at >= 0) last.current = at;
  const from = at < 0 && chosenId !== 0 ? last.current - 0.5 : at;
  useRowKeys({ wrap, rows, at: from, setAt, onChoose });

  const first = Math.max(Math.floor(top / ROW) - BEYOND, 0);
  const end = Math.min(Math.ceil((top + height) / ROW) + BEYOND, rows.length);
  const least = columns.reduce((sum, column) => sum + Number(/\d+/.exec(column.width)), 46);
  const tracks = `34px ${columns.map((column) => column.width).join(' ')}`;
  return (
    <div
      class="grid-wrap panel"
      ref={wrap}
      role="grid"
      aria-label="Jobs"
      aria-rowcount={rows.length + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable="true"
      tabIndex={0}
      aria-activedescendant={at >= first && at < end ? `row-${rows[at]?.id}` : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div class="grid" role="presentation" style={{ minWidth: `${least}px` }}>
        <Head {...props} tracks={tracks} />
        <div class="rows" role="rowgroup" style={{ height: `${rows.length * ROW}px` }}>
          {rows.slice(first, end).map((row, i) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the table's own keys do the same
            <div
              key={row.id}
              id={`row-${row.id}`}
              role="row"
              tabIndex={-1}
              class={first + i === at ? 'at' : ''}
              aria-rowindex={first + i + 2}
              aria-selected={chosen.has(row.id)}
              style={{ gridTemplateColumns: tracks, top: `${(first + i) * ROW}px` }}
              onClick={() => setAt(first + i)}
              onDblClick={() => go(`/jobs/${row.id}`)}
            >
              <span role="gridcell" class="box">
                <input
                  type="checkbox"
                  tabIndex={-1}
                  aria-label={`Choose job ${row.id}, ${row.name}`}
                  checked={chosen.has(row.id)}
                  onChange={() => onChoose(row.id)}
                />
              </span>
              {columns.map((column) => (
                <span
                  key={column.key}
                  role="gridcell"
                  class={`c-${column.key} ${column.numeric ? 'num' : ''}`}
                >
                  {column.cell(row)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

/** Its figures' unit is in its title. */
function SpendTitle({ title }: { title: string }) {
  const currency = useCurrency();
  return <>{currency ? `${title}, ${currency}` : title}</>;
}

function Head({ columns, sort, descending, onSort, tracks }: Props & { tracks: string }) {
  return (
    <div role="rowgroup">
      <div class="head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: tracks }}>
        <span role="columnheader">
          <span class="hidden">Choose</span>
        </span>
        {columns.map((column) => {
          const sorted = column.sort === sort;
          const order = sorted ? (descending ? 'descending' : 'ascending') : 'none';
          return (
            <span
              key={column.key}
              role="columnheader"
              class={column.numeric ? 'num' : ''}
              aria-sort={column.sort ? order : undefined}
            >
              {column.sort ? (
                <button type="button" onClick={() => onSort(column.sort!)}>
                  {column.key === 'cost' ? <SpendTitle title={column.title} /> : column.title}
                  {sorted && <Icon name={descending ? 'down' : 'up'} size={9} />}
                </button>
              ) : (
                <span class="muted">{column.title}</span>
              )}
            </span>
          );
        })}
      </div>
    </div>
  );
}

interface RowKeys {
  wrap: { current: HTMLDivElement | null };
  rows: readonly JobRow[];
  at: number;
  setAt: (at: number) => void;
  onChoose: (id: number) => void;
}

/** Keys may come faster than the table is drawn: what they are about is kept beside. */
function useRowKeys(keys: RowKeys): void {
  const latest = useRef(keys);
  latest.current = keys;
  // As soon as there are rows to be seen, and not a while after.
  useLayoutEffect(() => {
    const down = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      if (/^(INPUT|TEXTAREA|SELECT|BUTTON|A)$/.test(target.tagName)) return;
      if (document.querySelector('dialog[open]')) return;
      if (pressed(event.key, latest.current)) event.preventDefault();
    };
    addEventListener('keydown', down);
    return () => removeEventListener('keydown', down);
  }, []);
}

/** Does what the key stands for; false where it stands for nothing. */
function pressed(key: string, keys: RowKeys): boolean {
  const { rows, at, wrap } = keys;
  const element = wrap.current;
  if (!element) return false;
  const page = Math.floor(element.clientHeight / ROW) - 2;
  const places: Record<string, number> = {
    j: Math.floor(at) + 1,
    ArrowDown: Math.floor(at) + 1,
    k: Math.ceil(at) - 1,
    ArrowUp: Math.ceil(at) - 1,
    PageDown: Math.floor(at) + page,
    PageUp: Math.ceil(at) - page,
    Home: 0,
    End: rows.length - 1,
  };
  const to = places[key];
  if (to !== undefined) {
    keys.at = Math.min(Math.max(to, 0), rows.length - 1);
    keys.setAt(keys.at);
    show(element, keys.at);
    return true;
  }
  const row = rows[at];
  if (!row) return false;
  if (key === 'Enter') go(`/jobs/${row.id}`);
  else if (key === 'x' || key === ' ') keys.onChoose(row.id);
  else return false;
  return true;
}

/** Scrolls as little as is needed for the row to be seen. */
function show(element: HTMLElement, index: number): void {
  const y = index * ROW;
  if (y < element.scrollTop) element.scrollTop = y;
  else if (y + ROW * 3 > element.scrollTop + element.clientHeight)
    element.scrollTop = y + ROW * 3 - element.clientHeight;
}
