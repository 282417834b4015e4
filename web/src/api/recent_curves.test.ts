import assert from 'node:assert/strict';
import { test } from 'node:test';
import { epoch } from './live.ts';
import { dropCurves, followCurves, lookAtCurves, noteStep, recentLoss, recentTop1 } from './recent_curves.ts';
import type { LiveStep } from './types.ts';

interface Question {
  job: string;
  answer(steps: readonly number[]): void;
  fail(status: number): void;
}
const questions: Question[] = [];
/** Of step 13 none is a number. */
const points = (steps: readonly number[], of: number) =>
  steps.map((step) => [step, 0, 0, step === 13 ? null : step * of]);

Object.assign(globalThis, {
  fetch: (url: string) =>
    new Promise<Response>((done) =>
      questions.push({
        job: url.split('/')[4]!,
        answer: (steps) =>
          done(
            Response.json({
              series: [
                { name: 'loss', points: points(steps, 1) },
                { name: 'top1', points: points(steps, 10) },
              ],
            }),
          ),
        fail: (status) => done(Response.json({}, { status })),
      }),
    ),
});

let drawn = 0;
followCurves(() => {
  drawn += 1;
});
const settle = () => new Promise((done) => setTimeout(done, 5));
async function next(): Promise<Question> {
  for (let i = 0; questions.length === 0; i++) {
    assert.ok(i < 2000, 'nothing was asked');
    await settle();
  }
  return questions.shift()!;
}
const tell = (job: string, step: number) =>
  noteStep({ job_id: job, generation: '1', step: String(step), loss: step, top1: step * 10 } as LiveStep);

test('curves are loaded once, one job after the other, and are the history with what was told since', async () => {
  tell('1', 3);
  lookAtCurves('1');
  const leave = lookAtCurves('2');
  const first = await next();
  assert.equal(first.job, '1');
  assert.equal(questions.length, 0, 'one after the other');
  tell('1', 4);
  tell('1', 5);
  first.answer([1, 2, 3, 4]);
  (await next()).answer([7]);
  await settle();
  // Others that are asked for later are no reason to ask for these again.
  lookAtCurves('3');
  lookAtCurves('1');
  const third = await next();
  assert.equal(third.job, '3');
  third.answer([9, 13]);
  await settle();
  assert.equal(questions.length, 0);
  assert.deepEqual(recentLoss.get('1')?.values, [1, 2, 3, 4, 5]);
  assert.deepEqual(recentTop1.get('1')?.values, [10, 20, 30, 40, 50]);
  assert.deepEqual(recentLoss.get('2')?.values, [7]);
  assert.deepEqual(recentLoss.get('3')?.values, [9, Number.NaN]);
  assert.equal(drawn, 3);
  leave();
});

test('after a break those that are looked at are loaded anew', async () => {
  epoch.set(epoch.value + 1);
  for (const job of ['1', '3']) {
    const question = await next();
    assert.equal(question.job, job);
    question.answer([1, 2, 3, 4, 5, 60]);
    await settle();
    assert.deepEqual(recentLoss.get(job)?.values, [1, 2, 3, 4, 5, 60]);
  }
  assert.equal(questions.length, 0);
});

test('what nobody looks at any more when its turn comes is not loaded, and is when somebody looks again', async () => {
  const ends = ['20', '21', '22'].map(lookAtCurves);
  const again = lookAtCurves('22');
  for (const end of ends) end();
  (await next()).answer([1]);
  const second = await next();
  assert.equal(second.job, '22', 'another still looks at it');
  second.answer([2]);
  await settle();
  assert.equal(questions.length, 0);
  again();
  lookAtCurves('20')();
  lookAtCurves('21');
  const third = await next();
  assert.equal(third.job, '21', 'that of 20 was loaded');
  third.answer([3]);
  await settle();
  assert.equal(questions.length, 0);
});

test('where it fails what is known stays, and it is tried again after the others, unless it was refused', async () => {
  tell('4', 8);
  lookAtCurves('4');
  lookAtCurves('5');
  (await next()).fail(503);
  await settle();
  assert.deepEqual(recentLoss.get('4')?.values, [8]);
  const fifth = await next();
  assert.equal(fifth.job, '5');
  fifth.fail(404);
  const again = await next();
  assert.equal(again.job, '4');
  again.answer([6, 7, 8]);
  await settle();
  assert.deepEqual(recentLoss.get('4')?.values, [6, 7, 8]);
  assert.equal(recentLoss.has('5'), false);
  assert.equal(questions.length, 0);
});

test('one that is deleted meanwhile has none', async () => {
  lookAtCurves('6');
  const question = await next();
  dropCurves('6');
  question.answer([1, 2]);
  await settle();
  assert.equal(recentLoss.has('6'), false);
});
