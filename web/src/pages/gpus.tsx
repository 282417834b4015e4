import type { Device, Node } from '../api/types.ts';
import { bytes, count, figure, NONE, num, percent } from '../lib/format.ts';
import {
  busyOf,
  deviceNow,
  deviceText,
  keptFrom,
  limitOf,
  nodePath,
  troubleOf,
  wasRead,
} from '../lib/nodes.ts';
import type { NameOf } from './nodes.tsx';

const HOT = 0.8;

/** How much of the accent a cell has, percent: never so much that neither dark nor light letters can be read on it. */
function shade(busy: number): number {
  return Math.round((busy < HOT ? busy * 0.65 : 0.88 + (busy - HOT) * 0.6) * 100);
}

/** Of one that no job holds: as busy as that, something else works on it. */
const STRAY = 0.05;

/** A node's devices: colour and number say how busy each is, also of those that are free; those that a job holds lead to it. */
export function GpuCells({ node, label }: { node: Node; label: (device: Device) => string }) {
  return (
    <div class="cells">
      {node.devices.map((device) => (
        <GpuCell key={device.index} node={node} device={device} text={label(device)} />
      ))}
    </div>
  );
}

function GpuCell({ node, device, text }: { node: Node; device: Device; text: string }) {
  const busy = busyOf(node, device);
  const known = Number.isFinite(busy);
  const held = num(device.job_id) > 0;
  const trouble = troubleOf(node, device) ? 'trouble' : '';
  const kept = keptFrom(node, device);
  const { reading } = deviceNow(node, device);
  const fault = reading?.error || reading?.xid;
  const word = fault ? 'fault' : held ? 'in use' : kept || 'free';
  const coloured = known && (held || busy >= STRAY);
  const look = {
    title: text,
    style: coloured ? { '--busy': `${shade(busy)}%` } : {},
  };
  const hot = busy >= HOT ? 'hot' : '';
  const inside = (
    <>
      <span>
        {known && held ? percent(busy, 0) : word}
        {known && trouble && <b aria-hidden="true">{'\u00a0!'}</b>}
      </span>
      {held && <small> #{device.job_id}</small>}
      {coloured && !held && <small> {percent(busy, 0)}</small>}
      <span class="hidden"> {text}</span>
    </>
  );
  if (held) {
    return (
      <a class={`gpu ${trouble} ${hot}`} href={`/jobs/${device.job_id}`} {...look}>
        {inside}
      </a>
    );
  }
  const state = coloured ? `stray ${hot}` : kept ? 'held' : 'free';
  return (
    <span class={`gpu ${state} ${trouble}`} {...look}>
      {inside}
    </span>
  );
}

/** The same as a table. */
export function DevicesTable({ nodes, names }: { nodes: readonly Node[]; names: NameOf }) {
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Devices">
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col" class="num">
              Device
            </th>
            <th scope="col">Model</th>
            <th scope="col">Job</th>
            <th scope="col" class="num">
              Busy
            </th>
            <th scope="col" class="num">
              Memory
            </th>
            <th scope="col" class="num">
              Power
            </th>
            <th scope="col" class="num">
              Temperature
            </th>
            <th scope="col" class="num">
              Clock
            </th>
            <th scope="col">Note</th>
          </tr>
        </thead>
        <tbody>
          {nodes.flatMap((node) =>
            node.devices.map((device) => (
              <DeviceRow key={`${node.name} ${device.index}`} node={node} device={device} names={names} />
            )),
          )}
        </tbody>
      </table>
    </section>
  );
}

function DeviceRow({ node, device, names }: { node: Node; device: Device; names: NameOf }) {
  const now = deviceNow(node, device);
  const { reading } = now;
  const held = num(device.job_id) > 0;
  return (
    <tr title={deviceText(node, device, names)}>
      <td>
        <a href={nodePath(node.name)}>{node.name}</a>
      </td>
      <td class="num">{device.index}</td>
      <td>{device.model}</td>
      <td>
        {held ? (
          <a href={`/jobs/${device.job_id}`}>{names(device.job_id)}</a>
        ) : (
          <span class="muted">{keptFrom(node, device) || 'free'}</span>
        )}
      </td>
      <td class="num">{percent(busyOf(node, device), 0)}</td>
      <td class="num">
        {num(device.memory_bytes) > 0
          ? `${wasRead(now, 'memory') ? bytes(reading?.memory_used_bytes) : NONE} of ${bytes(device.memory_bytes)}`
          : '–'}
      </td>
      <td class="num">{reading && reading.power_watts > 0 ? `${figure(reading.power_watts)} W` : '–'}</td>
      <td class="num">
        {reading && reading.temperature_celsius > 0 ? `${count(reading.temperature_celsius)} °C` : '–'}
      </td>
      <td class="num">
        {reading && reading.sm_clock_hertz > 0 ? `${count(reading.sm_clock_hertz / 1e6)} MHz` : '–'}
      </td>
      <td class={troubleOf(node, device) ? 'bad' : 'muted'}>
        {troubleOf(node, device) || [device.held_text, limitOf(node, device)].filter(Boolean).join(', ')}
      </td>
    </tr>
  );
}
