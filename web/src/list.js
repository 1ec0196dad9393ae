// The list of operations: every execution of a statement, filtered and sorted, one page at a time. It also gives access to
// any operation without a pointer.

import { count, duration, moment, percent } from './format.js';
import { byId, el, fill, find } from './dom.js';
import { found } from './search.js';

/** @import { Trace } from './data.js' */
/** @import { Parts } from './parts.js' */
/** @import { Found } from './search.js' */

const PAGE = 12;

/** @type {Record<string, (trace: Trace) => (a: number, b: number) => number>} */
const ORDERS = {
  time: (trace) => (a, b) => trace.operations.start[a] - trace.operations.start[b],
  slowest: (trace) => (a, b) => latencyOf(trace, b) - latencyOf(trace, a) || a - b,
};

/**
 * @param {Trace} trace
 * @param {number} operation
 */
function latencyOf(trace, operation) {
  return trace.operationEnd(operation) - trace.operations.start[operation];
}

export class OperationList {
  /**
   * @param {Trace} trace
   * @param {Parts} parts
   * @param {(operation: number) => void} choose
   * @param {(span: number) => void} chooseSpan by its number in the whole recording
   */
  constructor(trace, parts, choose, chooseSpan) {
    this.trace = trace;
    this.parts = parts;
    this.choose = choose;
    this.chooseSpan = chooseSpan;
    /** @type {Found | null} */
    this.found = null;
    this.at = -1;
    this.page = 0;
    this.chosen = -1;
    /** @type {number[]} */
    this.rows = [];
    /** @type {number[] | null} */
    this.inTime = null;
    this.shape = byId('list-shape');
    this.order = byId('list-order');
    this.shape.append(
      el('option', { value: '' }, 'everything'),
      ...trace.shapes.map((shape, i) => el('option', { value: i }, `${shape.text} (${count(shape.count)})`)),
    );
    for (const control of [this.shape, this.order]) control.addEventListener('change', () => this.arrange());
    this.search = byId('search');
    this.search.addEventListener('input', () => this.look());
    this.search.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.toFound(event.shiftKey ? -1 : 1);
      else if (event.key === 'Escape') {
        this.search.value = '';
        this.look();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    byId('found-before').addEventListener('click', () => this.toFound(-1));
    byId('found-after').addEventListener('click', () => this.toFound(1));
    byId('list-before').addEventListener('click', () => this.turn(-1));
    byId('list-after').addEventListener('click', () => this.turn(1));
    this.arrange();
  }

  /** Searches for the text: the list then shows the operations that contain it, and the matching spans can be stepped through. */
  async look() {
    const text = this.search.value.trim();
    this.at = -1;
    this.found = null;
    if (text !== '')
      for await (const so of found(this.trace, this.parts, text)) {
        // The search text has changed in the meantime.
        if (this.search.value.trim() !== text) return;
        this.found = so;
        this.tell();
        this.arrange();
      }
    this.tell();
    this.arrange();
  }

  /** @param {number} by */
  toFound(by) {
    const spans = this.found?.spans ?? [];
    if (spans.length === 0) return;
    this.at = this.at < 0 && by < 0 ? spans.length - 1 : (this.at + by + spans.length) % spans.length;
    this.tell();
    this.chooseSpan(spans[this.at]);
  }

  tell() {
    const spans = this.found?.spans ?? [];
    const looking = this.found && this.found.done < 1 ? `, ${percent(this.found.done)} searched` : '';
    byId('found').textContent = !this.found
      ? ''
      : `${this.at >= 0 ? `${count(this.at + 1)} of ` : ''}${count(spans.length)} ${spans.length === 1 ? 'span' : 'spans'}${looking}`;
    byId('found-before').disabled = byId('found-after').disabled = spans.length === 0;
  }

  arrange() {
    const { trace } = this;
    const wanted = this.shape.value === '' ? null : Number(this.shape.value);
    this.rows = [];
    this.inTime = null;
    for (let i = 0; i < trace.operations.count; i += 1)
      if ((wanted === null || trace.operations.shape[i] === wanted) && (!this.found || this.found.inOperation[i]))
        this.rows.push(i);
    this.rows.sort(ORDERS[this.order.value](trace));
    this.page = 0;
    this.show();
  }

  /** Shows the first page of the list. */
  toBegin() {
    this.page = 0;
    this.show();
  }

  /** @param {number} by */
  turn(by) {
    this.page = Math.max(0, Math.min(Math.ceil(this.rows.length / PAGE) - 1, this.page + by));
    this.show();
  }

  /**
   * The operation before or after another in time, among those of the selected statement; without another, before or after a time.
   * @param {number} operation -1: none
   * @param {number} by
   * @param {number} time
   */
  beside(operation, by, time) {
    this.inTime ??= [...this.rows].sort(ORDERS.time(this.trace));
    const { inTime } = this;
    let at = inTime.indexOf(operation) + by;
    if (at - by < 0) {
      const after = inTime.findIndex((i) => this.trace.operations.start[i] >= time);
      at = (after < 0 ? inTime.length : after) + (by < 0 ? by : 0);
    }
    return inTime[Math.max(0, Math.min(inTime.length - 1, at))] ?? -1;
  }

  /**
   * Marks the selected operation and turns to its page.
   * @param {number} operation
   */
  mark(operation) {
    this.chosen = operation;
    const at = this.rows.indexOf(operation);
    if (at >= 0) this.page = Math.floor(at / PAGE);
    this.show();
  }

  show() {
    const { trace, rows } = this;
    const slowest = rows.reduce((most, i) => Math.max(most, latencyOf(trace, i)), 1);
    const shown = rows.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const active = /** @type {HTMLElement} */ (document.activeElement);
    const focused = active?.closest('#list-rows') ? active.dataset.operation : null;
    fill(
      byId('list-rows'),
      shown.map((i) =>
        el(
          'tr',
          { class: i === this.chosen ? 'chosen' : null, 'aria-current': i === this.chosen ? 'true' : null },
          el('td', { class: 'number' }, moment(trace.operations.start[i])),
          el(
            'th',
            { scope: 'row' },
            el(
              'button',
              {
                type: 'button',
                class: 'link statement',
                dataset: { operation: trace.operations.id[i] },
                onclick: () => this.choose(i),
              },
              trace.shapeText(i),
            ),
          ),
          el('td', { class: 'number' }, count(trace.operations.nth[i] + 1)),
          el(
            'td',
            { class: 'number' },
            Number.isNaN(trace.operations.end[i]) ? 'end not recorded' : duration(latencyOf(trace, i)),
          ),
          el(
            'td',
            { class: 'wide' },
            el(
              'span',
              { class: 'meter', 'aria-hidden': 'true' },
              el('i', { style: { width: `${(100 * latencyOf(trace, i)) / slowest}%` } }),
            ),
          ),
        ),
      ),
    );
    if (focused) find(`#list-rows [data-operation="${focused}"]`)?.focus({ preventScroll: true });
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    byId('list-page').textContent = `${count(rows.length)} operations, page ${count(this.page + 1)} of ${count(pages)}`;
    byId('list-before').disabled = this.page === 0;
    byId('list-after').disabled = this.page >= pages - 1;
  }
}
