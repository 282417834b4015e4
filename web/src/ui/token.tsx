import { useState } from 'preact/hooks';
import { logIn } from '../api/client.ts';
import { Store, useStore } from '../lib/store.ts';
import { Dialog } from './dialog.tsx';

const asked = new Store(false);

/** Opens the dialog that takes a token, or another one than before. */
export function askToken(): void {
  asked.set(true);
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
          <code>imgcli token create</code> makes one. The browser keeps it out of reach of pages, until it is
          closed.
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
