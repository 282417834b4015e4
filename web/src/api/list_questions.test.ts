import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ListQuestions } from './list_questions.ts';

const old = (name: string) => ({ name, is: 'old' });
const told = (name: string) => ({ name, is: 'told' });

test('what was told while an answer was awaited is newer than it', () => {
  const questions = new ListQuestions();
  const number = questions.ask();
  for (const name of ['changed', 'made', 'gone']) questions.tell(name);
  assert.ok(questions.isNews(number));
  const known = [told('changed'), told('made'), old('forgotten')];
  assert.deepEqual(questions.merge(number, [old('changed'), old('gone'), old('other')], known), [
    old('other'),
    told('changed'),
    told('made'),
  ]);
});

test('an answer is newer than what was told before the question', () => {
  const questions = new ListQuestions();
  questions.tell('a');
  questions.ask();
  questions.tell('b');
  const number = questions.ask();
  assert.deepEqual(questions.merge(number, [old('a')], [told('a'), told('b')]), [old('a')]);
});

test('an older question’s answer is no news after a newer one’s', () => {
  const questions = new ListQuestions();
  const [first, second, third] = [questions.ask(), questions.ask(), questions.ask()];
  assert.ok(questions.isNews(second));
  assert.ok(questions.isNews(first), 'the second may still fail');
  questions.merge(second, [], []);
  assert.ok(!questions.isNews(first));
  assert.ok(questions.isNews(third));
});
