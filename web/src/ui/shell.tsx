import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { retryNow, status } from '../api/live.ts';
import { followWarning, serverWarning } from '../api/warning.ts';
import { clock } from '../lib/format.ts';
import { current } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Later, now } from './bits.tsx';
import { Questions, Toasts } from './feedback.tsx';
import { Icon, Logo } from './icons.tsx';
import { Keys } from './keys.tsx';
import { ThemeButton } from './theme.tsx';
import { askToken, LogOutButton, TokenDialog } from './token.tsx';

const PAGES = [
  ['/', 'Jobs'],
  ['/queue', 'Queue'],
  ['/nodes', 'Nodes'],
  ['/datasets', 'Data sets'],
  ['/usage', 'Usage'],
  ['/compare', 'Compare'],
] as const;

export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = useStore(current);
  const first = `/${path.split('/')[1]}`;
  const at = first === '/jobs' ? '/' : first;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <header class="bar">
        <a class="brand" href="/">
          <Logo /> imgd
        </a>
        <nav aria-label="Pages">
          {PAGES.map(([to, text]) => (
            <a key={to} href={to} aria-current={at === to ? 'page' : undefined}>
              {text}
            </a>
          ))}
        </nav>
        <span class="grow" />
        <LinkState />
        <ThemeButton />
        <LogOutButton />
        <Keys />
        <a class="button primary" href="/submit">
          <Icon name="plus" /> Submit
        </a>
      </header>
      <Notices />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Toasts />
      <Questions />
      <TokenDialog />
    </>
  );
}

function LinkState() {
  const link = useStore(status);
  const live = link.state === 'live';
  const text = { live: 'Live', connecting: 'Connecting', lost: 'Not connected', denied: 'Token needed' }[
    link.state
  ];
  return (
    <span class={`link-state ${live ? '' : 'warn'}`} data-state={link.state}>
      <Icon name={live ? 'dot' : link.state === 'connecting' ? 'starting' : 'warning'} />
      <span>{text}</span>
    </span>
  );
}

/** Whether something is wrong with the connection, or with imgd itself. */
function Notices() {
  const link = useStore(status);
  const warning = useStore(serverWarning);
  useEffect(followWarning, []);
  return (
    <div aria-live="polite">
      {link.state === 'lost' && (
        // A break of a moment is nobody's business.
        <Later after={700}>
          <Lost since={link.since} retryAt={link.retryAt} />
        </Later>
      )}
      {link.state === 'denied' && <TokenNotice />}
      {warning && (
        <div class="notice bad">
          <Icon name="warning" size={14} />
          {warning}
        </div>
      )}
    </div>
  );
}

function Lost({ since, retryAt }: { since: number; retryAt: number }) {
  const time = useStore(now);
  const left = Math.max(Math.ceil((retryAt - time) / 1000), 0);
  return (
    <div class="notice">
      <Icon name="warning" size={14} />
      <span class="grow">
        The connection to imgd is lost since {clock(since, time)}. What you see may be old; jobs go on without
        it. <span aria-live="off">{left > 0 ? `Next try in ${left} s.` : 'Trying …'}</span>
      </span>
      <button type="button" class="small" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}

function TokenNotice() {
  return (
    <div class="notice">
      <Icon name="warning" size={14} />
      <span class="grow">imgd wants a token from who asks it by HTTP.</span>
      <button type="button" class="small" onClick={askToken}>
        Enter a token
      </button>
    </div>
  );
}
