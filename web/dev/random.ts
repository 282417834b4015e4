/** Numbers from 0 to 1 that are the same each time for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A number from -1 to 1 that depends on the two alone. */
export function noise(seed: number, at: number): number {
  return random(Math.imul(seed, 2654435761) ^ Math.imul(at, 40503))() * 2 - 1;
}
