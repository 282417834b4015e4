export const LEVELS = ['error', 'warning', 'info', 'debug'] as const;
export type Level = (typeof LEVELS)[number];

const PATTERNS: [Level, RegExp][] = [
  ['error', /\b(error|critical|fatal|exception|traceback|abort(ed)?|segfault)\b/i],
  ['warning', /\bwarn(ing)?\b/i],
  ['debug', /\b(debug|trace)\b/i],
];

/** How grave a line is. Programs say it in their first words, as "[error]" or "WARNING:"; others say it somewhere. */
export function levelOf(text: string): Level {
  const marked = /^.{0,48}?[[(<]?\b(error|critical|fatal|warn(?:ing)?|info|debug|trace)\b[\])>:]/i.exec(text);
  const told = marked ? marked[1]! : text;
  for (const [level, pattern] of PATTERNS) if (pattern.test(told)) return level;
  return 'info';
}
