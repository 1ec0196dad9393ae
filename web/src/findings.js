// The findings of `fathom explain`: where the statements lose time, with the spans that show it one click away.

import { count, duration, percent } from './format.js';
import { el, fill, terms } from './dom.js';
import { callers, callersInProgram } from './tables.js';

/** @import { Account, Between, Explanation, Finding, Leaf, SlowWait } from './types.js' */

const CLOSED_AFTER = 1;
/** The number of stacks shown for a finding. */
const STACKS = 3;

/**
 * @param {Finding} finding
 * @returns {string | null}
 */
function timeOf(finding) {
  if (typeof finding.time_ns !== 'number' || typeof finding.share !== 'number') return null;
  const range = finding.interval ? ` (${percent(finding.interval[0])} to ${percent(finding.interval[1])})` : '';
  const executions = `in ${count(finding.executions ?? 0)} of ${count(finding.of ?? 0)} executions`;
  return `${duration(finding.time_ns)}, ${percent(finding.share)} of the statement’s${range}; ${executions}`;
}

/**
 * The stacks of the threads during these waits, longest first.
 * @param {SlowWait[]} waits
 */
function asleep(waits) {
  if (waits.length === 0) return null;
  return el(
    'ul',
    {},
    waits.slice(0, STACKS).map((wait) => {
      const call = wait.call === null ? '' : ` in ${wait.call}`;
      const kernel = wait.kernel.length > 0 ? `; kernel: ${callers(wait.kernel)}` : '';
      const program = callersInProgram(wait) || `program unknown (${wait.program_ended ?? 'no function'})`;
      return el('li', {}, `${duration(wait.longest_ns)}${call}: ${program}${kernel}`);
    }),
  );
}

/**
 * @param {Finding} finding
 * @param {boolean} open
 * @param {(id: number) => boolean} has whether the page has this span
 * @param {(id: number) => void} choose
 */
function entry(finding, open, has, choose) {
  const spans = (finding.evidence ?? []).filter(has);
  const left = (finding.evidence ?? []).length - spans.length;
  const buttons = spans.map((id, i) =>
    el(
      'button',
      { type: 'button', dataset: { evidence: id }, title: `span ${id}`, onclick: () => choose(id) },
      i === 0 ? 'the longest' : `${i + 1}`,
    ),
  );
  const evidence = [
    ...buttons,
    left > 0
      ? el('span', { class: 'note' }, `${left} of the spans ${left === 1 ? 'is' : 'are'} not in this page`)
      : null,
  ];
  return el(
    'details',
    { open, dataset: { code: finding.code } },
    el(
      'summary',
      {},
      el('b', {}, finding.code),
      ` ${finding.title ?? ''}`,
      typeof finding.share_of_all === 'number' ? ` · ${percent(finding.share_of_all)} of all time` : null,
      finding.statement ? el('code', {}, finding.statement) : null,
    ),
    terms([
      ['claim', finding.claim],
      ['time', timeOf(finding)],
      ['saving', typeof finding.saving_ns === 'number' ? `at most ${duration(finding.saving_ns)}` : null],
      ['remedy', finding.remedy],
      ['evidence', evidence.some(Boolean) ? el('span', { class: 'group' }, evidence) : null],
      ['where', asleep(finding.slow_waits ?? [])],
    ]),
  );
}

/**
 * A part of the time, whether or not a finding is about it.
 * @param {Leaf} leaf
 * @param {number} executions
 * @param {(id: number) => boolean} has
 * @param {(id: number) => void} choose
 */
function part(leaf, executions, has, choose) {
  const span = leaf.longest_span;
  const range = leaf.interval ? ` (${percent(leaf.interval[0])} to ${percent(leaf.interval[1])})` : '';
  const mostly = leaf.statement_ns < leaf.ns ? 'mostly ' : '';
  return el(
    'li',
    {},
    el('b', {}, percent(leaf.share)),
    ` ${leaf.what}${range}: ${duration(leaf.ns)} in ${count(leaf.executions)} of ${count(executions)} executions`,
    leaf.findings?.length ? ` [${leaf.findings.join(', ')}]` : '',
    leaf.statement ? ['; ', mostly, el('code', {}, leaf.statement), ' '] : ' ',
    span !== null && has(span)
      ? el('button', { type: 'button', dataset: { evidence: span }, onclick: () => choose(span) }, 'the longest')
      : null,
    leaf.slow_waits?.length
      ? el('details', {}, el('summary', {}, 'where it slept longest'), asleep(leaf.slow_waits.slice(0, 1)))
      : null,
  );
}

/**
 * Where all the time went: the large parts, and the rest as one.
 * @param {Account} account
 * @param {(id: number) => boolean} has
 * @param {(id: number) => void} choose
 */
function parts(account, has, choose) {
  const rest = account.leaves.reduce((sum, leaf) => sum + (leaf.listed ? 0 : leaf.ns), 0);
  const share = (/** @type {number} */ ns) => percent(ns / Math.max(account.whole_ns, 1));
  return el(
    'ul',
    { class: 'parts', 'aria-label': 'Where the time went' },
    account.leaves.filter((leaf) => leaf.listed).map((leaf) => part(leaf, account.executions, has, choose)),
    el('li', {}, `${share(rest)} smaller parts, ${share(account.unaccounted_ns)} not accounted for`),
  );
}

/**
 * Where the time of the threads went that is in no operation.
 * @param {Between | undefined} between
 */
function outside(between) {
  const listed = between?.leaves.filter((leaf) => leaf.listed) ?? [];
  if (!between || (listed.length === 0 && between.unaccounted_ns <= between.operations_ns)) return null;
  const share = (/** @type {number} */ ns) => percent(ns / Math.max(between.whole_ns, 1));
  const inside = share(between.operations_ns);
  return el(
    'ul',
    { class: 'parts', 'aria-label': 'Time of the threads outside operations' },
    el('li', {}, `${duration(between.whole_ns)} of ${count(between.threads)} threads: ${inside} in operations`),
    listed.map((leaf) => el('li', {}, el('b', {}, percent(leaf.share)), ` ${leaf.what}: ${duration(leaf.ns)}`)),
    el('li', {}, `${share(between.unaccounted_ns)} not accounted for`),
  );
}

/**
 * @param {HTMLElement} node
 * @param {Explanation | null | undefined} explanation
 * @param {(id: number) => boolean} has
 * @param {(id: number) => void} choose
 */
export function showFindings(node, explanation, has, choose) {
  if (!explanation) {
    fill(node, el('p', { class: 'note' }, 'No findings were computed for this page.'));
    return;
  }
  if (explanation.executions === 0) {
    const note = el('p', { class: 'note' }, 'No operation ended in this recording, so there is nothing to explain.');
    fill(node, outside(explanation.between), note);
    return;
  }
  const findings = explanation.findings ?? [];
  fill(
    node,
    explanation.account ? parts(explanation.account, has, choose) : null,
    outside(explanation.between),
    findings.length === 0
      ? el('p', { class: 'note' }, 'No finding: no cause that is known by name took a noticeable part of the time.')
      : [
          ...findings.map((finding, i) => entry(finding, i < CLOSED_AFTER, has, choose)),
          el('p', { class: 'note' }, 'Findings overlap: their times do not add up.'),
        ],
  );
}
