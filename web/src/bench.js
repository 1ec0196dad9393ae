// The benchmark page: figures, curves, numbers, method.

import { byId, el, fill, find } from './dom.js';
import { onThemeChange } from './theme.js';
import { Tip } from './tip.js';
import { Bars } from './bars.js';
import { Lines } from './lines.js';
import { Curves } from './curves.js';
import { Flows } from './flows.js';
import { showBadges, showFacts, showHeld, showHow, showMetrics, showResults, showBeside } from './words.js';

/** @import { Child } from './dom.js' */
/** @import { BenchPage, Figure, Stated } from './types.js' */

/**
 * The figure with its heading and what its paper states; one part per unit.
 * @param {Figure} figure
 * @param {Tip} tip
 * @returns {(Bars | Lines)[]}
 */
function figureParts(figure, tip) {
  if (figure.x && figure.bars.filter((bar) => bar.x !== null && bar.estimate !== null).length > 1)
    return [new Lines(figure, tip)];
  const units = [...new Set(figure.bars.map((bar) => bar.unit))];
  return units.map(
    (unit) =>
      new Bars(
        figure.bars.filter((bar) => bar.unit === unit),
        unit,
        tip,
      ),
  );
}

/**
 * The numbers in the paper's text, with ours beside them.
 * @param {Stated[]} stated
 */
function statedTable(stated) {
  /** @type {(cells: Child[], tag: 'th' | 'td') => HTMLElement} */
  const row = (cells, tag) =>
    el(
      'tr',
      {},
      cells.map((cell, at) => el(tag, at > 0 && at < 3 ? { class: 'number' } : {}, cell)),
    );
  /** @param {number | null} value */
  const number = (value) =>
    value === null ? 'not measured' : value.toLocaleString('en', { maximumSignificantDigits: 3 });
  return el(
    'table',
    { class: 'stated' },
    el('thead', {}, row(['in its text', 'paper', 'ours', 'unit'], 'th')),
    el(
      'tbody',
      {},
      stated.map((s) => row([s.what, number(s.paper), number(s.ours), s.unit], 'td')),
    ),
  );
}

/**
 * @param {Figure} figure
 * @param {(Bars | Lines)[]} parts
 */
function figureNode(figure, parts) {
  const name = figure.paper ? `${figure.paper} figure ${figure.figure}: ` : '';
  return el(
    'figure',
    { class: 'figure', dataset: { figure: figure.paper ? `${figure.paper}/${figure.figure}` : figure.title } },
    el('h3', {}, `${name}${figure.title}`),
    figure.says ? el('p', { class: 'says' }, `The paper, on its machines: ${figure.says}.`) : null,
    figure.stated.length > 0 ? statedTable(figure.stated) : null,
    // Each part omits from its labels what all of its bars share.
    parts.flatMap((part) => [part.canvas, part.shared ? el('p', { class: 'note' }, `All with ${part.shared}.`) : null]),
  );
}

/** @type {BenchPage} */
const page = JSON.parse(byId('data').textContent);
const tip = new Tip(byId('tip'));
const figures = page.figures.map((figure) => ({ figure, parts: figureParts(figure, tip) }));
const curves = page.curves.map((cell) => new Curves(cell, tip));
const flows = page.flows.map((chart) => new Flows(chart, tip));

byId('command').replaceChildren(...(page.command.length > 0 ? [el('code', {}, page.command.join(' '))] : []));
showBadges(byId('badges'), page);
showFacts(byId('facts'), page);
fill(
  byId('scores-body'),
  figures.length > 0
    ? figures.map(({ figure, parts }) => figureNode(figure, parts))
    : el('p', { class: 'note' }, 'Nothing was measured.'),
);
fill(
  byId('curves-body'),
  curves.map((curve) => curve.node),
);
fill(
  byId('flows-body'),
  flows.map((chart) => chart.node),
);
showHeld(byId('held-body'), page.held);
// A section with nothing to show is omitted, and so is the link to it.
/** @type {[string, boolean][]} */
const sections = [
  ['curves', curves.length > 0],
  ['flows', flows.length > 0],
  ['held', page.held.length > 0],
];
for (const [name, there] of sections) {
  byId(name).hidden = !there;
  const way = find(`nav a[href='#${name}']`);
  if (way) way.hidden = !there;
}
showResults(byId('table-body'), page);
showMetrics(byId('metrics'), page);
showBeside(byId, page.compared);
showHow({ designs: byId('designs'), said: byId('said'), environment: byId('environment') }, page);

const draw = () => {
  figures.forEach(({ parts }) => parts.forEach((part) => part.draw()));
  curves.forEach((curve) => curve.draw());
  flows.forEach((chart) => chart.draw());
};
new ResizeObserver(draw).observe(byId('content'));
onThemeChange(draw);
draw();
