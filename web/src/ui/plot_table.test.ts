import assert from 'node:assert/strict';
import { test } from 'node:test';
import type uPlot from 'uplot';
import type { MetricPoint } from '../api/types.ts';
import { has, type Line, seriesFor, tableOf, valueAt } from './plot_table.ts';

const points: MetricPoint[] = [
  [1, 8, 8, 8, 8],
  [2, 3, 9, 4, 6],
];
const line = (more: Partial<Line> = {}): Line => ({ label: 'training', colour: 's1', points, ...more });
const kinds = (lines: Line[], smoothing = 0.6) => tableOf(lines, smoothing).series.map((one) => one.kind);

test('behind a smoothed curve is the raw one, faint and thin, and behind that the band of its peaks', () => {
  const { data, series } = tableOf([line()], 0.6);
  assert.deepEqual(
    series.map((one) => one.kind),
    ['high', 'low', 'raw', 'line'],
  );
  assert.deepEqual(data, [
    [1, 2],
    [8, 9],
    [8, 3],
    [8, 4],
    [8, 6],
  ]);
  const [, , raw, smooth] = series.map((one) => seriesFor(one, 'rgb(1, 2, 3)'));
  assert.equal(smooth!.stroke, 'rgb(1, 2, 3)');
  assert.equal(raw!.stroke, 'rgba(1, 2, 3, 0.38)');
  assert.ok(raw!.width! < smooth!.width!);
});

test('a curve that is not smoothed is drawn itself, and validations are dots', () => {
  assert.deepEqual(kinds([line()], 0), ['high', 'low', 'line']);
  assert.deepEqual(kinds([line({ points: [[1, 8, 8, 8]] })]), ['line'], 'the server smoothed nothing');
  assert.deepEqual(kinds([line({ sparse: true })]), ['dots']);
  assert.equal(seriesFor(tableOf([line({ sparse: true })], 0).series[0]!, 'rgb(1, 2, 3)').points?.show, true);
});

test('of many curves the peaks have no bands, which would hide one another: the raw curve goes through them', () => {
  const spike: MetricPoint[] = [
    [1, 3, 4, 3, 3],
    [2, 3, 70, 4, 4],
    [3, 3, 4, 3, 4],
  ];
  const many = ['a', 'b', 'c', 'd'].map((label) => line({ label, points: spike, dash: [2, 3] }));
  for (const smoothing of [0, 0.6]) {
    const { data, series } = tableOf(many, smoothing);
    assert.deepEqual(
      series.map((one) => one.kind),
      Array(4).fill(['raw', 'line']).flat(),
    );
    for (const column of [1, 3, 5, 7])
      assert.ok(data[column]!.includes(70), 'the spike of one report is drawn');
    // The table behind the chart and the legend say the last values, or the smoothed ones.
    assert.deepEqual(data[2], smoothing > 0 ? [3, 4, 4] : [3, 4, 3]);
    assert.deepEqual(series[0]!.dash, [], 'no gap hides it');
    assert.deepEqual(series[1]!.dash, [2, 3]);
  }
});

test('of many curves of which each report is a point, the raw one is behind the smoothed one alone', () => {
  const many = ['a', 'b', 'c', 'd'].map((label) => line({ label, points: [[1, 8, 8, 8, 7]] }));
  assert.deepEqual(kinds(many), Array(4).fill(['raw', 'line']).flat());
  assert.deepEqual(kinds(many, 0), Array(4).fill('line'));
});

const plotOf = (...data: (number | null)[][]) =>
  ({ data, valToPos: (x: number) => 10 * x }) as unknown as uPlot;

test('one value alone is a dot, as it is no line', () => {
  const { filter } = seriesFor(tableOf([line()], 0).series.at(-1)!, 'rgb(1, 2, 3)').points!;
  const shown = (...data: (number | null)[][]) =>
    (filter as (u: uPlot, i: number) => number[] | null)(plotOf(...data), 1);
  assert.deepEqual(shown([1], [8]), [0]);
  assert.equal(shown([1, 2], [8, 9]), null);
});

test('a curve goes over the places of others, and is broken where the job went on', () => {
  const gaps = (resumed: number[]) => {
    const { series } = tableOf([line({ resumed })], 0.6);
    return series.map((one) => {
      const found = seriesFor(one, 'rgb(1, 2, 3)').gaps as unknown as (u: uPlot, i: number) => number[][];
      return found(plotOf([1, 2, 3, 4], [8, null, 8, 8]), 1);
    });
  };
  assert.deepEqual(gaps([]), Array(4).fill([]));
  assert.deepEqual(gaps([2]), Array(4).fill([[10, 30]]), 'the raw curve and the band of its peaks too');
});

test('a curve is broken where its own value is no number, and goes on over the places of others', () => {
  const nan = Number.NaN;
  const diverged: MetricPoint[] = [
    [1, 8, 8, 8],
    [3, nan, nan, nan],
    [4, 7, 7, 7],
    [5, nan, nan, nan],
    [6, 9, 9, 9],
    [8, 9, 9, 9],
  ];
  const other: MetricPoint[] = [1, 2, 3, 7, 8].map((x) => [x, 1, 2, 2]);
  const lines = [line({ points: diverged }), line({ points: other }), line(), line()];
  const { data, series } = tableOf(lines, 0);
  const look = (i: number) => seriesFor(series[i]!, 'rgb(1, 2, 3)');
  const plot = plotOf(...(data as number[][]));
  const gaps = (i: number) => (look(i).gaps as unknown as (u: uPlot, i: number) => number[][])(plot, i + 1);
  const alone = (i: number) =>
    (look(i).points!.filter as (u: uPlot, i: number) => number[] | null)(plot, i + 1);
  assert.deepEqual(
    series.map((one) => one.kind),
    ['line', 'raw', 'line', 'raw', 'line', 'raw', 'line'],
  );
  assert.deepEqual(gaps(0), [
    [10, 40],
    [40, 60],
  ]);
  assert.deepEqual(alone(0), [0, 3], 'places of x 1 and 4');
  assert.deepEqual(gaps(1).concat(gaps(2)), [], 'the others are whole');
});

test('what a line says at a place is that of its last point there, and that it is no number where it is none', () => {
  const diverged: MetricPoint[] = [
    [10, 2, 3, 2, 2.5],
    [20, Number.NaN, Number.NaN, Number.NaN, Number.NaN],
    // As of a server that has a mean of those before.
    [30, Number.NaN, Number.NaN, Number.NaN, 2.5],
  ];
  const rows: [number, number, number | null][] = [
    [5, 0, null],
    [10, 0, 2],
    [10, 0.6, 2.5],
    [15, 0.6, 2.5],
    [20, 0, Number.NaN],
    [20, 0.6, Number.NaN],
    [30, 0.6, Number.NaN],
    [99, 0, Number.NaN],
  ];
  for (const [x, smoothing, wanted] of rows)
    assert.equal(valueAt(line({ points: diverged }), x, smoothing), wanted, `${x} ${smoothing}`);
  assert.equal(valueAt(line({ sparse: true }), 2, 0.6), 4, 'validations are not smoothed');
});

test('a chart whose points have no number has nothing to draw', () => {
  const nothing: MetricPoint[] = [[1, Number.NaN, Number.NaN, Number.NaN]];
  assert.ok(!has([]) && !has([line({ points: [] })]) && !has([line({ points: nothing })]));
  assert.ok(has([line({ points: nothing }), line()]));
});
