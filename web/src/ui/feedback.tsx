import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { Store, useStore } from '../lib/store.ts';
import { Icon } from './icons.tsx';

interface Toast {
  id: number;
  text: string;
}
const toasts = new Store<Toast[]>([]);
let next = 1;

/** Tells what was done, or not; screen readers say it. */
export function toast(text: string, stays = false): void {
  const id = next++;
  toasts.set([...toasts.value, { id, text }]);
  if (!stays) setTimeout(() => dismiss(id), 6000);
}

function dismiss(id: number): void {
  toasts.set(toasts.value.filter((one) => one.id !== id));
}

/** Runs what a button asks for, and tells how it went. */
export async function attempt(done: string, what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(error instanceof ApiError ? error.message : String(error), true);
    return false;
  }
}

export function Toasts() {
  const list = useStore(toasts);
  return (
    <div class="toasts" role="status">
      {list.map((one) => (
        <div class="toast" key={one.id}>
          <span class="grow">{one.text}</span>
          <button type="button" aria-label="Dismiss" onClick={() => dismiss(one.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

/** A modal dialog; the browser keeps the focus in it and closes it by Escape. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog ref={ref} aria-label={title} onClose={onClose}>
      {children}
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  confirm: string;
  /** Asks for a text with this label. */
  input?: { label: string; value: string };
  /** A box to tick. */
  option?: { label: string; value: boolean };
  danger?: boolean;
  answer: (result: { text: string; option: boolean } | null) => void;
}
const question = new Store<Question | null>(null);

/** Asks before something is done; null when it was not to be. */
export function ask(about: Omit<Question, 'answer'>): Promise<{ text: string; option: boolean } | null> {
  return new Promise((resolve) => {
    question.set({
      ...about,
      answer: (result) => {
        question.set(null);
        resolve(result);
      },
    });
  });
}

export function Questions() {
  const about = useStore(question);
  if (!about) return null;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    about.answer({ text: String(data.get('text') ?? ''), option: data.get('option') === 'on' });
  };
  return (
    <Dialog title={about.title} onClose={() => about.answer(null)}>
      <form onSubmit={submit}>
        <h2>{about.title}</h2>
        <p class="muted">{about.text}</p>
        {about.input && (
          <label class="field">
            {about.input.label}
            <input type="text" name="text" defaultValue={about.input.value} autocomplete="off" />
          </label>
        )}
        {about.option && (
          <label class="inline">
            <input type="checkbox" name="option" defaultChecked={about.option.value} />
            {about.option.label}
          </label>
        )}
        <div class="actions">
          <button type="button" onClick={() => about.answer(null)}>
            Back
          </button>
          <button type="submit" class={about.danger ? 'danger' : 'primary'}>
            {about.confirm}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
