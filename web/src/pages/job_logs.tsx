import { useRef, useState } from 'preact/hooks';
import { type LogAsked, useLog } from '../api/log_data.ts';
import type { Job, LogLine } from '../api/types.ts';
import { count, num, plural } from '../lib/format.ts';
import { isOver, stateOf } from '../lib/jobs.ts';
import { LEVELS, type Level } from '../lib/log_level.ts';
import { lineAt } from '../lib/logs.ts';
import { current, setQuery, useQueryText } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { LogView } from './log_view.tsx';

/** What a job's ranks wrote. The address has the rank, the start, the search and the line, so that it can be handed on. */
export function JobLogs({ job }: { job: Job }) {
  const { query } = useStore(current);
  const chosen = query.get('line') ?? '';
  const place = lineAt(chosen);
  const rank = wholeNumber(query.get('rank') ?? String(place?.rank ?? 0));
  const [text, setText] = useQueryText('q');
  const contains = query.get('q') ?? '';
  const level = (LEVELS.find((one) => one === query.get('level')) ?? 'debug') as Level;
  const [follow, setFollow] = useState(!place);
  const over = isOver(stateOf(job));
  const searches = contains !== '' || level !== 'debug';
  const around = searches ? null : place;
  // A line is of its start, whichever the job is at by now.
  const older = place && place.generation !== job.generation ? place.generation : undefined;
  // A line that was clicked is in view, so that what is shown stays; with the search that it was found by gone, what is
  // around it is wanted.
  const view = `${contains} ${level} ${chosen}`;
  const clicked = useRef<{ view: string; asked: LogAsked } | null>(null);
  const asked: LogAsked =
    clicked.current?.view === view
      ? clicked.current.asked
      : {
          rank: around ? around.rank : rank,
          generation: wholeNumber(query.get('start'))?.toString() ?? older,
          contains,
          level,
          around: around?.number,
        };
  const { generation } = asked;
  const ranks = ranksOf(job, generation);
  const live = !over && !generation;
  const log = useLog(job.id, asked, follow && !generation, over);
  const { lines, error, loading } = log;
  const starts = Array.from({ length: Math.min(num(job.generation), 50) }, (_, i) =>
    String(num(job.generation) - i),
  );
  const toggle = () => {
    // What comes follows on the last lines, not on those around one of long ago.
    if (!follow) setQuery({ line: '' });
    setFollow(!follow);
  };
  return (
    <section class="panel">
      <header class="row">
        <input
          type="search"
          placeholder="Search the lines   /"
          aria-label="Search the lines"
          value={text}
          size={30}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <select
          aria-label="Rank"
          value={String(rank ?? 'all')}
          onChange={(event) => setQuery({ rank: event.currentTarget.value, line: '' })}
        >
          <option value="all">All ranks</option>
          {rank !== undefined && rank >= ranks && <option value={String(rank)}>Rank {rank}</option>}
          {Array.from({ length: ranks }, (_, i) => (
            <option key={i} value={String(i)}>
              Rank {i}
            </option>
          ))}
        </select>
        <select
          aria-label="Level"
          value={level}
          onChange={(event) =>
            setQuery({ level: event.currentTarget.value === 'debug' ? '' : event.currentTarget.value })
          }
        >
          <option value="debug">Every level</option>
          <option value="info">Info and above</option>
          <option value="warning">Warnings and errors</option>
          <option value="error">Errors</option>
        </select>
        {starts.length > 1 && (
          <select
            aria-label="Start"
            value={generation ?? starts[0]}
            onChange={(event) =>
              setQuery({
                start: event.currentTarget.value === starts[0] ? '' : event.currentTarget.value,
                line: '',
              })
            }
          >
            {starts.map((start) => (
              <option key={start} value={start}>
                Start {start}
              </option>
            ))}
          </select>
        )}
        <span class="grow" />
        <span class="muted" aria-live="polite">
          {told(lines, searches, log.older !== null)}
        </span>
        {live && (
          <button type="button" class="small" aria-pressed={follow} onClick={toggle}>
            Follow
          </button>
        )}
      </header>
      {error && (
        <p class="body bad" role="alert">
          {error}
        </p>
      )}
      <LogView
        lines={lines}
        jobId={job.id}
        search={text}
        chosen={chosen}
        onChoose={(name) => {
          clicked.current = { view: `${contains} ${level} ${name}`, asked };
        }}
        older={log.older}
        newer={log.newer}
        follow={follow}
        onUnfollow={() => setFollow(false)}
        manyRanks={rank === undefined && ranks > 1}
        none={error ? '' : loading ? 'Loading …' : searches ? 'No line is like that' : nothing(job)}
      />
    </section>
  );
}

/** A number of the address; undefined for "all", and for what somebody wrote there that is none. */
function wholeNumber(text: string | null): number | undefined {
  return /^\d+$/.test(text ?? '') ? Number(text) : undefined;
}

function nothing(job: Job): string {
  return isOver(stateOf(job))
    ? 'No lines: none was written, or they are not kept any more'
    : 'Nothing was written yet';
}

/** "lines 701 to 1700" of one rank; of several, and of a search, how many. */
function told(lines: readonly LogLine[], searches: boolean, more: boolean): string {
  const first = lines[0];
  const last = lines[lines.length - 1];
  if (!first || !last) return '';
  if (searches) return `${more ? 'the last ' : ''}${plural(lines.length, 'line')} like that`;
  if (lines.some((line) => line.rank !== first.rank))
    return `${more ? 'the last ' : ''}${plural(lines.length, 'line')}`;
  return `lines ${count(first.line_number)} to ${count(last.line_number)}`;
}

/** Of a start before this one as many as it may have had: an elastic job has other nodes each time. */
function ranksOf(job: Job, generation: string | undefined): number {
  const now = job.nodes_now || job.nodes;
  const nodes = generation && generation !== job.generation ? Math.max(now, job.max_nodes) : now;
  return job.per_node ? nodes : Math.max(nodes * job.ranks_per_node, 1);
}
