import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ms } from '../lib/format.ts';
import { api } from './client.ts';

const EVERY_MS = 15_000;
// Who scrolls past a row does not ask for it.
const SETTLED_MS = 150;
const AT_ONCE = 5;

/** When jobs will probably start, milliseconds since 1970 by number; NaN where nobody knows. Those that are not in it were
 * not asked for yet: lists have no forecasts, and imgd looks ahead for each, so only rows in view are asked for, again and
 * again. `rows` has the rows as its children, with the number as `data-job`; `key` changes with what they are. */
export function useForecasts(rows: RefObject<HTMLElement | null>, key: string): ReadonlyMap<number, number> {
  const [found, setFound] = useState<ReadonlyMap<number, number>>(new Map());
  const known = useRef(found);
  const inView = useRef(new Set<number>());
  // Since they came into view.
  const asked = useRef(new Set<number>());
  const ask = useRef(async (wanted: readonly number[]) => {
    const one = async (id: number) => {
      asked.current.add(id);
      const answer = await api.job(String(id)).catch(() => null);
      if (answer) known.current = new Map(known.current).set(id, ms(answer.job.expected_start_us));
    };
    for (let at = 0; at < wanted.length; at += AT_ONCE) {
      const some = wanted.slice(at, at + AT_ONCE);
      await Promise.all(some.filter((id) => inView.current.has(id)).map(one));
      setFound(known.current);
    }
  }).current;
  useEffect(() => {
    inView.current = new Set();
    let settled: ReturnType<typeof setTimeout> | undefined;
    const observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const id = Number((target as HTMLElement).dataset.job);
        if (isIntersecting) inView.current.add(id);
        else if (inView.current.delete(id)) asked.current.delete(id);
      }
      clearTimeout(settled);
      settled = setTimeout(() => {
        void ask([...inView.current].filter((id) => !asked.current.has(id)));
      }, SETTLED_MS);
    });
    for (const row of rows.current?.children ?? []) observer.observe(row);
    return () => {
      clearTimeout(settled);
      observer.disconnect();
    };
  }, [rows, key, ask]);
  useEffect(() => {
    // On its own: a queue that changes all the time is asked for all the same.
    const timer = setInterval(() => document.hidden || void ask([...inView.current]), EVERY_MS);
    return () => clearInterval(timer);
  }, [ask]);
  return found;
}
