export interface DiffLine {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

/** What turns the lines of `before` into those of `after`: a shortest way (longest common subsequence). Meant for job
 * files; of more than 2,000 lines only equal ends are found. */
export function diffLines(before: readonly string[], after: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let tail = 0;
  while (
    tail < before.length - start &&
    tail < after.length - start &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) {
    tail += 1;
  }
  const same = (text: string): DiffLine => ({ kind: 'same', text });
  return [
    ...before.slice(0, start).map(same),
    ...middle(before.slice(start, before.length - tail), after.slice(start, after.length - tail)),
    ...before.slice(before.length - tail).map(same),
  ];
}

function middle(a: readonly string[], b: readonly string[]): DiffLine[] {
  const all = (kind: 'removed' | 'added', lines: readonly string[]) => lines.map((text) => ({ kind, text }));
  if (a.length === 0 || b.length === 0 || a.length + b.length > 2000)
    return [...all('removed', a), ...all('added', b)];
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1]! + 1
          : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const out: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      out.push({ kind: 'same', text: a[i]! });
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)
      out.push({ kind: 'removed', text: a[i++]! });
    else out.push({ kind: 'added', text: b[j++]! });
  }
  return [...out, ...all('removed', a.slice(i)), ...all('added', b.slice(j))];
}
