import type { LogLine } from '../src/api/types.ts';
import { LOG_EVERY, lossAt, rateAt, speedAt } from './curves.ts';
import { us, type WorldJob } from './jobs.ts';

/** What a rank of the job has written by now: its last `tail` lines. */
export function logsOf(one: WorldJob, rank: number, tail: number): LogLine[] {
  const { run, step, job } = one;
  const lines = Math.floor(step / LOG_EVERY);
  const first = Math.max(lines - tail, 0);
  const out: LogLine[] = [];
  for (let i = first; i < lines; i++) {
    const at = (i + 1) * LOG_EVERY;
    const base = {
      rank,
      line_number: String(i + 1),
      time_us: us(run.begun + at * run.secondsPerStep),
      generation: job.generation,
      is_stderr: false,
    };
    out.push({ ...base, text: text(one, rank, at), is_stderr: i % 97 === 0 });
  }
  if (job.state === 'JOB_STATE_FAILED' && rank === 3) {
    const time_us = us(run.begun + step * run.secondsPerStep);
    const words = [
      'Traceback of the failed operator: aten::convolution_backward',
      'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB',
      '[error] rank=3 failed: CUDA out of memory',
    ];
    words.forEach((said, i) => {
      out.push({
        rank,
        line_number: String(lines + 1 + i),
        time_us,
        generation: job.generation,
        is_stderr: true,
        text: said,
      });
    });
  }
  return out;
}

function text(one: WorldJob, rank: number, step: number): string {
  const { run } = one;
  const turn = step / LOG_EVERY;
  if (turn % 97 === 0)
    return `[warning] rank=${rank} input: shard train-${String(turn % 1000).padStart(6, '0')}.tar took 2.4 s to open, 3 tries`;
  if (step % run.stepsPerEpoch < LOG_EVERY && step > run.stepsPerEpoch)
    return `[info] rank=${rank} epoch=${Math.floor(step / run.stepsPerEpoch)} validation done`;
  if (turn % 11 === 0) return `[debug] rank=${rank} loader: 4 batches ahead, decode 3.1 ms, augment 0.9 ms`;
  return `[info] rank=${rank} step=${step} epoch=${(step / run.stepsPerEpoch).toFixed(2)} loss=${lossAt(run, step).toFixed(4)} lr=${rateAt(run, step).toPrecision(4)} images/s=${speedAt(run, step).toFixed(0)}`;
}
