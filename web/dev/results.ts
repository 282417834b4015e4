import type { ClassFigures, ReportedCheckpoint } from '../src/api/types.ts';
import { valAt } from './curves.ts';
import { us, type WorldJob } from './jobs.ts';
import { random } from './random.ts';

const NAMES = ['bench', 'chain saw', 'church', 'French horn', 'garbage truck', 'gas pump', 'golf ball', 'parachute', 'springer', 'tench']; // biome-ignore format: a list
const IMAGES = 50;

/** Its checkpoints, one an epoch, of which the newest three are there. */
export function checkpointsOf({ job, run, step }: WorldJob): ReportedCheckpoint[] {
  const epochs = Math.floor(step / run.stepsPerEpoch);
  return Array.from({ length: epochs }, (_, i): ReportedCheckpoint => {
    const at = (epochs - i) * run.stepsPerEpoch;
    return {
      checkpoint: {
        path: `${job.checkpoint_dir}/g${job.generation}/step${at}`,
        step: String(at),
        generation: job.generation,
        size_bytes: String(204_800_000),
        manifest_sha256: '',
      },
      time_us: us(run.begun + at * run.secondsPerStep),
      presence: i < 3 ? 'CHECKPOINT_PRESENCE_HERE' : 'CHECKPOINT_PRESENCE_GONE',
    };
  });
}

/** Of the newest validation; nothing before the first. */
export function classesOf({ run, step }: WorldJob): ClassFigures | undefined {
  const epoch = Math.floor(step / run.stepsPerEpoch);
  if (epoch === 0) return undefined;
  const dice = random(run.seed + 99);
  const right = NAMES.map(() =>
    Math.round(IMAGES * Math.min(valAt(run, epoch).top1 + (dice() - 0.5) * 0.3, 1)),
  );
  const rows = NAMES.map((_, label) =>
    NAMES.map((_, answer) => {
      if (answer === label) return right[label]!;
      return answer === (label + 1) % NAMES.length ? IMAGES - right[label]! : 0;
    }),
  );
  return {
    step: String(epoch * run.stepsPerEpoch),
    epoch,
    class_count: NAMES.length,
    classes: NAMES.map((name, label) => ({
      label,
      name,
      images: String(IMAGES),
      top1: String(right[label]),
      top5: String(Math.min(right[label]! + 10, IMAGES)),
    })),
    confusion: rows.flat(),
    mistakes: NAMES.map((name, label) => ({
      name,
      answer: NAMES[(label + 1) % NAMES.length]!,
      images: IMAGES - right[label]!,
    })).sort((a, b) => b.images - a.images),
    worst: Array.from({ length: 12 }, (_, i) => ({
      name: `val/n0${2979186 + i * 137}/ILSVRC2012_val_000${10234 + i * 977}.JPEG`,
      class_name: NAMES[i % 10]!,
      answer: NAMES[(i + 3) % 10]!,
      probability: 0.99 - i * 0.01,
      loss: 9.8 - i * 0.3,
    })),
  };
}
