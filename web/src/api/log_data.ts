import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { Level } from '../lib/log_level.ts';
import { useData } from '../ui/use_data.ts';
import { api } from './client.ts';
import type { LogLine, LogPage } from './types.ts';

const FIRST = 5000;
const FOUND = 2000;
const NEAR = 500;
const EVERY_MS = 1500;
// Of lines that came since the newest were loaded.
const MOST_MORE = 20_000;

export interface LogAsked {
  /** Every rank where it is absent. */
  rank: number | undefined;
  /** The newest start, and those that come, where it is absent. */
  generation: string | undefined;
  contains: string;
  level: Level;
  /** The number of a line that is wanted with those around it; without, the last ones are. */
  around: number | undefined;
}

/** A stretch of a log: what was loaded, without a gap, and where it goes on. */
interface Held {
  first: LogPage;
  /** How many lines it began with. */
  begun: number;
  lines: readonly LogLine[];
  next: string;
  previous: string;
  behind: boolean;
}

export interface Log {
  lines: readonly LogLine[];
  error: string;
  loading: boolean;
  /** Loads what is before the lines; null where nothing is. */
  older: (() => void) | null;
  /** Loads what is after them; null where that is not known of, or comes by itself. */
  newer: (() => void) | null;
}

/** Lines of a job's log, and while somebody follows those that come, over restarts of the job. The server searches. `over`: the
 * job has ended. */
export function useLog(id: string, asked: LogAsked, follow: boolean, over: boolean): Log {
  const { rank, generation, contains, level, around } = asked;
  const key = `logs ${id} ${rank} ${generation} ${contains} ${level} ${around}`;
  const filter = {
    rank,
    generation,
    contains,
    level: level === 'debug' ? undefined : `LOG_LEVEL_${level.toUpperCase()}`,
  };
  const tail = contains || level !== 'debug' ? FOUND : FIRST;
  const where = around === undefined ? { tail } : { before_line: String(around + NEAR), tail: 2 * NEAR };
  const first = useData(key, (signal) => api.logs(id, { ...filter, ...where }, signal));
  const [more, setMore] = useState<Held | null>(null);
  const held = more && more.first === first.data ? more : first.data && begin(first.data, around);
  const latest = useRef({ held, filter, tail });
  latest.current = { held, filter, tail };
  const busy = useRef<Promise<boolean> | null>(null);
  const ask = useCallback(
    async (which: Way): Promise<boolean> => {
      const { held: from, filter: same, tail: newest } = latest.current;
      if (!from) return false;
      try {
        const places = {
          after: { after: from.next, tail: FIRST },
          before: { before: from.previous, tail: FIRST },
          anew: { tail: newest },
        };
        const page = await api.logs(id, { ...same, ...places[which] });
        // Something else may be looked at by now.
        if (latest.current.held?.first !== from.first) return false;
        latest.current.held = joined(latest.current.held, page, which);
        setMore(latest.current.held);
        return which === 'after' && page.truncated;
      } catch {
        // The next time tells; that the connection is lost is said on top of the page.
        return false;
      }
    },
    [id],
  );
  const load = useCallback(
    async (which: Way): Promise<boolean> => {
      if (busy.current) return false;
      busy.current = ask(which);
      const more = await busy.current;
      busy.current = null;
      return more;
    },
    [ask],
  );
  /** As much as has gathered, in as many answers as it takes: no line is passed over. */
  const gather = useCallback(
    async (follows: boolean) => {
      const full = () => latest.current.held !== null && hasGrown(latest.current.held);
      while (!full() && (await load('after')));
      // Unless they are too many to keep: `older` leads to those before the newest.
      if (follows && full()) await load('anew');
    },
    [load],
  );
  useEffect(() => {
    if (!follow || over) return;
    const timer = setInterval(() => document.hidden || gather(true), EVERY_MS);
    return () => clearInterval(timer);
  }, [follow, over, gather, key]);
  const wasOver = useRef(over);
  useEffect(() => {
    const ends = over && !wasOver.current;
    wasOver.current = over;
    if (!ends || latest.current.held?.behind) return;
    // What it wrote last came after the last question, and says why it ended; also to one who read further up.
    const last = async () => {
      while (busy.current) await busy.current;
      await gather(follow);
    };
    void last();
  }, [over, follow, gather]);
  return {
    lines: held?.lines ?? NO_LINES,
    error: first.data ? '' : first.error,
    loading: !first.data && !first.error,
    older: held?.previous ? () => void load('before') : null,
    newer: held?.behind && (!follow || over) ? () => void load('after') : null,
  };
}

const NO_LINES: readonly LogLine[] = [];

export function begin(first: LogPage, around: number | undefined): Held {
  const { lines, next, previous } = first;
  return {
    first,
    begun: lines.length,
    lines,
    next,
    previous,
    behind: around !== undefined && lines.length > 0,
  };
}

/** Whether so much has come that a tab which follows for hours keeps no more. */
export function hasGrown({ begun, lines }: Held): boolean {
  return lines.length > begun + MOST_MORE;
}

type Way = 'after' | 'before' | 'anew';

/** With what comes after it or is before it; `anew` the page alone is left. Of several ranks some have said less of late:
 * older ones go in between. */
export function joined(held: Held, page: LogPage, which: Way): Held {
  if (which === 'anew') return { ...begin(page, undefined), first: held.first };
  if (which === 'after') {
    const lines = page.lines.length > 0 ? [...held.lines, ...page.lines] : held.lines;
    return { ...held, lines, next: page.next, behind: page.truncated };
  }
  const lines = [...page.lines, ...held.lines];
  const ranks = new Set(lines.map((line) => line.rank));
  if (ranks.size > 1) lines.sort((a, b) => Number(a.time_us) - Number(b.time_us));
  return { ...held, lines, previous: page.previous };
}
