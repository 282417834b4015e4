import assert from 'node:assert/strict';
import { test } from 'node:test';
import { followJobs, jobsState } from './jobs_data.ts';
import { startLive } from './live.ts';

const settle = () => new Promise((done) => setTimeout(done, 5));

async function until(what: string, holds: () => boolean): Promise<void> {
  for (let i = 0; !holds(); i++) {
    assert.ok(i < 2000, `not yet: ${what}; ${JSON.stringify(jobsState.value)}`);
    await settle();
  }
}

const job = (id: number, name: string, event: number, step = 0, generation = 1) => ({
  id: String(id),
  name,
  generation: String(generation),
  state: 'JOB_STATE_RUNNING',
  placements: [],
  last_event_number: String(event),
  last_step: { step: String(step), total_steps: '100' },
});
type AnyJob = ReturnType<typeof job>;

interface Question {
  answer(jobs: AnyJob[]): void;
  fail(): void;
}

test('what the stream told since the question is kept, and nothing that was there before it', async (t) => {
  const questions: Question[] = [];
  let stream!: ReadableStreamDefaultController<Uint8Array>;
  const say = (type: string, data: unknown) =>
    stream.enqueue(new TextEncoder().encode(`event: ${type}\ndata: ${JSON.stringify(data)}\n\n`));
  let over = false;
  const answer = (url: string) => {
    if (over) return Promise.resolve(new Response('', { status: 401 }));
    if (url.endsWith('/stream'))
      return Promise.resolve(
        new Response(
          new ReadableStream({
            start(controller) {
              stream = controller;
            },
          }),
        ),
      );
    return new Promise<Response>((done) =>
      questions.push({
        answer: (jobs) => done(Response.json({ jobs, next_page_token: '', warning: '' })),
        fail: () => done(Response.json({}, { status: 503 })),
      }),
    );
  };
  Object.assign(globalThis, { document: { hidden: false }, fetch: answer });
  t.after(() => {
    // It comes back until it is refused.
    over = true;
    stream?.close();
  });
  const next = async (): Promise<Question> => {
    await until('a question', () => questions.length > 0);
    return questions.shift()!;
  };
  const shown = () =>
    jobsState.value.rows
      .map((row) => `${row.id} ${row.name} ${row.job.last_step?.step}`)
      .sort()
      .join(', ');
  const shows = (text: string) => until(`${text}`, () => shown() === text);

  followJobs();
  (await next()).answer([job(7, 'old', 70), job(9, 'old', 90)]);
  await shows('7 old 0, 9 old 0');

  // The first page is read again once the stream tells; that this fails is no fault of the list.
  startLive();
  await until('the stream', () => stream !== undefined);
  say('live', {});
  (await next()).fail();
  await settle();
  assert.equal(jobsState.value.error, '');
  const again = await next();
  say('job', job(10, 'just told', 100));
  await shows('10 just told 0, 7 old 0, 9 old 0');
  again.answer([job(7, 'old', 70)]);
  await shows('10 just told 0, 7 old 0');

  // Another state folder on the same port: its numbers are lower.
  say('reset', {});
  const restored = await next();
  say('job', job(2, 'told', 5));
  await shows('10 just told 0, 2 told 0, 7 old 0');
  restored.answer([job(7, 'restored', 3, 4), job(2, 'older', 5)]);
  await shows('2 told 0, 7 restored 4');

  // A step that was told is newer than the page, what else the page has is not older.
  say('reset', {});
  const later = await next();
  say('step', { job_id: '7', generation: '1', step: '6' });
  await shows('2 told 0, 7 restored 6');
  later.answer([job(7, 'renamed', 3, 5), job(2, 'told', 5)]);
  await shows('2 told 0, 7 renamed 6');

  // One that started again does steps again, from an older checkpoint on; of the start before nothing comes any more.
  say('job', job(7, 'again', 4, 1000, 2));
  await shows('2 told 0, 7 again 1000');
  say('step', { job_id: '7', generation: '2', step: '901' });
  await shows('2 told 0, 7 again 901');
  say('step', { job_id: '7', generation: '1', step: '1001' });
  say('step', { job_id: '7', generation: '2', step: '902' });
  await shows('2 told 0, 7 again 902');

  // What could not be read is read again, and said meanwhile.
  say('reset', {});
  (await next()).fail();
  await until('a fault', () => jobsState.value.error !== '');
  (await next()).answer([job(7, 'there', 6, 1)]);
  await shows('7 there 1');
  assert.equal(jobsState.value.error, '');
});
