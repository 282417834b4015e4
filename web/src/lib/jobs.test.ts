import assert from 'node:assert/strict';
import { test } from 'node:test';
import { makeWorld } from '../../dev/world.ts';
import type { Job, ShortState } from '../api/types.ts';
import {
  costOf,
  countStates,
  deviceHours,
  everStarted,
  faultOfPriority,
  filterJobs,
  isJobNumber,
  ranFor,
  rowOf,
  SORT_KEYS,
  type SortKey,
  secondsLeft,
  sortJobs,
  speedOf,
  totalEpochs,
} from './jobs.ts';

const rows = [...makeWorld(1_790_000_000, 400).jobs.values()].map((one) => rowOf(one.job));
const ids = (list: typeof rows) => list.map((row) => row.id);
const filter = (states: ShortState[], owner: string, text: string) =>
  filterJobs(rows, { states: new Set(states), owner, text });

test('filters', async (t) => {
  await t.test('none: all', () => assert.equal(filter([], '', '').length, 400));
  await t.test('states are one or the other', () => {
    const found = filter(['FAILED', 'RUNNING'], '', '');
    assert.ok(found.length > 0 && found.every((row) => row.state === 'FAILED' || row.state === 'RUNNING'));
  });
  await t.test('owner is exact', () => assert.ok(filter([], 'ada', '').every((row) => row.owner === 'ada')));
  await t.test('words of a search are all wanted, in any case', () => {
    const found = filter([], '', 'RN50 failed');
    assert.ok(
      found.length > 0 && found.every((row) => row.name.includes('rn50') && row.why.includes('failed')),
    );
  });
  await t.test('a number finds its job', () => assert.ok(ids(filter([], '', '371')).includes(371)));
  await t.test('nodes are searched too', () => assert.ok(filter(['RUNNING'], '', 'gpu-11').length === 1));
});

test('each column sorts both ways, with what has no figure last', () => {
  for (const key of SORT_KEYS) {
    for (const descending of [false, true]) {
      const sorted = sortJobs(rows, key, descending);
      assert.equal(sorted.length, rows.length);
      const value = (i: number) => sorted[i]![key as Exclude<SortKey, 'state'>];
      const firstMissing = sorted.findIndex((_, i) => Number.isNaN(value(i)));
      if (firstMissing >= 0)
        assert.ok(
          sorted.slice(firstMissing).every((_, i) => Number.isNaN(value(firstMissing + i))),
          key,
        );
    }
  }
});

test('by state: what lives first, then what is over, newest first', () => {
  const sorted = sortJobs(rows, 'state', false);
  assert.equal(sorted[0]!.state, 'RUNNING');
  const over = sorted.filter((row) => ['COMPLETED', 'FAILED', 'CANCELLED'].includes(row.state));
  assert.deepEqual(
    ids(over),
    [...ids(over)].sort((a, b) => b - a),
  );
});

test('by age: the youngest first', () => {
  const sorted = sortJobs(rows, 'age', false);
  assert.ok(sorted[0]!.submitted >= sorted[399]!.submitted);
});

test('states are counted', () => {
  const counts = countStates(rows);
  assert.equal(
    [...counts.values()].reduce((a, b) => a + b, 0),
    400,
  );
  assert.equal(counts.get('RUNNING'), 8);
});

test('what a run lacks is no figure', () => {
  const queued = rows.find((row) => row.state === 'QUEUED')!;
  for (const value of [queued.progress, queued.eta, queued.speed, queued.loss, queued.top1])
    assert.ok(Number.isNaN(value));
});

test('top-1 is that of validation: that of training is no figure to sort beside it', () => {
  const { job } = rows.find((row) => row.state === 'RUNNING' && row.job.last_epoch)!;
  assert.equal(rowOf(job).top1, job.last_epoch!.val_top1);
  const { last_epoch: _, ...young } = job;
  assert.ok(Number.isFinite(job.last_step!.top1));
  assert.ok(Number.isNaN(rowOf(young as Job).top1));
});

test('numbers that no job can have', () => {
  for (const good of ['1', '999', '9007199254740991']) assert.ok(isJobNumber(good), good);
  for (const bad of ['0', '', 'x', '1.5', '-1', '9007199254740992', '99999999999999999999'])
    assert.ok(!isJobNumber(bad), bad);
});

test('a priority is a whole number from -1000 to 1000', () => {
  for (const good of ['0', ' 7 ', '-1000', '1000', '+5']) assert.equal(faultOfPriority(good), '', good);
  for (const bad of ['', ' ', '1001', '-1001', '999999999999', '1.5', '1e2', 'high', '0x10', 'NaN'])
    assert.match(faultOfPriority(bad), /from -1000 to 1000/, bad);
});

test('a job ran as long as it held its devices, over all its starts', () => {
  const NOW = 10_000_000;
  const job = (
    state: ShortState,
    started: number,
    ended: number,
    held: number,
    more: Partial<Job> = {},
  ): Job =>
    ({
      state: `JOB_STATE_${state}`,
      started_us: String(started * 1e6),
      ended_us: String(ended * 1e6),
      held_ms: String(held * 1000),
      ...more,
    }) as Job;
  const cases: [string, Job, number][] = [
    ['once', job('COMPLETED', 100, 700, 600), 600],
    ['twice, with a night between', job('COMPLETED', 9000, 9400, 1000), 1000],
    ['in its second start', job('RUNNING', 9900, 0, 600), 700],
    ['back in the queue', job('QUEUED', 9000, 0, 600), 600],
    ['started by hand', job('COMPLETED', 100, 700, 0, { external: { hosts: [], last_heard_us: '0', token: '' } }), 600],
    ['never started', job('QUEUED', 0, 0, 0), Number.NaN],
  ]; // biome-ignore format: a table
  for (const [what, one, seconds] of cases) assert.equal(ranFor(one, NOW), seconds, what);
});

test('a job that was stopped early shows how far it came', () => {
  const [job] = [...makeWorld(1_790_000_000, 400).jobs.values()]
    .map((one) => one.job)
    .filter((one) => one.state === 'JOB_STATE_COMPLETED');
  assert.ok(job?.last_step && job.last_epoch);
  const at = (step: number, validated: number, changes: Partial<Job> = {}) =>
    rowOf({
      ...job,
      ...changes,
      last_step: { ...job.last_step!, step: String(step), total_steps: '100' },
      last_epoch: { ...job.last_epoch!, step: String(validated) },
    }).progress;
  assert.equal(at(97, 100), 1);
  assert.equal(at(31, 40), 0.4);
  assert.equal(at(43, 0, { reason: 'REASON_CODE_HALVED' }), 0.43);
});

/** Runs since the second 1000 on eight devices. */
const onEight: Job = {
  ...rows.find((row) => !row.job.external)!.job,
  state: 'JOB_STATE_RUNNING',
  started_us: String(1000e6),
  nodes: 2,
  nodes_now: 2,
  ranks_per_node: 4,
  device_hours: 0,
  max_nodes: 2,
  held_ms: '0',
};

test('device-hours of what runs are those of now, and of what has ended what was counted', () => {
  const job = { ...onEight, held_ms: '3600000', device_hours: 20, told_ms: 1000e3 + 900_000 };
  assert.equal(deviceHours(job, 1000e3 + 1_800_000), 22, 'what was told has what it held until then');
  assert.equal(deviceHours(job, 1000e3), 20, 'the clock was set back');
  assert.equal(deviceHours({ ...job, state: 'JOB_STATE_FAILED', device_hours: 1 }, 1000e3 + 1_800_000), 1);
  assert.equal(deviceHours({ ...job, state: 'JOB_STATE_QUEUED' }, 1e12), 20);
});

test('what a job costs grows with its device-hours between two counts of imgd', () => {
  const job: Job = { ...onEight, device_hours: 4, cost: 10, told_ms: 1000e3 };
  assert.equal(costOf(job, 1000e3 + 1_800_000), 20);
  assert.equal(costOf({ ...job, state: 'JOB_STATE_FAILED' }, 1000e3 + 1_800_000), 10);
  assert.equal(costOf({ ...job, device_hours: 0, cost: 0 }, 1000e3 + 1_800_000), 0, 'nothing is counted yet');
});

test('a job that had devices was started, also where it failed before its first step', () => {
  assert.equal(everStarted({ generation: '1' } as Job), true);
  assert.equal(everStarted({ generation: '0' } as Job), false);
  assert.equal(everStarted({ generation: '0', external: { hosts: [] } } as unknown as Job), true);
});

test('how many epochs a run has is known before the first validation', () => {
  const validated = { total_epochs: 9 } as Job['last_epoch'];
  assert.equal(totalEpochs({ job_yaml: 'name: a\ntrain: {epochs: 4, batch: 8}\n' } as Job), 4);
  assert.equal(totalEpochs({ job_yaml: 'name: a\n', last_epoch: validated } as Job), 9);
  assert.equal(totalEpochs({ last_epoch: validated } as Job), 9, 'of a run that was started by hand');
  assert.ok(Number.isNaN(totalEpochs({ job_yaml: 'name: a\n' } as Job)));
});

test('the time that is left is known only while a job runs and imgd knows it', () => {
  const job = (state: string, eta_seconds: unknown) => ({ state, last_step: { eta_seconds } }) as Job;
  assert.equal(secondsLeft(job('JOB_STATE_RUNNING', 90.5)), 90.5);
  for (const one of [
    job('JOB_STATE_RUNNING', 0),
    job('JOB_STATE_RUNNING', 'NaN'),
    job('JOB_STATE_PAUSED', 90.5),
    { state: 'JOB_STATE_RUNNING' } as Job,
  ])
    assert.ok(Number.isNaN(secondsLeft(one)));
});

test('a start that has reported nothing yet has no speed', () => {
  const job = (state: string, images_per_second: unknown) =>
    ({ state, last_step: { images_per_second } }) as Job;
  assert.equal(speedOf(job('JOB_STATE_RUNNING', 812)), 812);
  assert.ok(Number.isNaN(speedOf(job('JOB_STATE_RUNNING', 0))));
  assert.ok(Number.isNaN(speedOf(job('JOB_STATE_STARTING', 812))));
});
