// Questions that are asked before the rest of the page is here, or while it waits for something else.

/** An answer of imgd, whatever it says. */
export interface Answer {
  ok: boolean;
  status: number;
  text: string;
}

/** Of what is below /api/v1; throws where imgd can't be reached, or breaks off. */
export async function ask(path: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(`/api/v1${path}`, init);
  return { ok: response.ok, status: response.status, text: await response.text() };
}

const ahead = new Map<string, Promise<Answer>>();
// What nobody has asked for by then is old.
const AHEAD_MS = 3000;

export function askAhead(path: string): void {
  if (ahead.has(path)) return;
  const answer = ask(path, {});
  answer.catch(() => {}); // whoever takes it is told
  ahead.set(path, answer);
  setTimeout(() => ahead.get(path) === answer && ahead.delete(path), AHEAD_MS);
}

/** What was asked for ahead, for who asks first. */
export function takeAhead(path: string): Promise<Answer> | undefined {
  const answer = ahead.get(path);
  ahead.delete(path);
  return answer;
}
