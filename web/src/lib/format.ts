// Figures for people. Every function takes anything that JSON may hold, and answers "–" where there is no figure.

export const NONE = '–';
/** As in JSON: a figure that was reported, and is no number. */
export const NAN = 'NaN';

/** Between a figure and its unit: a line does not break there. */
const SP = '\u00a0';

/** A figure and its unit. */
export function unit(value: number | string, name: string): string {
  return `${value}${SP}${name}`;
}

export function num(value: number | string | undefined | null): number {
  return value === undefined || value === null || value === '' ? Number.NaN : Number(value);
}

/** Milliseconds since 1970 of microseconds as text; NaN for 0, which stands for "not yet". */
export function ms(us: string | undefined): number {
  const value = num(us);
  return value > 0 ? value / 1000 : Number.NaN;
}

const exponential = (value: number, digits: number) => value.toExponential(digits - 1).replace('+', '');
const none = (value: unknown) => (value === NAN ? NAN : NONE);

/** 3 significant figures, thousands with a thin no-break space: "12 340", "0.00125", "1.19e-6", "4.15e13". */
export function figure(value: number | string | undefined, digits = 3): string {
  const n = num(value);
  if (!Number.isFinite(n)) return Number.isNaN(n) ? none(value) : n > 0 ? '∞' : '-∞';
  if (n === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(n)));
  if (size < -4 || size >= 9) return exponential(n, digits);
  return group(n.toFixed(Math.max(0, Math.min(digits - 1 - size, 12))));
}

/** As few digits as tell the number, at most 6: "5 000", "0.25". For ticks of axes. */
export function tick(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  if (value !== 0 && Math.abs(value) < 1e-5) return value.toExponential().replace(/(\.\d{3})\d+/, '$1');
  return group(String(Number(value.toPrecision(6))));
}

/** The same for the narrow axis at the side of a chart: "4.5e13". */
export function shortTick(value: number): string {
  if (!(Math.abs(value) >= 1e6)) return tick(value);
  return Number(value.toPrecision(4)).toExponential().replace('+', '');
}

/** A whole number with thin no-break spaces between thousands. */
export function count(value: number | string | undefined): string {
  const n = num(value);
  return Number.isFinite(n) ? group(Math.round(n).toString()) : NONE;
}

function group(text: string): string {
  const [whole = '', part] = text.split('.');
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') : whole;
  return part ? `${grouped}.${part}` : grouped;
}

/** So many digits after the point; of what has more than six before it, 3 significant figures. */
export function fixed(value: number | string | undefined, digits: number): string {
  const n = num(value);
  if (!Number.isFinite(n)) return none(value);
  return Math.abs(n) < 1e6 ? n.toFixed(digits) : exponential(n, 3);
}

/** A share from 0 to 1 in percent. */
export function percent(value: number | string | undefined, digits = 1): string {
  const n = num(value);
  return Number.isFinite(n) ? unit((n * 100).toFixed(digits), '%') : none(value);
}

/** The two largest units: "3 d 4 h", "12 min", "45 s". */
export function duration(seconds: number | string | undefined): string {
  const n = num(seconds);
  if (!Number.isFinite(n) || n < 0) return NONE;
  if (n < 60) return unit(Math.round(n), 's');
  const minutes = Math.round(n / 60);
  if (minutes < 60)
    return n < 600 && n % 60 >= 1
      ? `${unit(Math.floor(n / 60), 'min')}${SP}${unit(Math.floor(n % 60), 's')}`
      : unit(minutes, 'min');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${unit(hours, 'h')}${SP}${unit(String(minutes % 60).padStart(2, '0'), 'min')}`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${unit(days, 'd')}${SP}${unit(hours % 24, 'h')}` : unit(days, 'd');
}

/** For a narrow column: "3d 4h", "2h 05m", "12m", "45s". */
export function shortDuration(seconds: number | string | undefined): string {
  const n = num(seconds);
  if (!Number.isFinite(n) || n < 0) return NONE;
  if (n < 60) return `${Math.round(n)}s`;
  const minutes = Math.floor(n / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}h${SP}${String(minutes % 60).padStart(2, '0')}m`;
  return `${Math.floor(hours / 24)}d${SP}${hours % 24}h`;
}

export function bytes(value: number | string | undefined): string {
  const n = num(value);
  if (!Number.isFinite(n)) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  let rest = n;
  while (rest >= 1024 && at < units.length - 1) {
    rest /= 1024;
    at += 1;
  }
  return unit(at === 0 ? rest : figure(rest), units[at]!);
}

/** Seconds of something short: "139 ms", "0.4 ms", "12.3 s". */
export function millis(seconds: number | string | undefined): string {
  const n = num(seconds) * 1000;
  if (n > 0 && n < 0.1) return `<${SP}${unit(0.1, 'ms')}`;
  if (Number.isNaN(n)) return NONE;
  return n < 10_000 ? unit(figure(n, n < 1 ? 1 : 3), 'ms') : unit(figure(n / 1000), 's');
}

/** Device-hours: what is next to none is no power of ten. */
export function hours(value: number | string | undefined): string {
  const n = num(value);
  return n > 0 && n < 0.001 ? `<${SP}0.001` : figure(n);
}

/** As long as something short took: below a second in milliseconds. */
export function moment(seconds: number | string | undefined): string {
  return num(seconds) < 1 ? millis(seconds) : duration(seconds);
}

/** How long something ran: what was short was not nothing. */
export function ranText(seconds: number | string | undefined): string {
  const n = num(seconds);
  return n >= 0 && n < 1 ? `<${SP}${unit(1, 's')}` : duration(n);
}

/** With a capital, which the name of a setting ("data.train: ...") does not get, and a full stop. */
export function sentence(text: string): string {
  if (!text) return '';
  const isName = /^\S*(\.\S|:(\s|$))/.test(text);
  const begin = isName ? text[0]! : text[0]!.toUpperCase();
  return `${begin}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** What is next to nothing is not nothing. */
export function money(value: number | string | undefined, currency: string): string {
  const n = num(value);
  if (!Number.isFinite(n) || n === 0) return NONE;
  const text = n > 0 && n < 0.005 ? `<${SP}0.01` : group(n.toFixed(n >= 1000 ? 0 : 2));
  return currency ? unit(text, currency) : text;
}

/** A price of a unit, which is counted many times: with four decimals, or as many as show four of its digits. */
export function price(value: number | string | undefined, currency: string): string {
  const n = num(value);
  if (!Number.isFinite(n) || n <= 0) return NONE;
  const digits = Math.min(Math.max(4, 3 - Math.floor(Math.log10(n))), 12);
  const [whole, part = ''] = n.toFixed(digits).split('.');
  const text = group(`${whole}.${part.replace(/0+$/, '').padEnd(2, '0')}`);
  return currency ? unit(text, currency) : text;
}

const two = (n: number) => String(n).padStart(2, '0');

/** Local time: "14:03:22" today, else "2026-11-22 14:03". */
export function clock(timeMs: number, nowMs: number): string {
  if (!Number.isFinite(timeMs)) return NONE;
  const at = new Date(timeMs);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === new Date(nowMs).toDateString()) return `${time}:${two(at.getSeconds())}`;
  return `${day(at)} ${time}`;
}

function day(at: Date): string {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** Local date and time to the second. */
export function stamp(timeMs: number): string {
  if (!Number.isFinite(timeMs)) return NONE;
  const at = new Date(timeMs);
  return `${day(at)} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** "4 min ago", "in 2 h 05 min". */
export function relative(timeMs: number, nowMs: number): string {
  if (!Number.isFinite(timeMs)) return NONE;
  const seconds = (timeMs - nowMs) / 1000;
  if (Math.abs(seconds) < 2) return 'now';
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

/** "JOB_STATE_RUNNING" -> "RUNNING". */
export function shortEnum(value: string, prefix: string): string {
  return value.startsWith(prefix) ? value.slice(prefix.length) : value;
}

/** "WAITS_FOR_DEVICES" -> "waits for devices". */
export function words(value: string): string {
  return value.toLowerCase().replaceAll('_', ' ');
}

export function plural(n: number, noun: string, several = `${noun}s`): string {
  return `${count(n)} ${n === 1 ? noun : several}`;
}
