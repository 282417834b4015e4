import { useState } from 'preact/hooks';
import { isLoggedIn, logIn, logOut } from '../api/client.ts';
import { status } from '../api/live.ts';
import { Store, useStore } from '../lib/store.ts';
import { Dialog } from './dialog.tsx';
import { attempt } from './feedback.tsx';
import { Icon } from './icons.tsx';

const asked = new Store(false);

/** Opens the dialog that takes a token, or another one than before. */
export function askToken(): void {
  asked.set(true);
}

/** Nothing where nobody has logged in, or imgd takes the session no more. */
export function LogOutButton() {
  const link = useStore(status);
  if (link.state === 'denied' || !isLoggedIn()) return null;
  return (
    <button
      type="button"
      class="plain icon"
      onClick={() => void attempt('', logOut)}
      aria-label="Log out"
      title="Log out"
    >
      <Icon name="out" size={15} />
    </button>
  );
}

export function TokenDialog() {
  return useStore(asked) ? <OpenDialog /> : null;
}

function OpenDialog() {
  const [error, setError] = useState('');
  const close = () => asked.set(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    try {
      await logIn(String(new FormData(form).get('token') ?? ''));
      close();
    } catch (refused) {
      setError(refused instanceof Error ? refused.message : String(refused));
    }
  };
  return (
    <Dialog title="Token" onClose={close}>
      <form onSubmit={submit}>
        <h2>Token</h2>
        <p class="muted">
          <code>imgcli token create</code> makes one. The browser gets a session for it that lasts 24 hours,
          or until you log out; the token itself is not kept.
        </p>
        <label class="field">
          Token
          <input type="password" name="token" autocomplete="off" required />
        </label>
        {error && <p role="alert">{error}</p>}
        <div class="actions">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary">
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
