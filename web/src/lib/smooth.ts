/** Exponential smoothing with the start's bias taken out; gaps (null, NaN) stay gaps. `weight` 0 changes nothing, 0.99
 * much. For points that stand for different stretches see `x`: the weight is that of a step of the mean distance. */
export function smooth(
  values: readonly (number | null)[],
  weight: number,
  x?: readonly number[],
): (number | null)[] {
  if (weight <= 0) return [...values];
  const mean = meanDistance(x);
  let last = 0;
  let debias = 0;
  let before = Number.NaN;
  return values.map((value, i) => {
    if (value === null || !Number.isFinite(value)) return null;
    const at = x?.[i] ?? i;
    const distance = Number.isNaN(before) ? 1 : Math.max((at - before) / mean, 0);
    before = at;
    const keep = weight ** distance;
    last = last * keep + value * (1 - keep);
    debias = debias * keep + (1 - keep);
    return debias > 0 ? last / debias : value;
  });
}

function meanDistance(x?: readonly number[]): number {
  if (!x || x.length < 2) return 1;
  return Math.max((x[x.length - 1]! - x[0]!) / (x.length - 1), Number.MIN_VALUE);
}
