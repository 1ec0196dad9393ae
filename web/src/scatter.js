// Device commands over time and address, two statements side by side: the papers' figures 11 and 12. A write is a filled
// square, a read a ring, a flush (which has no address) a stroke in a band of its own, so that no colour is needed to tell them apart.

import { bytes, count, duration, moment, percent } from './format.js';
import { numberTicks, timeTicks } from './scale.js';
import { FONT, paint, sharpen } from './theme.js';
import { el, fill } from './dom.js';
import { fillColumn, rowsOf } from './unpack.js';

/** @import { View } from './gestures.js' */
/** @import { Tip } from './tip.js' */
/** @import { CommandsOf } from './data.js' */
/** @import { ScatterShape } from './types.js' */
/** @typedef { { time: number, latency: number | null, sector: number | null, bytes: number, kind: string, disk: number, shape: number, origin: string, share: number | null, command: number } } Point */
/** @typedef { ScatterShape & { from?: number, to?: number } } TimedShape */
/** @typedef { (recording: number, command: number) => void } Choose */

const MAP_HEIGHT = 300;
/** The minimum width of the address labels. */
const LEAST_LEFT = 62;
const LABEL_GAP = 6;
const TOP = 10;
const FLUSH_BAND = 26;
const BOTTOM = 24;
const SECTOR = 512;
const NEAR_PIXELS = 9;
const MANY_POINTS = 3000;
const EVERYTHING = -1;

/** The points, with strings resolved and times from the first operation's start. */
export class Commands {
  /**
   * `origin`: the clock at the first operation shown in the timeline; null for another recording, which uses its own first operation.
   * @param {CommandsOf} one
   * @param {number} recording
   * @param {number | null} origin
   */
  constructor(one, recording, origin) {
    const raw = one.scatter ?? {};
    const begins = (raw.shapes ?? []).map((shape) => shape.start).filter((start) => start !== null);
    const first = begins.reduce((a, b) => Math.min(a, b), Infinity);
    const shift =
      origin !== null && raw.origin_ns !== undefined ? origin - raw.origin_ns : Number.isFinite(first) ? first : 0;
    this.recording = recording;
    this.title = one.title ?? '';
    /** @type {TimedShape[]} */
    this.shapes = raw.shapes ?? [];
    this.disks = raw.disks ?? [];
    this.leftOut = raw.left_out ?? null;
    const points = raw.points ?? {};
    const strings = raw.strings ?? [];
    const count = rowsOf(points.t);
    /** @param {keyof typeof points} name */
    const column = (name) => fillColumn(one.bytes, points[name], new Float64Array(count).fill(NaN));
    /** @param {number} value */
    const known = (value) => (Number.isNaN(value) ? null : value);
    /** @param {number} value */
    const row = (value) => (Number.isNaN(value) ? -1 : value);
    const [t, latency, sector, bytes, kind] = [
      column('t'),
      column('latency'),
      column('sector'),
      column('bytes'),
      column('kind'),
    ];
    const [disk, shape, origins, share, command] = [
      column('disk'),
      column('shape'),
      column('origin'),
      column('share'),
      column('command'),
    ];
    this.points = Array.from({ length: count }, (_, i) => ({
      time: t[i] - shift,
      latency: known(latency[i]),
      sector: known(sector[i]),
      bytes: known(bytes[i]) ?? 0,
      kind: strings[row(kind[i])] ?? 'other',
      disk: row(disk[i]),
      shape: row(shape[i]),
      origin: strings[row(origins[i])] ?? '',
      share: known(share[i]),
      command: row(command[i]),
    }));
    this.operations = one.operations ?? [];
    for (const shape of this.shapes) {
      if (shape.start !== null) shape.from = shape.start - shift;
      if (shape.end !== null) shape.to = shape.end - shift;
    }
  }

  /**
   * Reads of files per execution of a statement, and how many of them the page cache served; null if not counted.
   * @param {string | undefined} statement
   */
  readsOf(statement) {
    const classes = this.operations.find((operation) => operation.statement === statement)?.per_operation
      ?.filesystem_reads;
    if (!classes) return null;
    /** @param {'count' | 'cache_hits'} name */
    const sum = (name) => Object.values(classes).reduce((total, reads) => total + (reads[name] ?? 0), 0);
    return { count: sum('count'), hits: sum('cache_hits') };
  }
}

/**
 * The initial choice of the two panels, as [recording, shape]: the writing statement and the reading statement that caused
 * most commands, in any recording; ties go to the shown recording.
 * @param {Commands[]} all
 * @param {number} shown
 * @returns {[number, number][]}
 */
function firstChoice(all, shown) {
  const ranked = all
    .flatMap((commands) =>
      commands.shapes.map((shape, i) => ({
        at: /** @type {[number, number]} */ ([commands.recording, i]),
        shape,
        rank: rank(shape) + (commands.recording === shown ? 1e-3 : 0),
      })),
    )
    .sort((a, b) => b.rank - a.rank);
  const asked = ranked.filter(({ shape }) => shape.kind === 'statement' || shape.kind === 'transaction');
  const order = asked.length > 0 ? asked : ranked;
  const writers = order.filter(({ shape }) => !shape.read_only_looking);
  const readers = order.filter(({ shape }) => shape.read_only_looking);
  /** @type { { at: [number, number] } } */
  const everything = { at: [shown, EVERYTHING] };
  return [writers[0] ?? readers[0] ?? everything, readers[0] ?? writers[1] ?? everything].map(({ at }) => at);
}

/**
 * Statements of the papers' kind come first, then those that caused more commands, then those that took longer. SQLite's own read of
 * its schema is a SELECT too, but of no interest.
 * @param {ScatterShape} shape
 */
function rank(shape) {
  const asked = /^\s*(insert|select)\b/i.test(shape.text) && !/\bsqlite_(master|schema)\b/i.test(shape.text);
  return (asked ? 1e12 : 0) + (shape.commands ?? 0) + ((shape.end ?? 0) - (shape.start ?? 0)) / 1e12;
}

class Panel {
  /**
   * @param {Commands[]} all
   * @param {[number, number]} at
   * @param {Choose} choose
   * @param {Tip} tip
   */
  constructor(all, [recording, shape], choose, tip) {
    this.all = all;
    this.commands = all[recording];
    this.shape = shape;
    /** @type {Point[]} */
    this.points = [];
    this.choose = choose;
    this.tip = tip;
    /** @type {Point | null} */
    this.hovered = null;
    /** @type {Point | null} */
    this.chosen = null;
    this.left = LEAST_LEFT;
    this.plot = { width: 0, height: 0 };
    this.time = { from: 0, to: 1 };
    this.address = { low: 0, high: 1 };
    /** @type { { value: number, label: string }[]} */
    this.labels = [];
    /** @type {Point[]} */
    this.shown = [];
    // Positions of points on the canvas; NaN until it is drawn.
    /** @type {(time: number) => number} */
    this.xOf = () => NaN;
    /** @type {(point: Point) => number} */
    this.yOf = () => NaN;
    /** @type {View | null} */
    this.window = null;
    this.canvas = el('canvas', { role: 'img' });
    this.words = el('p', { class: 'none' });
    /** @param {Commands} commands */
    const options = (commands) => [
      ...commands.shapes.map((s, i) => el('option', { value: `${commands.recording} ${i}` }, s.text)),
      el('option', { value: `${commands.recording} ${EVERYTHING}` }, 'every device command, whatever its origin'),
    ];
    /** @type {HTMLSelectElement} */
    this.select = el(
      'select',
      { 'aria-label': 'statement', onchange: () => this.turn() },
      all.length > 1 ? all.map((one) => el('optgroup', { label: one.title }, options(one))) : all.flatMap(options),
    );
    this.caption = el('figcaption', {});
    this.node = el(
      'figure',
      { class: 'scatter' },
      this.select,
      el('div', { class: 'plot' }, this.canvas, this.words),
      this.caption,
    );
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.leave());
    this.canvas.addEventListener('click', (event) => {
      const point = this.near(event);
      if (point) this.choose(this.commands.recording, point.command);
    });
    this.set(recording, shape);
  }

  /** Switches to the current value of the list. */
  turn() {
    const [recording, shape] = this.select.value.split(' ').map(Number);
    this.set(recording, shape);
  }

  /**
   * @param {number} recording
   * @param {number} shape
   */
  set(recording, shape) {
    this.commands = this.all[recording];
    this.shape = shape;
    this.select.value = `${recording} ${shape}`;
    this.node.dataset.recording = String(recording);
    const { points, shapes } = this.commands;
    this.points = shape === EVERYTHING ? points : points.filter((point) => point.shape === shape);
    /** @param {string} kind */
    const of = (kind) => this.points.filter((point) => point.kind === kind).length;
    const tally = [
      ['write', 'writes'],
      ['read', 'reads'],
      ['flush', 'flushes'],
    ]
      .map(([kind, name]) => `${count(of(kind))} ${name}`)
      .join(', ');
    const other = this.points.length - of('write') - of('read') - of('flush');
    const said = `${count(this.points.length)} device commands: ${tally}${other > 0 ? `, ${count(other)} others` : ''}`;
    const name = shapes[shape]?.text ?? 'Everything';
    this.node.dataset.commands = String(this.points.length);
    this.canvas.hidden = this.points.length === 0;
    fill(
      this.words,
      this.points.length > 0
        ? null
        : el('span', {}, el('strong', {}, `${firstWord(name)}: no device command. `), this.whyNone()),
    );
    fill(this.caption, this.points.length > 0 ? el('span', {}, said) : null);
    const ofWhich = this.all.length > 1 ? ` (${this.commands.title})` : '';
    this.canvas.setAttribute('aria-label', `${name}${ofWhich}: ${said}, by time and address`);
    this.draw();
  }

  /** Why a statement caused no command, as far as the trace shows. */
  whyNone() {
    if ((this.commands.leftOut?.spans ?? 0) > 0) return 'None of those on this page; some were omitted.';
    const shape = this.commands.shapes[this.shape];
    const reads = this.commands.readsOf(shape?.text);
    if (!shape?.read_only_looking || reads === null) return 'Nothing reached the device during the recording.';
    if (reads.count === 0) return 'It read no file: the data was in the database’s own cache or mapped into memory.';
    return reads.hits >= reads.count
      ? 'All of its reads were served from the page cache.'
      : 'Its data was read by commands of others, or by commands issued before the recording.';
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0 || this.points.length === 0) return;
    const c = sharpen(this.canvas, width, MAP_HEIGHT);
    c.font = FONT;
    c.textBaseline = 'middle';
    this.range(c, width);
    this.axes(c, width);
    /** @type {Record<string, string>} */
    const marks = { write: paint('mark-write'), read: paint('mark-read'), flush: paint('mark-flush') };
    const size = this.shown.length > MANY_POINTS ? 3 : 5;
    for (const point of this.shown)
      mark(c, this.xOf(point.time), this.yOf(point), point.kind, marks[point.kind] ?? paint('muted'), size);
    for (const point of [this.hovered, this.chosen]) {
      if (!point || !this.shown.includes(point)) continue;
      c.strokeStyle = paint('accent');
      c.lineWidth = 2;
      c.beginPath();
      c.arc(this.xOf(point.time), this.yOf(point), 8, 0, 7);
      c.stroke();
    }
  }

  /**
   * Computes axis ranges that hold all points with a margin; addresses are bytes from the disk's start.
   * @param {CanvasRenderingContext2D} c
   * @param {number} width
   */
  range(c, width) {
    let [from, to, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    const view = this.window;
    this.shown = view ? this.points.filter((point) => point.time >= view.from && point.time <= view.to) : this.points;
    for (const point of this.shown) {
      from = Math.min(from, point.time);
      to = Math.max(to, point.time);
      if (point.sector !== null) {
        low = Math.min(low, point.sector * SECTOR);
        high = Math.max(high, point.sector * SECTOR + point.bytes);
      }
    }
    const shape = this.commands.shapes[this.shape];
    if (view) [from, to] = [view.from, view.to];
    else if (shape?.from !== undefined) [from, to] = [Math.min(from, shape.from), Math.max(to, shape.to ?? shape.from)];
    if (low > high) [low, high] = [0, 1];
    const [across, up] = [Math.max(to - from, 1000), Math.max(high - low, 65536)];
    const margin = view ? 0 : across * 0.02;
    this.time = { from: from - margin, to: to + margin };
    this.address = { low: Math.max(0, low - up * 0.06), high: high + up * 0.06 };
    this.labels = addressLabels(this.address);
    const widest = Math.max(0, ...this.labels.map(({ label }) => c.measureText(label).width));
    this.left = Math.max(LEAST_LEFT, Math.ceil(widest) + 2 * LABEL_GAP);
    this.plot = { width: width - this.left - 10, height: MAP_HEIGHT - TOP - FLUSH_BAND - BOTTOM };
    this.xOf = (time) => this.left + ((time - this.time.from) / (this.time.to - this.time.from)) * this.plot.width;
    this.yOf = (point) =>
      point.sector === null
        ? TOP + this.plot.height + FLUSH_BAND / 2
        : TOP +
          this.plot.height * (1 - (point.sector * SECTOR - this.address.low) / (this.address.high - this.address.low));
  }

  /**
   * @param {CanvasRenderingContext2D} c
   * @param {number} width
   */
  axes(c, width) {
    const bottom = TOP + this.plot.height + FLUSH_BAND;
    c.fillStyle = paint('band');
    c.fillRect(this.left, bottom - FLUSH_BAND + 2, this.plot.width, FLUSH_BAND - 2);
    c.strokeStyle = paint('grid');
    c.fillStyle = paint('muted');
    c.lineWidth = 1;
    c.beginPath();
    for (const { value } of this.labels) {
      const y =
        Math.round(TOP + this.plot.height * (1 - (value - this.address.low) / (this.address.high - this.address.low))) +
        0.5;
      c.moveTo(this.left, y);
      c.lineTo(width - 10, y);
    }
    c.stroke();
    c.textAlign = 'right';
    for (const { value, label } of this.labels) {
      const y = TOP + this.plot.height * (1 - (value - this.address.low) / (this.address.high - this.address.low));
      c.fillText(label, this.left - LABEL_GAP, y);
    }
    c.fillText('flush', this.left - LABEL_GAP, bottom - FLUSH_BAND / 2);
    c.textAlign = 'center';
    const { ticks } = timeTicks(this.time.from, this.time.to, this.plot.width, 100);
    for (const { time, label } of ticks) {
      const x = this.xOf(time);
      if (x > this.left + 10 && x < width - 24) c.fillText(label, x, bottom + 13);
    }
    c.strokeStyle = paint('line');
    c.strokeRect(this.left + 0.5, TOP + 0.5, this.plot.width - 1, bottom - TOP - 1);
  }

  /** @param {MouseEvent} event */
  near(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = NEAR_PIXELS ** 2;
    for (const point of this.shown) {
      const far = (this.xOf(point.time) - x) ** 2 + (this.yOf(point) - y) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const point = this.near(event);
    if (point !== this.hovered) {
      this.hovered = point;
      this.draw();
    }
    if (!point) {
      this.tip.hide();
      return;
    }
    const disk = this.commands.disks[point.disk];
    this.tip.show(event.clientX, event.clientY, `${point.kind} ${point.bytes ? bytes(point.bytes) : ''}`, [
      `${moment(point.time)}${point.latency === null ? '' : `, took ${duration(point.latency)}`}`,
      point.sector === null ? disk?.name : `${disk?.name ?? ''} sector ${count(point.sector)}`,
      point.share === null
        ? point.origin
        : `${percent(point.share)} charged to ${this.commands.shapes[point.shape]?.text ?? point.origin}`,
    ]);
  }

  leave() {
    this.tip.hide();
    if (this.hovered) {
      this.hovered = null;
      this.draw();
    }
  }
}

/** @param {string} text */
function firstWord(text) {
  return text.trim().split(/\s+/)[0] || text;
}

/**
 * The unit for addresses up to the highest, so that ticks fall on round numbers of it.
 * @param {number} high
 */
function addressUnit(high) {
  const power = Math.max(0, Math.min(4, Math.floor(Math.log2(Math.max(high, 1)) / 10)));
  return { unit: ['B', 'KiB', 'MiB', 'GiB', 'TiB'][power], size: 1024 ** power };
}

/**
 * The axis values, in bytes, with their labels: enough digits to tell neighbours apart.
 * @param { { low: number, high: number } } range
 */
function addressLabels({ low, high }) {
  const { unit, size } = addressUnit(high);
  const values = numberTicks(low / size, high / size, 5);
  const decimals =
    values.length > 1 ? Math.min(15, Math.max(0, Math.ceil(-Math.log10(values[1] - values[0]) - 1e-6))) : 2;
  return values.map((value) => ({ value: value * size, label: `${value.toFixed(decimals)} ${unit}` }));
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {number} x
 * @param {number} y
 * @param {string} kind
 * @param {string} colour
 * @param {number} size
 */
function mark(c, x, y, kind, colour, size) {
  c.fillStyle = colour;
  c.strokeStyle = colour;
  c.lineWidth = 1.4;
  if (kind === 'write') c.fillRect(x - size / 2, y - size / 2, size, size);
  else {
    c.beginPath();
    if (kind === 'read') c.arc(x, y, size * 0.6, 0, 7);
    else if (kind === 'flush') {
      c.moveTo(x, y - 8);
      c.lineTo(x, y + 8);
    } else {
      c.moveTo(x - 3, y - 3);
      c.lineTo(x + 3, y + 3);
      c.moveTo(x + 3, y - 3);
      c.lineTo(x - 3, y + 3);
    }
    c.stroke();
  }
}

/**
 * Puts both panels into a node; returns functions that redraw them and that mark a selected command.
 * @param {HTMLElement} node
 * @param {Commands[]} all
 * @param {number} shown
 * @param {Choose} choose
 * @param {Tip} tip
 */
export function showScatter(node, all, shown, choose, tip) {
  const panels = all.length > 0 ? firstChoice(all, shown).map((at) => new Panel(all, at, choose, tip)) : [];
  fill(
    node,
    panels.map((panel) => panel.node),
  );
  /** @param {Panel} panel */
  const own = (panel) => panel.commands.recording === shown;
  return {
    /** @param {View | null} view */
    draw: (view) =>
      panels.forEach((panel) => {
        // The timeline's window refers to the time of its own recording.
        panel.window = own(panel) ? view : null;
        panel.draw();
      }),
    /** @param {number | null} command */
    mark: (command) =>
      panels.forEach((panel) => {
        const found = own(panel) && command !== null && panel.points.find((point) => point.command === command);
        panel.chosen = found || null;
        panel.draw();
      }),
  };
}
