// What a training run of the canned world shows at each step: smooth laws with noise that is always the same.
import type { MetricAxis, MetricPoint, MetricSeries, RankStretch } from '../src/api/types.ts';
import { noise } from './random.ts';

/** What the curves of a run follow from. */
export interface Run {
  seed: number;
  epochs: number;
  stepsPerEpoch: number;
  /** Seconds since 1970. */
  begun: number;
  secondsPerStep: number;
  batch: number;
  rate: number;
  /** 0 to 1: how good it gets. */
  skill: number;
  /** A step whose loss is far from all others'. */
  spike?: { step: number; loss: number };
}

export const LOG_EVERY = 50;

function learned(run: Run, step: number): number {
  const share = step / (run.epochs * run.stepsPerEpoch);
  return 1 - Math.exp(-4.2 * share) * (1 - 0.15 * share);
}

export function lossAt(run: Run, step: number): number {
  if (run.spike && Math.floor(step / LOG_EVERY) === Math.floor(run.spike.step / LOG_EVERY))
    return run.spike.loss;
  const base = 6.9 - (6.9 - 1.35 - (1 - run.skill)) * learned(run, step);
  const peak = noise(run.seed + 7, Math.floor(step / LOG_EVERY)) > 0.995 ? 1.4 : 0;
  return base + 0.16 * noise(run.seed, step) * (0.4 + base / 7) + peak;
}

export function top1At(run: Run, step: number): number {
  return Math.max(0.001, (0.62 + 0.1 * run.skill) * learned(run, step) + 0.018 * noise(run.seed + 1, step));
}

export function rateAt(run: Run, step: number): number {
  const warm = 5 * run.stepsPerEpoch;
  const total = run.epochs * run.stepsPerEpoch;
  if (step < warm) return (run.rate * step) / warm;
  return (run.rate * (1 + Math.cos((Math.PI * (step - warm)) / (total - warm)))) / 2;
}

export function speedAt(run: Run, step: number): number {
  const dip = noise(run.seed + 3, Math.floor(step / 900)) > 0.93 ? 0.72 : 1;
  return (run.batch / run.secondsPerStep) * dip * (1 + 0.025 * noise(run.seed + 2, step));
}

export function valAt(run: Run, epoch: number): { loss: number; top1: number; top5: number } {
  const share = learned(run, epoch * run.stepsPerEpoch);
  const top1 = (0.66 + 0.12 * run.skill) * share + 0.006 * noise(run.seed + 5, epoch);
  return { loss: 6.9 - (6.9 - 1.0 - (1 - run.skill)) * share, top1, top5: Math.min(0.955, top1 ** 0.42) };
}

export function xOf(run: Run, step: number, axis: MetricAxis): number {
  if (axis === 'step') return step;
  if (axis === 'images') return step * run.batch;
  return axis === 'epoch' ? step / run.stepsPerEpoch : run.begun + step * run.secondsPerStep;
}

const TRAINING: Record<string, (run: Run, step: number) => number> = {
  loss: lossAt,
  top1: top1At,
  learning_rate: rateAt,
  images_per_second: speedAt,
  input_seconds: (run, step) => run.secondsPerStep * (0.012 + 0.006 * noise(run.seed + 8, step)),
  forward_seconds: (run, step) => run.secondsPerStep * (0.31 + 0.01 * noise(run.seed + 9, step)),
  backward_seconds: (run, step) => run.secondsPerStep * (0.53 + 0.015 * noise(run.seed + 10, step)),
  communication_seconds: (run, step) => run.secondsPerStep * (0.11 + 0.02 * noise(run.seed + 11, step)),
  optimizer_seconds: (run) => run.secondsPerStep * 0.038,
  own_least_seconds: (run, step) => run.secondsPerStep * (0.82 + 0.01 * noise(run.seed + 12, step)),
  own_most_seconds: (run, step) =>
    run.secondsPerStep * (run.seed % 3 ? 0.89 : 1.04 + 0.02 * noise(run.seed + 13, step)),
  gpu_busy_most_ratio: (run, step) => 0.985 + 0.01 * noise(run.seed + 15, step),
  gpu_busy_mean_ratio: (run, step) => 0.94 + 0.02 * noise(run.seed + 16, step),
  gpu_busy_least_ratio: (run, step) => 0.86 + 0.04 * noise(run.seed + 17, step),
  slowest_rank: (run, step) =>
    run.seed % 3 && step % 400 ? Math.floor(Math.abs(noise(run.seed + 14, step)) * 97) % 4 : run.seed % 4,
};
const VALIDATION: Record<string, (run: Run, epoch: number) => number> = {
  val_loss: (run, epoch) => valAt(run, epoch).loss,
  val_top1: (run, epoch) => valAt(run, epoch).top1,
  val_top5: (run, epoch) => valAt(run, epoch).top5,
};

export interface Asked {
  axis: MetricAxis;
  points: number;
  from: number;
  to: number;
  /** Weight of the smoothing; 0 for none. */
  smooth: number;
}

/** The run's figure `name` up to `step`, in at most so many points that keep the peaks. */
export function history(run: Run, name: string, step: number, asked: Asked): MetricSeries {
  const inRange = (x: number) => x >= asked.from && x <= asked.to;
  const validation = VALIDATION[name];
  if (validation) {
    const epochs = Math.floor(step / run.stepsPerEpoch);
    const points = Array.from({ length: epochs }, (_, i): MetricPoint => {
      const value = validation(run, i + 1);
      return [xOf(run, (i + 1) * run.stepsPerEpoch, asked.axis), value, value, value];
    });
    return { name, points: points.filter((p) => inRange(p[0])) };
  }
  const training = TRAINING[name];
  if (!training) throw new Error(`there is no figure '${name}'`);
  const raw: Raw[] = [];
  let sum = 0;
  let share = 0;
  for (let at = LOG_EVERY; at <= step; at += LOG_EVERY) {
    const x = xOf(run, at, asked.axis);
    const value = training(run, at);
    sum = sum * asked.smooth + value * (1 - asked.smooth);
    share = share * asked.smooth + 1 - asked.smooth;
    if (inRange(x)) raw.push([x, value, sum / share]);
  }
  const mean = raw.reduce((all, p) => all + p[1], 0) / Math.max(raw.length, 1);
  return { name, points: reduce(raw, asked), mean };
}

/** Of four ranks, of which one is slow in some runs, in at most 64 stretches. */
export function rankStretches(run: Run, step: number): RankStretch[] {
  const width = 2 ** Math.ceil(Math.log2(Math.max(step / 64, 1)));
  return Array.from({ length: Math.floor(step / width) }, (_, i) => {
    const own = [0, 1, 2, 3].map((rank) => {
      const slow = run.seed % 3 ? 0 : rank === run.seed % 4 ? 0.21 : 0;
      return run.secondsPerStep * (0.83 + slow + 0.02 * noise(run.seed + 20 + rank, i));
    });
    const all = Math.max(...own) + 0.02 * run.secondsPerStep;
    return {
      generation: '1',
      first_step: String(i * width + 1),
      steps: String(width),
      own_seconds: own,
      wait_seconds: own.map((seconds) => all - seconds),
    };
  });
}

/** x, the value, and the smoothed one. */
type Raw = [number, number, number];

function reduce(raw: readonly Raw[], { points, smooth }: Asked): MetricPoint[] {
  const size = Math.max(raw.length / points, 1);
  const out: MetricPoint[] = [];
  for (let at = 0; at < raw.length; at += size) {
    const part = raw.slice(Math.floor(at), Math.max(Math.floor(at + size), Math.floor(at) + 1));
    const values = part.map((p) => p[1]);
    const end = part[part.length - 1]!;
    const point: MetricPoint = [end[0], Math.min(...values), Math.max(...values), end[1]];
    if (smooth > 0) point.push(end[2]);
    out.push(point);
  }
  return out;
}
