// The whole run as a strip above the timeline: when operations ran and the device was busy, with the visible window.

import { layerPaint, paint, sharpen } from './theme.js';

/** @import { Chain } from './chain.js' */
/** @import { Trace } from './data.js' */
/** @import { View } from './gestures.js' */

const STRIP_HEIGHT = 34;
const BARS = 480;

export class Overview {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Trace} trace
   */
  constructor(canvas, trace) {
    this.canvas = canvas;
    this.trace = trace;
    const { operations, spans } = trace;
    this.operations = new Float64Array(BARS);
    for (let i = 0; i < operations.count; i += 1)
      addBusy(this.operations, trace, operations.start[i], trace.operationEnd(i));
    this.commands = new Float64Array(BARS);
    // Spans that the page does not hold individually are in the levels of detail.
    if ((trace.parts.length > 0 || trace.leftOut?.spans) && trace.levels.length > 0) this.addLevel();
    else
      for (let i = 0; i < spans.count; i += 1)
        if (trace.isCommand(i)) addBusy(this.commands, trace, spans.start[i], trace.endOf(i));
  }

  addLevel() {
    const { trace } = this;
    const [level] = trace.levels;
    let row = 0;
    for (const layer of trace.layers)
      for (let lane = 0; lane < layer.lanes.length; lane += 1, row += 1) {
        if (layer.name !== 'Driver') continue;
        for (const cell of level.of(row)) {
          const start = trace.low + level.at[cell] * level.part;
          addBusy(this.commands, trace, start, start + Math.min(level.busy[cell], level.part));
        }
      }
  }

  /** @param {number} x */
  timeAt(x) {
    return this.trace.low + (x / Math.max(this.canvas.clientWidth, 1)) * (this.trace.high - this.trace.low);
  }

  /**
   * @param {View} view
   * @param {Chain | null} chain
   */
  draw(view, chain) {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const c = sharpen(this.canvas, width, STRIP_HEIGHT);
    const { low, high } = this.trace;
    /** @param {number} time */
    const xOf = (time) => ((time - low) / (high - low)) * width;
    const bar = width / BARS;
    for (const { shares, layer, y } of [
      { shares: this.operations, layer: 'Database', y: 3 },
      { shares: this.commands, layer: 'Driver', y: 18 },
    ]) {
      c.fillStyle = layerPaint(layer);
      shares.forEach((share, i) => {
        if (share === 0) return;
        const h = Math.max(1.5, 13 * Math.min(1, share));
        c.fillRect(i * bar, y + 13 - h, Math.max(bar - 0.3, 0.8), h);
      });
    }
    const x = xOf(view.from);
    const w = Math.max(xOf(view.to) - x, 3);
    c.fillStyle = paint('veil');
    c.fillRect(0, 0, x, STRIP_HEIGHT);
    c.fillRect(x + w, 0, width, STRIP_HEIGHT);
    c.strokeStyle = paint('accent');
    c.lineWidth = 1.5;
    c.strokeRect(x + 0.5, 0.75, w - 1, STRIP_HEIGHT - 1.5);
    if (chain && chain.operation >= 0) {
      const at = xOf(this.trace.operations.start[chain.operation]);
      c.fillStyle = paint('accent');
      c.beginPath();
      c.moveTo(at - 4, 0);
      c.lineTo(at + 4, 0);
      c.lineTo(at, 6);
      c.fill();
    }
  }
}

/**
 * Adds an interval to the covered share of each bar's time; the share exceeds one where intervals overlap.
 * @param {Float64Array} shares
 * @param {Trace} trace
 * @param {number} start
 * @param {number} end
 */
function addBusy(shares, trace, start, end) {
  const size = (trace.high - trace.low) / BARS;
  const first = Math.max(0, Math.floor((start - trace.low) / size));
  const last = Math.min(BARS - 1, Math.floor((end - trace.low) / size));
  for (let i = first; i <= last; i += 1) {
    const from = trace.low + i * size;
    shares[i] += Math.max(0, Math.min(end, from + size) - Math.max(start, from)) / size;
  }
  if (first <= last) shares[first] = Math.max(shares[first], 0.02);
}
