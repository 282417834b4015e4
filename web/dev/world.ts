// A cluster that does not exist: the same each time, but for the time of day.
import type { AccountUsage, Dataset, Decision, Device, Node } from '../src/api/types.ts';
import { conversionAt } from './datasets.ts';
import { addChange, endJob, makeJob, setFigures, startJob, us, type WorldJob } from './jobs.ts';
import { noise, random } from './random.ts';

export interface World {
  jobs: Map<string, WorldJob>;
  nodes: Map<string, Node>;
  datasets: Map<string, Dataset>;
  usage: AccountUsage[];
  /** Number of the last decision of the record. */
  events: number;
  /** The oldest first. */
  decisions: Decision[];
}

const GIB = 2 ** 30;

function device(index: number, model: string, gib: number): Device {
  return {
    index,
    model,
    uuid: `GPU-${index}`,
    memory_bytes: String(gib * GIB),
    job_id: '0',
    held_text: '',
    reading: {
      busy_ratio: 0,
      memory_used_bytes: String(0.5 * GIB),
      power_watts: 72,
      temperature_celsius: 34,
      error: '',
      sm_clock_hertz: 345e6,
      throttled_by: '',
      xid: 0,
    },
  };
}

function node(
  name: string,
  at: number,
  gpus: number,
  model: string,
  gib: number,
  price: number,
  labels: Record<string, string>,
): Node {
  return {
    name,
    state: 'NODE_STATE_READY',
    agent_version: '0.1.0',
    address: `10.0.1.${name.replace(/\D/g, '') || 9}`,
    devices: Array.from({ length: gpus }, (_, i) => device(i, model, gib)),
    last_heartbeat_us: us(at),
    reason_text: '',
    joined_us: us(at - 86400 * 12),
    labels,
    struck_by: [],
    problems: [],
    price_per_hour: price,
    recent_busy_ratios: Array.from({ length: 60 }, (_, i) => 0.8 + 0.15 * Math.sin(at + name.length + i / 4)),
  };
}

function makeNodes(now: number): Map<string, Node> {
  const nodes: Node[] = [];
  for (let i = 1; i <= 12; i++) {
    const labels = { zone: i <= 6 ? 'us-east-1a' : 'us-east-1b', capacity: i > 9 ? 'spot' : 'reserved' };
    nodes.push(node(`gpu-${i}`, now, 8, 'NVIDIA H100 80GB HBM3', 80, i > 9 ? 29.5 : 55, labels));
  }
  for (let i = 1; i <= 3; i++)
    nodes.push(node(`l4-${i}`, now, 4, 'NVIDIA L4', 24, 4.6, { zone: 'us-east-1a' }));
  const byName = new Map(nodes.map((one) => [one.name, one]));
  byName.get('gpu-5')!.set_aside = {
    drain: true,
    reason: 'fan 2 is loud',
    actor: 'ada',
    since_us: us(now - 5400),
    empty: true,
    by_imgd: false,
  };
  byName.get('gpu-5')!.reason_text = 'is drained by ada: fan 2 is loud';
  const sick = byName.get('gpu-8')!;
  sick.problems = [{ kind: 'PROBLEM_KIND_GPU', text: 'has had Xid 79 on GPU 6: it fell off the bus' }];
  sick.reason_text = 'has had Xid 79 on GPU 6: it fell off the bus';
  sick.devices[6]!.reading!.error = 'NVML: GPU is lost';
  sick.devices[5]!.reading!.xid = 79;
  sick.devices[4]!.reading!.throttled_by = 'heat';
  const lost = byName.get('l4-3')!;
  lost.state = 'NODE_STATE_LOST';
  lost.reason_text = 'is lost: not heard for 14 min';
  lost.last_heartbeat_us = us(now - 840);
  const spot = byName.get('gpu-12')!;
  spot.notice = { at_us: us(now + 95), action: 'terminate' };
  spot.reason_text = 'is being taken back by the cloud';
  return byName;
}

/** Readings that fit what each device does. */
export function readNodes(world: World, tick: number, now: number): Node[] {
  const list = [...world.nodes.values()];
  for (const one of list) {
    if (one.state === 'NODE_STATE_READY') one.last_heartbeat_us = us(now);
    for (const gpu of one.devices) {
      const job = world.jobs.get(gpu.job_id);
      const reading = gpu.reading!;
      if (reading.error) continue;
      const busy = job?.job.state === 'JOB_STATE_RUNNING' ? busyOf(job, gpu.index, tick) : 0;
      reading.busy_ratio = busy;
      reading.memory_used_bytes = String(
        Math.round((busy > 0 ? 0.5 + 0.35 * random(job!.run.seed)() : 0.006) * Number(gpu.memory_bytes)),
      );
      reading.power_watts = Math.round(75 + busy * (gpu.model.includes('H100') ? 590 : 0));
      reading.temperature_celsius = Math.round(33 + busy * 34 + 2 * noise(gpu.index, tick));
      reading.sm_clock_hertz = busy > 0 ? 1980e6 : 345e6;
    }
  }
  return list;
}

function busyOf(job: WorldJob, index: number, tick: number): number {
  const base = job.run.seed % 4 === 0 ? 0.55 : 0.93;
  return Math.min(0.99, Math.max(0.05, base + 0.06 * noise(job.run.seed + index, tick)));
}

export function holdDevices(world: World, one: WorldJob, held: boolean): void {
  for (const place of one.job.placements) {
    for (const index of place.devices) {
      const gpu = world.nodes.get(place.node)?.devices[index];
      if (gpu) gpu.job_id = held ? one.job.id : '0';
    }
  }
}

/** `count` jobs: most of them over, some on the nodes, some in the queue. */
export function makeWorld(now: number, count: number): World {
  const world: World = {
    jobs: new Map(),
    nodes: makeNodes(now),
    datasets: new Map(),
    usage: [],
    events: 1000,
    decisions: [],
  };
  if (count === 0) {
    world.nodes.clear();
    return world;
  }
  for (let id = 1; id <= count; id++) {
    const one = makeJob(id, now, count);
    world.jobs.set(String(id), one);
    if (id <= count - 30) over(one, now);
  }
  place(world, now, count);
  queueUp(world, now);
  readNodes(world, 0, now);
  addDatasets(world, now);
  world.usage = makeUsage(now);
  return world;
}

function over(one: WorldJob, now: number): void {
  const dice = random(one.run.seed + 11)();
  startJob(
    one,
    one.run.begun,
    Array.from({ length: one.job.nodes }, (_, i) => `gpu-${((one.run.seed + i) % 12) + 1}`),
  );
  if (dice < 0.72) endJob(one, 'COMPLETED', 1);
  else endJob(one, dice < 0.87 ? 'FAILED' : 'CANCELLED', random(one.run.seed + 12)() * 0.8);
  if (Number(one.job.ended_us) / 1e6 > now) one.job.ended_us = us(now - 300);
  one.job.held_ms = String(
    Math.round(Math.max(Number(one.job.ended_us) - Number(one.job.started_us), 0) / 1000),
  );
}

const PLACES = [
  ['gpu-1', 'gpu-2'],
  ['gpu-3'],
  ['gpu-4'],
  ['gpu-6'],
  ['gpu-7'],
  ['gpu-9', 'gpu-10'],
  ['gpu-11'],
  ['gpu-12'],
];

/** Jobs that run: the first of them is the live run. */
function place(world: World, now: number, count: number): void {
  PLACES.forEach((nodes, i) => {
    const one = world.jobs.get(String(count - 29 + i));
    if (!one) return;
    const { job, run } = one;
    Object.assign(job, { nodes: nodes.length, max_nodes: nodes.length });
    run.epochs = 90;
    run.stepsPerEpoch = 626;
    run.batch = 2048;
    run.secondsPerStep = 2048 / (nodes.length * 8 * 2600);
    one.step = Math.floor(run.epochs * run.stepsPerEpoch * (i === 0 ? 0.38 : 0.1 + 0.1 * i));
    run.begun = now - one.step * run.secondsPerStep;
    job.submitted_us = us(run.begun - 300);
    one.history[0]!.time_us = job.submitted_us;
    if (i === 0) hadTroubles(one);
    startJob(one, i === 0 ? run.begun + 8800 * run.secondsPerStep + 40 : run.begun, nodes);
    job.device_hours = ((now - run.begun) / 3600) * job.nodes * 8;
    job.cost = job.device_hours * 4.1;
    setFigures(one);
    holdDevices(world, one, true);
  });
}

/** The live run was preempted once, so that its curves have marks. */
function hadTroubles(one: WorldJob): void {
  const at = one.run.begun + 8800 * one.run.secondsPerStep;
  startJob(one, one.run.begun, ['gpu-3', 'gpu-4']);
  addChange(
    one,
    at,
    'PREEMPTING',
    'job 9420 (rn50-urgent) of a higher priority needs gpu-3 and gpu-4',
    'scheduler',
    'PREEMPTED',
  );
  addChange(
    one,
    at + 14,
    'QUEUED',
    'preempted; goes on from step 8764, 36 steps are done again',
    'agent:gpu-3',
    'PREEMPTED',
  );
}

const WAITS: [string, string][] = [
  [
    'WAITS_FOR_DEVICES',
    'needs 4 nodes with 8 free GPUs each; 1 is free; job {a} holds gpu-1, gpu-2 and ends in about 2 h 40 min; node gpu-5 is drained by ada: fan 2 is loud; it can start in about 2 h 41 min',
  ],
  [
    'WAITS_BEHIND_JOB',
    'waits behind job {b}, for which devices are kept; needs 2 nodes with 8 free GPUs each',
  ],
  ['QUOTA', 'user grace may have 32 devices at once and has 32; it needs 8'],
  [
    'WAITS_FOR_DEVICES',
    'needs 1 node with 8 free GPUs; none is free; job {a} holds gpu-1, gpu-2 and ends in about 2 h 40 min',
  ],
];

function queueUp(world: World, now: number): void {
  const waiting = [...world.jobs.values()].filter((one) => one.job.state === 'JOB_STATE_QUEUED').slice(0, 22);
  const running = [...world.jobs.values()].find((one) => one.job.state === 'JOB_STATE_RUNNING');
  waiting.forEach((one, i) => {
    const { job } = one;
    job.submitted_us = us(now - 5400 + i * 240);
    if (i === 18 || i === 19) {
      job.after = [
        {
          job_id: running?.job.id ?? '1',
          job_name: running?.job.name ?? '',
          when: 'AFTER_END_OK',
          ended: 'JOB_STATE_UNSPECIFIED',
        },
      ];
      Object.assign(job, {
        reason: 'REASON_CODE_AFTER_JOB',
        reason_text: `comes after job ${running?.job.id} (${running?.job.name}), which has not ended`,
      });
    } else if (i === 20) {
      Object.assign(job, {
        reason: 'REASON_CODE_NOT_BEFORE',
        reason_text: 'is not to start before tomorrow 02:00 UTC',
        not_before_us: us(now + 30000),
      });
    } else if (i === 21) {
      addChange(one, now - 900, 'PAUSED', `paused by ${job.owner}`, `user:${job.owner}`, 'PAUSED_BY_USER');
    } else {
      const [code, text] = WAITS[i === 0 ? 0 : i === 1 ? 1 : 2 + (i % 2)]!;
      job.reason = `REASON_CODE_${code}`;
      job.reason_text = text.replaceAll('{a}', running?.job.id ?? '1').replaceAll('{b}', waiting[0]!.job.id);
      job.queue_position = i + 1;
      if (code !== 'QUOTA') job.expected_start_us = us(now + 9600 + i * 1700);
    }
  });
}

function addDatasets(world: World, now: number): void {
  const sets: [string, string, number, number, string, string][] = [
    ['imagenet', 's3://vision-data/imagenet-wds', 1331167, 1000, 'ada', '0'],
    ['imagenet-176', 'http://10.0.0.4:8000/imagenet-176', 1331167, 1000, 'grace', '0'],
    ['shapes', '/shared/shapes', 4500, 10, 'linus', '0'],
    ['places', '/shared/places-wds', 0, 0, 'barbara', String(world.jobs.size - 2)],
  ];
  sets.forEach(([name, address, images, classes, owner, made_by], i) => {
    world.datasets.set(name, {
      name,
      address,
      images: String(images),
      classes,
      owner,
      made_by,
      // One was verified and is whole, one has faults, one never was.
      verified_us: i < 2 ? us(now - 86400 * (3 + i)) : '0',
      broken: i === 1 ? '131' : '0',
      described_us: i < 3 ? us(now - 86400 * (3 + i)) : '0',
      ...(made_by === '0' ? {} : { progress: conversionAt(made_by, 40_960, now) }),
      registered_us: us(now - 86400 * (20 - i * 5)),
    });
  });
}

function makeUsage(now: number): AccountUsage[] {
  const budget = (used: number, most: number, period: string) => ({
    period: `QUOTA_PERIOD_${period}`,
    used,
    most,
    since_us: us(now - 86400 * 9),
    until_us: us(now + 86400 * 8),
  });
  const user = (
    name: string,
    devices: number,
    most: number,
    hours: number,
    mostHours: number,
    recent: number,
    queued: number,
  ): AccountUsage => ({
    kind: 'ACCOUNT_KIND_USER',
    name,
    devices,
    most_devices: most,
    queued,
    most_queued: 50,
    device_hours: budget(hours, mostHours, 'WEEK'),
    spend: budget(hours * 4.1, 0, 'MONTH'),
    recent_device_hours: recent,
    share: name === 'ada' ? 2 : 1,
  });
  return [
    user('ada', 24, 64, 812, 2000, 690, 4),
    user('barbara', 8, 0, 96.5, 0, 120, 3),
    user('edsger', 16, 64, 402, 2000, 350, 5),
    user('grace', 32, 32, 1934, 2000, 1810, 7),
    user('linus', 8, 64, 38.2, 500, 31, 2),
    {
      ...user('vision', 88, 128, 3282, 0, 0, 21),
      kind: 'ACCOUNT_KIND_PROJECT',
      spend: budget(13456, 20000, 'MONTH'),
    },
  ];
}
