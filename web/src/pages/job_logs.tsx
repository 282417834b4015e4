import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import type { Job, LogLine } from '../api/types.ts';
import { count, num } from '../lib/format.ts';
import { isOver, stateOf } from '../lib/jobs.ts';
import { LEVELS, type Level, levelOf } from '../lib/log_level.ts';
import { mergeLogs } from '../lib/logs.ts';
import { current, setQuery, useQueryText } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { useData } from '../ui/use_data.ts';
import { LogView } from './log_view.tsx';

const FIRST = 5000;
const NEXT = 500;
const EVERY_MS = 1500;

/** What a job's ranks wrote. The address has the rank, the search and the line, so that it can be handed on. */
export function JobLogs({ job }: { job: Job }) {
  const { query } = useStore(current);
  const ranks = ranksOf(job);
  const rankText = query.get('rank') ?? (ranks > 1 ? '0' : '');
  const rank = rankText === 'all' || rankText === '' ? undefined : Number(rankText);
  const generation = query.get('start') ?? undefined;
  const [text, setText] = useQueryText('q');
  const level = (LEVELS.find((one) => one === query.get('level')) ?? 'debug') as Level;
  const [follow, setFollow] = useState(!query.has('line'));
  const live = !isOver(stateOf(job)) && !generation;
  const { lines, error, loading } = useLines(job.id, rank, generation, follow && live);
  const shown = useMemo(() => choose(lines, text, level), [lines, text, level]);
  const starts = Array.from({ length: Math.min(num(job.generation), 50) }, (_, i) =>
    String(num(job.generation) - i),
  );
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
          value={rankText || 'all'}
          onChange={(event) => setQuery({ rank: event.currentTarget.value, line: '' })}
        >
          <option value="all">All ranks</option>
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
          {shown.length === lines.length
            ? `${count(lines.length)} lines`
            : `${count(shown.length)} of ${count(lines.length)} lines`}
        </span>
        {live && (
          <button type="button" class="small" aria-pressed={follow} onClick={() => setFollow(!follow)}>
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
        lines={shown}
        jobId={job.id}
        search={text}
        chosen={query.get('line') ?? ''}
        follow={follow}
        onUnfollow={() => setFollow(false)}
        manyRanks={rank === undefined && ranks > 1}
        none={loading ? 'Loading …' : lines.length > 0 ? 'No line is like that' : 'Nothing was written yet'}
      />
    </section>
  );
}

function ranksOf(job: Job): number {
  const nodes = job.nodes_now || job.nodes;
  return job.per_node ? nodes : Math.max(nodes * job.ranks_per_node, 1);
}

function choose(lines: readonly LogLine[], text: string, level: Level): LogLine[] {
  const most = LEVELS.indexOf(level);
  const search = text.toLowerCase();
  if (!search && level === 'debug') return [...lines];
  return lines.filter(
    (line) =>
      (!search || line.text.toLowerCase().includes(search)) && LEVELS.indexOf(levelOf(line.text)) <= most,
  );
}

/** The last lines, and while somebody follows those that come. */
function useLines(id: string, rank: number | undefined, generation: string | undefined, follow: boolean) {
  const key = `logs ${id} ${rank} ${generation}`;
  const first = useData(key, (signal) => api.logs(id, { rank, generation, tail: FIRST }, signal));
  const [more, setMore] = useState<{ key: string; lines: LogLine[] }>({ key, lines: [] });
  const busy = useRef(false);
  const last = useRef('');
  useEffect(() => {
    if (!follow) return;
    const timer = setInterval(async () => {
      if (busy.current || document.hidden) return;
      busy.current = true;
      try {
        const { lines = [] } = await api.logs(id, { rank, generation, ...nextOf(rank, last.current) });
        setMore((before) => ({ key, lines: mergeLogs(before.key === key ? before.lines : [], lines) }));
      } catch {
        // The next time tells; that the connection is lost is said on top of the page.
      } finally {
        busy.current = false;
      }
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [id, rank, generation, follow, key]);
  const lines = useMemo(
    () => mergeLogs(first.data?.lines ?? [], more.key === key ? more.lines : []),
    [first.data, more, key],
  );
  last.current = lines[lines.length - 1]?.line_number ?? '';
  return { lines, error: first.data ? '' : first.error, loading: !first.data && !first.error };
}

/** Of one rank the lines that follow on the last one, of all the last lines of each. */
function nextOf(rank: number | undefined, last: string): { tail: number; after_line?: string } {
  return rank === undefined || !last ? { tail: NEXT } : { tail: FIRST, after_line: last };
}
