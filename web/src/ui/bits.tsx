import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ShortState } from '../api/types.ts';
import { isFlat } from '../lib/axis.ts';
import { clock, relative, stamp, words } from '../lib/format.ts';
import { Store, useStore } from '../lib/store.ts';
import { Icon } from './icons.tsx';

const TONES: Record<ShortState, string> = {
  RUNNING: 'run',
  STARTING: 'run',
  QUEUED: 'off',
  PREEMPTING: 'warn',
  PAUSED: 'warn',
  COMPLETED: 'ok',
  FAILED: 'bad',
  CANCELLED: 'off',
};

/** A job's state: drawing, word and colour say the same. */
export function State({ state }: { state: ShortState }) {
  const lower = words(state);
  return (
    <span class={`state tone-${TONES[state] ?? 'off'}`}>
      <Icon name={lower} />
      {lower[0]?.toUpperCase() + lower.slice(1)}
    </span>
  );
}

/** A share from 0 to 1 as a bar. The figure beside it is for readers of the screen. */
export function Meter({ share, width, tone = '' }: { share: number; width?: number; tone?: string }) {
  const part = Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0;
  return (
    <span class={`meter ${tone}`} style={width ? { width: `${width}px` } : {}} aria-hidden="true">
      <i style={{ width: `${part * 100}%` }} />
    </span>
  );
}

/** The time now, in steps that do for ages. */
export const now = new Store(Date.now());
setInterval(() => {
  if (!document.hidden) now.set(Date.now());
}, 1000);

/** "4 min ago", with the moment itself as title. A forecast never lies in the past: what is due is due now. */
export function When({ at, forecast = false }: { at: number; forecast?: boolean }) {
  const time = useStore(now);
  if (!Number.isFinite(at)) return <span class="muted">–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={stamp(at)}>
      {relative(forecast ? Math.max(at, time) : at, time)}
    </time>
  );
}

export function Clock({ at }: { at: number }) {
  if (!Number.isFinite(at)) return <span class="muted">–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={stamp(at)}>
      {clock(at, now.value)}
    </time>
  );
}

/** A small curve without axes; it breaks where a value is not a number, and one alone between two breaks is a dot. */
export function Spark({
  values,
  width = 56,
  height = 16,
  label,
  least,
  most,
}: {
  values: number[];
  width?: number;
  height?: number;
  label: string;
  /** Of the vertical axis; without them the curve fills it. */
  least?: number;
  most?: number;
}) {
  const good = values.filter(Number.isFinite);
  if (good.length < 2) return null;
  const low = least ?? Math.min(...good);
  const high = most ?? Math.max(...good);
  const span = isFlat(low, high) ? Number.POSITIVE_INFINITY : high - low;
  const x = (i: number) => ((i / (values.length - 1)) * width).toFixed(1);
  const y = (v: number) => (height - 1 - ((v - low) / span) * (height - 2)).toFixed(1);
  const known = (i: number) => Number.isFinite(values[i]);
  // Where no line leads to a value and none from it, a line without length: its round ends are a dot.
  const begin = (i: number) => (known(i - 1) ? 'L' : 'M');
  const end = (i: number) => (known(i - 1) || known(i + 1) ? '' : 'h0');
  const d = values.map((v, i) => (known(i) ? `${begin(i)}${x(i)} ${y(v)}${end(i)}` : '')).join('');
  return (
    <svg class="spark" width={width} height={height} role="img" aria-label={label}>
      <path d={d} />
    </svg>
  );
}

/** What a page without content says: what it is for, and the command that fills it. */
export function Empty({
  title,
  text,
  command,
  children,
  page = false,
}: {
  title: string;
  text: string;
  command?: string;
  children?: ComponentChildren;
  /** It is all of the page: its title is the page's. */
  page?: boolean;
}) {
  return (
    <div class="empty">
      {page ? <h1 tabIndex={-1}>{title}</h1> : <h2>{title}</h2>}
      <p>{text}</p>
      {command && <Command text={command} />}
      {children}
    </div>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <div class="command">
      <pre>{text}</pre>
      <button type="button" class="plain small" onClick={copy} aria-label={`Copy: ${text}`} title="Copy">
        <Icon name={done ? 'completed' : 'copy'} />
        <span class="hidden" aria-live="polite">
          {done ? 'Copied' : ''}
        </span>
      </button>
    </div>
  );
}

/** One of a few words. */
export function Segments<T extends string>(props: {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <div class="segments" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button
          type="button"
          key={value}
          aria-pressed={value === props.value}
          onClick={() => props.onChange(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** The header of a table of which, at first, only some rows are shown. */
export function TableHeader(props: {
  title: string;
  children: ComponentChildren;
  /** Whether some are not shown. */
  more: boolean;
  showAll: () => void;
}) {
  return (
    <header>
      <h2>{props.title}</h2>
      <span class="muted">{props.children}</span>
      <span class="grow" />
      {props.more && (
        <button
          type="button"
          class="small"
          onClick={props.showAll}
          aria-label={`Show all ${props.title.toLowerCase()}`}
        >
          Show all
        </button>
      )}
    </header>
  );
}

/** A button with a sheet below it, which Escape and a click elsewhere close. */
export function Menu({ label, children }: { label: ComponentChildren; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (!(event.target as Element).closest('.menu')) setOpen(false);
    };
    const key = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      setOpen(false);
      button.current?.focus();
    };
    addEventListener('click', away);
    addEventListener('keydown', key);
    return () => {
      removeEventListener('click', away);
      removeEventListener('keydown', key);
    };
  }, [open]);
  return (
    <div class="menu">
      <button ref={button} type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {label}
      </button>
      {open && <div class="sheet">{children}</div>}
    </div>
  );
}

/** What went wrong with a page's data, with a way on. */
export function Trouble({ text, retry, page = false }: { text: string; retry?: () => void; page?: boolean }) {
  return (
    <div role="alert">
      <Empty title="That did not work" text={text} page={page}>
        {retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
      </Empty>
    </div>
  );
}

/** Its children are drawn so long after what is there at once; by default in the next task, where much of both would be a
 * stall. */
export function Later({ after = 0, children }: { after?: number; children: ComponentChildren }) {
  const [due, setDue] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setDue(true), after);
    return () => clearTimeout(timer);
  }, [after]);
  return due ? <>{children}</> : null;
}
