import { useEffect } from 'preact/hooks';
import { Store, useStore } from '../lib/store.ts';
import { api, onSession } from './client.ts';
import { epoch } from './live.ts';

/** What prices are in, as imgd.yaml has it; empty where it says nothing. */
const currency = new Store('');
let started = false;

function load(): void {
  api.usage().then(
    (usage) => currency.set(usage.currency),
    () => {}, // figures without it are right, too
  );
}

/** Asked for once, and after each break: it may be another then. */
export function useCurrency(): string {
  useEffect(() => {
    if (started) return;
    started = true;
    epoch.listen(load);
    onSession(load);
    load();
  }, []);
  return useStore(currency);
}
