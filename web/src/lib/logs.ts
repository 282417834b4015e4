import type { LogLine } from '../api/types.ts';

/** Name of a line in its job: generation, rank and number. */
export function lineName(line: LogLine): string {
  return `${line.generation}.${line.rank}.${line.line_number}`;
}

export interface LineAt {
  generation: string;
  rank: number;
  number: number;
}

/** What such a name says; null where it is none. */
export function lineAt(name: string): LineAt | null {
  const found = /^(\d+)\.(\d+)\.(\d+)$/.exec(name);
  return found && { generation: found[1]!, rank: Number(found[2]), number: Number(found[3]) };
}
