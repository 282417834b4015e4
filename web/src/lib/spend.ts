import type { OwnerUsage } from '../api/types.ts';

/** Of each of the last days, what each owner's jobs took. */
export interface Days {
  /** Local midnights, milliseconds, oldest first. */
  days: number[];
  /** By owner, who took most first: an amount for each day. */
  owners: { name: string; amounts: number[]; total: number }[];
  most: number;
}

// Fewer would be a chart of nothing but wide bars.
const LEAST_DAYS = 7;

/** Where the last `count` days begin, and where today ends; local midnights, which are not always 24 hours apart. */
export function dayEdges(now: number, count: number): number[] {
  const today = new Date(now);
  const midnight = (back: number) =>
    new Date(today.getFullYear(), today.getMonth(), today.getDate() - back).getTime();
  return Array.from({ length: count + 1 }, (_, i) => midnight(count - 1 - i));
}

/** For drawing; days before the first on which anything was used are left out. */
export function byDay(
  usage: readonly OwnerUsage[],
  amounts: (one: OwnerUsage) => readonly number[],
  edges: readonly number[],
): Days {
  const sums = edges.slice(1).map((_, i) => usage.reduce((sum, one) => sum + (amounts(one)[i] ?? 0), 0));
  const used = sums.findIndex((sum) => sum > 0);
  const first = Math.max(Math.min(used, sums.length - LEAST_DAYS), 0);
  const owners = usage
    .map((one) => {
      const shown = sums.map((_, i) => amounts(one)[i] ?? 0).slice(first);
      return { name: one.owner, amounts: shown, total: shown.reduce((a, b) => a + b, 0) };
    })
    .filter((one) => one.total > 0)
    .sort((a, b) => b.total - a.total);
  return { days: edges.slice(first, -1), owners, most: Math.max(...sums, 0) };
}
