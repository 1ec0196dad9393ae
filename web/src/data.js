// The figures as Rust computed them, arranged for fast access: columns become typed arrays, and rows that refer to each other
// get an index in both directions. Times become nanoseconds from the first operation's start. Nothing that a table on the page
// shows is computed here: Rust does that.

import { fillColumn, inflated, rowsOf } from './unpack.js';

/** @import { CauseColumns, CellColumns, CommandsData, HeldColumns, LinkColumns, Numbers, OperationColumns, PartData, Place, RecordingData, SliceColumns, SpanColumns, TimelineData } from './types.js' */
/** @typedef { Record<string, Float64Array | Int32Array | number> } Rows */
/** @typedef { Awaited<ReturnType<typeof readPage>> } PageOf */
/** @typedef { CommandsData & { bytes: Uint8Array } } CommandsOf */

/** Lowest first: a chain has the confidence of its weakest link, so the order is the policy (model::words::Confidence). */
export const CONFIDENCES = ['guess', 'address', 'interval', 'structural', 'exact'];

/**
 * For each of `keys` rows, the rows of a table that refer to it: compressed lists, in table order.
 * @param {Int32Array} column
 * @param {number} keys
 */
function indexBy(column, keys) {
  const first = new Int32Array(keys + 1);
  for (let row = 0; row < column.length; row += 1) {
    const key = column[row];
    if (key >= 0 && key < keys) first[key + 1] += 1;
  }
  for (let i = 0; i < keys; i += 1) first[i + 1] += first[i];
  const next = first.slice(0, keys);
  const rows = new Int32Array(first[keys]);
  for (let row = 0; row < column.length; row += 1) {
    const key = column[row];
    if (key >= 0 && key < keys) rows[next[key]++] = row;
  }
  /** @param {number} key */
  return (key) => (key >= 0 && key < keys ? rows.subarray(first[key], first[key + 1]) : rows.subarray(0, 0));
}

/**
 * A table with some rows of another appended. Columns that refer to rows are mapped with the function in `moved`.
 * @template {Rows} Table
 * @param {Table} table
 * @param {Table} more
 * @param {number[]} rows of `more`
 * @param {Partial<Record<keyof Table, (row: number) => number>>} moved
 * @returns {Table}
 */
function joined(table, more, rows, moved) {
  const had = /** @type {number} */ (table.count);
  /** @type {Rows} */
  const all = {};
  for (const [name, column] of Object.entries(table)) {
    if (typeof column === 'number') continue;
    const from = /** @type {Float64Array | Int32Array} */ (more[name]);
    const made = column instanceof Int32Array ? new Int32Array(had + rows.length) : new Float64Array(had + rows.length);
    made.set(column);
    const move = moved[name];
    for (let i = 0; i < rows.length; i += 1) made[had + i] = move ? move(from[rows[i]]) : from[rows[i]];
    all[name] = made;
  }
  all.count = had + rows.length;
  return /** @type {Table} */ (all);
}

/** The layered timeline. If it is split into parts, its tables hold the parts added so far. */
export class Trace {
  /**
   * @param {TimelineData | null | undefined} raw
   * @param {Uint8Array} bytes of its packed columns
   */
  constructor(raw, bytes) {
    const timeline = raw ?? {};
    this.bytes = bytes;
    this.strings = timeline.strings ?? [];
    this.layers = timeline.layers ?? [];
    this.processes = new Map((timeline.processes ?? []).map(({ tgid, name }) => [tgid, name]));
    this.files = timeline.files ?? [];
    this.disks = timeline.disks ?? [];
    this.shapes = timeline.shapes ?? [];
    this.leftOut = timeline.left_out ?? null;
    this.presets = timeline.presets_ns ?? [12e6, 80e6];
    this.clock = timeline.origin_ns ?? 0;
    this.origin = this.numbers(timeline.operations, 'start', rowsOf(timeline.operations?.start)).reduce(
      (a, b) => Math.min(a, b),
      Infinity,
    );
    if (!Number.isFinite(this.origin)) this.origin = 0;
    this.losses = (timeline.losses ?? []).map((loss) => ({
      ...loss,
      start: loss.start - this.origin,
      end: loss.end - this.origin,
    }));
    /** The parts that the timeline is split into; empty if its tables hold everything. */
    this.parts = (timeline.parts ?? []).map((part) => ({
      ...part,
      start: part.start - this.origin,
      end: part.end === null ? Infinity : part.end - this.origin,
      loaded: false,
    }));
    this.operations = this.readOperations(timeline.operations);
    /** Each operation's span, by its number in the whole recording. */
    this.spanNumbers = this.operations.span.slice();
    this.held = this.readHeld(timeline);
    // The position in the tables of each row of the recording, for tables that are filled incrementally.
    const all = this.parts.reduce((most, part) => Math.max(most, part.first + part.own), 0);
    this.rowOfNumber = new Int32Array(all);
    /** @type {Set<number>} */
    this.linksHeld = new Set();
    /** @type {Set<number>} */
    this.causesHeld = new Set();
    // A damaged archive may name an operation as its own parent; parents come before the operations that ran inside them.
    this.operationsIn = indexBy(
      this.operations.parent.map((parent, i) => (parent < i ? parent : -1)),
      this.operations.count,
    );
    /** @type {Map<number, number> | null} */
    this.operationById = null;
    /** @type {Map<number, number> | null} */
    this.spanOfId = null;
    this.by = this.indexes();
    if (this.parts.length > 0) this.forget();
    this.levels = (timeline.levels ?? []).map((level) => this.readLevel(level));
    this.low = Math.min(0, -this.origin);
    this.high = Math.max(this.low + 1000, (timeline.duration_ns ?? 0) - this.origin);
    for (let i = 0; i < this.held.spans.count; i += 1) this.high = Math.max(this.high, this.endOf(i));
  }

  /**
   * Reads the tables that refer to each other.
   * @param {HeldColumns} raw
   */
  readHeld(raw) {
    return {
      spans: this.readSpans(raw.spans),
      links: this.readLinks(raw.links),
      causes: this.readCauses(raw.causes),
      slices: this.readSlices(raw.slices),
    };
  }

  /** Builds the indexes that find rows of one table by rows of another. */
  indexes() {
    const { spans, links, causes, slices } = this.held;
    const operations = this.operations.count;
    return {
      spansOf: indexBy(spans.operation, operations),
      operationsAt: indexBy(this.operations.span, spans.count),
      linksDown: indexBy(links.parent, spans.count),
      linksUp: indexBy(links.child, spans.count),
      causesOfCommand: indexBy(causes.command, spans.count),
      causesOfOperation: indexBy(causes.operation, operations),
      slicesOf: indexBy(slices.operation, operations),
    };
  }

  /** Updates everything derived from the tables after they change. */
  arrange() {
    this.by = this.indexes();
    this.spanOfId = null;
  }

  get spans() {
    return this.held.spans;
  }

  get links() {
    return this.held.links;
  }

  get causes() {
    return this.held.causes;
  }

  get slices() {
    return this.held.slices;
  }

  get spansOf() {
    return this.by.spansOf;
  }

  get operationsAt() {
    return this.by.operationsAt;
  }

  get linksDown() {
    return this.by.linksDown;
  }

  get linksUp() {
    return this.by.linksUp;
  }

  get causesOfCommand() {
    return this.by.causesOfCommand;
  }

  get causesOfOperation() {
    return this.by.causesOfOperation;
  }

  get slicesOf() {
    return this.by.slicesOf;
  }

  /** Empties the tables of a timeline that is split into parts. */
  forget() {
    this.held = this.readHeld({});
    this.rowOfNumber.fill(-1);
    this.linksHeld.clear();
    this.causesHeld.clear();
    for (const part of this.parts) part.loaded = false;
    this.operations.span.fill(-1);
    this.arrange();
  }

  /**
   * The tables of one part, and the numbers that their rows have in the recording.
   * @param {PartData} raw
   * @param {Uint8Array} bytes
   */
  readPart(raw, bytes) {
    this.bytes = bytes;
    /** @param {{ at?: Numbers | Place } | undefined} positions */
    const numbers = (positions) => this.rowNumbers(positions, 'at', rowsOf(positions?.at));
    const { spans, links, causes } = raw.rows;
    return {
      held: this.readHeld(raw),
      rows: { spans: numbers(spans), links: numbers(links), causes: numbers(causes) },
    };
  }

  /**
   * Adds the rows of a part that are not present yet. Existing rows keep their positions; call `arrange` afterwards.
   * @param {number} number
   * @param {ReturnType<Trace['readPart']>} part
   */
  add(number, { held, rows }) {
    if (this.parts[number].loaded) return;
    this.parts[number].loaded = true;
    /** @type {number[]} */
    const spans = [];
    rows.spans.forEach((at, row) => {
      if (this.rowOfNumber[at] >= 0) return;
      this.rowOfNumber[at] = this.held.spans.count + spans.length;
      spans.push(row);
    });
    /** @param {number} row */
    const moved = (row) => (row >= 0 ? this.rowOfNumber[rows.spans[row]] : -1);
    /**
     * @param {Int32Array} numbers
     * @param {Set<number>} known
     */
    const unknown = (numbers, known) => {
      /** @type {number[]} */
      const found = [];
      numbers.forEach((at, row) => {
        if (known.has(at)) return;
        known.add(at);
        found.push(row);
      });
      return found;
    };
    const links = unknown(rows.links, this.linksHeld);
    const causes = unknown(rows.causes, this.causesHeld);
    this.held = {
      spans: joined(this.held.spans, held.spans, spans, {}),
      links: joined(this.held.links, held.links, links, { parent: moved, child: moved }),
      causes: joined(this.held.causes, held.causes, causes, { command: moved }),
      slices: joined(this.held.slices, held.slices, [...held.slices.start.keys()], { span: moved }),
    };
    this.spanNumbers.forEach((at, i) => (this.operations.span[i] = at >= 0 ? this.rowOfNumber[at] : -1));
  }

  /**
   * Whether the tables hold all spans of a window.
   * @param {number} from
   * @param {number} to
   */
  holds(from, to) {
    if (this.parts.length === 0) return !this.leftOut?.spans;
    let until = this.leftOut?.spans ? from : -Infinity;
    for (const part of this.parts) {
      if (part.own === 0 || part.end < from || part.start > to) continue;
      if (!part.loaded || (part.start > until && until > -Infinity)) return false;
      until = part.end;
    }
    return until >= to || (until > -Infinity && !this.leftOut?.spans);
  }

  /** Rows of spans by start time, if the tables are not in this order. */
  inOrder() {
    const order = new Int32Array(this.spans.count);
    let next = 0;
    for (const row of this.rowOfNumber) if (row >= 0) order[next++] = row;
    return order;
  }

  /**
   * One column of numbers, with NaN for missing values.
   * @template {string} Name
   * @param {{ [column in NoInfer<Name>]?: Numbers | Place } | undefined} table
   * @param {Name} name
   * @param {number} length
   * @param {number} shift
   * @param {Float64Array | null} starts
   */
  numbers(table, name, length, shift = 0, starts = null) {
    return fillColumn(this.bytes, table?.[name], new Float64Array(length).fill(NaN), shift, starts);
  }

  /**
   * One column of row numbers; -1 for missing values.
   * @template {string} Name
   * @param {{ [column in NoInfer<Name>]?: Numbers | Place } | undefined} table
   * @param {Name} name
   * @param {number} length
   */
  rowNumbers(table, name, length) {
    return fillColumn(this.bytes, table?.[name], new Int32Array(length).fill(-1));
  }

  /** @param {SpanColumns | undefined} raw */
  readSpans(raw) {
    const n = rowsOf(raw?.start);
    const start = this.numbers(raw, 'start', n, this.origin);
    return {
      count: n,
      layer: this.rowNumbers(raw, 'layer', n),
      lane: this.rowNumbers(raw, 'lane', n),
      kind: this.rowNumbers(raw, 'kind', n),
      start,
      end: this.numbers(raw, 'end', n, this.origin, start),
      operation: this.rowNumbers(raw, 'operation', n),
      file: this.rowNumbers(raw, 'file', n),
      disk: this.rowNumbers(raw, 'disk', n),
      id: this.numbers(raw, 'id', n),
      tgid: this.numbers(raw, 'tgid', n),
      tid: this.numbers(raw, 'tid', n),
      offset: this.numbers(raw, 'offset', n),
      sector: this.numbers(raw, 'sector', n),
      bytes: this.numbers(raw, 'bytes', n),
      result: this.numbers(raw, 'result', n),
      number: this.numbers(raw, 'number', n),
      label: this.rowNumbers(raw, 'label', n),
      flags: this.rowNumbers(raw, 'flags', n),
    };
  }

  /** @param {OperationColumns | undefined} raw */
  readOperations(raw) {
    const n = rowsOf(raw?.start);
    const start = this.numbers(raw, 'start', n, this.origin);
    return {
      count: n,
      id: this.numbers(raw, 'id', n),
      shape: this.rowNumbers(raw, 'shape', n),
      nth: this.numbers(raw, 'nth', n),
      span: this.rowNumbers(raw, 'span', n),
      parent: this.rowNumbers(raw, 'parent', n),
      start,
      end: this.numbers(raw, 'end', n, this.origin, start),
      rows: this.numbers(raw, 'rows', n),
      result: this.numbers(raw, 'result', n),
      part: this.rowNumbers(raw, 'part', n),
      /** Whether everything that belongs to it is on the page; true if the tables lack the column. */
      whole: fillColumn(this.bytes, raw?.whole, new Int32Array(n).fill(1)),
    };
  }

  /**
   * A level of detail: cells by row, and by time within a row.
   * @param { { part_ns: number, cells: CellColumns } } raw
   */
  readLevel({ part_ns: part, cells }) {
    const n = rowsOf(cells.row);
    const row = this.rowNumbers(cells, 'row', n);
    const last = row.reduce((a, b) => Math.max(a, b), -1);
    return {
      part,
      at: this.rowNumbers(cells, 'at', n),
      busy: this.numbers(cells, 'busy', n),
      begun: this.rowNumbers(cells, 'begun', n),
      of: indexBy(row, last + 1),
    };
  }

  /** @param {LinkColumns | undefined} raw */
  readLinks(raw) {
    const n = rowsOf(raw?.parent);
    const levels = new Map(CONFIDENCES.map((name, level) => [name, level]));
    return {
      count: n,
      parent: this.rowNumbers(raw, 'parent', n),
      child: this.rowNumbers(raw, 'child', n),
      relation: this.rowNumbers(raw, 'relation', n),
      level: this.rowNumbers(raw, 'confidence', n).map((name) => levels.get(this.text(name)) ?? 0),
      weakened: this.numbers(raw, 'weakened', n),
    };
  }

  /** @param {CauseColumns | undefined} raw */
  readCauses(raw) {
    const n = rowsOf(raw?.command);
    return {
      count: n,
      command: this.rowNumbers(raw, 'command', n),
      operation: this.rowNumbers(raw, 'operation', n),
      origin: this.rowNumbers(raw, 'origin', n),
      process: this.rowNumbers(raw, 'process', n),
      tgid: this.numbers(raw, 'tgid', n),
      share: this.numbers(raw, 'share', n),
      confidence: this.rowNumbers(raw, 'confidence', n),
      via: this.rowNumbers(raw, 'via', n),
    };
  }

  /** @param {SliceColumns | undefined} raw */
  readSlices(raw) {
    const n = rowsOf(raw?.start);
    const start = this.numbers(raw, 'start', n, this.origin);
    return {
      count: n,
      operation: this.rowNumbers(raw, 'operation', n),
      layer: this.rowNumbers(raw, 'layer', n),
      reason: this.rowNumbers(raw, 'reason', n),
      start,
      end: this.numbers(raw, 'end', n, this.origin, start),
      span: this.rowNumbers(raw, 'span', n),
      confidence: this.rowNumbers(raw, 'confidence', n),
    };
  }

  /**
   * Rows of spans by their numbers in the archive. Built on first use: for a million spans it takes a while.
   * @returns {Map<number, number>}
   */
  get rowOfId() {
    if (!this.spanOfId) {
      this.spanOfId = new Map();
      for (let row = 0; row < this.spans.count; row += 1) this.spanOfId.set(this.spans.id[row], row);
    }
    return this.spanOfId;
  }

  /**
   * Rows of operations by their numbers in the archive.
   * @returns {Map<number, number>}
   */
  get operationOfId() {
    if (!this.operationById) {
      this.operationById = new Map();
      for (let row = 0; row < this.operations.count; row += 1) this.operationById.set(this.operations.id[row], row);
    }
    return this.operationById;
  }

  /**
   * The operation whose own span this is; -1 if there is none.
   * @param {number} span
   */
  operationOfSpan(span) {
    return this.operationsAt(span)[0] ?? -1;
  }

  /**
   * A string by its number; empty if there is none.
   * @param {number} number
   */
  text(number) {
    return number >= 0 ? (this.strings[number] ?? '') : '';
  }

  /** @param {number} span */
  layerOf(span) {
    return this.layers[this.spans.layer[span]]?.name ?? '';
  }

  /** @param {number} span */
  kindOf(span) {
    return this.text(this.spans.kind[span]);
  }

  /** @param {number} span */
  labelOf(span) {
    return this.text(this.spans.label[span]) || this.kindOf(span);
  }

  /**
   * The end of a span, or its start if the end was not seen.
   * @param {number} span
   */
  endOf(span) {
    const end = this.spans.end[span];
    return Number.isNaN(end) ? this.spans.start[span] : end;
  }

  /** @param {number} span */
  fileOf(span) {
    return this.files[this.spans.file[span]] ?? null;
  }

  /** @param {number} span */
  diskOf(span) {
    return this.disks[this.spans.disk[span]] ?? null;
  }

  /**
   * The process and thread of a span, by name if known; empty if it has none.
   * @param {number} span
   */
  threadOf(span) {
    const [tgid, tid] = [this.spans.tgid[span], this.spans.tid[span]];
    return tgid > 0 ? `${this.processes.get(tgid) ?? 'process'} ${tgid}${tid === tgid ? '' : `, thread ${tid}`}` : '';
  }

  /** @param {number} operation */
  shapeText(operation) {
    return this.shapes[this.operations.shape[operation]]?.text ?? '';
  }

  /** @param {number} operation */
  operationEnd(operation) {
    const end = this.operations.end[operation];
    return Number.isNaN(end) ? this.operations.start[operation] : end;
  }

  /**
   * What a span does: a device command's action on the disk, as in the device's own words, otherwise its kind.
   * @param {number} span
   */
  actionOf(span) {
    const kind = this.kindOf(span);
    return this.isCommand(span) && kind !== 'flush' ? this.text(this.spans.flags[span]).split(' ')[0] : kind;
  }

  /** @param {number} span */
  isCommand(span) {
    return this.layerOf(span) === 'Driver';
  }
}

/**
 * The data blocks of the recordings on the page.
 * @returns {HTMLScriptElement[]}
 */
export function recordings() {
  return Array.from(document.querySelectorAll('script.recording'));
}

/** The device commands of all recordings, with their titles and the bytes of their packed columns. */
export function readCommands() {
  const titles = recordings().map((block) => block.dataset.title);
  const blocks = [...document.querySelectorAll('script.commands')];
  return Promise.all(
    blocks.map(async (block, i) => {
      /** @type {CommandsData} */
      const commands = JSON.parse(block.textContent);
      return { ...commands, title: titles[i] ?? '', bytes: await inflated(commands.scatter?.packed) };
    }),
  );
}

/**
 * Parses one recording's data block.
 * @param {string} text
 * @param {number} recording
 */
export async function readPage(text, recording) {
  /** @type {RecordingData} */
  const page = JSON.parse(text);
  return {
    recording,
    title: page.title ?? '',
    summary: page.summary ?? {},
    counts: page.counts ?? {},
    explanation: page.explanation,
    trace: new Trace(page.timeline, await inflated(page.timeline?.packed)),
  };
}
