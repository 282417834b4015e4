import { useEffect, useState } from 'preact/hooks';

/** A value that components can follow. */
export class Store<T> {
  value: T;
  readonly #listeners = new Set<() => void>();
  constructor(value: T) {
    this.value = value;
  }
  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const listener of [...this.#listeners]) listener();
  }
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [, draw] = useState(0);
  useEffect(() => {
    let seen = store.value;
    draw((n) => n + 1);
    return store.listen(() => {
      if (Object.is(seen, store.value)) return;
      seen = store.value;
      draw((n) => n + 1);
    });
  }, [store]);
  return store.value;
}
