// The chain of a span: everything it caused, down to the device, and everything that caused it, up to operations.
// An element's confidence is that of the weakest link on the strongest path to it. Paths are searched from the highest level down,
// so each element is settled once (a widest-path search with five widths).

import { CONFIDENCES } from './data.js';

/** @import { Trace } from './data.js' */
/** @typedef { { level: number, link: number } } How */
/** @typedef { { operation: number, span: number, elements: Map<number, How>, links: Set<number> } } Chain */

const SUREST = CONFIDENCES.length - 1;

/** Layers at which an upward walk ends: the requester is found; what caused the request is a separate question. */
const ASKS = new Set(['App', 'Database']);

/**
 * Walks from spans, each with its confidence, along links in one direction. Adds to `found`, Map span -> {level, link};
 * link is -1 for the starting spans.
 * @param {Trace} trace
 * @param {[number, number][]} from
 * @param {boolean} downward
 * @param {Map<number, How>} found
 */
function walk(trace, from, downward, found = new Map()) {
  /** @type {[number, number][][]} */
  const waiting = CONFIDENCES.map(() => []);
  for (const [span, level] of from) waiting[level].push([span, -1]);
  for (let level = SUREST; level >= 0; level -= 1) {
    for (let i = 0; i < waiting[level].length; i += 1) {
      const [span, via] = waiting[level][i];
      if (found.has(span)) continue;
      found.set(span, { level, link: via });
      if (!downward && via >= 0 && ASKS.has(trace.layerOf(span))) continue;
      for (const link of downward ? trace.linksDown(span) : trace.linksUp(span)) {
        const next = downward ? trace.links.child[link] : trace.links.parent[link];
        if (next >= 0 && !found.has(next)) waiting[Math.min(level, trace.links.level[link])].push([next, link]);
      }
    }
  }
  return found;
}

/**
 * The selection with everything that belongs to it: {operation, span, elements: Map span -> {level, link}, links: Set}.
 * @param {Trace} trace
 * @param {number} operation
 * @param {number} span
 * @param {Map<number, How>} down
 * @param {Map<number, How>} up
 * @returns {Chain}
 */
function chainOf(trace, operation, span, down, up) {
  const elements = new Map(up);
  for (const [element, how] of down) elements.set(element, how);
  /** @type {Set<number>} */
  const links = new Set();
  for (const element of down.keys())
    for (const link of trace.linksDown(element)) if (down.has(trace.links.child[link])) links.add(link);
  for (const element of up.keys())
    for (const link of trace.linksUp(element)) if (up.has(trace.links.parent[link])) links.add(link);
  return { operation, span, elements, links };
}

/**
 * An operation with those that ran inside it: a mark contains its statements.
 * @param {Trace} trace
 * @param {number} operation
 */
export function within(trace, operation) {
  const all = [operation];
  for (let i = 0; i < all.length; i += 1) for (const inner of trace.operationsIn(all[i])) all.push(inner);
  return all;
}

/**
 * The confidence of a span that no path from its operation reaches: that of its strongest link upward; without a link,
 * that of attribution by thread and time.
 * @param {Trace} trace
 * @param {number} span
 */
function surestLinkTo(trace, span) {
  const levels = [...trace.linksUp(span)].map((link) => trace.links.level[link]);
  return levels.length > 0 ? Math.max(...levels) : CONFIDENCES.indexOf('interval');
}

/**
 * Down from an operation: what it caused, and the commands charged to it. Only its own span is certain; its calls and
 * everything below have the confidence of the links to them. Spans that the trace attributes to the operation without a link
 * on the page come afterwards, those that ran inside it first.
 * @param {Trace} trace
 * @param {number} operation
 */
export function chainOfOperation(trace, operation) {
  const own = trace.operations.span[operation];
  const all = within(trace, operation);
  const down = walk(trace, own >= 0 ? [[own, SUREST]] : [], true);
  for (const spans of [all.map((one) => trace.operations.span[one]), all.flatMap((one) => [...trace.spansOf(one)])]) {
    const left = spans.filter((span) => span >= 0 && !down.has(span));
    walk(
      trace,
      left.map((span) => [span, surestLinkTo(trace, span)]),
      true,
      down,
    );
  }
  for (const cause of all.flatMap((one) => [...trace.causesOfOperation(one)])) {
    const command = trace.causes.command[cause];
    const level = Math.max(0, CONFIDENCES.indexOf(trace.text(trace.causes.confidence[cause])));
    if (command >= 0 && !down.has(command)) down.set(command, { level, link: -1 });
  }
  return chainOf(trace, operation, own, down, own >= 0 ? walk(trace, [[own, SUREST]], false) : new Map());
}

/**
 * Both directions from any span; for an operation's own span, the operation's chain.
 * @param {Trace} trace
 * @param {number} span
 * @returns {Chain}
 */
export function chainOfSpan(trace, span) {
  const operation = trace.operationOfSpan(span);
  if (operation >= 0) return chainOfOperation(trace, operation);
  return chainOf(trace, -1, span, walk(trace, [[span, SUREST]], true), walk(trace, [[span, SUREST]], false));
}

/**
 * The lowest confidence in a chain, as a word.
 * @param {Chain} chain
 */
export function surenessOf(chain) {
  let level = SUREST;
  for (const element of chain.elements.values()) level = Math.min(level, element.level);
  return CONFIDENCES[level];
}
