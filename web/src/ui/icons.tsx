import type { ComponentChildren } from 'preact';

const SHAPES: Record<string, ComponentChildren> = {
  running: <path d="M3 2.2v7.6L10 6z" fill="currentColor" stroke="none" />,
  dot: <circle cx="6" cy="6" r="3" fill="currentColor" stroke="none" />,
  starting: (
    <>
      <circle cx="6" cy="6" r="4.25" />
      <path d="M6 1.75a4.25 4.25 0 0 1 0 8.5z" fill="currentColor" stroke="none" />
    </>
  ),
  queued: (
    <>
      <circle cx="6" cy="6" r="4.25" />
      <path d="M6 3.5V6l1.7 1.2" />
    </>
  ),
  paused: <path d="M4 2.5v7M8 2.5v7" stroke-width="2" />,
  preempting: <path d="M10 6H2m3-3L2 6l3 3" />,
  completed: <path d="M2 6.5 4.8 9 10 3" stroke-width="1.8" />,
  failed: <path d="m2.8 2.8 6.4 6.4m0-6.4L2.8 9.2" stroke-width="1.8" />,
  cancelled: (
    <>
      <circle cx="6" cy="6" r="4.25" />
      <path d="m3 9 6-6" />
    </>
  ),
  warning: <path d="M6 1.5 11 10.3H1zM6 5v2.4m0 1.1v.4" />,
  up: <path d="M6 10V2.5M3 5.2 6 2.2l3 3" />,
  down: <path d="M6 2v7.5M3 6.8l3 3 3-3" />,
  sun: (
    <>
      <circle cx="6" cy="6" r="2" />
      <path d="M6 .8v1.4m0 7.6v1.4M.8 6h1.4m7.6 0h1.4M2.3 2.3l1 1m5.4 5.4 1 1m0-7.4-1 1M3.3 8.7l-1 1" />
    </>
  ),
  moon: <path d="M10.2 7.4A4.6 4.6 0 0 1 4.6 1.8a4.6 4.6 0 1 0 5.6 5.6z" />,
  auto: (
    <>
      <circle cx="6" cy="6" r="4.5" />
      <path d="M6 1.5a4.5 4.5 0 0 1 0 9z" fill="currentColor" stroke="none" />
    </>
  ),
  out: <path d="M5 1.8H2v8.4h3M4.8 6H10.4m-2.2-2.6L10.8 6 8.2 8.6" />,
  copy: <path d="M4 4V1.8h6.2V8H8M1.8 4H8v6.2H1.8z" />,
  table: <path d="M1.5 2h9v8h-9zM1.5 5h9M1.5 7.5h9M5 5v5" />,
  close: <path d="m3 3 6 6m0-6L3 9" />,
  columns: <path d="M1.5 2h9v8h-9zM4.5 2v8M7.5 2v8" />,
  plus: <path d="M6 2v8M2 6h8" />,
};

/** A drawing beside a word that says the same; screen readers pass it over. */
export function Icon({ name, size = 12 }: { name: string; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 12 12"
      fill="none"
      stroke="currentColor"
      stroke-width="1.3"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {SHAPES[name]}
    </svg>
  );
}

export function Logo() {
  return (
    <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="currentColor" />
      <path
        d="M7 23c5 0 5-14 9-14s3 9 9 9"
        fill="none"
        stroke="var(--surface)"
        stroke-width="3"
        stroke-linecap="round"
      />
    </svg>
  );
}
