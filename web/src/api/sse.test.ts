import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultsOf } from './client.ts';
import { SseParser } from './sse.ts';

const parse = (...pieces: string[]) => {
  const parser = new SseParser();
  return { events: pieces.flatMap((piece) => parser.push(piece)), lastId: parser.lastId };
};

test('a stream in pieces', async (t) => {
  const text = 'id: 7\nevent: job\ndata: {"a":\ndata: 1}\n\n: here\n\nevent: step\ndata: x\n\n';
  const whole = [
    { id: '7', type: 'job', data: '{"a":\n1}' },
    { id: '7', type: 'step', data: 'x' },
  ];
  await t.test('as one', () => assert.deepEqual(parse(text).events, whole));
  await t.test('letter by letter', () => assert.deepEqual(parse(...text).events, whole));
  await t.test('with carriage returns', () =>
    assert.deepEqual(parse(text.replaceAll('\n', '\r\n')).events, whole),
  );
  await t.test('what is not ended by an empty line is no event', () =>
    assert.deepEqual(parse('data: x\n').events, []),
  );
});

test('a number without data is where to go on', () => {
  const { events, lastId } = parse('retry: 2000\nid: 41\n\n');
  assert.deepEqual(events, []);
  assert.equal(lastId, '41');
  assert.equal(parse('id: 41\n').lastId, '', 'not before the empty line');
});

test('faults of an answer', async (t) => {
  await t.test('one', () => {
    const { code, faults } = faultsOf(404, { error: { code: 'NOT_FOUND', message: 'there is no job 7' } });
    assert.equal(code, 'NOT_FOUND');
    assert.deepEqual(faults, [{ message: 'there is no job 7', line: 0, column: 0, hint: '' }]);
  });
  await t.test('several, each at its line', () => {
    const details = [
      { message: 'a', line: 3, column: 5, hint: 'b' },
      { message: 'c', line: 9, column: 1, hint: '' },
    ];
    assert.deepEqual(
      faultsOf(400, { error: { code: 'INVALID_ARGUMENT', message: 'a', details } }).faults,
      details,
    );
  });
  await t.test("a proxy's page", () => {
    assert.equal(faultsOf(502, null).faults[0]!.message, 'imgd answered with status 502');
  });
});
