import type { StepMetrics, StepTimes } from '../api/types.ts';
import { num } from './format.ts';

const STAGES: [string, keyof StepTimes, string][] = [
  ['Waiting for input', 'input_seconds', 'f2'],
  ['Forward', 'forward_seconds', 'f1'],
  ['Backward', 'backward_seconds', 'f4'],
  ['Waiting for ranks', 'communication_seconds', 'f6'],
  ['Optimizer', 'optimizer_seconds', 'f3'],
];

/** Where the time of a step goes. */
export interface StepStages {
  /** A step's. */
  seconds: number;
  parts: { name: string; fill: string; seconds: number; share: number }[];
}

/** As imgcli has it: a step is its part of the interval that was reported, and what no stage took of that is other. Where the
 * length of the interval is not told a step is its stages. */
export function stagesOf({ times, loader }: Pick<StepMetrics, 'times' | 'loader'>): StepStages | null {
  if (!times || !(times.steps > 0)) return null;
  const parts = STAGES.map(([name, key, fill]) => ({ name, fill, seconds: num(times[key]) / times.steps }));
  const named = parts.reduce((sum, part) => sum + part.seconds, 0);
  const interval = num(loader?.interval_seconds) / times.steps;
  const seconds = interval > 0 ? interval : named;
  if (interval > 0) parts.push({ name: 'Other', fill: 'f7', seconds: Math.max(interval - named, 0) });
  const share = (part: number) => (seconds > 0 ? Math.min(part / seconds, 1) : 0);
  return { seconds, parts: parts.map((part) => ({ ...part, share: share(part.seconds) })) };
}
