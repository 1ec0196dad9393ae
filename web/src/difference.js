// The result of `fathom diff` for the two recordings of a page: the verdict, the phases and layers that account for the difference,
// the statements, and what executions of one recording do that those of the other never do.

import { count, duration, percent } from './format.js';
import { byId, el, fill, find, table } from './dom.js';

/** @import { Difference, DifferencePart } from './types.js' */

const MOST_ROWS = 12;

/** @param {number} ns */
function signed(ns) {
  return `${ns < 0 ? '−' : '+'}${duration(Math.abs(ns))}`;
}

/**
 * @param {string} caption
 * @param {string} name
 * @param {DifferencePart[]} parts
 */
function partsTable(caption, name, parts) {
  const work = parts.some((part) => typeof part.different_work === 'boolean');
  return table(
    caption,
    [
      { name },
      { name: 'A', number: true },
      { name: 'B', number: true },
      { name: 'B − A', number: true },
      { name: 'share', number: true, title: 'of the whole difference; they add up to 100 %' },
      { name: '95 % interval' },
      ...(work ? [{ name: 'different work', title: 'other numbers of calls, bytes, bios, flushes, rows' }] : []),
    ],
    parts
      .slice(0, MOST_ROWS)
      .map((part) => [
        part.phase ?? [part.layer, part.reason].filter(Boolean).join(' '),
        duration(part.a_ns),
        duration(part.b_ns),
        signed(part.delta_ns),
        typeof part.share === 'number' ? percent(part.share) : '',
        part.interval ? part.interval.map(signed).join(' to ') : '',
        ...(work ? [part.different_work ? 'yes' : ''] : []),
      ]),
  );
}

/**
 * Where the time of the whole programs went, and what they asked of the layers below, as far as that differs.
 * @param {Difference['diff']} diff
 */
function wholePrograms(diff) {
  const times = (diff.times ?? []).slice(0, MOST_ROWS);
  const counts = (diff.counts ?? []).filter((one) => ['more', 'fewer'].includes(one.direction)).slice(0, MOST_ROWS);
  const range = (/** @type {[number, number]} */ [least, most]) =>
    least === most ? count(least) : `${count(least)} to ${count(most)}`;
  const sides = ['A', 'B', 'B − A'].map((name) => ({ name, number: true }));
  return el(
    'div',
    {},
    times.length === 0
      ? null
      : table(
          'Time of the whole programs',
          [{ name: 'of the time' }, ...sides],
          times.map((one) => [one.what, duration(one.a_ns), duration(one.b_ns), signed(one.delta_ns)]),
        ),
    counts.length === 0
      ? null
      : table(
          'Counts of the whole programs that differ',
          [{ name: 'count' }, ...sides],
          counts.map((one) => [
            one.what,
            range(one.a),
            range(one.b),
            `${one.delta < 0 ? '−' : '+'}${count(Math.abs(one.delta))}`,
          ]),
        ),
  );
}

/**
 * @param {string} side
 * @param { { statement: string, edge: string, executions: number, of: number, sure: boolean }[]} edges
 */
function edgesOf(side, edges) {
  const sure = edges.filter((edge) => edge.sure).slice(0, MOST_ROWS);
  if (sure.length === 0) return null;
  return el(
    'div',
    {},
    el('h3', {}, `Only in ${side}`),
    el(
      'ul',
      {},
      sure.map((edge) =>
        el('li', {}, `${edge.edge}: ${count(edge.executions)} of ${count(edge.of)} `, el('code', {}, edge.statement)),
      ),
    ),
  );
}

/** Shows the difference, if the page has one. */
export function showDifference() {
  const block = find('script.difference');
  byId('difference').hidden = byId('to-difference').hidden = !block;
  if (!block) return;
  /** @type {Difference} */
  const { titles, diff } = JSON.parse(block.textContent ?? '{}');
  const { ratio, ratio_interval: interval } = diff.latency_ns;
  const verdict = typeof ratio === 'number' ? `${diff.verdict}: B / A = ${ratio.toPrecision(3)}` : diff.verdict;
  const range = interval ? ` (${interval.map((end) => end.toPrecision(3)).join(' to ')})` : '';
  fill(
    byId('difference-body'),
    el('p', {}, el('b', {}, `${verdict}${range}`), ` · ${diff.why}`),
    el('p', { class: 'note' }, `A is ${titles[0]}, B is ${titles[1]}.`),
    wholePrograms(diff),
    partsTable('By phase, of the executions that both have', 'phase', diff.phases),
    partsTable('By layer', 'layer', diff.layers),
    table(
      'By statement',
      [
        { name: 'statement' },
        { name: 'compared', number: true },
        { name: 'median A', number: true },
        { name: 'median B', number: true },
        { name: 'verdict' },
      ],
      diff.statements
        .slice(0, MOST_ROWS)
        .map((one) => [
          el('code', {}, one.statement),
          count(one.pairs),
          duration(one.median_ns.a),
          duration(one.median_ns.b),
          one.verdict,
        ]),
    ),
    el('div', { class: 'pair' }, edgesOf('A', diff.edges.only_a), edgesOf('B', diff.edges.only_b)),
  );
}
