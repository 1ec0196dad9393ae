// The page's text: badges, the table of results, further metrics, and how and on what it was measured.

import { count, percent } from './format.js';
import { el, fill, swatch, table } from './dom.js';
import { CAUSE_COLOURS } from './flows.js';
import { valueText } from './plot.js';

/** @import { BenchPage, CellName, Compared, Held, Interval, Side } from './types.js' */

/** @param {CellName} cell */
const parameters = (cell) =>
  Object.entries(cell.parameters)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ') || cell.name;

/**
 * Shows what a reader must know before reading any number.
 * @param {HTMLElement} node
 * @param {BenchPage} page
 */
export function showBadges(node, page) {
  const { results, complete } = page.shown;
  /** @type {HTMLElement[]} */
  const all = [];
  /** @type {(kind: string, text: string) => number} */
  const add = (kind, text) => all.push(el('a', { class: `badge ${kind}`, href: '#table' }, text));
  if (!complete) add('bad', 'interrupted');
  if (results.some((cell) => cell.quick)) add('warn', 'quick run');
  const failed = results.reduce((sum, cell) => sum + cell.failed, 0);
  if (failed > 0) add('bad', `${count(failed)} processes failed`);
  const gates = results.reduce(
    (sum, cell) => sum + Object.values(cell.gates).filter((gate) => gate.failed > 0).length,
    0,
  );
  if (gates > 0) add('warn', 'gates not passed');
  const measured = results.filter((cell) => cell.processes > 0);
  if (measured.length > 0 && measured.every((cell) => cell.verified === true)) add('good', 'every result verified');
  else if (measured.length > 0) add('warn', 'not every result verified');
  fill(node, all);
}

/** @type {[string, string][]} */
const HEADLINES = [
  ['Device', 'device.model'],
  ['CPU', 'cpu.model'],
  ['Governor', 'cpu.governor'],
  ['Kernel', 'kernel.release'],
  ['File system', 'fs.type'],
  ['Disk', 'disk.name'],
];

/**
 * @param {HTMLElement} node
 * @param {BenchPage} page
 */
export function showFacts(node, page) {
  const known = page.shown.environment;
  const shown = HEADLINES.filter(([, name]) => known[name]?.value);
  fill(
    node,
    shown.map(([term, name]) => el('div', {}, el('dt', {}, term), el('dd', {}, known[name].value))),
  );
}

/** @param {Record<string, Record<string, number>>} gates */
function gatesText(gates) {
  return Object.entries(gates)
    .filter(([, states]) => states.failed > 0)
    .map(([name, states]) => `${name} not passed ${count(states.failed)} times`)
    .join('; ');
}

/**
 * @param {HTMLElement} node
 * @param {BenchPage} page
 */
export function showResults(node, page) {
  const rows = page.shown.results.map((cell) => [
    `${cell.workload} ${parameters(cell)}`,
    valueText(cell.estimate, cell.unit),
    cell.ci95 ? `${valueText(cell.ci95[0], cell.unit)} to ${valueText(cell.ci95[1], cell.unit)}` : '',
    cell.class ?? '',
    count(cell.processes),
    cell.failed > 0 ? `${count(cell.failed)}: ${cell.failure ?? ''}` : '',
    cell.outliers > 0 ? `${count(cell.outliers)} of ${count(cell.iterations)}` : '',
    gatesText(cell.gates),
    cell.verified === true ? (cell.verified_by ?? 'yes') : cell.verified === false ? 'no' : '–',
    cell.absent ?? '',
  ]);
  const columns = [
    { name: 'Cell' },
    { name: 'score', number: true },
    { name: '95 % interval', number: true },
    { name: 'class', title: 'what processes do over their iterations' },
    { name: 'processes', number: true },
    { name: 'failed' },
    { name: 'outliers', number: true },
    { name: 'gates' },
    { name: 'checked' },
    { name: 'reason' },
  ];
  // Drop columns that are empty in every row.
  const used = columns.map((_, at) => rows.length === 0 || rows.some((row) => row[at] !== ''));
  /** @type {<T>(list: T[]) => T[]} */
  const kept = (list) => list.filter((_, at) => used[at]);
  fill(node, table('Every cell', kept(columns), rows.map(kept)));
}

/**
 * Shows another benchmark's cells beside these, and what differed between the machines.
 * @param {(id: string) => HTMLElement} byId
 * @param {Compared | null} compared
 */
export function showBeside(byId, compared) {
  if (!compared) return;
  /** @param {Interval} interval */
  const interval = ([low, high]) => `${low.toPrecision(4)} to ${high.toPrecision(4)}`;
  /** @type {(side: Side, unit: string) => string} */
  const score = (side, unit) => (side.estimate === null ? '–' : valueText(side.estimate, unit));
  /** @param {CellName} cell */
  const named = (cell) => [cell.workload, parameters(cell), cell.score].filter(Boolean).join(' ');
  const rows = compared.results.map((pair) => [
    named(pair),
    score(pair.a, pair.unit),
    score(pair.b, pair.unit),
    pair.ratio === null ? '–' : pair.ratio.toPrecision(4),
    pair.ratio_ci95 ? interval(pair.ratio_ci_adjusted ?? pair.ratio_ci95) : '',
    pair.verdict,
    pair.notes.join('; '),
  ]);
  const columns = [
    { name: 'Cell' },
    { name: 'A', number: true },
    { name: 'B', number: true },
    { name: 'B / A', number: true },
    { name: '95 % interval', number: true },
    { name: 'B is' },
    { name: 'notes' },
  ];
  const alone = compared.unmatched.map((cell) => `${cell.of.toUpperCase()}: ${named(cell)}`);
  const apart = compared.incomparable.map((cell) => `${named(cell)} (${cell.why.join('; ')})`);
  const said = [`A: ${compared.a}. B: ${compared.b}, which the rest of this page shows.`, compared.scope];
  if (alone.length > 0) said.push(`In one of them only: ${alone.join('; ')}.`);
  if (apart.length > 0) said.push(`Not comparable: ${apart.join('; ')}.`);
  byId('beside-scope').textContent = said.join(' ');
  fill(byId('beside-cells'), table('Cells of both', columns, rows));
  const differs = compared.differs.map((fact) => [fact.fact, fact.a, fact.b, fact.varies]);
  const facts = [{ name: 'Fact' }, { name: 'A' }, { name: 'B' }, { name: 'varies by' }];
  fill(byId('beside-differs'), table('Differences between the machines', facts, differs));
  byId('beside').hidden = false;
}

/**
 * Shows what limited network runs: one table per direction, in the colours that shade the flows.
 * @param {HTMLElement} node
 * @param {Held[]} held
 */
export function showHeld(node, held) {
  const columns = [{ name: 'Cause' }, { name: 'share', number: true }, { name: 'evidence' }, { name: 'remedy' }];
  /** @param {Held} held */
  const one = ({ run, direction, limits }) => {
    const rows = limits.map((limit) => [
      el('span', { class: 'cause' }, swatch(CAUSE_COLOURS[limit.cause] ?? 'block'), limit.cause),
      percent(limit.share),
      limit.evidence,
      limit.remedy ?? '–',
    ]);
    return table([run, direction].filter(Boolean).join(', '), columns, rows);
  };
  fill(node, held.map(one));
}

/**
 * @param {HTMLElement} node
 * @param {BenchPage} page
 */
export function showMetrics(node, page) {
  const rows = page.metrics.map((metric) => [
    metric.title,
    metric.metric,
    valueText(metric.mean, metric.unit),
    `${valueText(metric.range[0], metric.unit)} to ${valueText(metric.range[1], metric.unit)}`,
  ]);
  const columns = [
    { name: 'Cell' },
    { name: 'metric' },
    { name: 'mean', number: true },
    { name: 'range of processes', number: true },
  ];
  fill(
    node,
    rows.length > 0
      ? el(
          'details',
          {},
          el('summary', {}, 'Further metrics of the processes'),
          table('Further metrics', columns, rows),
        )
      : null,
  );
}

/**
 * @param {{ designs: HTMLElement, said: HTMLElement, environment: HTMLElement }} nodes
 * @param {BenchPage} page
 */
export function showHow(nodes, page) {
  fill(
    nodes.designs,
    page.designs
      .map((design) => [
        el('h3', {}, design.name),
        el('p', {}, design.question),
        design.method.map((sentence) => el('p', { class: 'note' }, sentence)),
      ])
      .flat(2),
  );
  const marks = page.shown.results.flatMap((cell) =>
    Object.entries(cell.marks)
      .filter(([name]) => !name.startsWith('limited_by '))
      .map(([name, text]) => [`${cell.workload} ${parameters(cell)}`, name, text]),
  );
  marks.unshift(...page.shown.marks.map((mark) => ['the whole run', mark.name, mark.text]));
  const columns = [{ name: 'Cell' }, { name: 'mark' }, { name: 'reported by all its processes' }];
  fill(nodes.said, marks.length > 0 ? table('Execution modes reported by the processes', columns, marks) : null);
  const facts = Object.entries(page.shown.environment).map(([name, fact]) => [
    name,
    fact.value === null || fact.value === undefined
      ? `unknown: ${fact.unknown ?? 'not read'}`
      : `${fact.value} ${fact.unit ?? ''}`,
    fact.source,
    fact.varies ? `a ${fact.varies}` : '',
  ]);
  const heads = [{ name: 'Fact' }, { name: 'Value' }, { name: 'read from' }, { name: 'holds for' }];
  fill(
    nodes.environment,
    facts.length > 0 ? table('The machine', heads, facts) : el('p', { class: 'note' }, 'No facts about the machine.'),
  );
}
