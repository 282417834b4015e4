import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GetJobResponse, MetricPoint, ReportedCheckpoint } from '../api/types.ts';
import { MARK_TONES, type Mark, markAt, marksOf, phaseStarts, toDraw } from './marks.ts';

const point = (x: number, value: number): MetricPoint => [x, value, value, value];
const AXES = {
  time: [[point(100, 0.9), point(200, 0.8), point(300, 0.7)]],
  epoch: [[point(1, 0.9), point(2, 0.8), point(3, 0.7)]],
  axis: [[point(10, 0.9), point(20, 0.8), point(30, 0.7)]],
};
const change = (at: number, from: string, to: string, generation = '1', reason = '') => ({
  number: '1',
  time_us: String(at * 1e6),
  generation,
  state_change: {
    from: `JOB_STATE_${from}`,
    to: `JOB_STATE_${to}`,
    reason,
    text: `${from} ${to}`,
    actor: '',
  },
});
const data = (...history: unknown[]) =>
  ({ job: { job_yaml: 'phases:\n  - epochs: 2\n  - {epochs: 3}\n' }, history }) as unknown as GetJobResponse;
const checkpoint = { checkpoint: { step: '25' }, time_us: '250000000' } as ReportedCheckpoint;

test('what happened has its place on every axis', () => {
  const history = [
    change(150, 'RUNNING', 'PREEMPTING'),
    change(250, 'STARTING', 'RUNNING', '2'),
    change(300, 'RUNNING', 'QUEUED', '2'),
    change(120, 'UNSPECIFIED', 'QUEUED'),
    change(125, 'QUEUED', 'QUEUED'),
  ];
  const rows: ['step' | 'epoch' | 'time' | 'images', MetricPoint[], number[]][] = [
    ['step', AXES.axis[0]!, [15, 25, 30, 25, 20]],
    ['epoch', AXES.epoch[0]!, [1.5, 2.5, 3, 2.5, 2]],
    ['time', AXES.time[0]!, [150, 250, 300, 250, 200]],
    ['images', [point(1000, 0.9), point(2000, 0.8), point(3000, 0.7)], [1500, 2500, 3000, 2500, 2000]],
  ];
  for (const [axis, points, wanted] of rows) {
    const marks = marksOf(data(...history), [checkpoint], axis, { ...AXES, axis: [points] });
    assert.deepEqual(
      marks.map((mark) => mark.x),
      wanted,
      axis,
    );
    assert.deepEqual(
      marks.map((mark) => mark.tone),
      ['warn', 's5', 'bad', 'muted', 'text'],
      axis,
    );
  }
});

test('a resize is told from a preemption, and what starts a job again from its first start', () => {
  const tones = (...history: unknown[]) =>
    marksOf({ ...data(...history), job: { job_yaml: '' } } as GetJobResponse, [], 'time', AXES).map(
      (mark) => mark.tone,
    );
  assert.deepEqual(tones(change(150, 'RUNNING', 'PREEMPTING', '1', 'REASON_CODE_GROWS')), ['s5']);
  assert.deepEqual(tones(change(150, 'PREEMPTING', 'QUEUED', '1', 'REASON_CODE_GROWS')), []);
  assert.deepEqual(tones(change(150, 'QUEUED', 'STARTING', '2', 'REASON_CODE_RESIZED')), ['s5']);
  assert.deepEqual(tones(change(150, 'QUEUED', 'STARTING', '2', 'REASON_CODE_PLACED')), []);
  assert.deepEqual(tones(change(150, 'STARTING', 'QUEUED', '2', 'REASON_CODE_MOVED_BY_USER')), ['warn']);
  assert.deepEqual(tones(change(150, 'STARTING', 'QUEUED', '2', 'REASON_CODE_START_FAILED')), ['bad']);
  assert.deepEqual(tones(change(150, 'RUNNING', 'PREEMPTING', '1', 'REASON_CODE_PREEMPTED')), ['warn']);
  assert.deepEqual(tones(change(150, 'RUNNING', 'PAUSED')), ['warn']);
  assert.deepEqual(tones(change(150, 'RUNNING', 'FAILED')), ['bad']);
  assert.deepEqual(tones(change(150, 'STARTING', 'RUNNING', '1')), []);
  assert.deepEqual(tones(change(150, 'STARTING', 'RUNNING', '2')), ['s5']);
});

test('what ended a job after its last report is where its curves end', () => {
  for (const [axis, end] of [
    ['time', 300],
    ['step', 30],
    ['epoch', 3],
  ] as const) {
    const layouts =
      axis === 'epoch'
        ? { ...AXES, axis: AXES.epoch }
        : axis === 'time'
          ? { ...AXES, axis: AXES.time }
          : AXES;
    const marks = marksOf(data(change(900, 'RUNNING', 'FAILED')), [], axis, layouts);
    assert.deepEqual(
      marks.filter(({ tone }) => tone === 'bad').map(({ x }) => x),
      [end],
      axis,
    );
  }
  assert.deepEqual(
    marksOf(data(change(900, 'RUNNING', 'FAILED')), [], 'step', { time: [], epoch: [], axis: [] }),
    [],
  );
});

test('values that are alike, or no numbers, are places of their own', () => {
  for (const alike of [Number.NaN, 0.9]) {
    const layouts = {
      // The first was done again.
      time: [[point(100, alike), point(200, 0.8), point(300, alike), point(400, alike)]],
      epoch: [],
      axis: [[point(10, 0.8), point(20, alike), point(30, alike)]],
    };
    const history = [change(250, 'RUNNING', 'PREEMPTING'), change(350, 'RUNNING', 'FAILED')];
    const marks = marksOf(
      { ...data(...history), job: { job_yaml: '' } } as GetJobResponse,
      [],
      'step',
      layouts,
    );
    assert.deepEqual(
      marks.map((mark) => mark.x),
      [15, 25],
      `${alike}`,
    );
  }
});

test('another priority is no mark, whatever the job does', () => {
  const changed = (['QUEUED', 'RUNNING', 'PREEMPTING', 'PAUSED'] as const).map((state) =>
    change(150, state, state, '2', 'REASON_CODE_CHANGED_BY_USER'),
  );
  assert.deepEqual(
    marksOf({ ...data(...changed), job: { job_yaml: '' } } as GetJobResponse, [], 'time', AXES),
    [],
  );
});

test('each kind of mark has a sign and words of its own: colour alone says nothing', () => {
  const kinds = Object.values(MARK_TONES);
  for (const key of ['sign', 'text'] as const)
    assert.equal(new Set(kinds.map((kind) => kind[key])).size, kinds.length, key);
  assert.ok(kinds.every(({ sign }) => sign.length === 1));
});

test('phases begin where those before them end', () => {
  assert.deepEqual(
    phaseStarts('phases:\n  - {epochs: 10, image_size: 128}\n  - epochs: 6\n  - epochs: 2\n'),
    [
      [10, 2],
      [16, 3],
    ],
  );
  assert.deepEqual(phaseStarts('epochs: 90\n'), []);
  assert.deepEqual(phaseStarts('phases: [{until: 5}, {epochs: 10}, {image_size: 224}]\n'), [
    [5, 2],
    [15, 3],
  ]);
  assert.deepEqual(
    phaseStarts(
      'phases:\n- image_size: 128\n  until: 6\n- image_size: 160\n  until: 14\n-\n  image_size: 224\n',
    ),
    [
      [6, 2],
      [14, 3],
    ],
  );
});

const mark = (x: number, tone: Mark['tone']): Mark => ({ x, tone, text: `${tone} ${x}` });

test('of many checkpoints some are drawn, and of all else everything, in front of them', () => {
  const saved = Array.from({ length: 1000 }, (_, i) => mark(i, 'muted'));
  const others = [mark(500, 'bad'), mark(500.5, 'warn'), mark(501, 's5'), mark(501, 'text')];
  const drawn = toDraw([...others, ...saved], (x) => x / 2, 10);
  assert.deepEqual(drawn.slice(-4), others);
  const places = drawn.slice(0, -4).map((one) => one.x / 2);
  assert.equal(places[0], 999 / 2, 'the newest');
  assert.ok(places.length >= 45 && places.length <= 50, `${places.length} checkpoints`);
  assert.ok(places.every((place, i) => i === 0 || places[i - 1]! - place >= 10));
});

test('where a failure and a checkpoint are, the failure is named', () => {
  const marks = [mark(99, 'muted'), mark(100, 'muted'), mark(104, 'bad')];
  assert.equal(markAt(marks, 100, 5)?.tone, 'bad');
  assert.equal(markAt(marks, 97, 5)?.x, 99);
  assert.equal(markAt(marks, 50, 5), undefined);
});
