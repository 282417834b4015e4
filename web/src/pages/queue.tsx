import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useForecasts } from '../api/forecasts.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import { count, plural } from '../lib/format.ts';
import type { JobRow } from '../lib/jobs.ts';
import { useStore } from '../lib/store.ts';
import { Empty, State, Trouble, When } from '../ui/bits.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { Usage } from './usage.tsx';

/** What waits, for what, and until when; and who may have how much. */
export function QueuePage() {
  useEffect(followJobs, []);
  const state = useStore(jobsState);
  const groups = useMemo(() => groupsOf(state.rows), [state.rows]);
  if (!state.ready) {
    return (
      <>
        <h1 tabIndex={-1}>Queue</h1>
        {state.error ? <Trouble text={state.error} /> : <p class="muted">Loading …</p>}
      </>
    );
  }
  const { queue, held, paused } = groups;
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Queue</h1>
        <span class="sub">{plural(queue.length, 'job')} in it</span>
      </div>
      <div class="stack">
        <section class="panel" aria-label="In the queue">
          {queue.length === 0 ? (
            <Empty
              title="Nothing waits"
              text="Every job that could start has started. A job that has to wait is shown here with its place, what it waits for, and when it will probably start; in a terminal:"
            >
              <Imgcli of={(imgcli) => `${imgcli} explain JOB`} />
            </Empty>
          ) : (
            <QueueTable rows={queue} />
          )}
        </section>
        {held.length > 0 && (
          <Others title="Held back" text="not in the queue until what they wait for is over" rows={held} />
        )}
        {paused.length > 0 && (
          <Others title="Paused" text="hold nothing until somebody resumes them" rows={paused} />
        )}
        <Usage />
      </div>
    </>
  );
}

function groupsOf(rows: readonly JobRow[]) {
  const queued = rows.filter((row) => row.state === 'QUEUED');
  const byId = (a: JobRow, b: JobRow) => a.id - b.id;
  return {
    queue: queued
      .filter((row) => row.job.queue_position > 0)
      .sort((a, b) => a.job.queue_position - b.job.queue_position),
    held: queued.filter((row) => row.job.queue_position === 0).sort(byId),
    paused: rows.filter((row) => row.state === 'PAUSED').sort(byId),
  };
}

const SHOWN = 200;

function QueueTable({ rows }: { rows: readonly JobRow[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? rows : rows.slice(0, SHOWN);
  const body = useRef<HTMLTableSectionElement>(null);
  const forecasts = useForecasts(body, shown.map((row) => row.id).join());
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col" class="num">
              Place
            </th>
            <th scope="col">Job</th>
            <th scope="col">Owner</th>
            <th scope="col" class="num">
              Needs
            </th>
            <th scope="col" class="num">
              Priority
            </th>
            <th scope="col">Submitted</th>
            <th scope="col">Will probably start</th>
            <th scope="col">Why it waits</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {shown.map((row) => (
            <tr key={row.id} class="top" data-job={row.id}>
              <td class="num">{count(row.job.queue_position)}</td>
              <td style={{ whiteSpace: 'nowrap' }}>
                <a class="in-text" href={`/jobs/${row.id}`}>
                  {row.name}
                </a>{' '}
                <span class="muted">#{row.id}</span>
              </td>
              <td>{row.owner}</td>
              <td class="num">{needs(row)}</td>
              <td class="num">{row.priority}</td>
              <td style={{ whiteSpace: 'nowrap' }}>
                <When at={row.submitted} />
              </td>
              <td style={{ whiteSpace: 'nowrap' }}>
                <Start at={forecasts.get(row.id)} />
              </td>
              <td class="muted" style={{ minWidth: '300px' }}>
                {row.why}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {!all && <ShowRest of={rows.length} show={() => setAll(true)} />}
    </div>
  );
}

function ShowRest({ of, show }: { of: number; show: () => void }) {
  if (of <= SHOWN) return null;
  return (
    <div class="empty">
      <button type="button" onClick={show}>
        Show the other {count(of - SHOWN)}
      </button>
    </div>
  );
}

/** A forecast: not asked for yet, none, or a time. */
function Start({ at }: { at: number | undefined }) {
  if (at === undefined) return <span class="muted">not known yet</span>;
  return Number.isFinite(at) ? <When at={at} forecast /> : <span class="muted">nobody knows</span>;
}

function needs(row: JobRow): string {
  const { nodes, max_nodes, ranks_per_node } = row.job;
  const gang = max_nodes > nodes ? `${nodes}–${max_nodes}` : String(nodes);
  return `${gang} × ${ranks_per_node}`;
}

function Others({ title, text, rows }: { title: string; text: string; rows: readonly JobRow[] }) {
  const [all, setAll] = useState(false);
  return (
    <section class="panel" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="muted">
          {plural(rows.length, 'job')}, {text}
        </span>
      </header>
      <div class="scroll">
        <table>
          <caption class="hidden">{title}</caption>
          <tbody>
            {(all ? rows : rows.slice(0, SHOWN)).map((row) => (
              <tr key={row.id}>
                <th scope="row">
                  <a class="in-text" href={`/jobs/${row.id}`}>
                    {row.name}
                  </a>{' '}
                  <span class="muted">#{row.id}</span>
                </th>
                <td>{row.owner}</td>
                <td>
                  <State state={row.state} />
                </td>
                <td class="muted">{row.why}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {!all && <ShowRest of={rows.length} show={() => setAll(true)} />}
      </div>
    </section>
  );
}
