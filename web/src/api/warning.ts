import { Store } from '../lib/store.ts';
import { onLive } from './live.ts';

/** What is wrong with imgd itself, as it said last, with whatever; empty when nothing is. */
export const serverWarning = new Store('');

/** Readings come with it, and it comes without them when it changes. */
export function followWarning(): () => void {
  return onLive('nodes', (data) => {
    const { warning } = data as { warning?: string };
    if (warning !== undefined) serverWarning.set(warning);
  });
}
