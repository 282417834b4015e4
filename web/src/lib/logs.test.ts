import assert from 'node:assert/strict';
import { test } from 'node:test';
import { plain } from './logs.ts';

test('what a program wrote for a terminal is text', () => {
  const rows: [string, string][] = [
    ['loss 3.2\tcafé', 'loss 3.2\tcafé'],
    ['\x1b[1;31mbad\x1b[0m', 'bad'],
    ['a\x1b[2J\x1b[10;5Hb', 'ab'],
    ['\x1b]0;a title\x07text', 'text'],
    ['\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\', 'link'],
    ['\x1b]0;never ended', ''],
    ['a\x1b(Bb\x1b7c\x1b', 'abc'],
    ['a\u009b2Jb', 'ab'],
    ['10 %\r20 %\r', '10 % 20 %'],
    ['a\bb', 'a b'],
    ['a\u202ecba\u202c\u2066d\u2069', 'a cba  d '],
  ];
  for (const [written, shown] of rows) assert.equal(plain(written), shown, JSON.stringify(written));
});
