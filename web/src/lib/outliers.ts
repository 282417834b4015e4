// How far a curve goes up, leaving out a few values far above all others: one spike of the loss would flatten it.

const FEW = 0.02;
const LEAST_VALUES = 30;
/** An outlier is more than so many times as far above the others as they are apart. */
const FAR = 3;

// Of a young job two of some forty values may be spikes, and so may a few in a row. So many are outliers only where they are
// many times what the others are: a curve that falls fast has a few high values at its begin, too.
const MORE = 0.1;
const LEAST_MORE = 3;
const MOST_SHARE = 0.25;
const MANY_TIMES = 20;
/** A loss up to this is that of a model that knows nothing yet: more than the logarithm of 100,000 classes. */
export const KNOWS_NOTHING = 12;

export interface Cut {
  /** The highest value that is no outlier. */
  top: number;
  /** The highest of all. */
  highest: number;
}

type Columns = readonly (readonly (number | null)[])[];

/** Null where there are no outliers above. `usual`: of few values none up to this is one. `dots` are values far apart, such as
 * validations: so few that each counts, whatever the others' distances are. */
export function cutOf(columns: Columns, usual = KNOWS_NOTHING, dots: Columns = []): Cut | null {
  const [values, apart] = [numbersOf(columns), numbersOf(dots)];
  const all = numbersOf([values, apart]);
  const limit = Math.min(limitByDistance(values), limitByRatio(all, usual));
  const topOf = (of: readonly number[], most: number) =>
    of.findLast((value) => value <= most) ?? Number.NEGATIVE_INFINITY;
  const top = Math.max(topOf(values, limit), topOf(apart, Math.max(limit, usual)));
  const highest = all.at(-1) ?? top;
  return highest > top ? { top, highest } : null;
}

/** From the least to the highest. */
function numbersOf(columns: Columns): number[] {
  return columns
    .flat()
    .filter((value): value is number => value !== null && Number.isFinite(value))
    .sort((a, b) => a - b);
}

/** What is above is an outlier, as far as one in fifty may be; infinite where nothing can be told. */
function limitByDistance(values: readonly number[]): number {
  if (values.length < LEAST_VALUES) return Number.POSITIVE_INFINITY;
  const at = (share: number) => values[Math.round(share * (values.length - 1))]!;
  const [low, high] = [at(FEW), at(1 - FEW)];
  return high > low ? high + FAR * (high - low) : Number.POSITIVE_INFINITY;
}

/** The same, as far as one in ten may be, and of few values three of them. */
function limitByRatio(values: readonly number[], usual: number): number {
  const few = Math.min(LEAST_MORE, Math.floor(values.length * MOST_SHARE));
  const high = values.at(-1 - Math.max(Math.floor(values.length * MORE), few));
  if (high === undefined || high <= values[0]!) return Number.POSITIVE_INFINITY;
  return Math.max(high * MANY_TIMES, usual);
}
