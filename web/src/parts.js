// A timeline split into parts: each is a block of the page, read when its time is viewed or one of its operations or spans is selected.

import { inflated } from './unpack.js';

/** @import { Trace } from './data.js' */
/** @import { PartData } from './types.js' */

/** Above this many spans, parts that are no longer needed are dropped. */
const MOST_LOADED = 1_000_000;
/** A window with more spans than this is drawn as how busy its rows were. */
const MOST_IN_VIEW = 400_000;

export class Parts {
  /**
   * @param {Trace} trace
   * @param {number} recording
   */
  constructor(trace, recording) {
    this.trace = trace;
    /** @type {HTMLScriptElement[]} */
    this.blocks = Array.from(document.querySelectorAll(`script.part[data-of="${recording}"]`));
    /** The load in progress: loads run one after another, so that no two add rows at the same time. */
    this.last = Promise.resolve(false);
  }

  get any() {
    return this.trace.parts.length > 0;
  }

  /**
   * Reads the tables of a part.
   * @param {number} number
   */
  async read(number) {
    /** @type {PartData} */
    const raw = JSON.parse(this.blocks[number].textContent);
    const bytes = await inflated(raw.packed);
    return this.trace.readPart(raw, bytes);
  }

  /**
   * Loads those of the parts that are missing. Returns whether rows had to be dropped for it, in which case no row number is valid any
   * more. `kept` is a part that must stay, or -1.
   * @param {number[]} numbers
   * @param {number} kept
   * @param {() => void} changed
   */
  load(numbers, kept, changed) {
    this.last = this.last.then(async () => {
      const { trace } = this;
      let wanted = numbers.filter((number) => number >= 0 && !trace.parts[number].loaded);
      if (wanted.length === 0) return false;
      const more = wanted.reduce((sum, number) => sum + trace.parts[number].spans, 0);
      const forget = trace.spans.count > 0 && trace.spans.count + more > MOST_LOADED;
      if (forget) wanted = [...new Set([...numbers, kept])].filter((number) => number >= 0);
      const read = [];
      for (const number of wanted) read.push(await this.read(number));
      if (forget) trace.forget();
      read.forEach((part, i) => trace.add(wanted[i], part));
      trace.arrange();
      changed();
      return forget;
    });
    return this.last;
  }

  /**
   * The parts of a window, if they are few enough to be loaded for it.
   * @param {number} from
   * @param {number} to
   */
  inWindow(from, to) {
    const { parts } = this.trace;
    const numbers = [...parts.keys()].filter((i) => parts[i].own > 0 && parts[i].end >= from && parts[i].start <= to);
    return numbers.reduce((sum, i) => sum + parts[i].spans, 0) <= MOST_IN_VIEW ? numbers : [];
  }

  /**
   * The part of an operation; -1 if it has none.
   * @param {number} operation
   */
  ofOperation(operation) {
    return operation >= 0 ? this.trace.operations.part[operation] : -1;
  }

  /**
   * The part that owns a span, by its number in the whole recording; -1 if none does.
   * @param {number} at
   */
  ofSpan(at) {
    return this.trace.parts.findIndex((part) => at >= part.first && at < part.first + part.own);
  }

  /**
   * Whether a span may be on the page, by its number in the archive.
   * @param {number} id
   */
  mayHave(id) {
    return (
      this.trace.rowOfId.has(id) ||
      this.trace.parts.some((part) => part.own > 0 && id >= part.id_low && id <= part.id_high)
    );
  }

  /**
   * The part that owns a span, by its number in the archive; -1 if none does.
   * @param {number} id
   */
  async ofSpanId(id) {
    const { parts } = this.trace;
    for (let number = 0; number < parts.length; number += 1) {
      const { own, id_low: low, id_high: high } = parts[number];
      if (own === 0 || id < low || id > high) continue;
      const { held } = await this.read(number);
      if (held.spans.id.includes(id)) return number;
    }
    return -1;
  }
}
