import type { Device, Node } from '../api/types.ts';
import { bytes, count, figure, num, percent } from '../lib/format.ts';
import { deviceText, limitOf, troubleOf } from '../lib/nodes.ts';
import type { NameOf } from './nodes.tsx';

const HOT = 0.8;

/** How much of the accent a cell has, percent: never so much that neither dark nor light letters can be read on it. */
function shade(busy: number): number {
  return Math.round((busy < HOT ? busy * 0.65 : 0.88 + (busy - HOT) * 0.6) * 100);
}

/** A node's devices: colour and number say how busy each is; those that a job holds lead to it. */
export function GpuCells({ node, label }: { node: Node; label: (device: Device) => string }) {
  const away = node.state === 'NODE_STATE_LOST' || node.state === 'NODE_STATE_UNREACHABLE';
  return (
    <div class="cells">
      {node.devices.map((device) => {
        const text = label(device);
        const job = num(device.job_id);
        const busy =
          device.reading && !device.reading.error && !away ? device.reading.busy_ratio : Number.NaN;
        const trouble = troubleOf(device) ? 'trouble' : '';
        const known = Number.isFinite(busy);
        const word =
          device.reading?.error || device.reading?.xid
            ? 'fault'
            : job > 0
              ? 'in use'
              : device.held_text
                ? 'held'
                : 'free';
        const inside = (
          <>
            <span>
              {known && job > 0 ? percent(busy, 0) : word}
              {known && trouble && <b aria-hidden="true">{'\u00a0!'}</b>}
            </span>
            {job > 0 && <small> #{device.job_id}</small>}
            <span class="hidden"> {text}</span>
          </>
        );
        if (job > 0) {
          return (
            <a
              key={device.index}
              class={`gpu ${trouble} ${busy >= HOT ? 'hot' : ''}`}
              href={`/jobs/${device.job_id}`}
              title={text}
              style={known ? { '--busy': `${shade(busy)}%` } : {}}
            >
              {inside}
            </a>
          );
        }
        return (
          <span
            key={device.index}
            class={`gpu ${device.held_text ? 'held' : 'free'} ${trouble}`}
            title={text}
          >
            {inside}
          </span>
        );
      })}
    </div>
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
  const reading = device.reading;
  const held = num(device.job_id) > 0;
  return (
    <tr title={deviceText(device, names)}>
      <td>
        <a href={`/nodes/${node.name}`}>{node.name}</a>
      </td>
      <td class="num">{device.index}</td>
      <td>{device.model}</td>
      <td>
        {held ? (
          <a href={`/jobs/${device.job_id}`}>{names(device.job_id)}</a>
        ) : (
          <span class="muted">free</span>
        )}
      </td>
      <td class="num">{percent(reading?.busy_ratio, 0)}</td>
      <td class="num">
        {num(device.memory_bytes) > 0
          ? `${bytes(reading?.memory_used_bytes)} of ${bytes(device.memory_bytes)}`
          : '–'}
      </td>
      <td class="num">{reading && reading.power_watts > 0 ? `${figure(reading.power_watts)} W` : '–'}</td>
      <td class="num">
        {reading && reading.temperature_celsius > 0 ? `${count(reading.temperature_celsius)} °C` : '–'}
      </td>
      <td class="num">
        {reading && reading.sm_clock_hertz > 0 ? `${count(reading.sm_clock_hertz / 1e6)} MHz` : '–'}
      </td>
      <td class={troubleOf(device) ? 'bad' : 'muted'}>
        {troubleOf(device) || [device.held_text, limitOf(device)].filter(Boolean).join(', ')}
      </td>
    </tr>
  );
}
