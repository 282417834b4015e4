import { useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { status } from '../api/live.ts';
import { Store, useStore } from '../lib/store.ts';
import { Dialog } from './dialog.tsx';
import { Icon } from './icons.tsx';
import { askToken } from './token.tsx';

/** What a refusal says, and what could be done about it. */
export interface Refused {
  text: string;
  /** imgd could not be asked at all. */
  unreachable: boolean;
  /** Who asks has no right to it: another token may have. */
  rights: boolean;
}

export function refusedBy(error: unknown): Refused {
  if (!(error instanceof ApiError)) return { text: String(error), unreachable: false, rights: false };
  const { message: text, status: code } = error;
  return { text, unreachable: code === 0, rights: code === 401 || code === 403 };
}

interface Toast extends Refused {
  id: number;
}
const toasts = new Store<Toast[]>([]);
let next = 1;

const DONE_MS = 6000;
const REFUSED_MS = 20_000;
const AGAIN_MS = 1000;

/** Tells what was done; screen readers say it. */
export function toast(text: string): void {
  show({ text, unreachable: false, rights: false }, DONE_MS);
}

/** Of one text there is one. */
function show(what: Refused, milliseconds: number): void {
  const id = next++;
  toasts.set([...toasts.value.filter((one) => one.text !== what.text), { id, ...what }]);
  dismissAfter(id, milliseconds);
}

function dismissAfter(id: number, milliseconds: number): void {
  setTimeout(() => {
    // Somebody reads it, or is about to press its button.
    if (document.querySelector('.toasts:is(:hover, :focus-within)')) dismissAfter(id, AGAIN_MS);
    else dismiss(id);
  }, milliseconds);
}

function dismiss(id: number): void {
  toasts.set(toasts.value.filter((one) => one.id !== id));
}

// What could not be asked can be asked again.
status.listen(() => {
  if (status.value.state === 'live' && toasts.value.some((one) => one.unreachable))
    toasts.set(toasts.value.filter((one) => !one.unreachable));
});

/** Runs what a button asks for, and tells how it went. */
export async function attempt(done: string, what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    if (done) toast(done);
    return true;
  } catch (error) {
    show(refusedBy(error), REFUSED_MS);
    return false;
  }
}

export function OtherToken() {
  return (
    <button type="button" class="small" onClick={askToken}>
      Enter another token
    </button>
  );
}

/** In a dialog, which a toast would be behind. */
export function Refusal({ of }: { of: Refused }) {
  return (
    <p role="alert" id="wrong" class="bad">
      {of.text} {of.rights && <OtherToken />}
    </p>
  );
}

export function Toasts() {
  const list = useStore(toasts);
  return (
    <div class="toasts" role="status">
      {list.map((one) => (
        <div class="toast" key={one.id}>
          <span class="grow">
            {one.text} {one.rights && <OtherToken />}
          </span>
          <button type="button" class="close" aria-label="Dismiss" onClick={() => dismiss(one.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

interface Answer {
  text: string;
  option: boolean;
}

interface Question {
  title: string;
  text: string;
  confirm: string;
  /** Asks for a text with this label. */
  input?: { label: string; value: string };
  /** What is wrong with a text, before anything is done with it; empty when nothing is. */
  check?: (text: string) => string;
  /** Does what was asked for while the dialog is open: where it is refused, that is said in it. */
  act?: (answer: Answer) => Promise<unknown>;
  /** A box to tick. */
  option?: { label: string; value: boolean };
  danger?: boolean;
  answer: (result: Answer | null) => void;
}
const question = new Store<Question | null>(null);

/** Asks before something is done; null when it was not to be. */
export function ask(about: Omit<Question, 'answer'>): Promise<Answer | null> {
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
  return about && <QuestionDialog about={about} />;
}

function QuestionDialog({ about }: { about: Question }) {
  const [wrong, setWrong] = useState<Refused | null>(null);
  const [acts, setActs] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const answer = { text: String(data.get('text') ?? ''), option: data.get('option') === 'on' };
    const text = about.check?.(answer.text);
    if (text) return setWrong({ text, unreachable: false, rights: false });
    setWrong(null);
    setActs(true);
    try {
      await about.act?.(answer);
      about.answer(answer);
    } catch (error) {
      setWrong(refusedBy(error));
    }
    setActs(false);
  };
  return (
    <Dialog title={about.title} onClose={() => about.answer(null)}>
      <form onSubmit={submit}>
        <h2>{about.title}</h2>
        <p class="muted">{about.text}</p>
        {about.input && (
          <label class="field">
            {about.input.label}
            <input
              type="text"
              name="text"
              defaultValue={about.input.value}
              autocomplete="off"
              aria-invalid={wrong !== null}
              aria-describedby={wrong ? 'wrong' : undefined}
            />
          </label>
        )}
        {about.option && (
          <label class="inline">
            <input type="checkbox" name="option" defaultChecked={about.option.value} />
            {about.option.label}
          </label>
        )}
        {wrong && <Refusal of={wrong} />}
        <div class="actions">
          <button type="button" onClick={() => about.answer(null)}>
            Back
          </button>
          <button type="submit" class={about.danger ? 'danger' : 'primary'} disabled={acts}>
            {about.confirm}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
