// The figures as Rust computed them, made quick to walk: columns become typed arrays, rows that refer to each other get
// an index in both directions. Times become nanoseconds from the first operation's start. Nothing is computed here that
// a table on the page would show: that is Rust's.

/** @import { CauseColumns, CommandsData, LinkColumns, Numbers, OperationColumns, RecordingData, SliceColumns, SpanColumns, TimelineData } from './types.js' */
/** @typedef { ReturnType<typeof readPage> } PageOf */

/** Least sure first: a chain is as sure as its least link, so the order is the policy (model::words::Confidence). */
export const CONFIDENCES = ['guess', 'address', 'interval', 'structural', 'exact'];

/**
 * One column: numbers, with NaN for what is missing.
 * @template {string} Name
 * @param {{ [column in NoInfer<Name>]?: Numbers } | undefined} table
 * @param {Name} name
 * @param {number} length
 */
function numbers(table, name, length, shift = 0) {
  const column = new Float64Array(length).fill(NaN);
  (table?.[name] ?? []).forEach((value, i) => {
    if (value !== null && i < length) column[i] = value - shift;
  });
  return column;
}

/**
 * One column of row numbers: -1 where there is none.
 * @template {string} Name
 * @param {{ [column in NoInfer<Name>]?: Numbers } | undefined} table
 * @param {Name} name
 * @param {number} length
 */
function rowNumbers(table, name, length) {
  const column = new Int32Array(length).fill(-1);
  (table?.[name] ?? []).forEach((value, i) => {
    if (value !== null && i < length) column[i] = value;
  });
  return column;
}

/**
 * @template {string} Name
 * @param {{ [column in NoInfer<Name>]?: Numbers } | undefined} table
 * @param {Name} name
 */
function rowsIn(table, name) {
  return table?.[name]?.length ?? 0;
}

/**
 * For each of `keys` rows, which rows of a table name it: compressed lists, in the order of the table.
 * @param {Int32Array} column
 * @param {number} keys
 */
function indexBy(column, keys) {
  const first = new Int32Array(keys + 1);
  for (const key of column) if (key >= 0 && key < keys) first[key + 1] += 1;
  for (let i = 0; i < keys; i += 1) first[i + 1] += first[i];
  const next = first.slice(0, keys);
  const rows = new Int32Array(first[keys]);
  column.forEach((key, row) => {
    if (key >= 0 && key < keys) {
      rows[next[key]] = row;
      next[key] += 1;
    }
  });
  /** @param {number} key */
  return (key) => (key >= 0 && key < keys ? rows.subarray(first[key], first[key + 1]) : rows.subarray(0, 0));
}

/** The layered timeline. */
export class Trace {
  /** @param {TimelineData | null | undefined} raw */
  constructor(raw) {
    const timeline = raw ?? {};
    this.strings = timeline.strings ?? [];
    this.layers = timeline.layers ?? [];
    this.processes = new Map((timeline.processes ?? []).map(({ tgid, name }) => [tgid, name]));
    this.files = timeline.files ?? [];
    this.disks = timeline.disks ?? [];
    this.shapes = timeline.shapes ?? [];
    this.leftOut = timeline.left_out ?? null;
    this.presets = timeline.presets_ns ?? [12e6, 80e6];
    this.clock = timeline.origin_ns ?? 0;
    this.origin = numbers(timeline.operations, 'start', rowsIn(timeline.operations, 'start')).reduce(
      (a, b) => Math.min(a, b),
      Infinity,
    );
    if (!Number.isFinite(this.origin)) this.origin = 0;
    this.losses = (timeline.losses ?? []).map((loss) => ({
      ...loss,
      start: loss.start - this.origin,
      end: loss.end - this.origin,
    }));
    this.spans = this.readSpans(timeline.spans);
    /** @type {Map<number, number>} */
    this.rowOfId = new Map();
    this.spans.id.forEach((id, row) => this.rowOfId.set(id, row));
    this.operations = this.readOperations(timeline.operations);
    // A damaged archive may name an operation as its own parent; parents stand before what ran inside them.
    this.operationsIn = indexBy(
      this.operations.parent.map((parent, i) => (parent < i ? parent : -1)),
      this.operations.count,
    );
    this.spansOf = indexBy(this.spans.operation, this.operations.count);
    /** @type {Map<number, number>} */
    this.operationOfSpan = new Map();
    this.operations.span.forEach((span, operation) => span >= 0 && this.operationOfSpan.set(span, operation));
    /** @type {Map<number, number>} */
    this.operationOfId = new Map();
    this.operations.id.forEach((id, row) => this.operationOfId.set(id, row));
    this.links = this.readLinks(timeline.links);
    this.linksDown = indexBy(this.links.parent, this.spans.count);
    this.linksUp = indexBy(this.links.child, this.spans.count);
    this.causes = this.readCauses(timeline.causes);
    this.causesOfCommand = indexBy(this.causes.command, this.spans.count);
    this.causesOfOperation = indexBy(this.causes.operation, this.operations.count);
    this.slices = this.readSlices(timeline.slices);
    this.slicesOf = indexBy(this.slices.operation, this.operations.count);
    this.low = Math.min(0, -this.origin);
    this.high = Math.max(this.low + 1000, (timeline.duration_ns ?? 0) - this.origin);
    // What the page leaves out belongs to the run all the same: it is shown as missing, not as if the run had ended.
    if (this.leftOut?.why) this.high = Math.max(this.high, (timeline.recorded_ns ?? 0) - this.origin);
    for (let i = 0; i < this.spans.count; i += 1) this.high = Math.max(this.high, this.endOf(i));
  }

  /** @param {SpanColumns | undefined} raw */
  readSpans(raw) {
    const n = rowsIn(raw, 'start');
    return {
      count: n,
      layer: rowNumbers(raw, 'layer', n),
      lane: rowNumbers(raw, 'lane', n),
      kind: rowNumbers(raw, 'kind', n),
      start: numbers(raw, 'start', n, this.origin),
      end: numbers(raw, 'end', n, this.origin),
      operation: rowNumbers(raw, 'operation', n),
      file: rowNumbers(raw, 'file', n),
      disk: rowNumbers(raw, 'disk', n),
      id: numbers(raw, 'id', n),
      tgid: numbers(raw, 'tgid', n),
      tid: numbers(raw, 'tid', n),
      offset: numbers(raw, 'offset', n),
      sector: numbers(raw, 'sector', n),
      bytes: numbers(raw, 'bytes', n),
      result: numbers(raw, 'result', n),
      number: numbers(raw, 'number', n),
      label: rowNumbers(raw, 'label', n),
      flags: rowNumbers(raw, 'flags', n),
    };
  }

  /** @param {OperationColumns | undefined} raw */
  readOperations(raw) {
    const n = rowsIn(raw, 'start');
    return {
      count: n,
      id: numbers(raw, 'id', n),
      shape: rowNumbers(raw, 'shape', n),
      nth: numbers(raw, 'nth', n),
      span: rowNumbers(raw, 'span', n),
      parent: rowNumbers(raw, 'parent', n),
      start: numbers(raw, 'start', n, this.origin),
      end: numbers(raw, 'end', n, this.origin),
      rows: numbers(raw, 'rows', n),
      result: numbers(raw, 'result', n),
    };
  }

  /** @param {LinkColumns | undefined} raw */
  readLinks(raw) {
    const n = rowsIn(raw, 'parent');
    const levels = new Map(CONFIDENCES.map((name, level) => [name, level]));
    return {
      count: n,
      parent: rowNumbers(raw, 'parent', n),
      child: rowNumbers(raw, 'child', n),
      relation: rowNumbers(raw, 'relation', n),
      level: rowNumbers(raw, 'confidence', n).map((name) => levels.get(this.text(name)) ?? 0),
      weakened: raw?.weakened ?? [],
    };
  }

  /** @param {CauseColumns | undefined} raw */
  readCauses(raw) {
    const n = rowsIn(raw, 'command');
    return {
      count: n,
      command: rowNumbers(raw, 'command', n),
      operation: rowNumbers(raw, 'operation', n),
      origin: rowNumbers(raw, 'origin', n),
      process: rowNumbers(raw, 'process', n),
      tgid: numbers(raw, 'tgid', n),
      share: numbers(raw, 'share', n),
      confidence: rowNumbers(raw, 'confidence', n),
      via: rowNumbers(raw, 'via', n),
    };
  }

  /** @param {SliceColumns | undefined} raw */
  readSlices(raw) {
    const n = rowsIn(raw, 'start');
    return {
      count: n,
      operation: rowNumbers(raw, 'operation', n),
      layer: rowNumbers(raw, 'layer', n),
      reason: rowNumbers(raw, 'reason', n),
      start: numbers(raw, 'start', n, this.origin),
      end: numbers(raw, 'end', n, this.origin),
      span: rowNumbers(raw, 'span', n),
      confidence: rowNumbers(raw, 'confidence', n),
    };
  }

  /**
   * A text by its number; empty if there is none.
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
   * The end, or the start again where the end was not seen.
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
   * The process and thread that made a span, by name where it is known; empty if none did.
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

  /** @param {number} span */
  isCommand(span) {
    return this.layerOf(span) === 'Driver';
  }
}

/**
 * The blocks of the recordings in the page.
 * @returns {HTMLScriptElement[]}
 */
export function recordings() {
  return Array.from(document.querySelectorAll('script.recording'));
}

/** The device commands of all recordings, with their titles. */
export function readCommands() {
  const titles = recordings().map((block) => block.dataset.title);
  return [...document.querySelectorAll('script.commands')].map((block, i) => {
    /** @type {CommandsData} */
    const commands = JSON.parse(block.textContent);
    return { ...commands, title: titles[i] ?? '' };
  });
}

/**
 * One recording's data block.
 * @param {string} text
 * @param {number} recording
 */
export function readPage(text, recording) {
  /** @type {RecordingData} */
  const page = JSON.parse(text);
  return {
    recording,
    title: page.title ?? '',
    summary: page.summary ?? {},
    counts: page.counts ?? {},
    trace: new Trace(page.timeline),
  };
}
