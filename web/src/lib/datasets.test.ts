import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dataset, DatasetProgress, DatasetVerification } from '../api/types.ts';
import { conditionOf, progressText, shareOf, verifiedText } from './datasets.ts';

const SET: Dataset = {
  name: 'imagenet',
  address: '/data/imagenet',
  images: '1331167',
  classes: 1000,
  owner: 'ada',
  registered_us: '1',
  made_by: '0',
  verified_us: '0',
  broken: '0',
  described_us: '0',
};
const PROGRESS: DatasetProgress = {
  job_id: '7',
  doing: 'writing',
  part: 'train',
  done: '40960',
  total: '1281167',
  shards_done: '12',
  shards: '1024',
  bytes: '0',
  time_us: '1',
};

test('a set is said to be verified only where it was', () => {
  const rows: [Partial<Dataset>, string, string][] = [
    [{}, 'off', 'never verified'],
    [{ verified_us: '5' }, 'ok', 'verified'],
    [{ verified_us: '5', broken: '1' }, 'bad', '1 fault'],
    [{ verified_us: '5', broken: '13100' }, 'bad', '13\u202f100 faults'],
    [{ made_by: '7', verified_us: '5' }, 'run', 'being made'],
  ];
  for (const [more, tone, text] of rows) assert.deepEqual(conditionOf({ ...SET, ...more }), { tone, text });
});

test('how far a conversion is', () => {
  assert.equal(
    progressText(PROGRESS),
    'writing train: 40\u202f960 of 1\u202f281\u202f167 images, 12 of 1024 shards',
  );
  assert.equal(
    progressText({ ...PROGRESS, part: '', shards: '0', total: '1', done: '1' }),
    'writing: 1 of 1 image',
  );
  assert.match(
    progressText({ ...PROGRESS, doing: 'verifying', done: '1048576', total: '2097152' }),
    /^verifying train: 1\S*\sMiB of 2\S*\sMiB$/,
  );
  assert.equal(shareOf({ ...PROGRESS, done: '320', total: '640' }), 0.5);
  assert.equal(shareOf({ ...PROGRESS, done: '0', total: '0' }), 0, 'nothing is known yet');
  assert.equal(shareOf({ ...PROGRESS, done: '9', total: '8' }), 1);
});

test('what verifying looked at, and that it did not decode', () => {
  const found = { images: '10', decoded: '0', shards: '2', checksums: '2' } as DatasetVerification;
  assert.equal(verifiedText(found), '10 images, 2 shards read, 2 checksums compared, images not decoded');
  assert.equal(
    verifiedText({ ...found, decoded: '10', shards: '0', checksums: '0' }),
    '10 images, 10 decoded',
  );
});
