// Builds elements from data. Text enters the page only here, and only as text: strings from a traced program or a device
// can neither become markup nor hide behind control characters.

import { visible } from './format.js';

/** @typedef { string | number | boolean | null | undefined } Value */
/** @typedef { Node | Value } Child */
/** @typedef { Child | Child[] } Children */
/** @typedef { 'class' | 'title' | 'type' | 'role' | 'tabindex' | 'href' | 'scope' | 'value' | 'open' | 'label' | 'colspan' } Name */
/** @typedef { Partial<Record<Name | `aria-${string}`, Value>> } Plain */
/** @typedef { { dataset?: Record<string, string | number>, style?: { width: string, left?: string, height?: string }, onclick?: () => void, onchange?: () => void } } Special */
/** @typedef { Plain & Special } Attributes */
/** @typedef { { name: string, title?: string, number?: boolean } } Column */
/** @typedef { { 'timeline-canvas': HTMLCanvasElement, 'beside-canvas': HTMLCanvasElement, 'beside-choice': HTMLSelectElement, overview: HTMLCanvasElement, 'scatter-follow': HTMLInputElement, search: HTMLInputElement, 'list-shape': HTMLSelectElement, 'list-order': HTMLSelectElement } & Record<'clear' | 'fit-operation' | 'list-before' | 'list-after' | 'found-before' | 'found-after', HTMLButtonElement> } Kinds */

/**
 * An element with attributes, event handlers (`onclick: f`), a dataset and children (elements or text).
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {Children[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  const { dataset, style, onclick, onchange, ...plain } = attributes;
  if (onclick) node.addEventListener('click', onclick);
  if (onchange) node.addEventListener('change', onchange);
  Object.assign(node.dataset, dataset);
  Object.assign(node.style, style);
  for (const [name, value] of Object.entries(plain)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? '' : visible(String(value)));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return node;
}

/**
 * The page's element with that id, typed as in the page's HTML.
 * @template {string} Id
 * @param {Id} id
 * @returns {Id extends keyof Kinds ? Kinds[Id] : HTMLElement}
 */
export function byId(id) {
  return /** @type {Id extends keyof Kinds ? Kinds[Id] : HTMLElement} */ (document.getElementById(id));
}

/**
 * The first element that matches a selector, if any.
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function find(selector) {
  return document.querySelector(selector);
}

/**
 * Replaces the children of an element.
 * @param {Element} node
 * @param {(Node | string | null | undefined | false | (Node | string | null | undefined | false)[])[]} children
 */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/**
 * A table: columns [{name, title?, number?}] and rows of cells (text or elements).
 * @param {string} caption
 * @param {Column[]} columns
 * @param {Child[][]} rows
 * @param {Attributes} attributes
 */
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
    el(
      'table',
      attributes,
      el('caption', {}, el('span', {}, caption)),
      el('thead', {}, el('tr', {}, heads)),
      el('tbody', {}, body),
    ),
  );
}

/**
 * A list of terms with their values; a pair without a value is omitted.
 * @param {[string, Child][]} pairs
 */
export function terms(pairs) {
  return el(
    'dl',
    { class: 'terms' },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== false && value !== '')
      .flatMap(([term, value]) => [el('dt', {}, term), el('dd', {}, value)]),
  );
}

/**
 * The square in a layer's colour, shown before the layer's name.
 * @param {string} layer
 */
export function swatch(layer) {
  return el('i', { class: `swatch layer-${layer.toLowerCase()}`, 'aria-hidden': 'true' });
}

/**
 * A confidence, as a word with a mark of one to five steps.
 * @param {string} word
 * @param {string} [title]
 */
export function sureness(word, title) {
  return el(
    'span',
    { class: `sure sure-${word}`, title: title ?? `confidence: ${word}` },
    el('i', { 'aria-hidden': 'true' }),
    word,
  );
}
