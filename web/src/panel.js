// The side panel: the selection in words. Each element of its chain shows its file, offset, sector, size, time and the
// confidence that it belongs there.

import { baseName, bytes, count, digits, duration, moment, percent } from './format.js';
import { el, fill, sureness, swatch, terms } from './dom.js';
import { CONFIDENCES } from './data.js';
import { surenessOf, within } from './chain.js';

/** @import { Chain, How } from './chain.js' */
/** @import { Trace } from './data.js' */
/** @typedef { (row: number) => void } Choose */

const SHOWN_AT_FIRST = 12;
const MOST_SHOWN = 2000;
/** SQLite's result codes that are not errors. */
const RESULTS = new Map([
  [100, ' (row)'],
  [101, ' (done)'],
]);

/**
 * What an element refers to, in one short line.
 * @param {Trace} trace
 * @param {number} span
 */
function whereabouts(trace, span) {
  const { spans } = trace;
  const file = trace.fileOf(span);
  const disk = trace.diskOf(span);
  const parts = [];
  if (file) parts.push(el('span', { title: file.path ?? '' }, baseName(file.path ?? 'unnamed file')));
  if (!Number.isNaN(spans.offset[span])) parts.push(el('span', {}, `offset ${count(spans.offset[span])}`));
  if (disk && !Number.isNaN(spans.sector[span]))
    parts.push(el('span', {}, `${disk.name} sector ${count(spans.sector[span])}`));
  else if (disk) parts.push(el('span', {}, disk.name));
  if (spans.bytes[span] > 0) parts.push(el('span', {}, bytes(spans.bytes[span])));
  parts.push(el('span', {}, `at ${moment(spans.start[span])}`));
  return parts;
}

/**
 * @param {Trace} trace
 * @param {How} how
 */
function howItBelongs(trace, how) {
  const word = CONFIDENCES[how.level];
  if (how.link < 0) return sureness(word);
  const relation = trace.text(trace.links.relation[how.link]);
  const weakened = trace.links.weakened[how.link]
    ? '; records were lost in the meantime, so its confidence is one step lower'
    : '';
  const own = CONFIDENCES[trace.links.level[how.link]];
  return sureness(word, `last link: ${relation} (${own})${weakened}; weakest link of the chain: ${word}`);
}

/**
 * @param {Trace} trace
 * @param {number} span
 */
function tookOf(trace, span) {
  const end = trace.spans.end[span];
  return Number.isNaN(end) ? 'end not recorded' : duration(end - trace.spans.start[span]);
}

/**
 * @param {Trace} trace
 * @param {number} span
 * @param {How} how
 * @param {number | undefined} share
 * @param {Choose} choose
 */
function elementItem(trace, span, how, share, choose) {
  return el(
    'li',
    {
      dataset: {
        span: trace.spans.id[span],
        layer: trace.layerOf(span),
        kind: trace.kindOf(span),
        confidence: CONFIDENCES[how.level],
      },
    },
    el(
      'button',
      { type: 'button', class: 'element', onclick: () => choose(span) },
      el(
        'span',
        { class: 'what' },
        trace.labelOf(span),
        share === undefined ? null : el('span', { class: 'share' }, `${percent(share)} charged here`),
      ),
      el('span', { class: 'long' }, tookOf(trace, span)),
      el('span', { class: 'where' }, whereabouts(trace, span)),
      howItBelongs(trace, how),
    ),
  );
}

/**
 * The causes that name an operation, or one that ran inside it.
 * @param {Trace} trace
 * @param {number} operation
 */
function causesOf(trace, operation) {
  return within(trace, operation).flatMap((one) => [...trace.causesOfOperation(one)]);
}

/**
 * The elements of a chain by layer, in time order; long lists expand on demand.
 * @param {Trace} trace
 * @param {Chain} chain
 * @param {Choose} choose
 */
function chainList(trace, chain, choose) {
  /** @type {Map<string, [number, How][]>} */
  const byLayer = new Map(trace.layers.map((layer) => [layer.name, []]));
  for (const [span, how] of chain.elements)
    if (span !== chain.span) byLayer.get(trace.layerOf(span))?.push([span, how]);
  /** @type {Map<number, number>} */
  const shares = new Map();
  if (chain.operation >= 0) {
    for (const cause of causesOf(trace, chain.operation)) {
      const command = trace.causes.command[cause];
      shares.set(command, (shares.get(command) ?? 0) + trace.causes.share[cause]);
    }
  }
  const groups = [];
  for (const [layer, elements] of byLayer) {
    if (elements.length === 0) continue;
    elements.sort(([a], [b]) => trace.spans.start[a] - trace.spans.start[b]);
    const list = el('ol', { class: 'elements' });
    /**
     * @param {number} from
     * @param {number} to
     */
    const items = (from, to) =>
      elements.slice(from, to).map(([span, how]) => elementItem(trace, span, how, shares.get(span), choose));
    list.append(...items(0, SHOWN_AT_FIRST));
    const rest = Math.min(elements.length, MOST_SHOWN);
    /** @type {HTMLButtonElement | false} */
    const more =
      elements.length > SHOWN_AT_FIRST &&
      el(
        'button',
        {
          type: 'button',
          class: 'more',
          onclick: () => {
            list.append(...items(SHOWN_AT_FIRST, rest));
            if (more)
              more.replaceWith(elements.length > rest ? `the first ${count(rest)} of ${count(elements.length)}` : '');
          },
        },
        `show all ${count(elements.length)}`,
      );
    groups.push(
      el(
        'section',
        { class: 'layer', dataset: { layer } },
        el('h4', {}, swatch(layer), layer, el('span', {}, count(elements.length))),
        list,
        more,
      ),
    );
  }
  return groups;
}

/**
 * Where the time of an operation went, as a bar and in numbers.
 * @param {Trace} trace
 * @param {number} operation
 */
export function timeShares(trace, operation) {
  /** @type {Map<string, { ns: number, level: number }>} */
  const sums = new Map();
  let whole = 0;
  for (const slice of trace.slicesOf(operation)) {
    const key = `${trace.text(trace.slices.layer[slice])}\u0000${trace.text(trace.slices.reason[slice])}`;
    const length = trace.slices.end[slice] - trace.slices.start[slice];
    const known = sums.get(key) ?? { ns: 0, level: CONFIDENCES.length - 1 };
    const level = CONFIDENCES.indexOf(trace.text(trace.slices.confidence[slice]));
    sums.set(key, { ns: known.ns + length, level: level < 0 ? known.level : Math.min(known.level, level) });
    whole += length;
  }
  return [...sums]
    .map(([key, { ns, level }]) => ({
      layer: key.split('\u0000')[0],
      reason: key.split('\u0000')[1],
      ns,
      sure: CONFIDENCES[level],
      part: whole > 0 ? ns / whole : 0,
    }))
    .sort((a, b) => b.ns - a.ns);
}

/**
 * @param {Trace} trace
 * @param {number} operation
 */
function timeBar(trace, operation) {
  const shares = timeShares(trace, operation);
  if (!trace.operations.whole[operation]) {
    const [from, to] = [trace.operations.start[operation], trace.operationEnd(operation)].map((ns) => ns / 1e6);
    const range = `--from ${Math.floor(from) / 1e3} --to ${Math.ceil(to) / 1e3}`;
    return [
      el(
        'p',
        { class: 'note', dataset: { whole: 'false' } },
        'This page has no room for all of its spans. This makes a page that has: ',
        el('code', {}, `fathom report ${document.title.replace(/ · Fathom$/, '')} ${range}`),
      ),
    ];
  }
  if (shares.length === 0)
    return [
      el(
        'p',
        { class: 'note' },
        'Its time was not split into layers: the operation’s end or scheduling was not recorded.',
      ),
    ];
  const said = shares.map((s) => `${s.layer} ${s.reason} ${percent(s.part)}`).join(', ');
  return [
    el(
      'div',
      { class: 'bar', role: 'img', 'aria-label': `Time by layer: ${said}` },
      shares.map((s) =>
        el('i', {
          class: `layer-${s.layer.toLowerCase()}${s.reason === 'flush' ? ' hatched' : ''}`,
          style: { width: `${s.part * 100}%` },
          title: `${s.layer}, ${s.reason}: ${duration(s.ns)}`,
        }),
      ),
    ),
    el(
      'table',
      { class: 'plain' },
      el(
        'tbody',
        {},
        shares.map((s) =>
          el(
            'tr',
            {},
            el('th', { scope: 'row' }, swatch(s.layer), s.layer),
            el('td', {}, s.reason),
            el('td', { class: 'number' }, duration(s.ns)),
            el('td', { class: 'number' }, percent(s.part)),
            el('td', {}, sureness(s.sure)),
          ),
        ),
      ),
    ),
  ];
}

/**
 * @param {Trace} trace
 * @param {number} span
 * @param {Choose} chooseOperation
 */
function causeList(trace, span, chooseOperation) {
  const causes = [...trace.causesOfCommand(span)].sort((a, b) => trace.causes.share[b] - trace.causes.share[a]);
  if (causes.length === 0) return [];
  const items = causes.slice(0, MOST_SHOWN).map((cause) => {
    const operation = trace.causes.operation[cause];
    const process = trace.text(trace.causes.process[cause]);
    const name =
      operation >= 0
        ? `${trace.shapeText(operation)} · ${ordinal(trace, operation)}`
        : `${trace.text(trace.causes.origin[cause])}${process ? ` (${process})` : ''}`;
    const share = trace.causes.share[cause];
    const inside = [
      el('span', { class: 'what' }, name),
      el('span', { class: 'long' }, percent(share)),
      el('span', { class: 'meter', 'aria-hidden': 'true' }, el('i', { style: { width: `${share * 100}%` } })),
      el('span', { class: 'where' }, el('span', {}, `by ${trace.text(trace.causes.via[cause]) || 'its thread'}`)),
      sureness(trace.text(trace.causes.confidence[cause])),
    ];
    return el(
      'li',
      { dataset: { cause: operation >= 0 ? trace.operations.id[operation] : '', share: digits(share) } },
      operation >= 0
        ? el('button', { type: 'button', class: 'element', onclick: () => chooseOperation(operation) }, inside)
        : el('div', { class: 'element' }, inside),
    );
  });
  return [
    el('h3', {}, `Causes (${count(causes.length)}; their shares sum to one)`),
    el('ol', { class: 'elements causes' }, items),
  ];
}

/**
 * "execution 12": people count from one.
 * @param {Trace} trace
 * @param {number} operation
 */
export function ordinal(trace, operation) {
  return `execution ${count(trace.operations.nth[operation] + 1)}`;
}

/**
 * @param {Trace} trace
 * @param {number} operation
 */
function charged(trace, operation) {
  let commands = 0;
  let size = 0;
  const touched = new Set();
  for (const cause of causesOf(trace, operation)) {
    const command = trace.causes.command[cause];
    commands += trace.causes.share[cause];
    size += trace.causes.share[cause] * trace.spans.bytes[command];
    touched.add(command);
  }
  if (touched.size === 0) return 'none';
  return `${digits(commands)} (shares of ${count(touched.size)}), ${bytes(Math.round(size))}`;
}

/**
 * The result; SQLite's two codes that are not errors are marked as such.
 * @param {Trace} trace
 * @param {number} operation
 */
function resultOf(trace, operation) {
  const code = trace.operations.result[operation];
  if (Number.isNaN(code)) return null;
  const word = trace.shapes[trace.operations.shape[operation]]?.kind === 'statement' && RESULTS.get(code);
  return `${code}${word || ''}`;
}

/**
 * @param {Trace} trace
 * @param {Chain} chain
 * @param {Choose} chooseOperation
 */
function operationPart(trace, chain, chooseOperation) {
  const { operations } = trace;
  const { operation } = chain;
  const end = operations.end[operation];
  const parent = operations.parent[operation];
  return [
    el('p', { class: 'kicker' }, `Operation · ${ordinal(trace, operation)}`),
    el('h3', { class: 'statement' }, trace.shapeText(operation)),
    terms([
      [
        'Latency',
        el('strong', {}, Number.isNaN(end) ? 'end not recorded' : duration(end - operations.start[operation])),
      ],
      ['Began', moment(operations.start[operation])],
      ['Rows', count(operations.rows[operation])],
      ['Result', resultOf(trace, operation)],
      [
        'Inside',
        parent >= 0 &&
          el(
            'button',
            { type: 'button', class: 'link', onclick: () => chooseOperation(parent) },
            `${trace.shapeText(parent)} · ${ordinal(trace, parent)}`,
          ),
      ],
      ['Device commands', operations.whole[operation] ? charged(trace, operation) : null],
      [
        'Chain',
        operations.whole[operation]
          ? el('span', {}, `${count(chain.elements.size)} elements, weakest link `, sureness(surenessOf(chain)))
          : null,
      ],
    ]),
    el('h3', {}, 'Time by layer'),
    ...timeBar(trace, operation),
  ];
}

/**
 * @param {Trace} trace
 * @param {Chain} chain
 * @param {Choose} chooseOperation
 */
function spanPart(trace, chain, chooseOperation) {
  const { spans } = trace;
  const { span } = chain;
  const [file, disk] = [trace.fileOf(span), trace.diskOf(span)];
  /** @param {'offset' | 'sector' | 'result'} column */
  const number = (column) => (Number.isNaN(spans[column][span]) ? null : count(spans[column][span]));
  const operation = spans.operation[span];
  return [
    el(
      'p',
      { class: 'kicker' },
      trace.isCommand(span) ? 'Device command' : `${trace.layerOf(span)} · ${trace.kindOf(span)}`,
    ),
    el('h3', {}, trace.labelOf(span)),
    terms([
      ['Took', el('strong', {}, tookOf(trace, span))],
      ['Began', moment(spans.start[span])],
      ['File', file && el('span', { class: 'path' }, file.path ?? 'name unknown')],
      ['File class', file?.class],
      ['Offset', number('offset')],
      ['Disk', disk && `${disk.name}${disk.role ? ` (${disk.role})` : ''}`],
      ['Sector', number('sector')],
      ['Size', spans.bytes[span] > 0 ? bytes(spans.bytes[span]) : null],
      ['Flags', trace.text(spans.flags[span])],
      ['Result', number('result')],
      ['Process', trace.threadOf(span) || null],
      [
        'Within',
        operation >= 0 &&
          el(
            'button',
            { type: 'button', class: 'link', onclick: () => chooseOperation(operation) },
            `${trace.shapeText(operation)} · ${ordinal(trace, operation)}`,
          ),
      ],
      ['Chain', el('span', {}, `${count(chain.elements.size)} elements, weakest link `, sureness(surenessOf(chain)))],
    ]),
    ...causeList(trace, span, chooseOperation),
  ];
}

/**
 * Shows a chain, or how to select one.
 * @param {HTMLElement} node
 * @param {Trace} trace
 * @param {Chain | null} chain
 * @param {Choose} choose
 * @param {Choose} chooseOperation
 */
export function showPanel(node, trace, chain, choose, chooseOperation) {
  // The focused element disappears with the old list: the panel itself takes the focus to keep the reader's place.
  if (node.contains(document.activeElement)) node.focus({ preventScroll: true });
  if (!chain) {
    fill(
      node,
      el('p', { class: 'kicker' }, 'Nothing selected'),
      el(
        'p',
        {},
        'Select a box in the timeline, a point in the address map or a row in the list of operations. Its causes and effects, down to the device, are highlighted and listed here.',
      ),
    );
    return;
  }
  const about =
    chain.operation >= 0 ? operationPart(trace, chain, chooseOperation) : spanPart(trace, chain, chooseOperation);
  fill(
    node,
    ...about,
    el('h3', {}, chain.operation >= 0 ? 'Its chain, layer by layer' : 'Its chain, up and down'),
    ...chainList(trace, chain, choose),
  );
  node.scrollTop = 0;
}
