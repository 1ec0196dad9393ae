// A line figure: one factor along x as categories, a line for each value of another factor, intervals as strokes.

import { FONT, layerPaint, paint, sharpen } from './theme.js';
import { el } from './dom.js';
import { LINE_COLOURS, valueAxis, valueLines, valueText } from './plot.js';

/** @import { Bar, Figure } from './types.js' */
/** @import { Tip } from './tip.js' */
/** @typedef { Bar & { x: string, estimate: number } } Dot */

const LINES_HEIGHT = 300;
const LINES_LEFT = 92;
const LINES_BOTTOM = 40;
const LINES_NEAR = 14;

/** @type {Record<string, number>} */
const SUFFIXES = { K: 1024, M: 1024 ** 2, G: 1024 ** 3 };

/**
 * A factor's value as a number, for sorting; words keep their order.
 * @param {string} text
 */
function sizeOf(text) {
  const found = /^(\d+)([KMG]?)$/.exec(text);
  return found ? Number(found[1]) * (SUFFIXES[found[2]] ?? 1) : NaN;
}

/** @param {string[]} values */
function inOrder(values) {
  return [...new Set(values)].sort((a, b) => sizeOf(a) - sizeOf(b) || 0);
}

/** @type {(bar: Bar) => bar is Dot} */
const drawable = (bar) => bar.x !== null && bar.estimate !== null;

export class Lines {
  /**
   * @param {Figure} figure
   * @param {Tip} tip
   */
  constructor(figure, tip) {
    this.figure = figure;
    this.tip = tip;
    // The heading and the axis already show what all values share.
    this.shared = '';
    /** @type {{ bar: Dot, x: number, y: number }[]} */
    this.places = [];
    this.bars = figure.bars.filter(drawable);
    this.unit = this.bars[0]?.unit ?? '';
    this.xs = inOrder(this.bars.map((bar) => bar.x));
    this.series = inOrder(this.bars.map((bar) => bar.series ?? ''));
    this.canvas = el('canvas', {
      role: 'img',
      'aria-label': `${figure.title}: ${this.bars.length} values`,
      dataset: { bars: this.bars.length, unit: this.unit },
    });
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.tip.hide());
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0 || this.bars.length === 0) return;
    const c = sharpen(this.canvas, width, LINES_HEIGHT);
    c.font = FONT;
    c.textBaseline = 'middle';
    const names = this.series.map((name) => `${this.figure.series} ${name}`);
    const right = Math.max(...names.map((name) => c.measureText(name).width)) + 34;
    const [across, up] = [width - LINES_LEFT - right, LINES_HEIGHT - LINES_BOTTOM - 10];
    const axis = valueAxis(
      this.bars.flatMap((bar) => [bar.estimate, ...(bar.ci95 ?? [])]),
      5,
    );
    /** @param {number} value */
    const y = (value) => 10 + up * (1 - axis.at(value));
    /** @param {string} value */
    const x = (value) => LINES_LEFT + ((this.xs.indexOf(value) + 0.5) / this.xs.length) * across;
    this.places = this.bars.map((bar) => ({ bar, x: x(bar.x), y: y(bar.estimate) }));
    valueLines(c, axis.ticks, y, { left: LINES_LEFT, right: LINES_LEFT + across, unit: this.unit });
    c.textAlign = 'center';
    for (const value of this.xs) c.fillText(value, x(value), LINES_HEIGHT - LINES_BOTTOM + 10);
    c.fillText(
      `${this.figure.x}${axis.log ? ' (values logarithmic)' : ''}`,
      LINES_LEFT + across / 2,
      LINES_HEIGHT - 10,
    );
    c.textAlign = 'left';
    this.series.forEach((name, i) => this.line(c, name, i, { x, y, names, end: LINES_LEFT + across + 12 }));
  }

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {string} name
   * @param {number} i
   * @param {{ x: (value: string) => number, y: (value: number) => number, names: string[], end: number }} place
   */
  line(c, name, i, { x, y, names, end }) {
    const colour = layerPaint(LINE_COLOURS[i % LINE_COLOURS.length]);
    const points = this.bars
      .filter((bar) => (bar.series ?? '') === name)
      .sort((a, b) => this.xs.indexOf(a.x) - this.xs.indexOf(b.x));
    c.strokeStyle = colour;
    c.fillStyle = colour;
    c.lineWidth = 1.8;
    c.setLineDash(i >= LINE_COLOURS.length ? [5, 3] : []);
    c.beginPath();
    points.forEach((bar, n) => (n === 0 ? c.moveTo(x(bar.x), y(bar.estimate)) : c.lineTo(x(bar.x), y(bar.estimate))));
    c.stroke();
    c.setLineDash([]);
    for (const bar of points) {
      c.beginPath();
      c.arc(x(bar.x), y(bar.estimate), 3, 0, 7);
      c.fill();
      if (bar.ci95) {
        c.beginPath();
        c.moveTo(x(bar.x), y(bar.ci95[0]));
        c.lineTo(x(bar.x), y(bar.ci95[1]));
        c.stroke();
      }
    }
    const at = 18 + i * 16;
    c.fillRect(end, at - 1, 14, 3);
    c.fillStyle = paint('text');
    c.fillText(names[i], end + 19, at);
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const near = this.places.filter((place) => Math.hypot(place.x - x, place.y - y) < LINES_NEAR);
    if (near.length === 0) {
      this.tip.hide();
      return;
    }
    near.sort((a, b) => Math.hypot(a.x - x, a.y - y) - Math.hypot(b.x - x, b.y - y));
    const { bar } = near[0];
    this.tip.show(event.clientX, event.clientY, bar.label, [
      valueText(bar.estimate, this.unit),
      bar.ci95 ? `95 % interval ${valueText(bar.ci95[0], this.unit)} to ${valueText(bar.ci95[1], this.unit)}` : null,
      `${bar.values.length} processes`,
      ...bar.notes,
    ]);
  }
}
