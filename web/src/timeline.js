// The layered timeline on a canvas: time to the right, layers from the application down to the device, as in the papers'
// figures 13 to 15. Boxes narrower than a pixel are not drawn over one another but summed: the column's shade is the
// fraction of that pixel's time in which the row was busy.

import { duration, visible } from './format.js';
import { timeTicks } from './scale.js';
import { LAYER_GAP, NAME_HEIGHT, buildRows, cellsIn, firstReaching, isBusy, layOutRows, spanAt } from './lanes.js';
import { FONT, FONT_BOLD, hatch, layerInk, layerPaint, paint, sharpen } from './theme.js';

/** @import { Chain } from './chain.js' */
/** @import { Trace } from './data.js' */
/** @import { View } from './gestures.js' */
/** @import { Level, Row } from './lanes.js' */

const AXIS = 24;
/** Below this width in pixels, names do not fit beside the rows and are drawn above them. */
const NARROW = 640;
const HEADING = 16;
/** A loss that may have happened at any time in a window tells little about any one moment: a strip above is enough. */
const MOSTLY = 0.5;
const LOSS_STRIP = 5;
const MOST_LINES = 4000;
const MOST_LABEL = 16;
/** A row with more spans than this in the window is drawn from its level of detail. */
const MOST_SPANS = 20000;
/** @type {Record<string, number[]>} */
const DASHES = { exact: [], structural: [], interval: [5, 3], address: [2, 3], guess: [1, 5] };

export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Trace} trace
   */
  constructor(canvas, trace) {
    this.width = 0;
    this.height = 0;
    this.gutter = 0;
    this.sliceY = 0;
    /** @type {View} */
    this.view = { from: 0, to: 1 };
    /** @type {Chain | null} */
    this.chain = null;
    /** @type { { layer: string, top: number, bottom: number }[]} */
    this.bands = [];
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.trace = trace;
    /** @type {Row[]} */
    this.rows = [];
    this.rowNumber = new Int32Array(0);
    this.shownFor = NaN;
    this.rebuild();
    this.boxes = { cover: new Float32Array(0), count: new Uint32Array(0) };
  }

  /** Rebuilds the rows after the trace's tables have changed. */
  rebuild() {
    const shown = this.rows.map((row) => row.shown);
    const { rows, rowOf } = buildRows(this.trace);
    rows.forEach((row, i) => (row.shown = shown[i] ?? true));
    this.rows = rows;
    this.rowNumber = rowOf;
  }

  /**
   * Only rows with something in the window take up space, so that one deep burst does not flatten the rest of the run. While the
   * window only moves, a shown row stays: what the reader is looking at must not jump.
   * @param {number} width
   */
  layOut(width) {
    this.width = width;
    this.gutter = width < NARROW ? 88 : 190;
    const { from, to } = this.view;
    const same = Math.abs(to - from - this.shownFor) <= 1e-6 * (to - from);
    this.shownFor = to - from;
    for (const row of this.rows)
      row.shown = (same && row.shown) || isBusy(row, this.trace, from, to) || this.hasCells(row);
    const { bands, bottom } = layOutRows(this.rows, AXIS, width < NARROW ? HEADING : 0);
    this.bands = bands;
    this.sliceY = bottom + LAYER_GAP + 4;
    this.height = this.sliceY + 24 + 6;
  }

  get plotWidth() {
    return Math.max(this.width - this.gutter - 1, 1);
  }

  /** @param {number} time */
  xOf(time) {
    return this.gutter + ((time - this.view.from) / (this.view.to - this.view.from)) * this.plotWidth;
  }

  /** @param {number} x */
  timeAt(x) {
    return this.view.from + ((x - this.gutter) / this.plotWidth) * (this.view.to - this.view.from);
  }

  /** @param {number} y */
  rowAtY(y) {
    return this.rows.find((row) => row.shown && y >= row.y - 1 && y < row.y + row.h + 1) ?? null;
  }

  /**
   * The slice or span at a point; null if there is none.
   * @param {number} x
   * @param {number} y
   * @returns { { slice: number, span?: undefined, among?: undefined } | { span: number, among: number, slice?: undefined } | null}
   */
  hit(x, y) {
    if (x < this.gutter) return null;
    const time = this.timeAt(x);
    const tolerance = ((this.view.to - this.view.from) / this.plotWidth) * 2;
    if (y >= this.sliceY && y < this.sliceY + 24 && this.chain && this.chain.operation >= 0) {
      for (const slice of this.trace.slicesOf(this.chain.operation)) {
        if (this.trace.slices.start[slice] <= time && time < this.trace.slices.end[slice]) return { slice };
      }
      return null;
    }
    const row = this.rowAtY(y);
    if (!row) return null;
    const { span, among } = spanAt(row, this.trace, time, tolerance);
    return span >= 0 ? { span, among } : null;
  }

  /**
   * @param {View} view
   * @param {Chain | null} chain
   * @param {number} hovered
   */
  draw(view, chain, hovered) {
    this.view = view;
    this.chain = chain;
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    this.layOut(width);
    const c = sharpen(this.canvas, this.width, this.height);
    this.context = c;
    c.font = FONT;
    c.textBaseline = 'middle';
    this.drawGrid();
    this.drawMissing();
    c.save();
    c.beginPath();
    c.rect(this.gutter, AXIS, this.plotWidth, this.height - AXIS);
    c.clip();
    c.globalAlpha = chain ? Number(paint('dimmed')) : 1;
    for (const row of this.rows) if (row.shown) this.drawRow(row);
    c.globalAlpha = 1;
    if (chain) this.drawChain(chain);
    if (hovered >= 0) this.outline(hovered, paint('text'), 1);
    this.drawSlices();
    c.restore();
    this.drawNames();
    this.tellPlaces();
  }

  /** Publishes where layers and rows are drawn, for tests and for tools that cannot see a canvas. */
  tellPlaces() {
    this.canvas.dataset.gutter = String(this.gutter);
    /** @type {Record<string, [number, number, string][]>} */
    const places = {};
    for (const row of this.rows) {
      if (!row.shown) continue;
      if (!places[row.layer])
        this.canvas.setAttribute(`data-${row.layer.toLowerCase()}-y`, String(Math.round(row.y + row.h / 2)));
      (places[row.layer] ??= []).push([row.y, row.h, row.name]);
    }
    this.canvas.dataset.rows = JSON.stringify(places);
    this.canvas.dataset.width = String(this.width);
    this.canvas.dataset.drawn = `${Math.round(this.view.from)} ${Math.round(this.view.to)}`;
  }

  drawGrid() {
    const { context: c, view } = this;
    const { ticks, base } = timeTicks(view.from, view.to, this.plotWidth, this.width < 640 ? 84 : 110);
    c.lineWidth = 1;
    c.fillStyle = paint('band');
    for (const band of this.bands) c.fillRect(0, band.top - 4, this.width, band.bottom - band.top + 6);
    c.strokeStyle = paint('grid');
    c.fillStyle = paint('muted');
    c.beginPath();
    for (const { time } of ticks) {
      const x = Math.round(this.xOf(time)) + 0.5;
      c.moveTo(x, AXIS - 5);
      c.lineTo(x, this.height);
    }
    c.stroke();
    c.textAlign = 'center';
    for (const { time, label } of ticks) {
      const x = this.xOf(time);
      const half = c.measureText(label).width / 2;
      if (x - half >= this.gutter - 2 && x + half <= this.width) c.fillText(label, x, 9);
    }
    c.textAlign = 'left';
    if (base) {
      c.font = FONT_BOLD;
      c.fillText(base, 6, 9);
      c.font = FONT;
    } else c.fillText('first operation + …', 6, 9, this.gutter - 10);
  }

  /** Hatches time in which records were lost over all layers. */
  drawMissing() {
    const { context: c, trace, view } = this;
    for (const { start, end } of trace.losses) {
      if (end < view.from || start > view.to) continue;
      const x = Math.max(this.xOf(start), this.gutter);
      const w = Math.max(Math.min(this.xOf(end), this.width) - x, 2);
      const strip = w > MOSTLY * this.plotWidth;
      if (strip) hatch(c, x, AXIS - 2 - LOSS_STRIP, w, LOSS_STRIP, paint('loss'), 5);
      else hatch(c, x, AXIS, w, this.height - AXIS, paint('loss'), 9);
    }
  }

  /** The level whose parts are no wider than a pixel; if none is that fine, the finest. */
  level() {
    const pixel = (this.view.to - this.view.from) / this.plotWidth;
    return this.trace.levels.find((level) => level.part <= pixel) ?? this.trace.levels.at(-1);
  }

  /**
   * Whether the window has spans of the row that the page does not hold individually.
   * @param {Row} row
   */
  hasCells(row) {
    const level = this.trace.holds(this.view.from, this.view.to) ? null : this.level();
    return !!level && cellsIn(level, level.of(row.number), this.trace.low, this.view.from, this.view.to).length > 0;
  }

  /**
   * Adds a row's cells to its pixels.
   * @param {Row} row
   * @param {Level} level
   * @param {number} scale
   */
  addCells(row, level, scale) {
    const { view, trace } = this;
    const { cover, count } = this.boxes;
    const last = cover.length - 2;
    for (const cell of cellsIn(level, level.of(row.number), trace.low, view.from, view.to)) {
      const x = (trace.low + level.at[cell] * level.part - view.from) * scale;
      const w = Math.max(level.part * scale, 1);
      const share = Math.min(1, level.busy[cell] / level.part);
      const to = Math.min(last, Math.ceil(x + w) - 1);
      for (let pixel = Math.max(0, Math.floor(x)); pixel <= to; pixel += 1) {
        cover[pixel] += share * Math.min(1, Math.max(level.part * scale, 1e-9), x + w - pixel);
        count[pixel] += 2;
      }
    }
  }

  /** @param {Row} row */
  drawRow(row) {
    const { context: c, trace, view } = this;
    const { start } = trace.spans;
    const pixels = Math.ceil(this.plotWidth);
    if (this.boxes.cover.length < pixels + 2) {
      this.boxes = { cover: new Float32Array(pixels + 2), count: new Uint32Array(pixels + 2) };
    }
    const { cover, count } = this.boxes;
    cover.fill(0);
    count.fill(0);
    const scale = this.plotWidth / (view.to - view.from);
    const colour = layerPaint(row.layer);
    c.fillStyle = colour;
    const left = !trace.holds(view.from, view.to);
    const level = this.level();
    const first = firstReaching(row, view.from);
    const dense = level && level.part * scale <= 1 && firstReaching(row, view.to) - first > MOST_SPANS;
    if (level && (left || dense)) {
      this.addCells(row, level, scale);
      this.shade(row, 1);
      if (dense) return;
      cover.fill(0);
      count.fill(0);
    }
    for (let i = first; i < row.spans.length; i += 1) {
      const span = row.spans[i];
      if (start[span] > view.to) break;
      const end = trace.endOf(span);
      if (end < view.from) continue;
      const x = (start[span] - view.from) * scale;
      const w = (end - start[span]) * scale;
      if (w >= 1.5) this.box(row, span, x, w);
      else if (!left) {
        const pixel = Math.max(0, Math.min(pixels, Math.floor(x)));
        cover[pixel] += w;
        count[pixel] += 1;
      }
    }
    this.shade(row, 1);
  }

  /**
   * Fills a row's pixels by the fraction of their time in which it was busy.
   * @param {Row} row
   * @param {number} strength
   */
  shade(row, strength) {
    const { context: c } = this;
    const { cover, count } = this.boxes;
    const alpha = c.globalAlpha * strength;
    c.fillStyle = layerPaint(row.layer);
    for (let pixel = 0; pixel < Math.ceil(this.plotWidth); pixel += 1) {
      if (count[pixel] === 0) continue;
      c.globalAlpha = count[pixel] > 1 ? alpha * (0.35 + 0.65 * Math.min(1, cover[pixel])) : alpha;
      c.fillRect(this.gutter + pixel, row.y, count[pixel] > 1 ? 1 : 1.5, row.h);
    }
    c.globalAlpha = alpha / strength;
  }

  /**
   * Draws one box; x and width in pixels of the plot. Reads are open at the bottom, flushes hatched: distinguishable without colour.
   * @param {Row} row
   * @param {number} span
   * @param {number} x
   * @param {number} w
   */
  box(row, span, x, w) {
    const { context: c, trace } = this;
    const left = this.gutter + Math.max(x, -2);
    const width = Math.min(x + w, this.plotWidth + 2) - Math.max(x, -2);
    if (width <= 0) return;
    const kind = trace.actionOf(span);
    c.fillStyle = layerPaint(row.layer);
    c.fillRect(left, row.y, Math.max(width - (width > 4 ? 0.75 : 0), 1), row.h);
    if (kind === 'flush' || kind === 'commit') hatch(c, left, row.y, width - 0.75, row.h, paint('hatch'));
    if (kind === 'read') {
      c.fillStyle = paint('panel');
      c.fillRect(left + 1.5, row.y + row.h * 0.55, Math.max(width - 3.75, 0), row.h * 0.3);
    }
    if (Number.isNaN(trace.spans.end[span])) hatch(c, left, row.y, width, row.h, paint('loss'), 4);
    if (width > 26 && row.h >= 10)
      this.write(trace.labelOf(span), left, width, row, kind === 'flush' || kind === 'commit' || kind === 'read');
  }

  /**
   * @param {string} said
   * @param {number} left
   * @param {number} width
   * @param {Pick<Row, 'layer' | 'y' | 'h'>} row
   * @param {boolean} backed
   */
  write(said, left, width, row, backed) {
    const { context: c } = this;
    const text = visible(said);
    const room = Math.floor((width - 7) / 5.6);
    if (room < 3) return;
    const label = text.length > room ? `${text.slice(0, room - 1)}…` : text;
    if (backed) {
      c.fillStyle = layerPaint(row.layer);
      c.fillRect(left + 2, row.y + 1, Math.min(c.measureText(label).width + 4, width - 4), row.h - 2);
    }
    c.fillStyle = layerInk(row.layer);
    c.fillText(label, left + 4, row.y + row.h / 2 + 0.5, width - 6);
  }

  /** @param {number} span */
  rowOf(span) {
    return this.rows[this.rowNumber[span]];
  }

  /** @param {Chain} chain */
  drawChain(chain) {
    const { context: c, trace, view } = this;
    const scale = this.plotWidth / (view.to - view.from);
    this.drawLinks(chain);
    for (const span of chain.elements.keys()) {
      if (trace.endOf(span) < view.from || trace.spans.start[span] > view.to) continue;
      const row = this.rowOf(span);
      if (!row) continue;
      const x = (trace.spans.start[span] - view.from) * scale;
      this.box(row, span, x, Math.max((trace.endOf(span) - trace.spans.start[span]) * scale, 2));
    }
    if (chain.span >= 0) this.outline(chain.span, paint('accent'), 2);
    c.setLineDash([]);
  }

  /**
   * Draws curves from parent to child; solid, dashed or dotted by the confidence of the link.
   * @param {Chain} chain
   */
  drawLinks(chain) {
    const { context: c, trace, view } = this;
    const names = Object.keys(DASHES).reverse();
    c.strokeStyle = paint('link');
    c.lineWidth = 1.1;
    names.forEach((name, level) => {
      c.setLineDash(DASHES[name]);
      c.beginPath();
      let drawn = 0;
      for (const link of chain.links) {
        if (trace.links.level[link] !== level || drawn >= MOST_LINES) continue;
        const [parent, child] = [trace.links.parent[link], trace.links.child[link]];
        const [above, below] = [this.rowOf(parent), this.rowOf(child)];
        if (!above || !below) continue;
        const leaves = Math.min(Math.max(trace.spans.start[child], trace.spans.start[parent]), trace.endOf(parent));
        const arrives = trace.spans.start[child];
        if (Math.max(leaves, arrives) < view.from || Math.min(leaves, arrives) > view.to) continue;
        const down = below.y >= above.y;
        const [x1, y1] = [this.xOf(leaves), down ? above.y + above.h : above.y];
        const [x2, y2] = [this.xOf(arrives), down ? below.y : below.y + below.h];
        const bend = (y2 - y1) * 0.5;
        c.moveTo(x1, y1);
        c.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
        drawn += 1;
      }
      c.stroke();
    });
    c.setLineDash([]);
  }

  /**
   * @param {number} span
   * @param {string} colour
   * @param {number} width
   */
  outline(span, colour, width) {
    const row = this.rowOf(span);
    if (!row) return;
    const { context: c, trace } = this;
    const x = Math.max(this.xOf(trace.spans.start[span]), this.gutter - 3);
    const w = Math.max(Math.min(this.xOf(trace.endOf(span)), this.width + 3) - x, 3);
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.strokeRect(x - 1, row.y - 1, w + 2, row.h + 2);
  }

  /** Draws where the time of the selected operation went, on the same time scale: slices follow each other without gaps. */
  drawSlices() {
    const { context: c, trace, chain } = this;
    if (!chain || chain.operation < 0) {
      c.fillStyle = paint('muted');
      c.fillText('select an operation to see its time by layer', this.gutter + 6, this.sliceY + 12);
      return;
    }
    for (const slice of trace.slicesOf(chain.operation)) {
      const layer = trace.text(trace.slices.layer[slice]);
      const reason = trace.text(trace.slices.reason[slice]);
      const x = Math.max(this.xOf(trace.slices.start[slice]), this.gutter - 2);
      const w = Math.min(this.xOf(trace.slices.end[slice]), this.width + 2) - x;
      if (w <= 0 || x > this.width) continue;
      c.fillStyle = layerPaint(layer);
      c.fillRect(x, this.sliceY, Math.max(w - (w > 4 ? 0.75 : 0), 0.5), 24);
      if (reason !== 'cpu' && w > 2) {
        c.fillStyle = paint('asleep');
        c.fillRect(x, this.sliceY + 20, w, 4);
      }
      if (reason === 'flush') hatch(c, x, this.sliceY, w - 0.75, 24, paint('hatch'));
      if (w > 34)
        this.write(
          `${reason} ${duration(trace.slices.end[slice] - trace.slices.start[slice])}`,
          x,
          w,
          { layer, y: this.sliceY + 2, h: 16 },
          reason === 'flush',
        );
    }
  }

  drawNames() {
    const { context: c } = this;
    c.textAlign = 'left';
    for (const band of this.bands) {
      c.font = FONT_BOLD;
      c.fillStyle = paint('text');
      c.fillText(band.layer, 12, band.top + 8);
      c.fillStyle = layerPaint(band.layer);
      c.fillRect(4, band.top, 4, band.bottom - band.top - 2);
    }
    c.font = FONT;
    c.fillStyle = paint('muted');
    const narrow = this.width < NARROW;
    const left = narrow ? 12 : 96;
    let free = 0;
    let group = -1;
    for (const row of this.rows) {
      if (row.first) [free, group] = [row.y, -1];
      if (!row.shown || row.group === group) continue;
      group = row.group;
      // A name that would appear beside another group's rows is omitted.
      if ((narrow && !this.several(row)) || row.y < free - 0.5) continue;
      c.fillText(
        shortened(c, visible(row.name), this.gutter - left - 6),
        left,
        row.y + Math.min(Math.max(row.h, NAME_HEIGHT - 2), MOST_LABEL) / 2,
      );
      free = row.y + NAME_HEIGHT;
    }
    c.font = FONT_BOLD;
    c.fillStyle = paint('text');
    c.fillText('Time by layer', 12, this.sliceY + 12, this.gutter - 18);
    c.font = FONT;
    c.strokeStyle = paint('line');
    c.beginPath();
    c.moveTo(this.gutter - 0.5, AXIS - 6);
    c.lineTo(this.gutter - 0.5, this.height);
    c.stroke();
  }

  /**
   * Whether the row's layer has rows of several threads or disks.
   * @param {Row} row
   */
  several(row) {
    return this.rows.some((other) => other.layer === row.layer && other.head);
  }
}

/**
 * A text cut at its end to fit.
 * @param {CanvasRenderingContext2D} c
 * @param {string} text
 * @param {number} room
 */
function shortened(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let length = text.length - 1;
  while (length > 1 && c.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return `${text.slice(0, length)}…`;
}
