import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { lookAtCurves, recentLoss, recentTop1 } from '../api/recent_curves.ts';
import { figure, fixed, money, NONE, percent, shortDuration, stamp, unit } from '../lib/format.ts';
import type { JobRow, SortKey } from '../lib/jobs.ts';
import type { SmallCurve } from '../lib/small_curve.ts';
import { Meter, now, Spark, State } from '../ui/bits.tsx';

export interface Column {
  key: string;
  title: string;
  /** A track of the grid. */
  width: string;
  sort?: SortKey;
  numeric?: boolean;
  cell: (row: JobRow) => ComponentChildren;
}

export const COLUMNS: readonly Column[] = [
  { key: 'state', title: 'State', width: '106px', sort: 'state', cell: (row) => <State state={row.state} /> },
  {
    key: 'id',
    title: 'Job',
    width: '50px',
    sort: 'id',
    numeric: true,
    cell: (row) => <span class="muted">{row.id}</span>,
  },
  {
    key: 'name',
    title: 'Name',
    width: 'minmax(124px, 1.2fr)',
    sort: 'name',
    cell: (row) => (
      <a href={`/jobs/${row.id}`} tabIndex={-1}>
        {row.name}
      </a>
    ),
  },
  { key: 'owner', title: 'Owner', width: '76px', sort: 'owner', cell: (row) => row.owner || NONE },
  { key: 'progress', title: 'Progress', width: '106px', sort: 'progress', cell: Progress },
  {
    key: 'eta',
    title: 'Left',
    width: '62px',
    sort: 'eta',
    numeric: true,
    cell: (row) => shortDuration(row.eta),
  },
  {
    key: 'speed',
    title: 'Images/s',
    width: '74px',
    sort: 'speed',
    numeric: true,
    cell: (row) => figure(row.speed),
  },
  { key: 'loss', title: 'Loss', width: '112px', sort: 'loss', numeric: true, cell: Loss },
  {
    key: 'top1',
    title: 'Top-1',
    width: '118px',
    sort: 'top1',
    numeric: true,
    cell: Top1,
  },
  { key: 'nodes', title: 'Nodes', width: '56px', sort: 'nodes', numeric: true, cell: (row) => row.nodes },
  {
    key: 'priority',
    title: 'Priority',
    width: '72px',
    sort: 'priority',
    numeric: true,
    cell: (row) => row.priority,
  },
  { key: 'age', title: 'Age', width: '64px', sort: 'age', numeric: true, cell: Age },
  {
    key: 'cost',
    title: 'Spend',
    width: '86px',
    sort: 'cost',
    numeric: true,
    cell: (row) => money(row.cost, ''),
  },
  {
    key: 'why',
    title: 'Why',
    width: 'minmax(150px, 2fr)',
    cell: (row) => (
      <span class={row.state === 'FAILED' ? 'bad' : 'muted'} title={row.why}>
        {row.why}
      </span>
    ),
  },
];

/** What is shown where nobody chose: no spend where nothing costs anything. */
export function defaultColumns(costs: boolean): string[] {
  return COLUMNS.map((column) => column.key).filter((key) => key !== 'priority' && (costs || key !== 'cost'));
}

function Age(row: JobRow) {
  const seconds = (now.value - row.submitted) / 1000;
  return <span title={stamp(row.submitted)}>{shortDuration(Math.max(seconds, 0))}</span>;
}

function Progress(row: JobRow) {
  if (!Number.isFinite(row.progress)) return <span class="muted">{NONE}</span>;
  const tone = row.state === 'COMPLETED' ? 'over' : row.state === 'RUNNING' ? '' : 'off';
  return (
    <span class="progress-cell">
      <Meter share={row.progress} tone={tone} />
      <span>{unit(Math.floor(row.progress * 100), '%')}</span>
    </span>
  );
}

function Loss(row: JobRow) {
  return <Curve row={row} recent={recentLoss} what="Loss" text={fixed(row.job.last_step?.loss, 3)} />;
}

/** The figure is validation's, and there is none before the first; the curve is of training. */
function Top1(row: JobRow) {
  return (
    <Curve row={row} recent={recentTop1} what="Training top-1" text={percent(row.job.last_epoch?.val_top1)} />
  );
}

interface CurveProps {
  row: JobRow;
  recent: ReadonlyMap<string, SmallCurve>;
  what: string;
  text: string;
}

/** Its job's curves are loaded while it is in the document, which rows in view are. */
function Curve({ row, recent, what, text }: CurveProps) {
  const id = String(row.id);
  const trained = row.job.last_step !== undefined;
  useEffect(() => (trained ? lookAtCurves(id) : undefined), [id, trained]);
  const values = trained ? recent.get(id)?.values : undefined;
  return (
    <span class="loss-cell">
      {values && <Spark values={values} label={`${what} of job ${id}`} />}
      <span>{text}</span>
    </span>
  );
}
