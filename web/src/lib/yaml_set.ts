import { splitTop, stripComment } from './flat_yaml.ts';

/** Settings that are texts, whatever they look like. */
const TEXTS = new Set(['name', 'project', 'model.name', 'data.train', 'data.val']);

/** What YAML of some version reads as nothing, as true or false, or as a number or a time. */
const NO_TEXT = /^(null|true|false|yes|no|on|off|y|n|[-+]?\.(inf|nan)|[-+]?\.?\d[\da-fotxz_.:+-]*)$/i;

/** A value as YAML on one line: plain where that is read as what was typed. `text`: it is one, whatever it looks like. */
export function scalar(value: string, text = false): string {
  const plain = /^[A-Za-z0-9_./+][A-Za-z0-9_./@%+:-]*$/.test(value) && !value.endsWith(':');
  return plain && !(text && NO_TEXT.test(value)) ? value : JSON.stringify(value);
}

/** The job file with the setting `name` ("epochs" is "train.epochs") at this value, all else as it stood, comments too. An
 * empty value takes the setting out. Null where the text has it in a form that this does not know: then a person edits. */
export function setYaml(text: string, name: string, value: string): string | null {
  const [outer, inner] = name.split('.') as [string, string?];
  const written = value && scalar(value, TEXTS.has(name));
  const lines = text.split('\n');
  const at = lines.findIndex((line) => new RegExp(`^${outer}\\s*:(\\s|$)`).test(line));
  const line = inner ? `${outer}:\n  ${inner}: ${written}` : `${outer}: ${written}`;
  if (at < 0) return value === '' ? text : `${text.replace(/\n*$/, text.trim() ? '\n' : '')}${line}\n`;
  const has = stripComment(lines[at]!)
    .replace(/^[^:]*:/, '')
    .trim();
  const next = inner ? inMapping(lines, at, has, inner, written) : atTop(lines, at, has, written);
  return next?.join('\n') ?? null;
}

// From here on values are as YAML has them; an empty one takes the setting out.

const isNested = (line: string | undefined) => line !== undefined && /^(\s+\S|-)/.test(line);

function atTop(lines: string[], at: number, has: string, value: string): string[] | null {
  if (/^[[{|>&*!]/.test(has) || (has === '' && isNested(lines[at + 1]))) return null;
  return value === '' ? lines.toSpliced(at, 1) : lines.with(at, withValue(lines[at]!, has, value));
}

function inMapping(lines: string[], at: number, has: string, name: string, value: string): string[] | null {
  if (has.startsWith('{')) return inBraces(lines, at, has, name, value);
  if (has !== '') return null;
  let end = at + 1;
  while (
    end < lines.length &&
    (!lines[end]!.trim() || /^\s/.test(lines[end]!) || lines[end]!.startsWith('#'))
  )
    end++;
  const own = lines.slice(at + 1, end);
  const first = own.find((line) => stripComment(line).trim());
  const indent = first ? first.search(/\S/) : 2;
  const found = own.findIndex((line) => new RegExp(`^\\s{${indent}}${name}\\s*:(\\s|$)`).test(line));
  if (found < 0) {
    const last = own.findLastIndex((line) => stripComment(line).trim());
    if (value === '') return lines;
    return lines.toSpliced(at + 2 + last, 0, `${' '.repeat(indent)}${name}: ${value}`);
  }
  const place = at + 1 + found;
  const old = stripComment(lines[place]!)
    .replace(/^[^:]*:/, '')
    .trim();
  const deeper = own[found + 1] !== undefined && own[found + 1]!.search(/\S/) > indent;
  if (/^[[{|>&*!]/.test(old) || (old === '' && deeper)) return null;
  return value === '' ? lines.toSpliced(place, 1) : lines.with(place, withValue(lines[place]!, old, value));
}

function inBraces(lines: string[], at: number, has: string, name: string, value: string): string[] | null {
  if (!has.endsWith('}')) return null;
  const parts = splitTop(has.slice(1, -1)).map((part) => part.trim());
  const found = parts.findIndex((part) => new RegExp(`^${name}\\s*:`).test(part));
  if (found >= 0 && /:\s*[[{]/.test(parts[found]!)) return null;
  const part = `${name}: ${value}`;
  const next =
    found < 0
      ? [...parts.filter(Boolean), ...(value === '' ? [] : [part])]
      : value === ''
        ? parts.toSpliced(found, 1)
        : parts.with(found, part);
  return lines.with(
    at,
    lines[at]!.replace(has, () => `{${next.join(', ')}}`),
  );
}

/** The line with another value; what is before and behind it stays. */
function withValue(line: string, old: string, value: string): string {
  const colon = line.indexOf(':') + 1;
  const rest = line.slice(colon);
  if (old === '') return `${line.slice(0, colon)} ${value}${rest.trimEnd() ? ` ${rest.trim()}` : ''}`;
  return line.slice(0, colon) + rest.replace(old, () => value);
}
