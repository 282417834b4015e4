import { useMemo, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import type { Metrics } from '../api/job_data.ts';
import type { RankStretch } from '../api/types.ts';
import { millis, percent, tick } from '../lib/format.ts';
import { rankTimes } from '../lib/rank_times.ts';
import { stragglers } from '../lib/stragglers.ts';
import { Icon } from '../ui/icons.tsx';
import { useData, useEvery } from '../ui/use_data.ts';

const COLUMNS = 80;
/** Of what each rank took. */
const ROWS = 32;
/** Of who was the slowest, where no more is kept. */
const FEW_ROWS = 12;
/** So much later than the fastest rank has the full colour. */
const VERY_LATE = 0.5;
const ANEW_MS = 20_000;

interface Row {
  rank: number;
  share: number;
  late: number;
  cells: number[];
  own?: number;
  wait?: number;
}
interface Picture {
  /** x of each column's end. */
  ends: number[];
  rows: Row[];
  axis: string;
}

/** What each rank took, as imgd keeps it; of jobs from before it did, whose of each report was the most. */
function pictureOf(stretches: readonly RankStretch[], metrics: Metrics, axis: string): Picture {
  const { ends, ranks } = rankTimes(stretches, ROWS);
  if (ranks.length > 1) return { ends, rows: ranks, axis: 'Step' };
  const of = (name: string) => metrics.get(name) ?? [];
  const old = stragglers(
    of('slowest_rank'),
    of('own_least_seconds'),
    of('own_most_seconds'),
    COLUMNS,
    FEW_ROWS,
  );
  return { ends: old.ends, rows: old.ranks, axis };
}

/** Over the steps: how much longer than the fastest each rank's own work took. A straggler is a full row. */
export function RankMap({
  id,
  metrics,
  axis,
  live,
}: {
  id: string;
  metrics: Metrics;
  axis: string;
  live: boolean;
}) {
  const [table, setTable] = useState(false);
  // Anew also at the job's end: then the last of it is stored.
  const loaded = useData(`ranks ${id} ${live}`, (signal) => api.rankTimes(id, signal));
  useEvery(live ? ANEW_MS : 0, loaded.poll);
  const {
    ends,
    rows,
    axis: along,
  } = useMemo(() => pictureOf(loaded.data ?? [], metrics, axis), [loaded.data, metrics, axis]);
  // With one rank there is nobody to wait for.
  if (ends.length === 0 || rows.length === 0 || (rows.length === 1 && rows[0]!.late === 0)) return null;
  const worst = [...rows].sort((a, b) => b.share * b.late - a.share * a.late)[0]!;
  const said = `Slowest most often: rank ${worst.rank}, ${percent(worst.share, 0)} of the time, ${percent(worst.late, 0)} later than the fastest.`;
  return (
    <figure class="chart panel" aria-label="Ranks’ step times">
      <header>
        <h2>Ranks’ step times</h2>
        <span class="grow" />
        <button
          type="button"
          class="plain small"
          aria-pressed={table}
          aria-label="Ranks’ step times as a table"
          onClick={() => setTable(!table)}
        >
          <Icon name="table" /> Table
        </button>
      </header>
      {table ? <RankTable rows={rows} /> : <RankRows rows={rows} ends={ends} said={said} />}
      <div class="legend" aria-hidden="true">
        <span>{said}</span>
        <span class="grow" />
        <span>
          {along} {tick(Math.round(ends[ends.length - 1]! * 100) / 100)}
        </span>
      </div>
    </figure>
  );
}

function RankRows({ rows, ends, said }: { rows: readonly Row[]; ends: readonly number[]; said: string }) {
  return (
    <div class="rank-map" role="img" aria-label={`${said} The button before it shows a table.`}>
      {rows.map((row) => (
        <div key={row.rank}>
          <span>rank {row.rank}</span>
          <svg viewBox={`0 0 ${ends.length} 1`} preserveAspectRatio="none" aria-hidden="true">
            {row.cells.map((late, i) =>
              late > 0 ? (
                <rect
                  key={`${i} ${ends[i]}`}
                  x={i}
                  width="1.02"
                  height="1"
                  opacity={0.1 + 0.9 * Math.min(late / VERY_LATE, 1)}
                />
              ) : null,
            )}
          </svg>
          <b>{percent(row.late, 0)}</b>
        </div>
      ))}
    </div>
  );
}

function RankTable({ rows }: { rows: readonly Row[] }) {
  const known = rows.some((row) => row.own !== undefined);
  return (
    <section class="chart-table" tabIndex={0} aria-label="Ranks’ step times, table">
      <table>
        <thead>
          <tr>
            <th scope="col">Rank</th>
            {known && (
              <>
                <th scope="col" class="num">
                  Own work a step
                </th>
                <th scope="col" class="num">
                  Waits for others
                </th>
              </>
            )}
            <th scope="col" class="num">
              Was the slowest
            </th>
            <th scope="col" class="num">
              Later than the fastest
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.rank}>
              <th scope="row">{row.rank}</th>
              {known && (
                <>
                  <td class="num">{millis(row.own)}</td>
                  <td class="num">{millis(row.wait)}</td>
                </>
              )}
              <td class="num">{percent(row.share, 0)}</td>
              <td class="num">{percent(row.late, 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
