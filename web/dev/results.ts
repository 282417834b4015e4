import type { ClassFigures, ReportedCheckpoint, SampleImages } from '../src/api/types.ts';
import { valAt } from './curves.ts';
import { us, type WorldJob } from './jobs.ts';
import { random } from './random.ts';

const NAMES = ['bench', 'chain saw', 'church', 'French horn', 'garbage truck', 'gas pump', 'golf ball', 'parachute', 'springer', 'tench']; // biome-ignore format: a list
const IMAGES = 50;
const FILES = [
  { name: 'model.safetensors', size_bytes: '102400000' },
  { name: 'optimizer.safetensors', size_bytes: '102396000' },
  { name: 'state.json', size_bytes: '3600' },
  { name: 'manifest.json', size_bytes: '412' },
];

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
        write_seconds: 2.4 + (i % 3) * 0.3,
      },
      time_us: us(run.begun + at * run.secondsPerStep),
      presence: i < 3 ? 'CHECKPOINT_PRESENCE_HERE' : 'CHECKPOINT_PRESENCE_GONE',
      name: `g${job.generation}-step${at}`,
      files: i < 3 ? FILES : [],
      unseen: '',
      val_top1: valAt(run, epochs - i).top1,
      kept_as: i === 0 ? ['last', 'best'] : i < 3 ? [`newest ${i + 1}`] : [],
    };
  });
}

/** Images of the newest validation: eight of the set, then the eight worst. */
export function samplesOf(one: WorldJob): SampleImages | undefined {
  const figures = classesOf(one);
  if (!figures) return undefined;
  const images = Array.from({ length: 16 }, (_, i) => {
    const worst = i >= 8;
    const label = i % NAMES.length;
    const right = !worst && i % 3 !== 2;
    return {
      name: `val/${NAMES[label]}/ILSVRC2012_val_000${20000 + i}.JPEG`,
      class_name: NAMES[label]!,
      answer: NAMES[right ? label : (label + 3) % NAMES.length]!,
      probability: worst ? 0.99 - i * 0.01 : 0.62 + i * 0.04,
      loss: worst ? 9.8 - i * 0.3 : right ? 0.4 : 2.1,
      worst,
      right,
    };
  });
  return { step: figures.step, epoch: figures.epoch, images };
}

/** A picture in place of an image's; pages ask for it by its address. */
export function samplePicture(number: number): string {
  const hue = (number * 47) % 360;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="96" height="72"><rect width="96" height="72" fill="hsl(${hue} 30% 55%)"/><circle cx="${30 + number * 2}" cy="40" r="18" fill="hsl(${hue} 60% 80%)"/></svg>`;
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
