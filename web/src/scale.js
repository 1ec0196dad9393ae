// The visible time window, and the ticks on its axis. Times are nanoseconds from the first operation's start.

import { timeUnit } from './format.js';

/** The narrowest window: a single system call or bio fills the screen. */
export const NARROWEST_NS = 1000;

/**
 * A window [from, to] that stays inside [low, high]. Every change returns a new window.
 * @param {number} from
 * @param {number} to
 * @param {number} low
 * @param {number} high
 */
export function windowOf(from, to, low, high) {
  const whole = Math.max(high - low, NARROWEST_NS);
  const width = Math.min(Math.max(to - from, NARROWEST_NS), whole);
  const centre = (from + to) / 2;
  const start = Math.min(Math.max(centre - width / 2, low), low + whole - width);
  return { from: start, to: start + width };
}

/**
 * The window scaled by a factor (below 1: zoom in) about a point that stays in place on the screen.
 * @param { { from: number, to: number } } view
 * @param {number} factor
 * @param {number} about
 */
export function zoomed(view, factor, about) {
  return { from: about - (about - view.from) * factor, to: about + (view.to - about) * factor };
}

/**
 * The window moved by a fraction of its width.
 * @param { { from: number, to: number } } view
 * @param {number} part
 */
export function panned(view, part) {
  const shift = (view.to - view.from) * part;
  return { from: view.from + shift, to: view.to + shift };
}

/**
 * The smallest of 1, 2, 5 times a power of ten that is at least the value.
 * @param {number} value
 */
export function niceStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= value * 0.999999) ?? 10 * power;
}

/**
 * Ticks about `spacing` pixels apart. When zoomed in far into a run, a tick's full label would be longer than its
 * distance to the next one: the labels then count from a base, which is returned to be written once.
 * @param {number} from
 * @param {number} to
 * @param {number} pixels
 */
export function timeTicks(from, to, pixels, spacing = 110) {
  const step = niceStep(((to - from) * spacing) / Math.max(pixels, 1));
  const [size, unit] = timeUnit(Math.max(Math.abs(from), Math.abs(to)));
  /** @param {number} scale */
  const decimalsOf = (scale) => Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-6)));
  const first = Math.ceil(from / step - 1e-6);
  const last = Math.floor(to / step + 1e-6);
  const far = decimalsOf(size) > 4;
  const base = far ? Math.floor(from / (step * 10)) * step * 10 : 0;
  const [near, nearUnit] = far ? timeUnit(Math.max(to - base, step)) : [size, unit];
  const decimals = decimalsOf(near);
  const ticks = [];
  for (let i = first; i <= last; i += 1) {
    const time = i * step;
    const value = ((time - base) / near).toFixed(decimals).replace(/^-(0(\.0+)?)$/, '$1');
    ticks.push({ time, label: `${far ? '+' : ''}${value} ${nearUnit}` });
  }
  return { ticks, step, base: far ? `${(base / size).toFixed(decimalsOf(size / 10))} ${unit}` : '' };
}

/**
 * Ticks of a plain number axis, with the values only.
 * @param {number} low
 * @param {number} high
 * @param {number} wanted
 */
export function numberTicks(low, high, wanted) {
  const step = niceStep(Math.max(high - low, 1e-9) / Math.max(wanted, 1));
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-6; i += 1) ticks.push(i * step);
  return ticks;
}
