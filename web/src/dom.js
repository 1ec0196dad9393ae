// Elements from data. Text reaches the page here and nowhere else, and only as text: what a traced program or a device
// said can neither become markup nor hide behind control characters.

import { visible } from './format.js';

const SVG = new Set(['svg', 'path', 'rect', 'circle', 'line']);

/** An element with attributes, event handlers (`onclick: f`), a dataset and children (elements or text). */
export function el(tag, attributes = {}, ...children) {
  const node = SVG.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'dataset') Object.assign(node.dataset, value);
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : visible(String(value)));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return node;
}

/**
 * The page's element of that name, of the kind that the page's HTML says.
 * @returns {any}
 */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * The first element that a selector finds, of the kind that the selector says.
 * @returns {any}
 */
export function find(selector) {
  return document.querySelector(selector);
}

/** Replaces what is in an element. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/** A table: columns [{name, title?, number?}] and rows of cells (text or elements). */
export function table(caption, columns, rows, attributes = {}) {
  const heads = columns.map((column) =>
    el('th', { scope: 'col', class: column.number ? 'number' : null, title: column.title }, column.name),
  );
  const body = rows.map((cells) =>
    el(
      'tr',
      {},
      cells.map((cell, i) => {
        const kind = columns[i]?.number ? 'number' : null;
        return i === 0 ? el('th', { scope: 'row', class: kind }, cell) : el('td', { class: kind }, cell);
      }),
    ),
  );
  return el(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', attributes, el('caption', {}, caption), el('thead', {}, el('tr', {}, heads)), el('tbody', {}, body)),
  );
}

/** Pairs of a term and what is said of it; a pair without a value is left out. */
export function terms(pairs) {
  return el(
    'dl',
    { class: 'terms' },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== false && value !== '')
      .flatMap(([term, value]) => [el('dt', {}, term), el('dd', {}, value)]),
  );
}

/** The square of a layer's colour that stands before its name. */
export function swatch(layer) {
  return el('i', { class: `swatch layer-${layer.toLowerCase()}`, 'aria-hidden': 'true' });
}

/** How sure something is, as a word with a mark of one to five steps. */
export function sureness(word, title) {
  return el(
    'span',
    { class: `sure sure-${word}`, title: title ?? `confidence: ${word}` },
    el('i', { 'aria-hidden': 'true' }),
    word,
  );
}
