import { useLayoutEffect, useRef } from 'preact/hooks';
import { type BusySample, busyOf, minutesOf, withSample } from '../lib/nodes.ts';
import { soonOf } from '../lib/soon.ts';
import { Store } from '../lib/store.ts';
import { useData, useEvery, useOnceTold } from '../ui/use_data.ts';
import { ApiError, api, onSession } from './client.ts';
import { ListQuestions } from './list_questions.ts';
import { epoch, onceTold, onLive } from './live.ts';
import type { Decision, Node, NodeRun } from './types.ts';
import { serverWarning } from './warning.ts';

export interface NodesState {
  nodes: Node[];
  ready: boolean;
  error: string;
}

export const nodesState = new Store<NodesState>({ nodes: [], ready: false, error: '' });

/** Of each node, how busy its devices were of late. */
export const recentBusy = new Map<string, BusySample[]>();

/** Of each node, how busy it was in each minute of the last hour, when the list was last asked for. */
export const busyHours = new Map<string, number[]>();
const MINUTE_MS = 60_000;

function remember(node: Node): void {
  if (!node.devices.some((device) => device.reading)) return;
  const busy = node.devices.map((device) => busyOf(node, device));
  recentBusy.set(node.name, withSample(recentBusy.get(node.name) ?? [], { at: Date.now(), busy }));
}

let started = false;
const questions = new ListQuestions();

/** Each is the whole node: what it lacks, it has no more. */
export function takeNodes(changed: readonly Node[]): void {
  const byName = new Map(nodesState.value.nodes.map((node) => [node.name, node]));
  for (const node of changed) {
    questions.tell(node.name);
    byName.set(node.name, node);
    remember(node);
  }
  nodesState.set({ ...nodesState.value, nodes: sorted([...byName.values()]) });
}

/** It is in the list no more. */
export function dropNode(name: string): void {
  questions.tell(name);
  recentBusy.delete(name);
  busyHours.delete(name);
  nodesState.set({ ...nodesState.value, nodes: nodesState.value.nodes.filter((node) => node.name !== name) });
}

function sorted(nodes: readonly Node[]): Node[] {
  return [...nodes].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

async function load(): Promise<void> {
  const mine = questions.ask();
  try {
    const { nodes, warning } = await api.nodes();
    if (!questions.isNews(mine)) return;
    const merged = questions.merge(mine, nodes, nodesState.value.nodes);
    const shown = new Set(merged);
    for (const node of nodes) {
      if (shown.has(node)) remember(node);
      busyHours.set(node.name, minutesOf(node.recent_busy_ratios ?? []));
    }
    nodesState.set({ nodes: sorted(merged), ready: true, error: '' });
    serverWarning.set(warning);
  } catch (error) {
    if (!questions.isNews(mine)) return;
    const text = error instanceof ApiError ? error.message : String(error);
    nodesState.set({ ...nodesState.value, error: text });
  }
}

/** Asks for the list each minute while somebody looks at it: the hour is in that alone. */
export function useHours(): void {
  useEvery(MINUTE_MS, () => void load());
}

/** Loads the nodes once, and follows them from then on. */
export function followNodes(): void {
  if (started) return;
  started = true;
  onLive('nodes', (data) => takeNodes((data as { nodes?: Node[] }).nodes ?? []));
  // What was decided of nodes or of what they hold: the list has it, readings may not.
  onLive('event', soonOf(() => void load()).ask);
  epoch.listen(() => void load());
  onSession(() => void load());
  onceTold(() => void load());
  void load();
}

const EVENTS = 50;

/** What ran on a node, and what was decided of it and of that: the newest first. */
export interface NodeStory {
  runs: NodeRun[];
  events: Decision[];
}

/** It is read again when something happens: events of jobs do not say which nodes they are of. Null until it is known. */
export function useStoryOf(node: string): NodeStory | null {
  const loads = useRef(false);
  const loaded = useData(`story of ${node}`, async (signal): Promise<NodeStory> => {
    loads.current = true;
    try {
      const [{ runs }, { events = [] }] = await Promise.all([
        api.node(node, signal),
        api.eventsOf(node, EVENTS, signal),
      ]);
      return { runs, events: events.toReversed() };
    } finally {
      loads.current = false;
    }
  });
  useOnceTold(loaded);
  const { data, reload } = loaded;
  // As early as it is asked for: what happens in between is in neither.
  useLayoutEffect(() => {
    // What is awaited comes first: events may never pause.
    const again = soonOf(() => (loads.current ? again.ask() : reload()));
    const deaf = onLive('event', again.ask);
    return () => {
      deaf();
      again.end();
    };
  }, [reload]);
  return data;
}
