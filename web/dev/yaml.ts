/** What a job file of the canned world is made of. */
export interface FileOptions {
  name: string;
  nodes: number;
  ranks: number;
  model: string;
  epochs: number;
  batch: number;
  lr: number;
  decay: string;
  smoothing: string;
  priority: number;
}

export function jobFile(options: FileOptions): string {
  return `# Made from deploy/recipes/rn50-90ep.yaml
name: ${options.name}
project: vision${options.priority ? `\npriority: ${options.priority}` : ''}
max_restarts: 10
resources:
  nodes: ${options.nodes}
  ranks_per_node: ${options.ranks}
  gpu: {model: H100}
model:
  name: ${options.model}
  zero_init_residual: true
data:
  train: dataset:imagenet/train   # registered with imgcli dataset register
  val: dataset:imagenet/val
  image_size: 224
  workers: 12
train:
  epochs: ${options.epochs}
  global_batch: ${options.batch}
  precision: bf16
optimizer:
  kind: sgd
  lr: ${options.lr}
  momentum: 0.9
  weight_decay: ${options.decay}
schedule:
  warmup_epochs: 5
loss:
  label_smoothing: ${options.smoothing}
checkpoint:
  dir: s3://vision-runs/checkpoints
  every_epochs: 1
`;
}

export interface CheckFault {
  message: string;
  line: number;
  column: number;
  hint: string;
}

const KEYS = new Set(
  (
    'name project priority preemptible seed grace max_restarts time_limit after not_before secrets sweep resources about command convert ' +
    'model data train elastic augment phases optimizer schedule loss checkpoint limits ema'
  ).split(' '),
);

/** A small part of what imgd checks: unknown top keys, no name, epochs that are no number. */
export function check(yaml: string): CheckFault[] {
  const faults: CheckFault[] = [];
  const lines = yaml.split('\n');
  lines.forEach((line, i) => {
    const key = /^([\w.-]+):/.exec(line)?.[1];
    if (key && !KEYS.has(key)) {
      const near = [...KEYS].find((known) => known.startsWith(key.slice(0, 3)));
      faults.push({
        message: `job.yaml:${i + 1}:1: ${key}: unknown key`,
        line: i + 1,
        column: 1,
        hint: near ? `did you mean '${near}'?` : '',
      });
    }
    const epochs = /^(\s+epochs:\s*)(.+)$/.exec(line);
    if (epochs && !/^\d+$/.test(epochs[2]!.trim())) {
      const column = epochs[1]!.length + 1;
      faults.push({
        message: `job.yaml:${i + 1}:${column}: train.epochs: found '${epochs[2]!.trim()}', a whole number from 1 to 100000 is allowed`,
        line: i + 1,
        column,
        hint: '',
      });
    }
  });
  if (!lines.some((line) => /^name:\s*\S/.test(line))) {
    faults.push({ message: 'job.yaml:1:1: name: is missing', line: 1, column: 1, hint: '' });
  }
  return faults;
}

export function valueIn(yaml: string, key: string): string | undefined {
  return new RegExp(`^\\s*${key}:\\s*([^#\\n]+?)\\s*(?:#.*)?$`, 'm').exec(yaml)?.[1];
}
