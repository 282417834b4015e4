import { useEffect, useMemo } from 'preact/hooks';
import { api } from '../api/client.ts';
import { useCurrency } from '../api/currency.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import { busyHours, followNodes, nodesState, useHours } from '../api/nodes_data.ts';
import type { Node } from '../api/types.ts';
import { count, figure, percent, plural, price } from '../lib/format.ts';
import {
  busyNow,
  conditionOf,
  deviceText,
  howToJoin,
  isConnected,
  labelsOf,
  needsLook,
  nodePath,
  sumNodes,
} from '../lib/nodes.ts';
import { current, setQuery, useQueryText } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Segments, Spark, Trouble } from '../ui/bits.tsx';
import { Icon } from '../ui/icons.tsx';
import { useData } from '../ui/use_data.ts';
import { DevicesTable, GpuCells } from './gpus.tsx';
import { NodeActions, NodePanel } from './node_panel.tsx';

/** The machines: their GPUs by how busy they are, what keeps them from work, and what can be done. */
export function NodesPage({ name }: { name?: string }) {
  useEffect(followNodes, []);
  useHours();
  useEffect(followJobs, []);
  const state = useStore(nodesState);
  const { query } = useStore(current);
  const [text, setText] = useQueryText('q');
  const view = query.get('view') === 'table' ? 'table' : 'grid';
  const names = useJobNames();
  const troubled = query.get('only') === 'trouble';
  const shown = useMemo(() => {
    const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
    return state.nodes.filter(
      (node) => (!troubled || needsLook(node)) && parts.every((part) => textOf(node).includes(part)),
    );
  }, [state.nodes, text, troubled]);
  if (!state.ready) {
    return (
      <>
        <h1 tabIndex={-1}>Nodes</h1>
        {state.error ? <Trouble text={state.error} /> : <p class="muted">Loading …</p>}
      </>
    );
  }
  const chosen = name ? state.nodes.find((node) => node.name === name) : undefined;
  const trouble = state.nodes.filter(needsLook).length;
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Nodes</h1>
        <span class="sub">{count(state.nodes.length)}</span>
      </div>
      {state.nodes.length === 0 ? (
        <NoNodes />
      ) : (
        <>
          <Sums nodes={state.nodes} />
          <div class="row filters">
            <input
              type="search"
              placeholder="Search name, label, GPU, reason   /"
              aria-label="Search nodes"
              value={text}
              size={34}
              onInput={(event) => setText(event.currentTarget.value)}
            />
            <div class="chips">
              <button
                type="button"
                aria-pressed={troubled}
                onClick={() => setQuery({ only: troubled ? '' : 'trouble' }, true)}
              >
                needs a look <b>{trouble}</b>
              </button>
            </div>
            <span class="grow" />
            {state.nodes.some((node) => node.devices.some((device) => device.reading)) && (
              <span class="ramp" aria-hidden="true">
                idle <i /> busy
              </span>
            )}
            <Segments
              label="View"
              options={[
                ['grid', 'Grid'],
                ['table', 'Table'],
              ]}
              value={view}
              onChange={(next) => setQuery({ view: next === 'grid' ? '' : next })}
            />
          </div>
          {name && !chosen && <NoSuchNode name={name} />}
          {chosen && <NodePanel node={chosen} names={names} />}
          {view === 'table' ? (
            <DevicesTable nodes={shown} names={names} />
          ) : (
            <section class="panel" aria-label="GPUs by node">
              {shown.map((node) => (
                <NodeRow key={node.name} node={node} names={names} />
              ))}
              {shown.length === 0 && (
                <Empty title="No node is like that" text="Clear the search to see all." />
              )}
            </section>
          )}
        </>
      )}
    </>
  );
}

function NoNodes() {
  const { data: port } = useData('gRPC port', api.grpcPort);
  const joining = howToJoin(location, port);
  return (
    <div class="panel">
      <Empty
        title="No node has joined"
        text={`An agent on each GPU machine dials imgd and keeps the connection; nothing dials the agent. ${joining.text}`}
        command={joining.command}
      >
        <p>
          On a machine without a GPU add <code>--cpu-slots N</code>, for N ranks at once on its CPU.
        </p>
      </Empty>
    </div>
  );
}

/** It may have been forgotten, or never have been. */
function NoSuchNode({ name }: { name: string }) {
  return (
    <div class="panel" role="alert" style={{ marginBottom: '14px' }}>
      <Empty title={`There is no node ${name}`} text="It never joined, or it is forgotten.">
        <a class="button" href="/nodes">
          All nodes
        </a>
      </Empty>
    </div>
  );
}

function textOf(node: Node): string {
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  const models = new Set(node.devices.map((device) => device.model));
  return [node.name, ...labels, ...models, conditionOf(node).word, node.reason_text].join(' ').toLowerCase();
}

export type NameOf = (id: string) => string;

function useJobNames(): NameOf {
  const { rows } = useStore(jobsState);
  return useMemo(() => {
    const names = new Map(rows.map((row) => [String(row.id), row.name]));
    return (id: string) => (names.has(id) ? `job ${id} ${names.get(id)}` : `job ${id}`);
  }, [rows]);
}

function Sums({ nodes }: { nodes: readonly Node[] }) {
  const sums = sumNodes(nodes);
  const currency = useCurrency();
  return (
    <dl class="facts panel" style={{ marginBottom: '14px' }}>
      <Sum name="Ready" value={`${count(sums.ready)}`} unit={`of ${plural(sums.nodes, 'node')}`} />
      <Sum name="Held by jobs" value={count(sums.used)} unit={`of ${plural(sums.devices, 'device')}`} />
      <Sum name="Free" value={count(sums.free)} unit={sums.free === 1 ? 'device' : 'devices'} />
      {Number.isFinite(sums.busy) && <Sum name="Busy, of those held" value={percent(sums.busy, 0)} />}
      {sums.watts > 0 && <Sum name="Power" value={figure(sums.watts / 1000)} unit="kW" />}
      {sums.price > 0 && (
        <Sum name="Price" value={price(sums.price, '')} unit={`${currency} an hour`.trim()} />
      )}
    </dl>
  );
}

function Sum({ name, value, unit = '' }: { name: string; value: string; unit?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value} {unit && <small>{unit}</small>}
      </dd>
    </div>
  );
}

/** How busy its devices were in the last hour. */
function BusyCurve({ node }: { node: Node }) {
  const values = busyHours.get(node.name) ?? [];
  if (values.filter(Number.isFinite).length < 2) return null;
  return (
    <div class="row" style={{ flexWrap: 'nowrap' }}>
      <Spark values={values} least={0} most={1} label={`How busy ${node.name} was in the last hour`} />
      {isConnected(node) && percent(busyNow(node), 0)}
    </div>
  );
}

/** Numbers of the jobs that hold a part of the node. */
function jobsOn(node: Node): string[] {
  return [...new Set(node.devices.map((device) => device.job_id))].filter((id) => id !== '0');
}

function NodeRow({ node, names }: { node: Node; names: NameOf }) {
  const condition = conditionOf(node);
  // That of the node itself is above.
  const labels = labelsOf(node).filter(([, value]) => value !== node.name);
  return (
    <div class={`node-row ${condition.word === 'ready' ? '' : 'aside'}`}>
      <div>
        <a class="node-name" href={nodePath(node.name)}>
          {node.name}
        </a>
        <span class={`state tone-${condition.tone}`}>
          <Icon name={condition.icon} />
          {condition.word}
        </span>
        {labels.length > 0 && <span class="muted"> · {labels.map(([, value]) => value).join(' · ')}</span>}
      </div>
      <GpuCells
        node={node}
        label={(device) => `${node.name} device ${device.index}: ${deviceText(node, device, names)}`}
      />
      <div class="muted">
        <BusyCurve node={node} />
        {condition.why && <div>{condition.why}</div>}
        {jobsOn(node).map((id, i) => (
          <span key={id}>
            {i > 0 && ', '}
            <a href={`/jobs/${id}`}>{names(id).replace(/^job /, '#')}</a>
          </span>
        ))}
      </div>
      <div class="row" style={{ justifyContent: 'flex-end' }}>
        <NodeActions node={node} plain="plain" />
      </div>
    </div>
  );
}
