import type { Device, Node } from '../api/types.ts';
import { bytes, count, figure, num, percent, shortEnum, words } from './format.ts';
import { addressOf, imgcliFor } from './server.ts';

/** Its page; a name may have what means something in an address. */
export function nodePath(name: string): string {
  return `/nodes/${encodeURIComponent(name)}`;
}

/** How a node is, in a word, and how grave that is. */
export interface NodeCondition {
  word: string;
  tone: 'ok' | 'warn' | 'bad' | 'off';
  icon: string;
  /** Why it takes nothing new, for people; empty when it does. */
  why: string;
}

export function conditionOf(node: Node): NodeCondition {
  const why = node.reason_text;
  if (node.state === 'NODE_STATE_LOST') return { word: 'lost', tone: 'bad', icon: 'failed', why };
  if (node.state === 'NODE_STATE_UNREACHABLE')
    return { word: 'unreachable', tone: 'warn', icon: 'warning', why };
  if (node.disconnected) return { word: 'disconnected', tone: 'warn', icon: 'warning', why };
  if (node.notice) return { word: 'being taken back', tone: 'warn', icon: 'warning', why };
  if (node.problems.length > 0) return { word: 'sick', tone: 'bad', icon: 'warning', why };
  const aside = node.set_aside;
  if (aside?.by_imgd) return { word: 'set aside', tone: 'bad', icon: 'paused', why };
  if (aside?.drain) return { word: aside.empty ? 'drained' : 'draining', tone: 'warn', icon: 'paused', why };
  if (aside) return { word: 'cordoned', tone: 'warn', icon: 'paused', why };
  if (node.state === 'NODE_STATE_READY') return { word: 'ready', tone: 'ok', icon: 'completed', why };
  return { word: words(shortEnum(node.state, 'NODE_STATE_')), tone: 'off', icon: 'queued', why };
}

/** Whether its agent tells what it does now. */
export function isConnected(node: Node): boolean {
  return node.state === 'NODE_STATE_READY' && !node.disconnected;
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** How a machine joins the imgd of this page: with a token, but for one that is tried out in plain text on loopback. `port`:
 * that of gRPC, null while it is not known. */
export function howToJoin(
  { hostname, protocol }: { hostname: string; protocol: string },
  port: number | null,
): { text: string; command: string } {
  const agent = `imgagent --server ${addressOf(hostname, port)}`;
  const state = '--state-dir /var/lib/imgagent';
  if (protocol === 'http:' && LOOPBACK.test(hostname))
    return { text: 'On this machine:', command: `${agent} ${state}` };
  return {
    text: 'An admin makes a token, which is good for one node within an hour, and the machine that is to join is given it in a file:',
    command: `${imgcliFor(hostname, port)} node join-token > token\n${agent} --token-file token ${state}`,
  };
}

/** By name: maps have no order, and those of two nodes are to be compared. */
export function labelsOf(node: Node): [string, string][] {
  return Object.entries(node.labels).sort(([a], [b]) => (a < b ? -1 : 1));
}

/** What holds a GPU back under load without anything being wrong: its power limit. */
const NORMAL = 'power cap';

/** What is wrong with a device; empty when nothing is, and where nobody knows. */
export function troubleOf(node: Node, device: Device): string {
  const { reading } = deviceNow(node, device);
  if (!reading) return '';
  const parts = [reading.error];
  if (reading.xid) parts.push(`the driver reported Xid ${reading.xid}`);
  const reasons = reading.throttled_by.split(', ').filter((one) => one && one !== NORMAL);
  if (reasons.length > 0) parts.push(`held back by ${reasons.join(', ')}`);
  return parts.filter(Boolean).join(', ');
}

/** What a device does at its limit, which is no trouble; empty where it is not. */
export function limitOf(node: Node, device: Device): string {
  const { reading } = deviceNow(node, device);
  return reading?.throttled_by.split(', ').includes(NORMAL) ? 'at its power limit' : '';
}

/** Whether it takes no work, or a device of it has a trouble. */
export function needsLook(node: Node): boolean {
  return conditionOf(node).word !== 'ready' || node.devices.some((device) => troubleOf(node, device) !== '');
}

/** Said of a device in fewer letters than of its node. */
const SHORT: Record<string, string> = { unreachable: 'out of reach', 'being taken back': 'taken back' };

/** Why no job could have a device that none holds, in a word or two; empty when it is free. */
export function keptFrom(node: Node, device: Device): string {
  const { word } = conditionOf(node);
  if (word !== 'ready') return SHORT[word] ?? word;
  return device.held_text ? 'held' : '';
}

/** Whether a figure of the device was read; agents name each that was not ("power can't be read: Not Supported"). */
export function wasRead(
  { reading }: Device,
  what: 'utilisation' | 'memory' | 'power' | 'temperature' | 'SM clock',
): boolean {
  if (!reading) return false;
  const failed = reading.error.split('; ').filter(Boolean);
  return failed.every((part) => part.includes(" can't be read") && !part.startsWith(`${what} can't be read`));
}

/** A device without what was read of it where that is not of now: its node is out of reach. */
export function deviceNow(node: Node, device: Device): Device {
  if (isConnected(node)) return device;
  const { reading: _, ...rest } = device;
  return rest;
}

/** How busy a device is, from 0 to 1; NaN where nobody knows. */
export function busyOf(node: Node, device: Device): number {
  const now = deviceNow(node, device);
  return wasRead(now, 'utilisation') ? now.reading!.busy_ratio : Number.NaN;
}

/** "job 41, 92 % busy, 61 GiB of 80 GiB, 640 W, 63 °C": all that is known of a device. */
export function deviceText(node: Node, device: Device, nameOfJob: (id: string) => string): string {
  const parts: string[] = [];
  if (device.held_text) parts.push(device.held_text);
  else parts.push(num(device.job_id) > 0 ? nameOfJob(device.job_id) : keptFrom(node, device) || 'free');
  const { reading } = deviceNow(node, device);
  parts.push(troubleOf(node, device), limitOf(node, device));
  if (reading) {
    if (Number.isFinite(busyOf(node, device))) parts.push(`${percent(busyOf(node, device), 0)} busy`);
    if (num(device.memory_bytes) > 0 && wasRead(device, 'memory'))
      parts.push(`${bytes(reading.memory_used_bytes)} of ${bytes(device.memory_bytes)}`);
    if (reading.power_watts > 0) parts.push(`${figure(reading.power_watts)} W`);
    if (reading.temperature_celsius > 0) parts.push(`${count(reading.temperature_celsius)} °C`);
  }
  return parts.filter(Boolean).join(', ');
}

const mean = (values: readonly number[]) => {
  const good = values.filter(Number.isFinite);
  return good.length > 0 ? good.reduce((a, b) => a + b, 0) / good.length : Number.NaN;
};

/** How busy the devices of a node are, as was told at a time (ms); NaN for those that could not be read. */
export interface BusySample {
  at: number;
  busy: readonly number[];
}

/** As often as imgd tells readings, where one changed. */
const SAMPLE_MS = 3000;
const SAMPLES = 60;
const sampleOf = (at: number) => Math.floor(at / SAMPLE_MS);

/** With one more: at most one of each 3 s, and so many that the first is as old as curves are. */
export function withSample(samples: readonly BusySample[], next: BusySample): BusySample[] {
  const before =
    sampleOf(samples.at(-1)?.at ?? Number.NaN) === sampleOf(next.at) ? samples.slice(0, -1) : samples;
  return [...before, next].slice(-SAMPLES);
}

/** Means over devices, each given by its node and its place there, every 3 s until now: what was told last goes on to be true. */
export function busyCurve(
  recent: ReadonlyMap<string, readonly BusySample[]>,
  devices: readonly { node: string; at: number }[],
  now: number,
): number[] {
  const first = Math.min(...devices.map(({ node }) => recent.get(node)?.[0]?.at ?? Number.POSITIVE_INFINITY));
  if (!Number.isFinite(first)) return [];
  const last = sampleOf(now);
  const length = Math.min(last - sampleOf(first) + 1, SAMPLES);
  return Array.from({ length }, (_, i) => {
    const place = last - length + 1 + i;
    const told = (node: string) => recent.get(node)?.findLast((one) => sampleOf(one.at) <= place)?.busy;
    return mean(devices.map(({ node, at }) => told(node)?.[at] ?? Number.NaN));
  });
}

/** How busy the node is: the mean of its devices as they were read last; NaN where none could be. */
export function busyNow(node: Node): number {
  return mean(node.devices.map((device) => busyOf(node, device)));
}

/** How busy it was in each of the last 60 minutes, the oldest first; NaN for those that nobody knows. */
export function minutesOf(ratios: readonly (number | 'NaN')[]): number[] {
  const known = ratios.map(Number).slice(-60);
  return [...Array<number>(60 - known.length).fill(Number.NaN), ...known];
}

export interface ClusterSums {
  nodes: number;
  ready: number;
  devices: number;
  used: number;
  /** Those that a job could have now. */
  free: number;
  /** Mean of the devices that jobs hold; NaN where nothing was read. */
  busy: number;
  watts: number;
  /** Of nodes that are not lost. */
  price: number;
}

function isFree(node: Node, device: Device): boolean {
  return num(device.job_id) === 0 && keptFrom(node, device) === '';
}

export function sumNodes(nodes: readonly Node[]): ClusterSums {
  const devices = nodes.flatMap((node) => node.devices);
  const used = devices.filter((device) => num(device.job_id) > 0);
  const busy = nodes.flatMap((node) =>
    node.devices.filter((device) => num(device.job_id) > 0).map((device) => busyOf(node, device)),
  );
  const there = nodes.filter((node) => node.state !== 'NODE_STATE_LOST');
  const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
  return {
    nodes: nodes.length,
    ready: nodes.filter((node) => conditionOf(node).word === 'ready').length,
    devices: devices.length,
    used: used.length,
    free: sum(nodes.map((node) => node.devices.filter((device) => isFree(node, device)).length)),
    busy: mean(busy),
    watts: sum(
      nodes.flatMap((node) => node.devices.map((one) => deviceNow(node, one).reading?.power_watts ?? 0)),
    ),
    price: sum(there.map((node) => node.price_per_hour)),
  };
}
