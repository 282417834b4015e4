// Questions that are asked before the code that wants their answers is here, or has got to them.

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

export function askAhead(path: string): void {
  if (ahead.has(path)) return;
  const answer = ask(path, {});
  ahead.set(path, answer);
  // Who comes later than a failure asks anew.
  const drop = () => ahead.get(path) === answer && ahead.delete(path);
  answer.then(({ ok }) => ok || drop(), drop);
}

/** What was asked for ahead, for who asks first. */
export function takeAhead(path: string): Promise<Answer> | undefined {
  const answer = ahead.get(path);
  ahead.delete(path);
  return answer;
}

/** What nobody has taken by now is old. */
export function forgetAhead(): void {
  ahead.clear();
}
