/** So many runs are laid over one another: more colours and dashes nobody tells apart. */
export const MOST_COMPARED = 20;

/** Numbers of jobs as an address or a field has them, each once; among them what no job can have as its number. */
export function jobsIn(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4]];

/** Colour and dashes tell lines apart: of twenty no two have both. */
export function look(i: number): { colour: string; dash: number[] } {
  return { colour: `s${(i % 8) + 1}`, dash: DASHES[i % DASHES.length]! };
}
