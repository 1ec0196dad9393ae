// Shared by all plots of a benchmark: a linear or logarithmic value axis, ticks, their labels, and grid lines.

import { digits, duration } from './format.js';
import { niceStep } from './scale.js';
import { paint } from './theme.js';

/** Beyond this ratio of largest to smallest value, the small ones would be invisible on a linear axis. */
const LOGARITHMIC_FROM = 30;

const PREFIXES = ['', 'k', 'M', 'G', 'T'];

/**
 * A bit rate with a suitable prefix: "60 Gbit/s".
 * @param {number} value
 * @param {number} wanted
 */
function bitRate(value, wanted) {
  let [scaled, at] = [value, 0];
  while (Math.abs(scaled) >= 999.5 && at < PREFIXES.length - 1) [scaled, at] = [scaled / 1000, at + 1];
  return `${digits(scaled, wanted)} ${PREFIXES[at]}bit/s`;
}

/**
 * A value with its unit; times and bit rates are scaled to a suitable unit, and a share has none.
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function valueText(value, unit, wanted = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (unit === 'ns') return duration(value, wanted);
  if (unit === 'us') return duration(value * 1e3, wanted);
  if (unit === 'bit/s') return bitRate(value, wanted);
  if (unit === '1') return digits(value, wanted);
  const big = Math.abs(value) >= 1e6;
  return `${big ? `${digits(value / 1e6, wanted)} M` : digits(value, wanted)} ${unit}`;
}

/**
 * Ticks as text, with enough digits to tell neighbours apart: close ticks differ only in the fourth digit.
 * @param {number[]} ticks
 * @param {string} unit
 */
export function tickTexts(ticks, unit) {
  /** @param {number} wanted */
  const texts = (wanted) => ticks.map((tick) => valueText(tick, unit, wanted));
  for (let wanted = 3; wanted < 12; wanted += 1) {
    const all = texts(wanted);
    // A rounded tick would appear too far from or too near to its neighbours: the label must match the position.
    const longer = texts(wanted + 1);
    if (all.every((text, i) => text === longer[i])) return all;
  }
  return texts(12);
}

/**
 * The minimum and maximum of any number of values.
 * @param {number[]} values
 */
function extent(values) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  return [least, most];
}

/**
 * An axis over values, from zero unless it must be logarithmic: {log, low, high, at(value) in 0 to 1, ticks}.
 * @param {number[]} values
 * @param {number} wanted
 * @returns { { log: boolean, ticks: number[], at: (value: number) => number } }
 */
export function valueAxis(values, wanted) {
  const all = values.filter((value) => Number.isFinite(value));
  const positive = all.filter((value) => value > 0);
  const [lowest, highest] = extent(all);
  const [least, most] = [extent(positive)[0], Math.max(highest, 0)];
  const log = positive.length === all.length && positive.length > 0 && most / least > LOGARITHMIC_FROM;
  if (log) {
    const [low, high] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most) + 1e-9)];
    const ticks = [];
    for (let power = low; power <= high; power += 1) ticks.push(10 ** power);
    return { log, ticks, at: (value) => (value > 0 ? (Math.log10(value) - low) / Math.max(high - low, 1) : 0) };
  }
  const low = Math.min(0, lowest);
  const high = (most > low ? most : low + 1) * 1.04;
  const step = niceStep((high - low) / Math.max(wanted, 1));
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  return { log, ticks, at: (value) => (value - low) / (high - low) };
}

/**
 * An axis around values that are close together, with a margin; not from zero, since it shows a trend rather than magnitudes.
 * @param {number[]} values
 * @param {number} wanted
 * @returns { { log: boolean, ticks: number[], at: (value: number) => number } }
 */
export function closeAxis(values, wanted) {
  const all = values.filter((value) => Number.isFinite(value));
  const [least, most] = extent(all);
  if (least > 0 && most / least > LOGARITHMIC_FROM) return valueAxis(values, wanted);
  const room = Math.max((most - least) * 0.08, Math.abs(most) * 0.005, 1e-12);
  const [low, high] = [least - room, most + room];
  const step = niceStep((high - low) / Math.max(wanted, 1));
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  return { log: false, ticks, at: (value) => (value - low) / (high - low) };
}

/**
 * Draws a line from left to right at each tick of a vertical axis, with its value before it; y(value) is its position.
 * @param {CanvasRenderingContext2D} c
 * @param {number[]} ticks
 * @param {(value: number) => number} y
 * @param { { left: number, right: number, unit: string } } place
 */
export function valueLines(c, ticks, y, { left, right, unit }) {
  c.strokeStyle = paint('grid');
  c.fillStyle = paint('muted');
  c.textAlign = 'right';
  const texts = tickTexts(ticks, unit);
  ticks.forEach((tick, i) => {
    const at = Math.round(y(tick)) + 0.5;
    c.beginPath();
    c.moveTo(left, at);
    c.lineTo(right, at);
    c.stroke();
    c.fillText(texts[i], left - 6, at);
  });
}

/**
 * Splits labels into the words that not all of them share, and those that all share.
 * @param {string[]} labels
 */
export function tellApart(labels) {
  const lists = labels.map((label) => label.split(' '));
  const shared = lists.length > 1 ? (lists[0] ?? []).filter((word) => lists.every((list) => list.includes(word))) : [];
  const own = lists.map((list) => list.filter((word) => !shared.includes(word)).join(' '));
  return { own: own.map((label, i) => label || labels[i]), shared: shared.join(' ') };
}

/** The colour of the n-th line, distinguishable with all common forms of colour vision. */
export const LINE_COLOURS = ['database', 'driver', 'syscall', 'ioscheduler', 'filesystem', 'app', 'block', 'runqueue'];
