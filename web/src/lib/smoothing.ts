const USUAL = 0.6;
export const MOST_SMOOTHING = 0.99;

/** What the address says of it. */
export function smoothingIn(query: URLSearchParams): number {
  const asked = Number(query.get('smooth') ?? USUAL);
  return Number.isNaN(asked) ? USUAL : Math.min(Math.max(asked, 0), MOST_SMOOTHING);
}
