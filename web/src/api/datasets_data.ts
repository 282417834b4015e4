import { Store } from '../lib/store.ts';
import { ApiError, api, onSession } from './client.ts';
import { epoch, onceTold, onLive } from './live.ts';
import type { Dataset } from './types.ts';

export interface DatasetsState {
  /** By name. */
  datasets: Dataset[];
  ready: boolean;
  error: string;
}

export const datasetsState = new Store<DatasetsState>({ datasets: [], ready: false, error: '' });

let started = false;
let asked = 0;
/** The newest question that was answered: what older ones bring after it is old. */
let answered = 0;

/** Each is the whole set; `gone` are no more. */
export function takeDatasets(changed: readonly Dataset[], gone: readonly string[] = []): void {
  const byName = new Map(datasetsState.value.datasets.map((set) => [set.name, set]));
  for (const set of changed) byName.set(set.name, set);
  for (const name of gone) byName.delete(name);
  const datasets = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  datasetsState.set({ ...datasetsState.value, datasets });
}

export async function loadDatasets(): Promise<void> {
  const mine = ++asked;
  try {
    const { datasets } = await api.datasets();
    if (mine < answered) return;
    answered = mine;
    datasetsState.set({ datasets, ready: true, error: '' });
  } catch (error) {
    if (mine < answered) return;
    answered = mine;
    const text = error instanceof ApiError ? error.message : String(error);
    datasetsState.set({ ...datasetsState.value, error: text });
  }
}

/** Loads the sets once, and follows them from then on. */
export function followDatasets(): void {
  if (started) return;
  started = true;
  onLive('datasets', (data) => {
    const { datasets, gone } = data as { datasets?: Dataset[]; gone?: string[] };
    takeDatasets(datasets ?? [], gone);
  });
  epoch.listen(() => void loadDatasets());
  onSession(() => void loadDatasets());
  onceTold(() => void loadDatasets());
  void loadDatasets();
}
