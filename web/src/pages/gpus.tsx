import type { Device, Node } from '../api/types.ts';
import { bytes, figure, num, percent } from '../lib/format.ts';
import { deviceText } from '../lib/nodes.ts';
import type { NameOf } from './nodes.tsx';

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
        const trouble = device.reading?.error ? 'trouble' : '';
        if (job > 0) {
          return (
            <a
              key={device.index}
              class={`gpu ${trouble} ${busy > 0.6 ? 'hot' : ''}`}
              href={`/jobs/${device.job_id}`}
              aria-label={text}
              title={text}
              style={Number.isFinite(busy) ? { '--busy': `${Math.round(busy * 100)}%` } : {}}
            >
              <span>{Number.isFinite(busy) ? percent(busy, 0) : trouble ? 'fault' : '?'}</span>
              <small>#{device.job_id}</small>
            </a>
          );
        }
        return (
          <span
            key={device.index}
            role="img"
            class={`gpu ${device.held_text ? 'held' : 'free'} ${trouble}`}
            aria-label={text}
            title={text}
          >
            <span>{trouble ? 'fault' : device.held_text ? 'held' : 'free'}</span>
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
        {reading && reading.temperature_celsius > 0 ? `${figure(reading.temperature_celsius)} °C` : '–'}
      </td>
      <td class="num">
        {reading && reading.sm_clock_hertz > 0 ? `${figure(reading.sm_clock_hertz / 1e6, 4)} MHz` : '–'}
      </td>
      <td class={reading?.error ? 'bad' : 'muted'}>{reading?.error || device.held_text}</td>
    </tr>
  );
}
