// The page: one state (visible window, selection), and what redraws when it changes. The state is also kept in the
// address, so that a place in a trace can be sent to a colleague.

import { bytes, count, duration, moment } from './format.js';
import { NARROWEST_NS, windowOf, zoomed } from './scale.js';
import { readCommands, readPage, recordings } from './data.js';
import { Parts } from './parts.js';
import { byId, el, fill } from './dom.js';
import { onThemeChange } from './theme.js';
import { Tip } from './tip.js';
import { chainOfOperation, chainOfSpan, surenessOf } from './chain.js';
import { Timeline } from './timeline.js';
import { Overview } from './overview.js';
import { Beside } from './beside.js';
import { showDifference } from './difference.js';
import { followGestures } from './gestures.js';
import { ordinal, showPanel } from './panel.js';
import { Commands, showScatter } from './scatter.js';
import { OperationList } from './list.js';
import { showAccount, showFiles, showStatements } from './tables.js';
import { showFindings } from './findings.js';
import { showHeader, showMethod } from './method.js';
import { showTogether } from './together.js';

/** @import { Chain } from './chain.js' */
/** @import { CommandsOf, PageOf } from './data.js' */

const MOST_IDS = 2000;
const ROOM_BEFORE = 0.06;
/** The parts of a window are loaded once it has not moved for this long. */
const REST_MS = 120;

class Page {
  /**
   * @param {PageOf} data
   * @param {CommandsOf[]} others
   */
  constructor(data, others) {
    this.data = data;
    this.trace = data.trace;
    this.tip = new Tip(byId('tip'));
    const shift = this.trace.origin + this.trace.clock;
    this.recordings = others.map((one, i) => new Commands(one, i, i === data.recording ? shift : null));
    this.commands =
      this.recordings[data.recording] ?? new Commands({ bytes: new Uint8Array(0) }, data.recording, shift);
    this.figure = byId('timeline');
    this.canvas = byId('timeline-canvas');
    this.timeline = new Timeline(this.canvas, this.trace);
    this.parts = new Parts(this.trace, data.recording);
    /** @type {number | undefined} */
    this.resting = undefined;
    /** Counts selections: one that waits for a part is dropped if a later one is made. */
    this.choices = 0;
    this.overview = new Overview(byId('overview'), this.trace);
    this.beside = new Beside(
      this.trace,
      data.recording,
      this.recordings,
      () => this.draw(),
      (hash) => this.turnTo(hash),
    );
    this.together = showTogether(this.tip);
    this.view = windowOf(this.trace.low, this.trace.high, this.trace.low, this.trace.high);
    /** @type {Chain | null} */
    this.chain = null;
    /** @type {number | undefined} */
    this.writing = undefined;
    this.hovered = -1;
    this.waiting = false;
    this.list = new OperationList(
      this.trace,
      this.parts,
      (operation) => this.chooseOperation(operation, true),
      (number) => this.chooseNumber(number),
    );
    this.scatter = showScatter(
      byId('scatter-body'),
      this.recordings,
      data.recording,
      (recording, id) => this.chooseCommand(recording, id),
      this.tip,
    );
  }

  async start() {
    const { data } = this;
    document.title = `${data.title} · Fathom`;
    showHeader(data, { title: byId('title'), command: byId('command'), facts: byId('facts'), badges: byId('badges') });
    showMethod(data, {
      confidence: byId('confidence'),
      losses: byId('losses'),
      coverage: byId('coverage'),
      environment: byId('environment'),
    });
    showDifference();
    showFindings(
      byId('findings-body'),
      data.explanation,
      (id) => this.parts.mayHave(id),
      (id) => this.chooseCommand(data.recording, id),
    );
    showStatements(byId('statements-body'), data.summary, data.counts);
    showAccount(byId('account'), data.summary);
    showFiles(byId('files'), data.summary);
    showRecordings(byId('recordings'), data.recording, (hash) => this.turnTo(hash));
    byId('left-out').textContent = [this.trace.leftOut?.why, this.commands.leftOut?.why].filter(Boolean).join(' ');
    this.connect();
    this.beside.start();
    if (!(await this.readAddress())) await this.chooseFirst();
    this.show();
    this.draw();
  }

  /**
   * Loads parts, if there are any. Keeps the selection.
   * @param {number[]} numbers
   */
  async load(numbers) {
    if (!this.parts.any) return;
    const { chain } = this;
    const chosen = { operation: chain?.operation ?? -1, id: chain ? this.trace.spans.id[chain.span] : NaN };
    const kept =
      chosen.operation >= 0
        ? this.parts.ofOperation(chosen.operation)
        : this.trace.parts.findIndex((part) => part.own > 0 && chosen.id >= part.id_low && chosen.id <= part.id_high);
    const forgotten = await this.parts.load(numbers, kept, () => {
      this.timeline.rebuild();
      this.hovered = -1;
    });
    if (forgotten && chain && this.chain === chain) {
      const span = this.trace.rowOfId.get(chosen.id);
      if (chosen.operation >= 0) this.chain = chainOfOperation(this.trace, chosen.operation);
      else this.chain = span === undefined ? null : chainOfSpan(this.trace, span);
      this.show();
    }
    this.draw();
  }

  connect() {
    followGestures(this.canvas, this.timeline, {
      view: () => this.view,
      setView: (view) => this.setView(view.from, view.to),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.leave(),
      choose: (x, y) => this.chooseAt(x, y),
      clear: () => this.clear(),
      step: (by) => this.step(by),
      fit: () => this.setView(this.trace.low, this.trace.high),
    });
    fill(
      byId('presets'),
      this.trace.presets.map((ns) =>
        el(
          'button',
          {
            type: 'button',
            dataset: { preset: ns },
            title: 'a window as wide as the papers’ figures',
            onclick: () => this.preset(ns),
          },
          duration(ns),
        ),
      ),
    );
    byId('fit').addEventListener('click', () => this.setView(this.trace.low, this.trace.high));
    byId('fit-operation').addEventListener('click', () => this.fitChain());
    byId('zoom-in').addEventListener('click', () => this.zoom(0.5));
    byId('zoom-out').addEventListener('click', () => this.zoom(2));
    byId('before').addEventListener('click', () => this.step(-1));
    byId('after').addEventListener('click', () => this.step(1));
    byId('clear').addEventListener('click', () => this.clear());
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && event.target !== this.canvas) this.clear();
    });
    const strip = byId('overview');
    /** @param {PointerEvent} event */
    const pull = (event) => {
      if (event.type === 'pointermove' && event.buttons !== 1) return;
      const half = (this.view.to - this.view.from) / 2;
      const at = this.overview.timeAt(event.offsetX);
      this.setView(at - half, at + half);
    };
    strip.addEventListener('pointerdown', pull);
    strip.addEventListener('pointermove', pull);
    const follow = byId('scatter-follow');
    const all = () => {
      this.draw();
      this.scatter.draw(follow.checked ? this.view : null);
      this.together.forEach((chart) => chart.draw());
    };
    follow.addEventListener('change', all);
    new ResizeObserver(all).observe(byId('content'));
    onThemeChange(all);
    // Use the event's own address: a delayed writeAddress may have replaced the location's by now.
    addEventListener('hashchange', (event) => this.readAddress(new URL(event.newURL).hash));
  }

  /** Selects an execution of median latency of the statement that caused most device work: typical, not extreme. */
  async chooseFirst() {
    const { trace } = this;
    const { operations } = trace;
    if (operations.count === 0) return;
    const charged = trace.shapes.map((shape) =>
      ['statement', 'transaction'].includes(shape.kind) ? (shape.charged ?? 0) : 0,
    );
    const most = charged.reduce((a, b) => Math.max(a, b), 0);
    const busiest = most > 0 ? charged.indexOf(most) : operations.shape[0];
    const lengths = operations.end.map((end, i) =>
      operations.shape[i] === busiest && operations.whole[i] ? end - operations.start[i] : NaN,
    );
    const ended = lengths.filter((length) => !Number.isNaN(length)).sort();
    const operation = Math.max(0, lengths.indexOf(ended[Math.floor(ended.length / 2)] ?? NaN));
    await this.load([this.parts.ofOperation(operation)]);
    this.choose(chainOfOperation(this.trace, operation));
    this.preset(this.trace.presets[0] ?? 12e6);
    this.list.toBegin();
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  setView(from, to) {
    this.view = windowOf(from, to, this.trace.low, this.trace.high);
    this.draw();
    this.writeAddress();
    if (!this.parts.any) return;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.load(this.parts.inWindow(this.view.from, this.view.to)), REST_MS);
  }

  /** @param {number} factor */
  zoom(factor) {
    const view = zoomed(this.view, factor, (this.view.from + this.view.to) / 2);
    this.setView(view.from, view.to);
  }

  /**
   * Sets a window of the papers' width that begins shortly before the selection.
   * @param {number} ns
   */
  preset(ns) {
    const chosen = this.chain && this.chain.span >= 0 ? this.trace.spans.start[this.chain.span] : null;
    const inView = chosen !== null && chosen >= this.view.from && chosen <= this.view.to;
    const from = inView ? chosen - ns * ROOM_BEFORE : (this.view.from + this.view.to) / 2 - ns / 2;
    this.setView(from, from + ns);
  }

  /** Sets the window to the selected operation, or the selected span, with a margin. */
  fitChain() {
    if (!this.chain) return;
    const { operation, span } = this.chain;
    const [start, end] =
      operation >= 0
        ? [this.trace.operations.start[operation], this.trace.operationEnd(operation)]
        : [this.trace.spans.start[span], this.trace.endOf(span)];
    const room = Math.max((end - start) * ROOM_BEFORE, NARROWEST_NS);
    this.setView(start - room, end + room);
  }

  /** @param {Chain | null} chain */
  choose(chain) {
    this.chain = chain;
    this.show();
    this.draw();
    this.writeAddress();
  }

  /**
   * @param {number} operation
   * @param {boolean} reveal
   */
  async chooseOperation(operation, reveal) {
    const part = this.parts.ofOperation(operation);
    const choice = (this.choices += 1);
    if (part >= 0) await this.load([part]);
    if (choice !== this.choices) return;
    this.choose(chainOfOperation(this.trace, operation));
    if (reveal) this.reveal(this.trace.operations.start[operation], this.trace.operationEnd(operation));
  }

  /** @param {number} span */
  chooseSpan(span) {
    this.choose(chainOfSpan(this.trace, span));
    this.reveal(this.trace.spans.start[span], this.trace.endOf(span));
  }

  /**
   * Selects a span by its number in the whole recording.
   * @param {number} number
   */
  async chooseNumber(number) {
    if (!this.parts.any) {
      this.chooseSpan(number);
      return;
    }
    const choice = (this.choices += 1);
    await this.load([this.parts.ofSpan(number)]);
    const row = this.trace.rowOfNumber[number];
    if (choice === this.choices && row >= 0) this.chooseSpan(row);
  }

  /**
   * The row of a span by its number in the archive, once it is loaded; undefined if the page has none.
   * @param {number} id
   */
  async rowOf(id) {
    if (!this.parts.any) return this.trace.rowOfId.get(id);
    const part = await this.parts.ofSpanId(id);
    if (part < 0) return undefined;
    await this.load([part]);
    return this.trace.rowOfId.get(id);
  }

  /**
   * Selects a command by its recording and its number in the archive, as in the address map.
   * @param {number} recording
   * @param {number} id
   */
  async chooseCommand(recording, id) {
    if (recording !== this.data.recording) {
      this.turnTo(`#r=${recording}&span=${id}`);
      return;
    }
    const choice = (this.choices += 1);
    const span = this.parts.any ? await this.rowOf(id) : this.trace.rowOfId.get(id);
    if (span !== undefined && choice === this.choices) this.chooseSpan(span);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  chooseAt(x, y) {
    const hit = this.timeline.hit(x, y);
    if (!hit) this.clear();
    else if (hit.span !== undefined) this.choose(chainOfSpan(this.trace, hit.span));
    else if (this.trace.slices.span[hit.slice] >= 0)
      this.choose(chainOfSpan(this.trace, this.trace.slices.span[hit.slice]));
  }

  clear() {
    this.tip.hide();
    if (this.chain) this.choose(null);
  }

  /** @param {number} by */
  step(by) {
    const next = this.list.beside(this.chain ? this.chain.operation : -1, by, this.view.from);
    if (next >= 0) this.chooseOperation(next, true);
  }

  /**
   * Moves the window, without changing its width unless it is too narrow, so that the interval begins inside it.
   * @param {number} start
   * @param {number} end
   */
  reveal(start, end) {
    const width = this.view.to - this.view.from;
    if (start >= this.view.from && end <= this.view.to) return;
    const wanted = Math.max(width, (end - start) * 1.15);
    this.setView(start - wanted * ROOM_BEFORE, start - wanted * ROOM_BEFORE + wanted);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  hover(x, y) {
    const hit = this.timeline.hit(x, y);
    const box = this.canvas.getBoundingClientRect();
    const { trace } = this;
    if (!hit) {
      this.leave();
      return;
    }
    if (hit.slice !== undefined) {
      const { slices } = trace;
      this.tip.show(
        box.left + x,
        box.top + y,
        `${trace.text(slices.layer[hit.slice])} · ${trace.text(slices.reason[hit.slice])}`,
        [
          duration(slices.end[hit.slice] - slices.start[hit.slice]),
          slices.confidence[hit.slice] >= 0 ? `confidence: ${trace.text(slices.confidence[hit.slice])}` : '',
        ],
      );
      return;
    }
    const { span, among } = hit;
    const { spans } = trace;
    const file = trace.fileOf(span);
    const operation = spans.operation[span];
    this.tip.show(box.left + x, box.top + y, trace.labelOf(span), [
      among > 1 ? `the longest of ${count(among)} here; zoom in to see each` : '',
      Number.isNaN(spans.end[span]) ? 'end not recorded' : duration(spans.end[span] - spans.start[span]),
      `at ${moment(spans.start[span])}`,
      trace.threadOf(span),
      file ? `${file.path ?? 'unnamed file'} (${file.class})` : '',
      Number.isNaN(spans.offset[span]) ? '' : `offset ${count(spans.offset[span])}`,
      Number.isNaN(spans.sector[span])
        ? ''
        : `${trace.diskOf(span)?.name ?? 'disk'} sector ${count(spans.sector[span])}`,
      spans.bytes[span] > 0 ? bytes(spans.bytes[span]) : '',
      operation >= 0 ? `${trace.shapeText(operation)} · ${ordinal(trace, operation)}` : '',
    ]);
    this.canvas.style.cursor = 'pointer';
    if (this.hovered !== span) {
      this.hovered = span;
      this.draw();
    }
  }

  leave() {
    this.tip.hide();
    this.canvas.style.cursor = '';
    if (this.hovered >= 0) {
      this.hovered = -1;
      this.draw();
    }
  }

  /** Updates everything that depends on the selection: panel, list, marks, and the text for those who cannot see the canvas. */
  show() {
    const { chain, trace } = this;
    showPanel(
      byId('panel'),
      trace,
      chain,
      (span) => this.chooseSpan(span),
      (operation) => this.chooseOperation(operation, true),
    );
    this.list.mark(chain ? chain.operation : -1);
    const command = chain && chain.span >= 0 && trace.isCommand(chain.span) ? trace.spans.id[chain.span] : null;
    this.scatter.mark(command);
    const ids = chain ? [...chain.elements.keys()].slice(0, MOST_IDS).map((span) => trace.spans.id[span]) : [];
    this.figure.dataset.highlighted = ids.join(' ');
    this.figure.dataset.highlightedCount = String(chain ? chain.elements.size : 0);
    this.figure.dataset.operation = chain && chain.operation >= 0 ? String(trace.operations.id[chain.operation]) : '';
    this.figure.dataset.span = chain && chain.span >= 0 ? String(trace.spans.id[chain.span]) : '';
    byId('clear').disabled = byId('fit-operation').disabled = !chain;
    byId('said').textContent = !chain
      ? 'Nothing selected'
      : `Selected: ${chain.operation >= 0 ? `${trace.shapeText(chain.operation)}, ${ordinal(trace, chain.operation)}` : trace.labelOf(chain.span)}; ` +
        `${count(chain.elements.size)} elements in its chain, weakest link ${surenessOf(chain)}`;
  }

  /** Draws once for all changes in a frame. */
  draw() {
    const width = this.view.to - this.view.from;
    Object.assign(this.figure.dataset, {
      fromNs: String(Math.round(this.view.from)),
      toNs: String(Math.round(this.view.to)),
      widthNs: String(Math.round(width)),
    });
    byId('width').textContent = `window ${duration(width)}`;
    for (const button of byId('presets').querySelectorAll('button'))
      button.setAttribute('aria-pressed', String(Math.abs(Number(button.dataset.preset) - width) < 1));
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.timeline.draw(this.view, this.chain, this.hovered);
      this.overview.draw(this.view, this.chain);
      this.beside.draw(this.view, this.chain);
      if (byId('scatter-follow').checked) this.scatter?.draw(this.view);
    });
  }

  writeAddress() {
    const { chain, trace } = this;
    const parts = recordings().length > 1 ? [`r=${this.data.recording}`] : [];
    if (chain && chain.operation >= 0) parts.push(`op=${trace.operations.id[chain.operation]}`);
    else if (chain) parts.push(`span=${trace.spans.id[chain.span]}`);
    parts.push(`from=${Math.round(this.view.from)}`, `to=${Math.round(this.view.to)}`);
    clearTimeout(this.writing);
    this.writing = setTimeout(() => history.replaceState(null, '', `#${parts.join('&')}`), 200);
  }

  /**
   * Switches to another recording by reloading the page, so that only one timeline is ever in memory.
   * @param {string} hash
   */
  turnTo(hash) {
    clearTimeout(this.writing);
    history.replaceState(null, '', hash);
    location.reload();
  }

  /** Restores the state from the address; false if the address holds none. */
  async readAddress(hash = location.hash) {
    const parts = new URLSearchParams(hash.slice(1));
    /** @param {string} name */
    const number = (name) =>
      parts.has(name) && Number.isFinite(Number(parts.get(name))) ? Number(parts.get(name)) : undefined;
    if (number('r') !== undefined && recordingIn(hash) !== this.data.recording) {
      this.turnTo(hash);
      return true;
    }
    const operation = this.trace.operationOfId.get(number('op') ?? -1);
    const [from, to] = [number('from'), number('to')];
    const choice = (this.choices += 1);
    if (operation !== undefined) await this.load([this.parts.ofOperation(operation)]);
    const id = number('span');
    const span = operation === undefined && id !== undefined ? await this.rowOf(id) : undefined;
    if (choice !== this.choices) return true;
    if (operation !== undefined) this.choose(chainOfOperation(this.trace, operation));
    else if (span !== undefined) this.choose(chainOfSpan(this.trace, span));
    if (from !== undefined && to !== undefined && from < to) this.setView(from, to);
    else if (operation !== undefined || span !== undefined) this.fitChain();
    else return false;
    return true;
  }
}

/**
 * The recording that an address names; the first if it names none.
 * @param {string} hash
 */
function recordingIn(hash) {
  const wanted = Number(new URLSearchParams(hash.slice(1)).get('r') ?? 0);
  return Number.isInteger(wanted) && wanted >= 0 && wanted < recordings().length ? wanted : 0;
}

/**
 * A button for each recording, if there are several.
 * @param {HTMLElement} node
 * @param {number} shown
 * @param {(hash: string) => void} turnTo
 */
function showRecordings(node, shown, turnTo) {
  const all = recordings();
  node.hidden = all.length < 2;
  fill(
    node,
    all.map((block, i) =>
      el(
        'button',
        {
          type: 'button',
          'aria-pressed': String(i === shown),
          dataset: { recording: i },
          onclick: () => {
            if (i !== shown) turnTo(`#r=${i}`);
          },
        },
        block.dataset.title,
      ),
    ),
  );
}

const chosen = recordingIn(location.hash);
try {
  const [data, others] = await Promise.all([readPage(recordings()[chosen].textContent, chosen), readCommands()]);
  await new Page(data, others).start();
  document.body.dataset.opened = 'true';
} catch (error) {
  byId('left-out').textContent = `This page could not be read: ${error instanceof Error ? error.message : error}`;
  throw error;
}
