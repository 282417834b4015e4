import { useEffect, useState } from 'preact/hooks';
import { Store } from './store.ts';

export interface Location {
  /** As the browser writes it: encoded. */
  path: string;
  query: URLSearchParams;
}

const here = (): Location => ({
  path: location.pathname.replace(/\/+$/, '') || '/',
  query: new URLSearchParams(location.search),
});

export const current = new Store<Location>({ path: '/', query: new URLSearchParams() });

export function startRouter(): void {
  current.set(here());
  addEventListener('popstate', () => {
    if (moved()) focusTitle();
  });
  addEventListener('click', (event: MouseEvent) => {
    const link = (event.target as Element).closest?.('a');
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.origin !== location.origin || link.target || link.hasAttribute('download')) return;
    if (link.hash && link.pathname === location.pathname) return;
    if (link.pathname.startsWith('/api/')) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

export function go(to: string, replace = false): void {
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  if (!moved() || replace) return;
  scrollTo(0, 0);
  focusTitle();
}

/** Takes the address as it is now; whether it is of another page. */
function moved(): boolean {
  const before = current.value.path;
  current.set(here());
  return current.value.path !== before;
}

let watch: MutationObserver | undefined;

/** Where a reader of the screen goes on: at the page's title, as soon as there is one, and at what takes its place when the
 * page is loaded; until somebody goes elsewhere. */
function focusTitle(): void {
  watch?.disconnect();
  let at = document.activeElement;
  const look = () => {
    const focused = document.activeElement;
    if (focused !== at && focused !== document.body) return watch?.disconnect();
    at = document.querySelector<HTMLElement>('h1') ?? focused;
    // Not scrolled to: who goes back is where they were.
    if (at !== focused) (at as HTMLElement).focus({ preventScroll: true });
  };
  watch = new MutationObserver(look);
  watch.observe(document.body, { childList: true, subtree: true });
}

/** Changes parts of the query in place; empty values go. */
export function setQuery(changes: Record<string, string>, push = false): void {
  const query = new URLSearchParams(current.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString().replaceAll('%2C', ',');
  go(location.pathname + (text ? `?${text}` : ''), !push);
}

/** Decoded; none where one is no text ("/nodes/%zz"): then no page is there. */
function partsOf(path: string): string[] {
  try {
    return path.split('/').map(decodeURIComponent);
  } catch {
    return [];
  }
}

/** The parts of `path` that stand for names in `pattern` ("/jobs/:id"); null where it is another. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split('/');
  const found = partsOf(path);
  if (wanted.length !== found.length) return null;
  const out: Record<string, string> = {};
  for (const [i, part] of wanted.entries()) {
    if (part.startsWith(':')) out[part.slice(1)] = found[i]!;
    else if (part !== found[i]) return null;
  }
  return out;
}

/** A text that goes into the query a moment after the last key. */
export function useQueryText(name: string): [string, (text: string) => void] {
  const inUrl = current.value.query.get(name) ?? '';
  const [text, setText] = useState(inUrl);
  const [seen, setSeen] = useState(inUrl);
  if (seen !== inUrl) {
    // Somebody went back, or cleared the filters.
    setSeen(inUrl);
    if (inUrl !== text.trim()) setText(inUrl);
  }
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text.trim() !== (current.value.query.get(name) ?? '')) setQuery({ [name]: text.trim() });
    }, 150);
    return () => clearTimeout(timer);
  }, [text, name]);
  return [text, setText];
}
