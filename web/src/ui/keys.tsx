import { useLayoutEffect, useState } from 'preact/hooks';
import { go } from '../lib/route.ts';
import { Dialog } from './dialog.tsx';

const PLACES: Record<string, string> = {
  j: '/',
  q: '/queue',
  n: '/nodes',
  d: '/datasets',
  u: '/usage',
  c: '/compare',
  s: '/submit',
};

const HELP: [string, string][] = [
  ['g then j, q, n, d, u, c', 'go to Jobs, Queue, Nodes, Data sets, Usage, Compare'],
  ['g then s', 'submit a job'],
  ['/', 'search in the page'],
  ['j, k or ↓, ↑', 'next and previous row'],
  ['Enter', 'open the row'],
  ['x', 'choose the row, to compare or end it'],
  ['← → + 0', 'in a chart: go along it, look closer, show all'],
  ['?', 'this list'],
  ['Esc', 'close, or leave a field'],
];

function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Keys that hold on every page, and the list of them. */
export function Keys() {
  const [open, setOpen] = useState(false);
  // With the page, and not a while after it is seen.
  useLayoutEffect(() => {
    let waiting = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const down = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && typing(event.target)) (event.target as HTMLElement).blur();
      if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('dialog[open]')) return;
      const place = PLACES[event.key];
      if (waiting && place) go(place);
      else if (event.key === '?') setOpen(true);
      else if (event.key === '/') document.querySelector<HTMLElement>('input[type="search"]')?.focus();
      else if (event.key === 'g') {
        waiting = true;
        clearTimeout(timer);
        timer = setTimeout(() => {
          waiting = false;
        }, 1200);
        return;
      } else return;
      waiting = false;
      event.preventDefault();
      event.stopImmediatePropagation();
    };
    addEventListener('keydown', down, true);
    return () => removeEventListener('keydown', down, true);
  }, []);
  return (
    <>
      <button
        type="button"
        class="plain icon"
        aria-label="Keys"
        title="Keys (?)"
        onClick={() => setOpen(true)}
      >
        ?
      </button>
      {open && (
        <Dialog title="Keys" onClose={() => setOpen(false)}>
          <div class="inner">
            <h2>Keys</h2>
            <dl class="pairs">
              {HELP.map(([key, text]) => (
                <>
                  <dt>
                    <kbd>{key}</kbd>
                  </dt>
                  <dd>{text}</dd>
                </>
              ))}
            </dl>
            <div class="actions">
              <button type="button" onClick={() => setOpen(false)}>
                Close
              </button>
            </div>
          </div>
        </Dialog>
      )}
    </>
  );
}
