// A cell's processes over their iterations: warm-ups, steps and outliers as measured, and where the steady state begins.

import { count } from './format.js';
import { FONT, paint, sharpen } from './theme.js';
import { el } from './dom.js';
import { closeAxis, valueLines, valueText } from './plot.js';

/** @import { Curve, CurvesOfCell } from './types.js' */
/** @import { Tip } from './tip.js' */

const CURVE_HEIGHT = 190;
const CURVE_LEFT = 78;
const CURVE_BOTTOM = 24;
const CURVE_NEAR = 18;

export class Curves {
  /**
   * @param {CurvesOfCell} cell
   * @param {Tip} tip
   */
  constructor(cell, tip) {
    // Positions of values on the canvas; NaN until it is drawn.
    /** @type {(value: number) => number} */
    this.x = () => NaN;
    /** @type {(value: number) => number} */
    this.y = () => NaN;
    this.cell = cell;
    this.tip = tip;
    this.chosen = -1;
    this.length = Math.max(...cell.processes.map((process) => process.iterations), 1);
    this.canvas = el('canvas', {
      role: 'img',
      'aria-label': `${cell.title}: iterations of ${cell.processes.length} processes`,
      dataset: { processes: cell.processes.length },
    });
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.choose(-1));
    this.node = el(
      'figure',
      { class: 'curve' },
      el('h3', {}, cell.title),
      this.canvas,
      el('figcaption', {}, this.words()),
    );
  }

  /** The number of processes in each class. */
  words() {
    const classes = new Map();
    for (const process of this.cell.processes) {
      const name = process.class ?? 'too few iterations';
      classes.set(name, (classes.get(name) ?? 0) + 1);
    }
    return [...classes].map(([name, n]) => `${count(n)} ${name}`).join(', ');
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const c = sharpen(this.canvas, width, CURVE_HEIGHT);
    c.font = FONT;
    c.textBaseline = 'middle';
    const [across, up] = [width - CURVE_LEFT - 8, CURVE_HEIGHT - CURVE_BOTTOM - 8];
    const values = this.cell.processes.flatMap((process) => process.points.map((point) => point[1]));
    const axis = closeAxis(values, 4);
    this.y = (value) => 8 + up * (1 - axis.at(value));
    this.x = (n) => CURVE_LEFT + ((n + 0.5) / this.length) * across;
    valueLines(c, axis.ticks, this.y, { left: CURVE_LEFT, right: width - 8, unit: this.cell.unit });
    c.textAlign = 'left';
    c.fillText('iteration 1', CURVE_LEFT, CURVE_HEIGHT - CURVE_BOTTOM / 2);
    c.textAlign = 'right';
    c.fillText(`${count(this.length)}${axis.log ? ' (logarithmic)' : ''}`, width - 8, CURVE_HEIGHT - CURVE_BOTTOM / 2);
    this.cell.processes.forEach((process, i) => {
      if (i !== this.chosen) this.line(c, process, this.chosen < 0 ? 0.55 : 0.16);
    });
    const chosen = this.cell.processes[this.chosen];
    if (chosen) this.details(c, chosen);
    else this.cell.processes.forEach((process) => this.start(c, process, 0.4));
  }

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {Curve} process
   * @param {number} alpha
   */
  line(c, process, alpha) {
    c.globalAlpha = alpha;
    c.strokeStyle = paint('mark-read');
    c.lineWidth = 1;
    c.beginPath();
    process.points.forEach(([n, value], i) =>
      i === 0 ? c.moveTo(this.x(n), this.y(value)) : c.lineTo(this.x(n), this.y(value)),
    );
    c.stroke();
    c.globalAlpha = 1;
  }

  /**
   * Marks the start of the steady state, unless it is the first iteration.
   * @param {CanvasRenderingContext2D} c
   * @param {Curve} process
   * @param {number} alpha
   */
  start(c, process, alpha) {
    if (!process.steady_from) return;
    c.globalAlpha = alpha;
    c.strokeStyle = paint('mark-flush');
    c.lineWidth = 1.5;
    const at = this.x(process.steady_from - 0.5);
    c.beginPath();
    c.moveTo(at, 8);
    c.lineTo(at, CURVE_HEIGHT - CURVE_BOTTOM);
    c.stroke();
    c.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {Curve} process
   */
  details(c, process) {
    this.line(c, process, 1);
    this.start(c, process, 1);
    c.strokeStyle = paint('mark-write');
    c.lineWidth = 2.5;
    for (const [from, to, mean] of process.segments) {
      c.beginPath();
      c.moveTo(this.x(from - 0.5), this.y(mean));
      c.lineTo(this.x(to - 0.5), this.y(mean));
      c.stroke();
    }
    c.lineWidth = 1.5;
    const outliers = new Set(process.outliers);
    for (const [n, value] of process.points.filter((point) => outliers.has(point[0]))) {
      c.beginPath();
      c.arc(this.x(n), this.y(value), 4, 0, 7);
      c.stroke();
    }
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, least] = [-1, CURVE_NEAR];
    /** @type {number[] | undefined} */
    let point;
    for (const [i, process] of this.cell.processes.entries()) {
      for (const at of process.points) {
        const far = Math.hypot(this.x(at[0]) - x, this.y(at[1]) - y);
        if (far < least) [best, least, point] = [i, far, at];
      }
    }
    this.choose(best);
    const process = this.cell.processes[best];
    if (!process || !point) return;
    this.tip.show(event.clientX, event.clientY, `block ${count(process.block)}: ${process.class ?? 'not classified'}`, [
      `iteration ${count(point[0] + 1)} of ${count(process.iterations)}: ${valueText(point[1], this.cell.unit)}`,
      process.steady_from ? `steady from iteration ${count(process.steady_from + 1)}` : null,
      process.outliers.length > 0 ? `${count(process.outliers.length)} outliers` : null,
      process.score ? `score ${process.score}` : null,
    ]);
  }

  /** @param {number} process */
  choose(process) {
    if (process < 0) this.tip.hide();
    if (process === this.chosen) return;
    this.chosen = process;
    this.canvas.dataset.chosen = process < 0 ? '' : String(this.cell.processes[process].block);
    this.draw();
  }
}
