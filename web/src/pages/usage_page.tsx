import { useEffect, useMemo, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { useCurrency } from '../api/currency.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import type { OwnerUsage } from '../api/types.ts';
import { count, figure, hours, money, plural, unit as withUnit } from '../lib/format.ts';
import { costOf, deviceHours, type JobRow } from '../lib/jobs.ts';
import { byDay, type Days, dayEdges } from '../lib/spend.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Segments, State, Trouble } from '../ui/bits.tsx';
import { Icon } from '../ui/icons.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { type Loaded, useData, useEvery } from '../ui/use_data.ts';
import { Usage } from './usage.tsx';

const DAYS = 30;
/** As many as there are patterns. */
const FILLS = 7;
const MOST_JOBS = 15;
/** Of days below the bars: so many have room on a phone. */
const MOST_LABELS = 8;
const EVERY_MS = 60_000;

/** What was used and what it cost: by account, by day, by job. */
export function UsagePage() {
  useEffect(followJobs, []);
  const { rows, ready, error } = useStore(jobsState);
  const edges = dayEdges(Date.now(), DAYS);
  const usage = useData(`usage over ${edges.join()}`, (signal) => api.usageOverTime(edges, signal));
  useEvery(EVERY_MS, usage.poll);
  // Also where the jobs that cost something are deleted.
  const costs =
    rows.some((row) => row.cost > 0) || usage.data?.owners.some((one) => one.cost.some((cost) => cost > 0));
  const [wanted, setWanted] = useState<'cost' | 'hours' | null>(null);
  const unit = wanted ?? (costs ? 'cost' : 'hours');
  const amount = useMemo(
    () => (row: JobRow) => (unit === 'cost' ? costOf : deviceHours)(row.job, Date.now()),
    [unit],
  );
  const currency = useCurrency();
  const text = (value: number) => (unit === 'cost' ? money(value, currency) : withUnit(figure(value), 'h'));
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Usage</h1>
        <span class="grow" />
        {costs && (
          <Segments
            label="Unit"
            options={[
              ['cost', 'Spend'],
              ['hours', 'Device-hours'],
            ]}
            value={unit}
            onChange={setWanted}
          />
        )}
      </div>
      {ready ? (
        <div class="stack">
          <ByDay usage={usage} edges={edges} unit={unit} text={text} />
          <Usage />
          <TopJobs rows={rows} amount={amount} currency={currency} />
        </div>
      ) : error ? (
        <Trouble text={error} />
      ) : (
        <p class="muted">Loading …</p>
      )}
    </>
  );
}

const short = (day: number) =>
  new Date(day).toLocaleDateString(undefined, { month: 'short', day: 'numeric' });

/** Owners beyond the patterns as one. */
function grouped(found: Days): Days['owners'] {
  const { owners } = found;
  if (owners.length <= FILLS) return owners;
  const rest = owners.slice(FILLS - 1);
  const amounts = found.days.map((_, i) => rest.reduce((sum, one) => sum + one.amounts[i]!, 0));
  const total = rest.reduce((sum, one) => sum + one.total, 0);
  return [...owners.slice(0, FILLS - 1), { name: plural(rest.length, 'other'), amounts, total }];
}

interface ByDayProps {
  usage: Loaded<{ owners: OwnerUsage[] }>;
  edges: readonly number[];
  unit: 'cost' | 'hours';
  text: (value: number) => string;
}

function ByDay({ usage, edges, unit, text }: ByDayProps) {
  const [table, setTable] = useState(false);
  const found = byDay(
    usage.data?.owners ?? [],
    (one) => (unit === 'cost' ? one.cost : one.device_hours),
    edges,
  );
  const owners = grouped(found);
  const total = owners.reduce((sum, one) => sum + one.total, 0);
  return (
    <figure class="chart panel" aria-label="By day">
      <header>
        <h2>By day</h2>
        <span class="muted">the last {found.days.length}, with jobs that are deleted</span>
        <span class="grow" />
        {total > 0 && (
          <button
            type="button"
            class="plain small"
            aria-pressed={table}
            aria-label="By day as a table"
            onClick={() => setTable(!table)}
          >
            <Icon name="table" /> Table
          </button>
        )}
      </header>
      {!usage.data && usage.error && <Trouble text={usage.error} retry={usage.reload} />}
      {usage.data && total === 0 && (
        <Empty
          title="Nothing was used"
          text="Here is what jobs took, by day and by owner. A node’s price is in its agent.yaml; without prices there are device-hours only. In a terminal:"
        >
          <Imgcli of={(imgcli) => `${imgcli} usage`} />
        </Empty>
      )}
      {total > 0 && !table && <Bars found={found} owners={owners} text={text} />}
      {total > 0 && table && <DayTable found={found} owners={owners} text={text} />}
      {total > 0 && (
        <div class="legend">
          {owners.map((one, i) => (
            <span key={one.name}>
              <i class={`swatch f${i + 1}`} />
              {one.name || 'nobody'} <b>{text(one.total)}</b>
            </span>
          ))}
          <span>
            in all <b>{text(total)}</b>
          </span>
        </div>
      )}
    </figure>
  );
}

interface DayParts {
  found: Days;
  owners: Days['owners'];
  text: (value: number) => string;
}

function Bars({ found, owners, text }: DayParts) {
  const { days, most } = found;
  const each = Math.ceil(days.length / MOST_LABELS);
  return (
    <div
      class="bars"
      style={{ '--days': days.length }}
      role="img"
      aria-label={`Chart by day, at most ${text(most)} a day. The button before it shows a table.`}
    >
      <span class="most">{text(most)} a day</span>
      {days.map((day, i) => (
        <div
          key={day}
          title={`${short(day)}: ${text(owners.reduce((sum, one) => sum + one.amounts[i]!, 0))}`}
        >
          {owners.map((one, k) => (
            <i key={one.name} class={`f${k + 1}`} style={{ height: `${(one.amounts[i]! / most) * 100}%` }} />
          ))}
        </div>
      ))}
      {days.map((day, i) => (
        <small key={day}>{(days.length - 1 - i) % each === 0 ? short(day) : ''}</small>
      ))}
    </div>
  );
}

function DayTable({ found, owners, text }: DayParts) {
  return (
    <section class="chart-table" tabIndex={0} aria-label="By day, table">
      <table>
        <thead>
          <tr>
            <th scope="col">Day</th>
            {owners.map((one) => (
              <th scope="col" class="num" key={one.name}>
                {one.name || 'nobody'}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.days
            .map((day, i) => (
              <tr key={day}>
                <th scope="row">{short(day)}</th>
                {owners.map((one) => (
                  <td class="num" key={one.name}>
                    {one.amounts[i]! > 0 ? text(one.amounts[i]!) : '–'}
                  </td>
                ))}
              </tr>
            ))
            .reverse()}
        </tbody>
      </table>
    </section>
  );
}

function TopJobs({
  rows,
  amount,
  currency,
}: {
  rows: readonly JobRow[];
  amount: (row: JobRow) => number;
  currency: string;
}) {
  const top = useMemo(
    () =>
      rows
        .filter((row) => amount(row) > 0)
        .sort((a, b) => amount(b) - amount(a))
        .slice(0, MOST_JOBS),
    [rows, amount],
  );
  if (top.length === 0) return null;
  const costs = top.some((row) => row.cost > 0);
  return (
    <section class="panel" aria-label="Jobs that took most">
      <header>
        <h2>Jobs that took most</h2>
        <span class="muted">{count(top.length)} of those that imgd keeps</span>
      </header>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">Owner</th>
              <th scope="col">State</th>
              <th scope="col" class="num">
                Nodes
              </th>
              <th scope="col" class="num">
                Device-hours
              </th>
              {costs && (
                <th scope="col" class="num">
                  Spend
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {top.map((row) => (
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
                <td class="num">{count(row.nodes)}</td>
                <td class="num">{hours(deviceHours(row.job, Date.now()))}</td>
                {costs && <td class="num">{money(costOf(row.job, Date.now()), currency)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
