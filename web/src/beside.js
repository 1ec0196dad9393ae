// Another recording of the page, drawn below the shown one at the same scale. It is shifted so that the counterpart of the selected
// execution (same statement, same ordinal) starts at the same x position. Without a selection or a counterpart, the first operations
// of both recordings are aligned.

import { duration } from './format.js';
import { readPage, recordings } from './data.js';
import { byId, el, fill } from './dom.js';
import { chainOfOperation, chainOfSpan } from './chain.js';
import { Timeline } from './timeline.js';
import { ordinal } from './panel.js';
import { Parts } from './parts.js';

/** @import { Chain } from './chain.js' */
/** @import { Trace } from './data.js' */
/** @import { View } from './gestures.js' */
/** @import { Commands } from './scatter.js' */

/** A second recording of more characters than this is read only on request: it takes as much memory as the first. */
const LARGE_BLOCK = 8e6;

/**
 * The execution of the other recording that corresponds to `operation`; -1 if there is none.
 * @param {Trace} trace
 * @param {number} operation
 * @param {Trace} other
 */
export function counterpartOf(trace, operation, other) {
  if (operation < 0) return -1;
  const { operations } = other;
  const text = trace.shapeText(operation);
  const nth = trace.operations.nth[operation];
  for (let i = 0; i < operations.count; i += 1) if (operations.nth[i] === nth && other.shapeText(i) === text) return i;
  return -1;
}

export class Beside {
  /**
   * @param {Trace} trace of the shown recording
   * @param {number} shown
   * @param {Commands[]} commands
   * @param {() => void} redraw
   * @param {(hash: string) => void} turnTo
   */
  constructor(trace, shown, commands, redraw, turnTo) {
    this.trace = trace;
    this.shown = shown;
    this.commands = commands;
    this.redraw = redraw;
    this.turnTo = turnTo;
    this.chosen = -1;
    this.shift = 0;
    /** @type { { trace: Trace, parts: Parts, timeline: Timeline, title: string } | null} */
    this.other = null;
    this.canvas = byId('beside-canvas');
    this.choice = byId('beside-choice');
  }

  start() {
    const all = recordings();
    byId('beside').hidden = all.length < 2;
    if (all.length < 2) return;
    const other = this.shown === 0 ? 1 : 0;
    const small = all[other].textContent.length <= LARGE_BLOCK;
    fill(
      this.choice,
      el('option', { value: -1 }, 'none'),
      all.map((block, i) => (i === this.shown ? null : el('option', { value: i }, block.dataset.title))),
    );
    this.choice.value = small ? String(other) : '-1';
    this.choice.addEventListener('change', () => this.read());
    this.canvas.addEventListener('click', (event) => this.choose(event.offsetX, event.offsetY));
    this.read();
  }

  async read() {
    const chosen = Number(this.choice.value);
    this.chosen = chosen;
    this.other = null;
    const block = recordings()[chosen];
    if (block) {
      const { trace, title } = await readPage(block.textContent, chosen);
      // Another recording may have been selected in the meantime.
      if (this.chosen !== chosen) return;
      const timeline = new Timeline(this.canvas, trace);
      this.other = { trace, parts: new Parts(trace, chosen), timeline, title };
    }
    this.canvas.hidden = !this.other;
    this.redraw();
  }

  /**
   * @param {View} view
   * @param {Chain | null} chain
   */
  draw(view, chain) {
    if (!this.other) {
      byId('beside-said').textContent = '';
      return;
    }
    const { trace, parts, timeline, title } = this.other;
    const operation = chain ? chain.operation : -1;
    const counterpart = counterpartOf(this.trace, operation, trace);
    this.shift = counterpart >= 0 ? trace.operations.start[counterpart] - this.trace.operations.start[operation] : 0;
    byId('beside').dataset.operation = counterpart >= 0 ? String(trace.operations.id[counterpart]) : '';
    byId('beside').dataset.shiftNs = String(Math.round(this.shift));
    byId('beside-said').textContent = this.said(title, operation, counterpart);
    const window = { from: view.from + this.shift, to: view.to + this.shift };
    const wanted = parts.inWindow(window.from, window.to).concat(parts.ofOperation(counterpart));
    if (parts.any && wanted.some((number) => number >= 0 && !trace.parts[number].loaded)) {
      parts.load(wanted, -1, () => timeline.rebuild()).then(this.redraw);
    }
    timeline.draw(window, counterpart >= 0 ? chainOfOperation(trace, counterpart) : null, -1);
  }

  /**
   * @param {string} title
   * @param {number} operation
   * @param {number} counterpart
   */
  said(title, operation, counterpart) {
    if (operation < 0) return `${title}: aligned by the first operation of each; select an execution to align by it.`;
    const name = `${ordinal(this.trace, operation)} of this statement`;
    if (counterpart < 0 || !this.other) return `${title} has no ${name}: aligned by the first operation of each.`;
    const took = [
      this.trace.operationEnd(operation) - this.trace.operations.start[operation],
      this.other.trace.operationEnd(counterpart) - this.other.trace.operations.start[counterpart],
    ];
    return `${title}: ${name} begins at the same place; it took ${duration(took[1])}, above ${duration(took[0])}.`;
  }

  /**
   * Switches to the other recording, at the clicked element.
   * @param {number} x
   * @param {number} y
   */
  choose(x, y) {
    const span = this.other?.timeline.hit(x, y)?.span;
    if (span === undefined || !this.other) return;
    const { trace } = this.other;
    const { operation } = chainOfSpan(trace, span);
    const what = operation >= 0 ? `op=${trace.operations.id[operation]}` : `span=${trace.spans.id[span]}`;
    this.turnTo(`#r=${this.chosen}&${what}`);
  }
}
