const SETTING = /^("[^"]*"|'[^']*'|[^:{}[\]]+?)\s*:(?:\s+(.*))?$/;

/** Settings of a job file by their dotted names, as text; those of a list's items have its number in theirs, from 1. Knows what
 * job files have: mappings by indent and in braces, lists, comments, quotes; a block of text (| or >) is one value. For showing
 * what differs, not for checking. */
export function flatYaml(text: string): Map<string, string> {
  const out = new Map<string, string>();
  const path: { indent: number; name: string; isItem: boolean }[] = [];
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const line = stripComment(lines[i]!);
    if (!line.trim() || line.trim() === '---') continue;
    let indent = line.search(/\S/);
    let item = line.trim();
    while (path.length > 0) {
      const { indent: its, isItem } = path[path.length - 1]!;
      // A list may be as far in as its name is.
      if (its < indent || (its === indent && !isItem && beginsItem(item))) break;
      path.pop();
    }
    let prefix = path.map((p) => p.name).join('.');
    if (beginsItem(item)) {
      const content = item.slice(1).trim();
      if (content && !SETTING.test(content) && !isMapping(content)) {
        addTo(out, prefix, content);
        continue;
      }
      const number = String(itemsOf(out, prefix) + 1);
      path.push({ indent, name: number, isItem: true });
      prefix = `${prefix}.${number}`;
      if (!content) continue;
      if (isMapping(content)) {
        put(out, prefix, content);
        continue;
      }
      indent += item.indexOf(content);
      item = content;
    }
    const found = SETTING.exec(item);
    if (!found) {
      addTo(out, prefix, item);
      continue;
    }
    const name = unquote(found[1]!);
    const value = found[2]?.trim() ?? '';
    const full = prefix ? `${prefix}.${name}` : name;
    if (value === '') path.push({ indent, name, isItem: false });
    else if (/^[|>][+-]?$/.test(value)) {
      const block = blockAfter(lines, i, indent);
      out.set(full, block.join('\n'));
      i += block.length;
    } else put(out, full, value);
  }
  return out;
}

const beginsItem = (line: string) => line === '-' || line.startsWith('- ');

const isMapping = (text: string) => text.startsWith('{') && text.endsWith('}');

/** How many items with settings of their own a list has. */
export function itemsOf(settings: ReadonlyMap<string, string>, list: string): number {
  let items = 0;
  for (const name of settings.keys())
    if (name.startsWith(`${list}.`))
      items = Math.max(items, Number.parseInt(name.slice(list.length + 1), 10) || 0);
  return items;
}

function blockAfter(lines: string[], at: number, indent: number): string[] {
  const block: string[] = [];
  for (const line of lines.slice(at + 1)) {
    if (line.trim() && line.search(/\S/) <= indent) break;
    block.push(line);
  }
  return block;
}

function addTo(out: Map<string, string>, name: string, value: string): void {
  const before = out.get(name);
  out.set(name, before === undefined ? value : `${before}, ${value}`);
}

function put(out: Map<string, string>, name: string, value: string): void {
  if (value.startsWith('[') && value.endsWith(']')) {
    const items = splitTop(value.slice(1, -1));
    if (items.length > 0 && items.every(isMapping)) {
      for (const [i, item] of items.entries()) put(out, `${name}.${i + 1}`, item);
      return;
    }
  }
  if (isMapping(value)) {
    for (const part of splitTop(value.slice(1, -1))) {
      const colon = part.indexOf(':');
      if (colon > 0)
        put(out, `${name}.${unquote(part.slice(0, colon).trim())}`, part.slice(colon + 1).trim());
    }
    return;
  }
  out.set(name, unquote(value));
}

export function splitTop(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    if ('{['.includes(text[i]!)) depth += 1;
    else if ('}]'.includes(text[i]!)) depth -= 1;
    else if (text[i] === ',' && depth === 0) {
      parts.push(text.slice(from, i));
      from = i + 1;
    }
  }
  parts.push(text.slice(from));
  return parts.map((part) => part.trim()).filter(Boolean);
}

export function stripComment(line: string): string {
  let quote = '';
  for (let i = 0; i < line.length; i++) {
    const c = line[i]!;
    if (quote) quote = c === quote ? '' : quote;
    else if (c === '"' || c === "'") quote = c;
    else if (c === '#' && (i === 0 || /\s/.test(line[i - 1]!))) return line.slice(0, i);
  }
  return line.trimEnd();
}

function unquote(text: string): string {
  return /^(".*"|'.*')$/.test(text) ? text.slice(1, -1) : text;
}

/** A setting that is not the same everywhere. */
export interface Difference {
  name: string;
  values: (string | undefined)[];
}

/** The settings that differ between job files, in the order of their names. */
export function differences(files: readonly string[]): Difference[] {
  const flat = files.map(flatYaml);
  const names = [...new Set(flat.flatMap((one) => [...one.keys()]))].sort();
  return names
    .map((name) => ({ name, values: flat.map((one) => one.get(name)) }))
    .filter((one) => new Set(one.values).size > 1);
}
