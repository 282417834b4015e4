import { useMemo, useState } from 'preact/hooks';
import type { Metrics } from '../api/job_data.ts';
import { percent, tick } from '../lib/format.ts';
import { stragglers } from '../lib/stragglers.ts';
import { Icon } from '../ui/icons.tsx';

const COLUMNS = 80;
const ROWS = 12;
/** So much later than the fastest rank has the full colour. */
const VERY_LATE = 0.5;

/** Over the steps: which rank was the slowest, the stronger the later it was. A straggler is a full row. What each rank
 * took imgd does not keep; of each report it has the least, the most, and whose that was. */
export function RankMap({ metrics, axis }: { metrics: Metrics; axis: string }) {
  const [table, setTable] = useState(false);
  const map = useMemo(() => {
    const of = (name: string) => metrics.get(name) ?? [];
    return stragglers(of('slowest_rank'), of('own_least_seconds'), of('own_most_seconds'), COLUMNS, ROWS);
  }, [metrics]);
  const { ranks, ends } = map;
  // With one rank there is nobody to wait for.
  if (ends.length < 2 || (ranks.length === 1 && ranks[0]!.late === 0)) return null;
  const worst = [...ranks].sort((a, b) => b.share * b.late - a.share * a.late)[0]!;
  const said = `Slowest most often: rank ${worst.rank}, in ${percent(worst.share, 0)} of the reports, ${percent(worst.late, 0)} later than the fastest.`;
  return (
    <figure class="chart panel" aria-label="Slowest rank">
      <header>
        <h2>Slowest rank</h2>
        <span class="grow" />
        <button
          type="button"
          class="plain small"
          aria-pressed={table}
          aria-label="Slowest rank as a table"
          onClick={() => setTable(!table)}
        >
          <Icon name="table" /> Table
        </button>
      </header>
      {table ? (
        <section class="chart-table" tabIndex={0} aria-label="Slowest rank, table">
          <table>
            <thead>
              <tr>
                <th scope="col">Rank</th>
                <th scope="col" class="num">
                  Was the slowest
                </th>
                <th scope="col" class="num">
                  Then later than the fastest
                </th>
              </tr>
            </thead>
            <tbody>
              {ranks.map((row) => (
                <tr key={row.rank}>
                  <th scope="row">{row.rank}</th>
                  <td class="num">{percent(row.share, 0)}</td>
                  <td class="num">{percent(row.late, 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ) : (
        <div class="rank-map" role="img" aria-label={`${said} The button before it shows a table.`}>
          {ranks.map((row) => (
            <div key={row.rank}>
              <span>rank {row.rank}</span>
              <svg viewBox={`0 0 ${ends.length} 1`} preserveAspectRatio="none" aria-hidden="true">
                {row.cells.map((late, i) =>
                  late > 0 ? (
                    <rect
                      key={ends[i]}
                      x={i}
                      width="1.02"
                      height="1"
                      opacity={0.15 + 0.85 * Math.min(late / VERY_LATE, 1)}
                    />
                  ) : null,
                )}
              </svg>
              <b>{percent(row.share, 0)}</b>
            </div>
          ))}
        </div>
      )}
      <div class="legend" aria-hidden="true">
        <span>{said}</span>
        <span class="grow" />
        <span>
          {axis} {tick(Math.round(ends[ends.length - 1]! * 100) / 100)}
        </span>
      </div>
    </figure>
  );
}
