// A figure: one row per cell, with its estimate, the interval, and each process's own score as a dot.

import { FONT, FONT_BOLD, paint, sharpen } from './theme.js';
import { el } from './dom.js';
import { tellApart, tickTexts, valueAxis, valueText } from './plot.js';

/** @import { Bar } from './types.js' */
/** @import { Tip } from './tip.js' */

const BAR_ROW = 30;
const BAR_TOP = 8;
const BAR_AXIS = 24;
const BAR_RIGHT = 128;

/** Rows of cells in one unit. */
export class Bars {
  /**
   * @param {Bar[]} bars
   * @param {string} unit
   * @param {Tip} tip
   */
  constructor(bars, unit, tip) {
    this.left = 0;
    this.bars = bars;
    this.unit = unit;
    this.tip = tip;
    this.hovered = -1;
    const { own, shared } = tellApart(bars.map((bar) => bar.label));
    this.labels = own;
    this.shared = shared;
    this.canvas = el('canvas', { role: 'img', 'aria-label': this.words(), dataset: { bars: bars.length, unit } });
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.leave());
  }

  words() {
    return this.bars.map((bar, i) => `${this.labels[i]}: ${valueText(bar.estimate, this.unit)}`).join('; ');
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const height = BAR_TOP + this.bars.length * BAR_ROW + BAR_AXIS;
    const c = sharpen(this.canvas, width, height);
    c.font = FONT;
    c.textBaseline = 'middle';
    const longest = Math.max(...this.labels.map((label) => c.measureText(label).width), 40);
    this.left = Math.min(longest + 14, width * 0.4);
    const room = Math.max(width - this.left - BAR_RIGHT, 60);
    const all = this.bars.flatMap((bar) => [...bar.values, bar.estimate, ...(bar.ci95 ?? [])]);
    const axis = valueAxis(
      all.filter((value) => value !== null),
      Math.max(2, Math.floor(room / 110)),
    );
    /** @param {number} value */
    const x = (value) => this.left + axis.at(value) * room;
    c.strokeStyle = paint('grid');
    c.fillStyle = paint('muted');
    c.textAlign = 'center';
    const texts = tickTexts(axis.ticks, this.unit);
    axis.ticks.forEach((tick, i) => {
      const at = Math.round(x(tick)) + 0.5;
      c.beginPath();
      c.moveTo(at, BAR_TOP);
      c.lineTo(at, height - BAR_AXIS);
      c.stroke();
      c.fillText(texts[i], at, height - BAR_AXIS / 2);
    });
    if (axis.log) {
      // Below the values, where there is no tick.
      c.textAlign = 'right';
      c.fillText('logarithmic', width - 2, height - BAR_AXIS / 2);
    }
    this.bars.forEach((bar, i) => this.row(c, bar, i, x, width));
  }

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {Bar} bar
   * @param {number} i
   * @param {(value: number) => number} x
   * @param {number} width
   */
  row(c, bar, i, x, width) {
    const y = BAR_TOP + i * BAR_ROW + BAR_ROW / 2;
    if (i === this.hovered) {
      c.fillStyle = paint('band');
      c.fillRect(0, y - BAR_ROW / 2, width, BAR_ROW);
    }
    c.fillStyle = paint('text');
    c.textAlign = 'left';
    c.fillText(this.labels[i], 2, y, this.left - 8);
    if (bar.ci95) {
      c.fillStyle = paint('accent');
      c.globalAlpha = 0.28;
      c.fillRect(x(bar.ci95[0]), y - 7, Math.max(x(bar.ci95[1]) - x(bar.ci95[0]), 1.5), 14);
      c.globalAlpha = 1;
    }
    c.fillStyle = paint('mark-write');
    c.globalAlpha = 0.65;
    for (const value of bar.values) {
      c.beginPath();
      c.arc(x(value), y, 2.4, 0, 7);
      c.fill();
    }
    c.globalAlpha = 1;
    c.textAlign = 'right';
    if (bar.estimate !== null) {
      c.fillStyle = paint('accent');
      c.fillRect(x(bar.estimate) - 1, y - 9, 2, 18);
      c.font = FONT_BOLD;
      c.fillText(valueText(bar.estimate, this.unit), width - 4, y);
      c.font = FONT;
    } else {
      c.fillStyle = paint('muted');
      c.fillText('no result', width - 4, y);
    }
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const at = Math.floor((event.clientY - this.canvas.getBoundingClientRect().top - BAR_TOP) / BAR_ROW);
    const bar = this.bars[at];
    if (at !== this.hovered) {
      this.hovered = bar ? at : -1;
      this.draw();
    }
    if (!bar) {
      this.tip.hide();
      return;
    }
    const half = bar.ci95 && bar.estimate ? ((bar.ci95[1] - bar.ci95[0]) / 2 / bar.estimate) * 100 : null;
    this.tip.show(event.clientX, event.clientY, bar.label || bar.workload, [
      `${valueText(bar.estimate, this.unit)}${half === null ? '' : ` ± ${half.toFixed(1)} %`}`,
      bar.ci95 ? `95 % interval ${valueText(bar.ci95[0], this.unit)} to ${valueText(bar.ci95[1], this.unit)}` : null,
      `${bar.values.length} processes`,
      ...bar.notes,
    ]);
  }

  leave() {
    this.tip.hide();
    if (this.hovered >= 0) {
      this.hovered = -1;
      this.draw();
    }
  }
}
