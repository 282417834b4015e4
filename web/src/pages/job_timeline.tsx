import type { GetJobResponse, ShortState } from '../api/types.ts';
import { duration, ms, num, words } from '../lib/format.ts';
import { Clock, State } from '../ui/bits.tsx';

/** Every change of the job's state, newest first, with who did it and why. */
export function JobTimeline({ data }: { data: GetJobResponse }) {
  const changes = data.history.filter((event) => event.state_change);
  const failed = data.job.rank_exits.filter(
    (exit) => !exit.told && (exit.exit_code !== 0 || exit.signal !== 0),
  );
  return (
    <div class="stack">
      {failed.length > 0 && (
        <section class="panel">
          <header>
            <h2>How its ranks ended</h2>
          </header>
          <table>
            <thead>
              <tr>
                <th scope="col">Rank</th>
                <th scope="col">Ended with</th>
                <th scope="col">Last error line</th>
              </tr>
            </thead>
            <tbody>
              {failed.map((exit) => (
                <tr key={exit.rank}>
                  <td>
                    <a href={`/jobs/${data.job.id}/logs?rank=${exit.rank}`}>rank {exit.rank}</a>
                  </td>
                  <td>{exit.signal ? `signal ${exit.signal}` : `exit code ${exit.exit_code}`}</td>
                  <td class="mono">{exit.last_error_line}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <section class="panel">
        <header>
          <h2>States</h2>
          <span class="muted">newest first</span>
        </header>
        <ol class="timeline" reversed>
          {changes
            .map((event, i) => {
              const change = event.state_change!;
              const until = changes[i + 1] ? ms(changes[i + 1]!.time_us) : Number.NaN;
              return (
                <li key={event.number}>
                  <Clock at={ms(event.time_us)} />
                  <State state={change.to.slice(10) as ShortState} />
                  <p>
                    {change.text || words(change.reason.replace('REASON_CODE_', ''))}
                    {Number.isFinite(until) && (
                      <span class="muted"> · for {duration((until - ms(event.time_us)) / 1000)}</span>
                    )}
                    {num(event.generation) > 1 && <span class="muted"> · start {event.generation}</span>}
                  </p>
                  <span class="muted">{change.actor}</span>
                </li>
              );
            })
            .reverse()}
        </ol>
      </section>
    </div>
  );
}
