import { Store } from '../lib/store.ts';
import { ApiError, api, onSession } from './client.ts';
import { ListQuestions } from './list_questions.ts';
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
const questions = new ListQuestions();

const byName = (a: Dataset, b: Dataset) => (a.name < b.name ? -1 : 1);

/** Each is the whole set; `gone` are no more. */
function takeDatasets(changed: readonly Dataset[], gone: readonly string[]): void {
  const names = new Set([...changed.map((set) => set.name), ...gone]);
  for (const name of names) questions.tell(name);
  const others = datasetsState.value.datasets.filter((set) => !names.has(set.name));
  datasetsState.set({ ...datasetsState.value, datasets: [...others, ...changed].sort(byName) });
}

export async function loadDatasets(): Promise<void> {
  const mine = questions.ask();
  try {
    const { datasets } = await api.datasets();
    if (!questions.isNews(mine)) return;
    const merged = questions.merge(mine, datasets, datasetsState.value.datasets);
    datasetsState.set({ datasets: merged.sort(byName), ready: true, error: '' });
  } catch (error) {
    if (!questions.isNews(mine)) return;
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
    takeDatasets(datasets ?? [], gone ?? []);
  });
  epoch.listen(() => void loadDatasets());
  onSession(() => void loadDatasets());
  onceTold(() => void loadDatasets());
  void loadDatasets();
}
