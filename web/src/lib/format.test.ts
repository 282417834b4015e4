import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as f from './format.ts';

const table = <I, O>(name: string, what: (input: I) => O, rows: [I, O][]) =>
  test(name, () => {
    // Written here with spaces; which of them break a line is told below.
    for (const [input, output] of rows)
      assert.equal(
        typeof output === 'string' ? plain(what(input)) : what(input),
        output,
        `${name}(${String(input)})`,
      );
  });
const plain = (text: unknown) => String(text).replaceAll('\u00a0', ' ');

table('ranText', f.ranText, [
  [0, '< 1 s'],
  [0.4, '< 1 s'],
  [1.2, '1 s'],
  [Number.NaN, '–'],
]);

table('sentence', f.sentence, [
  ['', ''],
  ['no nodes have joined', 'No nodes have joined.'],
  ['it failed: exit code 3!', 'It failed: exit code 3!'],
  ['data.train: no folder', 'data.train: no folder.'],
  ['model: no such', 'model: no such.'],
  ['stopped. again', 'Stopped. again.'],
]);

table('hours', f.hours, [
  [0, '0'],
  [0.0000923, '< 0.001'],
  [0.0049, '0.00490'],
  [1934, '1934'],
]);
table('moment', f.moment, [
  [0.064, '64.0 ms'],
  [2.4, '2 s'],
]);

test('no line breaks within a number, nor between it and its unit', () => {
  for (const text of [
    f.count(1_234_567),
    f.percent(0.5),
    f.duration(3661),
    f.duration(90_000),
    f.duration(61),
    f.shortDuration(7500),
    f.bytes(2e9),
    f.millis(0.5),
    f.millis(1e-6),
    f.money(13_456, 'USD'),
    f.price(0.3456, 'USD'),
    f.unit(3, 'h'),
  ])
    assert.match(text, /^[^ \u2009]+$/);
});

table<number | string | undefined, string>('figure', (v) => f.figure(v), [
  [0, '0'],
  [0.00125, '0.00125'],
  [1.5, '1.50'],
  [41_681.4, '41\u202f681'],
  ['2600.5', '2601'],
  ['NaN', 'NaN'],
  ['Infinity', '∞'],
  [undefined, '–'],
  [Number.NaN, '–'],
  [79_774_363_754_294_496, '7.98e16'],
  [1e-9, '1.00e-9'],
  [0.00000119, '1.19e-6'],
  [0.00012, '0.000120'],
]);
table<number | string | undefined, string>('fixed', (v) => f.fixed(v, 2), [
  ['0.125', '0.13'],
  [999_999, '999999.00'],
  [5.2774e33, '5.28e33'],
  ['NaN', 'NaN'],
  [undefined, '–'],
]);
table<number | string | undefined, string>('percent', (v) => f.percent(v), [
  [0.5, '50.0 %'],
  ['NaN', 'NaN'],
  [undefined, '–'],
]);
table<number, string>('tick', f.tick, [
  [5000, '5000'],
  [15_000, '15\u202f000'],
  [0.1 + 0.2, '0.3'],
  [0, '0'],
  [1e-6, '1e-6'],
]);
table<number, string>('shortTick', f.shortTick, [
  [45_105_036_115_200, '4.511e13'],
  [-2e13, '-2e13'],
  [1e6, '1e6'],
  [1_500_000, '1.5e6'],
  [999_000, '999\u202f000'],
  [0.25, '0.25'],
  [1e-6, '1e-6'],
  [Number.NaN, '–'],
]);
table<string, string>('count', (v) => f.count(v), [
  ['18446744073709551615', '18\u202f446\u202f744\u202f073\u202f709\u202f552\u202f000'],
  ['1000', '1000'],
  ['', '–'],
]);
table<number | string | undefined, string>('millis', f.millis, [
  [0, '0 ms'],
  [1e-6, '< 0.1 ms'],
  [0.00043, '0.4 ms'],
  [0.0246, '24.6 ms'],
  [0.7102, '710 ms'],
  ['12.34', '12.3 s'],
  [undefined, '–'],
]);
table<number, string>('duration', f.duration, [
  [0.4, '0 s'],
  [59, '59 s'],
  [61, '1 min 1 s'],
  [600, '10 min'],
  [3661, '1 h 01 min'],
  [90_000, '1 d 1 h'],
  [86_400 * 20, '20 d'],
  [-1, '–'],
]);
table<number, string>('shortDuration', f.shortDuration, [
  [45, '45s'],
  [720, '12m'],
  [7500, '2h 05m'],
  [273_600, '3d 4h'],
]);
table<number, string>('bytes', f.bytes, [
  [512, '512 B'],
  [205_824_512, '196 MiB'],
  [80 * 2 ** 30, '80.0 GiB'],
]);
table<number, string>('money', (v) => f.money(v, 'USD'), [
  [0, '–'],
  [0.003, '< 0.01 USD'],
  [19.214, '19.21 USD'],
  [13_456.4, '13\u202f456 USD'],
]);
table<number, string>('price', (v) => f.price(v, 'USD'), [
  [0, '–'],
  [0.004, '0.004 USD'],
  [0.3456, '0.3456 USD'],
  [0.00012346, '0.0001235 USD'],
  [0.1 + 0.2, '0.30 USD'],
  [29.5, '29.50 USD'],
  [12.3456, '12.3456 USD'],
  [13_456.4, '13\u202f456.40 USD'],
]);
table<number, string>('relative', (at) => f.relative(at, 1_000_000), [
  [1_000_000, 'now'],
  [880_000, '2 min ago'],
  [8_500_000, 'in 2 h 05 min'],
  [Number.NaN, '–'],
]);

test('microseconds of 0 are no time', () => {
  assert.ok(Number.isNaN(f.ms('0')));
  assert.equal(f.ms('1700000000000000'), 1_700_000_000_000);
});
