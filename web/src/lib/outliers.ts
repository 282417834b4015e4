// How far a curve goes up, leaving out a few values far above all others: one spike of the loss would flatten it.

const FEW = 0.02;
const LEAST_VALUES = 30;
/** An outlier is more than so many times as far above the others as they are apart. */
const FAR = 3;

export interface Cut {
  /** The highest value that is no outlier. */
  top: number;
  /** The highest of all. */
  highest: number;
}

/** Null where there are no outliers above. */
export function cutOf(columns: readonly (readonly (number | null)[])[]): Cut | null {
  const values = columns
    .flat()
    .filter((value): value is number => value !== null && Number.isFinite(value))
    .sort((a, b) => a - b);
  if (values.length < LEAST_VALUES) return null;
  const at = (share: number) => values[Math.round(share * (values.length - 1))]!;
  const [low, high, highest] = [at(FEW), at(1 - FEW), at(1)];
  const limit = high + FAR * (high - low);
  if (high <= low || highest <= limit) return null;
  return { top: values.findLast((value) => value <= limit)!, highest };
}
