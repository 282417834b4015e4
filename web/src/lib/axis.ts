/** Of a value's size: what differs by less differs by rounding alone. */
const ROUNDING = 1e-9;

/** Whether values between these are all the same, but for rounding: no axis can tell them apart. */
export function isFlat(low: number, high: number): boolean {
  return high - low <= ROUNDING * Math.max(Math.abs(low), Math.abs(high));
}

/** The axis of values between these, cut off at `top`: a little room above and below; a flat curve lies in the middle. */
export function padded(low: number | null, most: number | null, top: number | null): [number, number] {
  if (low === null || most === null) return [0, 1];
  const high = top === null ? most : Math.min(most, top);
  const room = isFlat(low, high) ? Math.abs(high) * 0.1 || 0.5 : (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}
