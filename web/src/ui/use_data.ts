import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { epoch, onceTold } from '../api/live.ts';
import { useStore } from '../lib/store.ts';

export interface Loaded<T> {
  data: T | null;
  error: string;
  /** The same as the error's status; 0 where there is none. */
  status: number;
  reload: () => void;
  /** As reload(), unless an answer is awaited: who asks again and again would never get a slow one. */
  poll: () => void;
}

/** Loads data when `key` changes and after each break of the connection; what is there stays until the next has come.
 * An empty key: not yet. */
export function useData<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; error: string; status: number }>({
    key,
    data: null,
    error: '',
    status: 0,
  });
  const [turn, setTurn] = useState(0);
  const again = useStore(epoch);
  const latest = useRef(load);
  latest.current = load;
  const awaited = useRef<AbortController | null>(null);
  // Before the frame is painted: an answer that is here already is drawn in it.
  useLayoutEffect(() => {
    if (key === '') return;
    const abort = new AbortController();
    awaited.current = abort;
    latest
      .current(abort.signal)
      .then((data) => {
        if (!abort.signal.aborted) setState({ key, data, error: '', status: 0 });
      })
      .catch((error: unknown) => {
        if (abort.signal.aborted) return;
        const status = error instanceof ApiError ? error.status : 0;
        const text = error instanceof Error ? error.message : String(error);
        setState((before) => ({ key, data: before.key === key ? before.data : null, error: text, status }));
      })
      .finally(() => {
        if (awaited.current === abort) awaited.current = null;
      });
    return () => abort.abort();
  }, [key, turn, again]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  const poll = useCallback(() => {
    if (!awaited.current) reload();
  }, [reload]);
  const fresh = state.key === key;
  return {
    data: fresh ? state.data : null,
    error: fresh ? state.error : '',
    status: fresh ? state.status : 0,
    reload,
    poll,
  };
}

/** What was loaded before stays while what differs only in its range or smoothing, of which `key` tells nothing, is awaited: the
 * chart is there all the time, and so are its keys. */
export function useKept<T>(key: string, loaded: Loaded<T>): Loaded<T> {
  const kept = useRef<{ key: string; data: T } | null>(null);
  if (loaded.data) kept.current = { key, data: loaded.data };
  const awaited = !loaded.data && !loaded.error;
  const data = awaited && kept.current?.key === key ? kept.current.data : loaded.data;
  return { ...loaded, data };
}

/** Loads once more when the stream tells what happens, where it did not yet when the component was made; an answer that is
 * still awaited comes first, to have something to show. */
export function useOnceTold({ data, error, reload }: Loaded<unknown>): void {
  const [due, setDue] = useState(false);
  // At once, not in an effect: the data may be asked for already.
  const end = useMemo(() => onceTold(() => setDue(true)), []);
  useEffect(() => end, [end]);
  const answered = data !== null || error !== '';
  useEffect(() => {
    if (!due || !answered) return;
    setDue(false);
    reload();
  }, [due, answered, reload]);
}

/** Does something again and again while somebody looks; 0: never. */
export function useEvery(milliseconds: number, what: () => void): void {
  const latest = useRef(what);
  latest.current = what;
  useEffect(() => {
    if (milliseconds <= 0) return;
    const timer = setInterval(() => document.hidden || latest.current(), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
