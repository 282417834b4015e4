import type { LogLine } from '../api/types.ts';

// Escape sequences of terminals: colours, cursors (CSI), titles and links (OSC and its like), and shorter ones.
const ESCAPES =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it is about
  /(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]?|\u001b[\]PX^_][^\p{Cc}]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]?/gu;
// And what turns the direction of the text behind it: a line would seem to say something else.
const CONTROLS = /[^\P{Cc}\t]|[\u202a-\u202e\u2066-\u2069]/gu;

/** What a program wrote for a terminal, as text. */
export function plain(text: string): string {
  return text.replace(ESCAPES, '').replace(/\r+$/, '').replace(CONTROLS, ' ');
}

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
