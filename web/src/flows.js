// Flows over time: congestion windows or round-trip times of several flows on one axis, with what limited them in the background.

import { FONT, layerPaint, paint, sharpen } from './theme.js';
import { el } from './dom.js';
import { LINE_COLOURS, valueAxis, valueLines, valueText } from './plot.js';

/** @import { Flow, FlowChart } from './types.js' */
/** @import { Tip } from './tip.js' */

const FLOWS_HEIGHT = 240;
const FLOWS_LEFT = 92;
const FLOWS_BOTTOM = 34;
const FLOWS_NEAR = 12;
const BAND_ALPHA = 0.16;
/** @type {Record<string, string>} */
export const CAUSE_COLOURS = {
  application: 'app',
  'receive window': 'database',
  'send buffer': 'filesystem',
  congestion: 'driver',
  'link rate': 'ioscheduler',
  policer: 'syscall',
  'shallow buffer': 'syscall',
  'competing traffic': 'block',
  CPU: 'runqueue',
};

export class Flows {
  /**
   * @param {FlowChart} chart
   * @param {Tip} tip
   */
  constructor(chart, tip) {
    // Positions of values on the canvas; NaN until it is drawn.
    /** @type {(value: number) => number} */
    this.x = () => NaN;
    /** @type {(value: number) => number} */
    this.y = () => NaN;
    this.chart = chart;
    this.tip = tip;
    this.end = Math.max(chart.end, 0.1);
    this.canvas = el('canvas', {
      role: 'img',
      'aria-label': `${chart.title}: ${chart.flows.length} flows`,
      dataset: { flows: chart.flows.length, unit: chart.unit, bands: chart.bands.length },
    });
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.tip.hide());
    const causes = [...new Set(chart.bands.map((band) => band.cause))];
    this.node = el(
      'figure',
      { class: 'curve' },
      el('h3', {}, chart.title),
      this.canvas,
      causes.length > 0 ? el('figcaption', {}, `Shaded: limited by ${causes.join(', ')}.`) : null,
    );
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const c = sharpen(this.canvas, width, FLOWS_HEIGHT);
    c.font = FONT;
    c.textBaseline = 'middle';
    const right = Math.max(...this.chart.flows.map((flow) => c.measureText(flow.name).width)) + 34;
    const [across, up] = [width - FLOWS_LEFT - right, FLOWS_HEIGHT - FLOWS_BOTTOM - 10];
    // From zero: the size of a window matters as much as its changes.
    const axis = valueAxis([0, ...this.chart.flows.flatMap((flow) => flow.points.map((point) => point[1]))], 5);
    this.x = (seconds) => FLOWS_LEFT + (seconds / this.end) * across;
    this.y = (value) => 10 + up * (1 - axis.at(value));
    c.globalAlpha = BAND_ALPHA;
    for (const band of this.chart.bands) {
      c.fillStyle = layerPaint(CAUSE_COLOURS[band.cause] ?? 'block');
      c.fillRect(this.x(band.from), 10, this.x(band.to) - this.x(band.from), up);
    }
    c.globalAlpha = 1;
    valueLines(c, axis.ticks, this.y, { left: FLOWS_LEFT, right: FLOWS_LEFT + across, unit: this.chart.unit });
    c.textAlign = 'center';
    for (let part = 0; part <= 4; part += 1) {
      const seconds = (this.end * part) / 4;
      c.fillText(`${seconds.toFixed(1)} s`, this.x(seconds), FLOWS_HEIGHT - FLOWS_BOTTOM + 12);
    }
    c.textAlign = 'left';
    this.chart.flows.forEach((flow, i) => {
      const colour = layerPaint(LINE_COLOURS[i % LINE_COLOURS.length]);
      c.strokeStyle = colour;
      c.fillStyle = colour;
      c.lineWidth = 1.3;
      c.setLineDash(i >= LINE_COLOURS.length ? [5, 3] : []);
      c.beginPath();
      flow.points.forEach(([t, value], n) =>
        n === 0 ? c.moveTo(this.x(t), this.y(value)) : c.lineTo(this.x(t), this.y(value)),
      );
      c.stroke();
      c.setLineDash([]);
      const at = 18 + i * 16;
      c.fillRect(FLOWS_LEFT + across + 12, at - 1, 14, 3);
      c.fillStyle = paint('text');
      c.fillText(flow.name, FLOWS_LEFT + across + 31, at);
    });
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    /** @type {{ far: number, flow: Flow, t: number, value: number } | null} */
    let best = null;
    for (const flow of this.chart.flows) {
      for (const [t, value] of flow.points) {
        const far = Math.hypot(this.x(t) - x, this.y(value) - y);
        if (far < (best?.far ?? FLOWS_NEAR)) best = { far, flow, t, value };
      }
    }
    const seconds = ((x - FLOWS_LEFT) / (this.x(this.end) - FLOWS_LEFT)) * this.end;
    const band = this.chart.bands.find((b) => b.from <= seconds && seconds < b.to);
    const limited = band ? `limited by ${band.cause}` : null;
    if (best) {
      const value = valueText(best.value, this.chart.unit);
      this.tip.show(event.clientX, event.clientY, best.flow.name, [value, `after ${best.t.toFixed(2)} s`, limited]);
    } else if (limited) {
      this.tip.show(event.clientX, event.clientY, limited, [`after ${seconds.toFixed(2)} s`]);
    } else {
      this.tip.hide();
    }
  }
}
