// The JSON API over the canned world; the shapes are those of proto/imgd/v1.
import type { Job, MetricAxis } from '../src/api/types.ts';
import { LEVELS, type Level, levelOf } from '../src/lib/log_level.ts';
import { history, type Run, rankStretches, xOf } from './curves.ts';
import { factsOf } from './datasets.ts';
import { blankJob, us, type WorldJob } from './jobs.ts';
import { type Live, summaryOf } from './live.ts';
import { logsOf } from './logs.ts';
import { checkpointsOf, classesOf, samplesOf } from './results.ts';
import { holdDevices, type World } from './world.ts';
import { check, valueIn } from './yaml.ts';

export class Refusal extends Error {
  readonly status: number;
  readonly body: unknown;
  constructor(status: number, code: string, message: string, more: Record<string, unknown> = {}) {
    super(message);
    this.status = status;
    this.body = { error: { code, message, ...more } };
  }
}

interface Call {
  world: World;
  live: Live;
  parts: string[];
  query: URLSearchParams;
  body: Record<string, unknown>;
}

type Handler = (call: Call) => unknown;

function jobOf({ world, parts }: Call): WorldJob {
  const one = world.jobs.get(parts[1]!);
  if (!one) throw new Refusal(404, 'NOT_FOUND', `there is no job ${parts[1]}`);
  return one;
}

function nodeOf({ world, parts }: Call) {
  const one = world.nodes.get(parts[1]!);
  if (!one) throw new Refusal(404, 'NOT_FOUND', `there is no node '${parts[1]}'`);
  return one;
}

function listJobs({ world, query }: Call) {
  const size = Math.min(Number(query.get('page_size')) || 100, 1000);
  const before = Number(query.get('page_token') || Number.MAX_SAFE_INTEGER);
  const ids = [...world.jobs.keys()]
    .map(Number)
    .filter((id) => id < before)
    .sort((a, b) => b - a);
  const page = ids.slice(0, size);
  return {
    jobs: page.map((id) => summaryOf(world.jobs.get(String(id))!.job)),
    next_page_token: ids.length > size ? String(page[page.length - 1]) : '',
    warning: '',
  };
}

function submit({ world, live, body }: Call) {
  const yaml = String(body.job_yaml ?? '');
  const faults = check(yaml);
  if (faults.length > 0) {
    const first = faults[0]!;
    throw new Refusal(400, 'INVALID_ARGUMENT', first.message, { ...first, details: faults });
  }
  const now = Date.now() / 1000;
  const id = body.dry_run ? 0 : Math.max(0, ...[...world.jobs.keys()].map(Number)) + 1;
  const job = blankJob(id, valueIn(yaml, 'name') ?? '', String(body.owner ?? ''), now);
  job.nodes = Number(valueIn(yaml, 'nodes')) || 1;
  job.max_nodes = job.nodes;
  job.ranks_per_node = Number(valueIn(yaml, 'ranks_per_node')) || 1;
  job.job_yaml = yaml;
  job.rerun_of = String(body.rerun_of ?? '0');
  job.reason_text = `needs ${job.nodes} node${job.nodes === 1 ? '' : 's'} with ${job.ranks_per_node} free GPUs each; none is free`;
  job.reason = 'REASON_CODE_WAITS_FOR_DEVICES';
  job.expected_start_us = us(now + 3300);
  const warnings =
    Number(valueIn(yaml, 'epochs')) > 500 ? ['train.epochs is 500 or more; most recipes have 16 to 300'] : [];
  if (!body.dry_run) {
    job.queue_position = 1 + Math.max(0, ...[...world.jobs.values()].map((one) => one.job.queue_position));
    const run: Run = {
      seed: id,
      epochs: 90,
      stepsPerEpoch: 626,
      begun: now,
      secondsPerStep: 0.1,
      batch: 2048,
      rate: 1,
      skill: 0.5,
    };
    const one: WorldJob = { job, history: [], run, step: 0 };
    world.jobs.set(String(id), one);
    const text = job.reason_text;
    live.change(one, 'QUEUED', text, `user:${job.owner}`, 'WAITS_FOR_DEVICES');
  }
  return { job, warnings, existed: false, settings: [] };
}

function metrics(call: Call) {
  const { run, step } = jobOf(call);
  const { query } = call;
  const asked = {
    axis: (query.get('x') ?? 'step') as MetricAxis,
    points: Number(query.get('points') ?? 1000),
    from: query.has('from') ? Number(query.get('from')) : Number.NEGATIVE_INFINITY,
    to: query.has('to') ? Number(query.get('to')) : Number.POSITIVE_INFINITY,
    smooth: Number(query.get('smooth') ?? 0),
  };
  const names = (query.get('names') ?? 'loss').split(',');
  return {
    images_per_epoch: xOf(run, run.stepsPerEpoch, 'images'),
    series: names.map((name) => history(run, name, step, asked)),
    ...(query.get('ranks') === 'true' ? { ranks: rankStretches(run, step) } : {}),
  };
}

/** As imgd pages logs: by number before and after a line, or on from what an answer gave ("START-RANK.LINE-..."). */
function logs(call: Call) {
  const one = jobOf(call);
  const { query } = call;
  const tail = Number(query.get('tail')) || 1000;
  const rank = query.get('rank');
  const ranks = Math.min(one.job.nodes * one.job.ranks_per_node, 64);
  if (rank !== null && !/^\d+$/.test(rank))
    throw new Refusal(400, 'INVALID_ARGUMENT', `rank: found '${rank}'; a whole number is allowed`);
  if (Number(rank) >= Math.max(one.job.max_nodes, one.job.nodes) * one.job.ranks_per_node)
    throw new Refusal(400, 'INVALID_ARGUMENT', `job ${one.job.id} has no rank ${rank}`);
  const wanted = rank === null ? Array.from({ length: ranks }, (_, i) => i) : [Number(rank)];
  const place = (text: string | null) => {
    const [generation, ...parts] = (text ?? '').split('-');
    // Of a start before nothing is left here, and of the newest one everything is wanted.
    if (generation !== one.job.generation) return new Map<number, number>();
    return new Map(parts.map((part) => part.split('.').map(Number) as [number, number]));
  };
  const after = place(query.get('after'));
  const before = place(query.get('before'));
  const contains = (query.get('contains') ?? '').toLowerCase();
  const level = LEVELS.indexOf((query.get('level') ?? 'LOG_LEVEL_DEBUG').slice(10).toLowerCase() as Level);
  const next: string[] = [];
  const previous: string[] = [];
  const lines = wanted.flatMap((r) => {
    const all = logsOf(one, r, 100_000);
    const until = Number(query.get('before_line') ?? before.get(r) ?? Number.MAX_SAFE_INTEGER);
    const found = all.filter((line) => {
      const number = Number(line.line_number);
      if (number >= until || number <= (after.get(r) ?? 0)) return false;
      return line.text.toLowerCase().includes(contains) && LEVELS.indexOf(levelOf(line.text)) <= level;
    });
    const page = query.has('after') ? found.slice(0, tail) : found.slice(-tail);
    const newest = Math.min(all.length, until - 1);
    next.push(`${r}.${query.has('after') && page.length < found.length ? page.at(-1)!.line_number : newest}`);
    if (page.length < found.length) previous.push(`${r}.${page[0]!.line_number}`);
    return page;
  });
  const name = (places: string[]) => (places.length > 0 ? [one.job.generation, ...places].join('-') : '');
  return {
    lines: lines.sort((a, b) => Number(a.time_us) - Number(b.time_us)),
    truncated: query.has('after') && previous.length > 0,
    generation: one.job.generation,
    next: name(next),
    previous: name(previous),
  };
}

/** All of a job lies on the time from its start to its end: none here started twice. */
function usageOverTime(call: Call) {
  const edges = (call.query.get('edges_us') ?? '').split(',').map((at) => Number(at) / 1e6);
  const owners = new Map<string, { owner: string; device_hours: number[]; cost: number[] }>();
  for (const { job } of call.world.jobs.values()) {
    const from = Number(job.started_us) / 1e6;
    const to = Number(job.ended_us) / 1e6 || Date.now() / 1000;
    if (!(from > 0 && job.device_hours > 0)) continue;
    const none = () => edges.slice(1).map(() => 0);
    const one = owners.get(job.owner) ?? { owner: job.owner, device_hours: none(), cost: none() };
    owners.set(job.owner, one);
    for (let i = 0; i + 1 < edges.length; i++) {
      const part = (Math.min(to, edges[i + 1]!) - Math.max(from, edges[i]!)) / Math.max(to - from, 1);
      if (part <= 0) continue;
      one.device_hours[i]! += part * job.device_hours;
      one.cost[i]! += part * job.cost;
    }
  }
  return { owners: [...owners.values()] };
}

const OVER = ['JOB_STATE_COMPLETED', 'JOB_STATE_FAILED', 'JOB_STATE_CANCELLED'];

function deleteJob(call: Call) {
  const { job } = jobOf(call);
  if (!OVER.includes(job.state))
    throw new Refusal(
      412,
      'FAILED_PRECONDITION',
      `job ${job.id} has not ended; imgcli cancel ${job.id} ends it`,
    );
  call.live.forget(job.id);
  return {};
}

function refuseOver(job: Job): void {
  if (OVER.includes(job.state))
    throw new Refusal(
      409,
      'FAILED_PRECONDITION',
      `job ${job.id} has ended; imgcli rerun ${job.id} makes a new one of it`,
    );
}

function cancel(call: Call) {
  const one = jobOf(call);
  refuseOver(one.job);
  holdDevices(call.world, one, false);
  call.live.change(
    one,
    'CANCELLED',
    `cancelled by ${call.body.actor}`,
    `user:${call.body.actor}`,
    'CANCELLED_BY_USER',
  );
  return { job: one.job };
}

function change(call: Call) {
  const one = jobOf(call);
  const { body, live } = call;
  refuseOver(one.job);
  const actor = `user:${body.actor}`;
  if (body.pause) {
    const running = one.job.state === 'JOB_STATE_RUNNING';
    live.change(one, running ? 'PREEMPTING' : 'PAUSED', `paused by ${body.actor}`, actor, 'PAUSED_BY_USER');
  } else if (body.resume) {
    live.change(one, 'QUEUED', `resumed by ${body.actor}; waits for devices`, actor, 'RESUMED_BY_USER');
  } else if (typeof body.priority === 'number') {
    if (Math.abs(body.priority) > 1000)
      throw new Refusal(
        400,
        'INVALID_ARGUMENT',
        `priority: found ${body.priority}, -1000 to 1000 is allowed`,
      );
    one.job.priority = body.priority;
    live.decide({
      actor,
      reason: 'REASON_CODE_CHANGED_BY_USER',
      text: `priority is ${body.priority}`,
      job_id: one.job.id,
      generation: one.job.generation,
      from: one.job.state,
      to: one.job.state,
      node: '',
    });
  }
  call.live.tell(one);
  return { job: one.job };
}

function setAside(call: Call) {
  const node = nodeOf(call);
  const { drain, reason, actor } = call.body as { drain: boolean; reason: string; actor: string };
  node.set_aside = {
    drain,
    reason,
    actor,
    since_us: us(Date.now() / 1000),
    empty: node.devices.every((one) => one.job_id === '0'),
    by_imgd: false,
  };
  node.reason_text = `is ${drain ? 'drained' : 'cordoned'} by ${actor}${reason ? `: ${reason}` : ''}`;
  call.live.decide({
    actor: `user:${actor}`,
    reason: 'REASON_CODE_SET_ASIDE_BY_USER',
    text: `node ${node.name} ${node.reason_text}`,
    job_id: '0',
    generation: '0',
    from: 'JOB_STATE_UNSPECIFIED',
    to: 'JOB_STATE_UNSPECIFIED',
    node: node.name,
  });
  return { node };
}

function giveBack(call: Call) {
  const node = nodeOf(call);
  delete node.set_aside;
  node.reason_text = '';
  return { node };
}

function eventsOfNode({ world, query }: Call) {
  const node = world.nodes.get(query.get('node') ?? '');
  if (!node) return { events: [], oldest_number: '0' };
  const joined = {
    number: '1',
    time_us: node.joined_us,
    actor: `agent:${node.name}`,
    reason: 'REASON_CODE_NODE_JOINED',
    text: `node ${node.name} has joined with ${node.devices.length} devices`,
    job_id: '0',
    generation: '0',
    from: 'JOB_STATE_UNSPECIFIED',
    to: 'JOB_STATE_UNSPECIFIED',
    node: node.name,
  };
  const ranHere = (id: string) =>
    world.jobs.get(id)?.job.placements.some((place) => place.node === node.name) === true;
  return {
    events: [joined, ...world.decisions.filter((one) => one.node === node.name || ranHere(one.job_id))],
    oldest_number: '1',
  };
}

function oneNode(call: Call) {
  const node = nodeOf(call);
  const runs = [...call.world.jobs.values()]
    .filter((one) => one.job.placements.some((place) => place.node === node.name))
    .slice(-12)
    .reverse()
    .map(({ job }) => ({
      job_id: job.id,
      job_name: job.name,
      generation: job.generation,
      first_rank: 0,
      ranks: job.ranks_per_node,
      started_us: job.started_us,
      ended_us: job.ended_us,
      ended_text: job.state === 'JOB_STATE_RUNNING' ? '' : job.reason_text,
    }));
  return { node, runs, warning: '' };
}

function register({ world, body }: Call) {
  const set = body.dataset as { name: string; address: string; owner: string };
  const known = world.datasets.get(set.name);
  if (known && known.address !== set.address)
    throw new Refusal(409, 'ALREADY_EXISTS', `'${set.name}' stands for ${known.address}`);
  const unknown = { images: '0', classes: 0, made_by: '0', verified_us: '0', broken: '0', described_us: '0' };
  const dataset = { ...unknown, registered_us: us(Date.now() / 1000), ...set };
  world.datasets.set(set.name, dataset);
  return { dataset, existed: known !== undefined };
}

function oneDataset({ world, parts }: Call) {
  const one = world.datasets.get(parts[1]!);
  if (!one) throw new Refusal(404, 'NOT_FOUND', `there is no data set '${parts[1]}'`);
  return factsOf(one);
}

function forget({ world, parts }: Call) {
  world.datasets.delete(parts[1]!);
  return {};
}

export const ROUTES: [string, string, Handler][] = [
  ['GET', 'jobs', listJobs],
  ['POST', 'jobs', submit],
  ['GET', 'jobs/*', (call) => ({ job: jobOf(call).job, history: jobOf(call).history, warning: '' })],
  ['POST', 'jobs/*/cancel', cancel],
  ['POST', 'jobs/*/change', change],
  ['GET', 'jobs/*/metrics', metrics],
  ['GET', 'jobs/*/logs', logs],
  ['GET', 'jobs/*/checkpoints', (call) => ({ checkpoints: checkpointsOf(jobOf(call)) })],
  ['GET', 'jobs/*/classes', (call) => ({ figures: classesOf(jobOf(call)) })],
  ['GET', 'jobs/*/samples', (call) => ({ samples: samplesOf(jobOf(call)), event: '7' })],
  ['DELETE', 'jobs/*', deleteJob],
  ['GET', 'nodes', ({ world }) => ({ nodes: [...world.nodes.values()], warning: '' })],
  ['GET', 'nodes/*', oneNode],
  ['POST', 'nodes/*/set-aside', setAside],
  ['POST', 'nodes/*/return', giveBack],
  ['GET', 'server', () => ({ grpc_port: 17650 })],
  ['GET', 'datasets', ({ world }) => ({ datasets: [...world.datasets.values()] })],
  ['POST', 'datasets', register],
  ['GET', 'datasets/*', oneDataset],
  ['DELETE', 'datasets/*', forget],
  ['GET', 'usage/over-time', usageOverTime],
  ['GET', 'usage', ({ world }) => ({ accounts: world.usage, currency: 'USD', warning: '' })],
  ['GET', 'events', eventsOfNode],
];
