// Number formatting for the whole page, so that the same value is always written the same way.
// Times are nanoseconds, sizes bytes; a missing value is an en dash, never a zero.

export const MISSING = '–';

/** @type {(value: unknown) => value is null | undefined} */
const absent = (value) => value === null || value === undefined || Number.isNaN(value);

/**
 * Three significant digits, or `wanted`, without an exponent and without trailing zeros in the decimal part.
 * @param {number} value
 */
export function digits(value, wanted = 3) {
  const magnitude = Math.abs(value);
  const decimals = magnitude === 0 ? 0 : Math.min(15, Math.max(0, wanted - 1 - Math.floor(Math.log10(magnitude))));
  const text = value.toFixed(decimals);
  return decimals ? text.replace(/\.?0+$/, '') : text;
}

/**
 * 1234567 -> "1,234,567".
 * @param {number | null | undefined} value
 */
export function count(value) {
  return absent(value) ? MISSING : Math.round(value).toLocaleString('en-US');
}

/**
 * A mean of counts: whole numbers stay whole, others keep as many digits as a table can show.
 * @param {number | null | undefined} value
 */
export function mean(value) {
  if (absent(value)) return MISSING;
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return count(value);
  return digits(value);
}

/** @type {[number, string][]} */
const TIME_UNITS = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
];

/**
 * The largest unit in which the value is at least one.
 * @param {number} ns
 */
export function timeUnit(ns) {
  const magnitude = Math.abs(ns);
  return TIME_UNITS.find(([size]) => magnitude >= size) ?? TIME_UNITS[TIME_UNITS.length - 1];
}

/**
 * A length of time with its unit: "1.23 ms".
 * @param {number | null | undefined} ns
 */
export function duration(ns, wanted = 3) {
  if (absent(ns)) return MISSING;
  let [size, unit] = timeUnit(ns);
  if (Math.abs(ns / size) >= 999.5 && unit !== 's')
    [size, unit] = TIME_UNITS[TIME_UNITS.findIndex((u) => u[1] === unit) - 1];
  return `${digits(ns / size, wanted)} ${unit}`;
}

/**
 * A point in time, in milliseconds from the first operation's start, exact to the microsecond: "1,234.567 ms".
 * @param {number | null | undefined} ns
 */
export function moment(ns) {
  if (absent(ns)) return MISSING;
  return `${(ns / 1e6).toLocaleString('en-US', { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`;
}

/**
 * A size with its binary unit; whole multiples are exact: "4 KiB".
 * @param {number | null | undefined} value
 */
export function bytes(value) {
  if (absent(value)) return MISSING;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let scaled = value;
  let unit = 0;
  // A value that would round to 1024 is 1 of the next unit.
  while (Math.abs(scaled) >= 1023.5 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 && Number.isInteger(scaled) ? count(scaled) : digits(scaled)} ${units[unit]}`;
}

/**
 * A fraction as a percentage; a non-zero value that rounds to zero is marked as such.
 * @param {number | null | undefined} part
 * @returns {string}
 */
export function percent(part) {
  if (absent(part)) return MISSING;
  if (part < 0) return part > -0.0005 ? '> −0.1 %' : `−${percent(-part)}`;
  if (part > 0 && part < 0.0005) return '< 0.1 %';
  return `${(part * 100).toFixed(part > 0 && part < 0.0995 ? 1 : 0)} %`;
}

/**
 * The last component of a path; the whole path belongs in a title.
 * @param {string} path
 */
export function baseName(path) {
  const cut = path.lastIndexOf('/');
  return cut < 0 || cut === path.length - 1 ? path : path.slice(cut + 1);
}

/**
 * Text shortened to a number of characters, ending in an ellipsis.
 * @param {string} text
 * @param {number} limit
 */
export function shorten(text, limit) {
  const points = Array.from(text);
  return points.length <= limit ? text : `${points.slice(0, limit - 1).join('')}…`;
}

// eslint-disable-next-line no-control-regex -- control characters are what it matches
const CONTROLS = /[\u0000-\u001f\u007f]/g;

/**
 * Makes control characters visible, so that text from a traced program cannot move or hide other text.
 * C0 and DEL have Unicode symbols; C1, direction overrides and zero-width characters are written as their code points.
 * @param {string} text
 */
export function visible(text) {
  return text
    .replace(CONTROLS, (c) => (c === '\u007f' ? '\u2421' : String.fromCharCode(0x2400 + c.charCodeAt(0))))
    .replace(
      /[\u0080-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
      (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}
