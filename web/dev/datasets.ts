import type { Dataset, DatasetProgress, GetDatasetResponse } from '../src/api/types.ts';
import { us } from './jobs.ts';

const NAMES = ['bench', 'chain saw', 'church', 'French horn', 'garbage truck', 'gas pump', 'golf ball', 'parachute', 'springer', 'tench']; // biome-ignore format: a list
const TOTAL = 1_803_460;
const PER_SHARD = 1200;

/** How far the canned conversion is with so many images. */
export function conversionAt(job_id: string, done: number, now: number): DatasetProgress {
  return {
    job_id,
    doing: 'writing',
    part: 'train',
    done: String(Math.min(done, TOTAL)),
    total: String(TOTAL),
    shards_done: String(Math.floor(done / PER_SHARD)),
    shards: String(Math.ceil(TOTAL / PER_SHARD)),
    bytes: String(done * 110_000),
    time_us: us(now),
  };
}

/** A second of it; what has changed. */
export function convert(sets: Map<string, Dataset>, now: number): Dataset[] {
  const changed: Dataset[] = [];
  for (const set of sets.values()) {
    if (!set.progress) continue;
    const next = { ...set, progress: conversionAt(set.made_by, Number(set.progress.done) + 2600, now) };
    sets.set(set.name, next);
    changed.push(next);
  }
  return changed;
}

/** What is known of a set: everything of some, nothing of one that is being made. */
export function factsOf(dataset: Dataset): GetDatasetResponse {
  const facts: GetDatasetResponse['facts'] = {};
  const parts: [string, number][] = [
    ['train', 26],
    ['val', 10],
  ];
  if (dataset.described_us !== '0') {
    const label = (i: number) => i % NAMES.length;
    facts.contents = {
      time_us: dataset.described_us,
      version: '0.1.0',
      told_by: `job 7 on node gpu-1`,
      parts: parts.map(([name, share]) => ({
        name,
        images: String(Math.round((Number(dataset.images) * share) / 36)),
        class_count: dataset.classes,
        classes: Array.from({ length: dataset.classes }, (_, i) => ({
          name: dataset.classes > NAMES.length ? `n0${1440764 + i * 137}` : NAMES[i]!,
          images: String(share * 5 + ((i * 7) % 23)),
        })),
      })),
      samples: parts.flatMap(([part, share]) =>
        Array.from({ length: share }, (_, i) => ({
          part,
          name: `${NAMES[label(i)]}/ILSVRC2012_${part}_000${20000 + i}.JPEG`,
          label: label(i),
          class_name: NAMES[label(i)]!,
        })),
      ),
      left_out: dataset.broken === '0' ? '0' : '1',
      left_out_images:
        dataset.broken === '0' ? [] : [{ place: 'n02105855/n02105855_2933.JPEG', reason: 'truncated' }],
    };
  }
  if (dataset.verified_us !== '0') {
    const broken = Number(dataset.broken);
    facts.verification = {
      time_us: dataset.verified_us,
      version: '0.1.0',
      told_by: 'grace',
      images: dataset.images,
      decoded: broken > 0 ? dataset.images : '0',
      shards: '1152',
      checksums: '1152',
      indexes: '1152',
      broken: dataset.broken,
      findings: Array.from({ length: Math.min(broken, 100) }, (_, i) => ({
        place: `train-000${100 + i}.tar: n0${2979186 + i * 137}/n0${2979186 + i * 137}_${i}`,
        reason: 'decodes, but is damaged: Corrupt JPEG data: premature end of data segment',
      })),
      doubtful: '0',
    };
  }
  return { dataset, facts };
}
