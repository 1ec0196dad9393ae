// Where each span is drawn. Rust places spans in lanes whose boxes do not overlap; here lanes become rows of pixels,
// and each row can be searched by time.

/** @import { Trace } from './data.js' */
/** @typedef { { layer: string, name: string, first: boolean, head: boolean, group: number, number: number, shown: boolean, spans: Int32Array, reach: Float64Array, y: number, h: number } } Row */
/** @typedef { Trace['levels'][number] } Level */

/** The height of a layer, if its rows allow it. */
const LAYER_ROOM = 96;
const LEAST_LAYER = 20;
export const LAYER_GAP = 9;
const MOST_HIGH = 24;
const LEAST_HIGH = 3;
/** A layer's first rows, in which most of its spans are, stay this high when a deep burst is in view; each group has at least one. */
const LEADING = 8;
const LEADING_HIGH = 9;
/** The height that a group's name needs beside its rows. */
export const NAME_HEIGHT = 12;
/** With more groups than this in a layer, names would make it taller than a screen. */
const MOST_NAMED = 24;

/**
 * Rows from the application down to the device. `first` marks the first row of a layer, `head` the first row of a thread or disk if
 * the layer has several; `layOutRows` sets the position of a row.
 * @param {Trace} trace
 */
export function buildRows(trace) {
  /** @type {Row[]} */
  const rows = [];
  const firstOfLayer = new Int32Array(trace.layers.length + 1);
  trace.layers.forEach((layer, l) => {
    const several = new Set(layer.lanes.map((lane) => lane.group)).size > 1;
    firstOfLayer[l] = rows.length;
    layer.lanes.forEach((lane, i) =>
      rows.push({
        layer: layer.name,
        name: lane.name,
        first: i === 0,
        head: several && lane.group !== layer.lanes[i - 1]?.group,
        group: lane.group,
        number: rows.length,
        shown: true,
        spans: new Int32Array(0),
        reach: new Float64Array(0),
        y: 0,
        h: 0,
      }),
    );
  });
  firstOfLayer[trace.layers.length] = rows.length;
  const { spans } = trace;
  const rowOf = new Int32Array(spans.count);
  const sizes = new Int32Array(rows.length);
  for (let span = 0; span < spans.count; span += 1) {
    const layer = spans.layer[span];
    const row = layer >= 0 && layer < trace.layers.length ? firstOfLayer[layer] + spans.lane[span] : -1;
    rowOf[span] = row < firstOfLayer[layer + 1] ? row : -1;
    if (rowOf[span] >= 0) sizes[rowOf[span]] += 1;
  }
  rows.forEach((row, i) => (row.spans = new Int32Array(sizes[i])));
  sizes.fill(0);
  const { start } = spans;
  let sorted = true;
  let before = -Infinity;
  const order = trace.parts.length > 0 ? trace.inOrder() : null;
  for (let i = 0; i < spans.count; i += 1) {
    const span = order ? order[i] : i;
    const row = rowOf[span];
    if (row >= 0) rows[row].spans[sizes[row]++] = span;
    sorted &&= before <= start[span];
    before = start[span];
  }
  for (const row of rows) {
    if (!sorted) row.spans.sort((a, b) => start[a] - start[b] || trace.endOf(b) - trace.endOf(a));
    row.reach = reachOf(row.spans, trace);
  }
  return { rows, rowOf };
}

/**
 * Whether a row has anything in a time window.
 * @param {Row} row
 * @param {Trace} trace
 * @param {number} from
 * @param {number} to
 */
export function isBusy(row, trace, from, to) {
  const at = firstReaching(row, from);
  return at < row.spans.length && trace.spans.start[row.spans[at]] <= to;
}

/**
 * The cells of a row in a window, as an index range: `cells` are the row's own, by time.
 * @param {Level} level
 * @param {Int32Array} cells
 * @param {number} low the start of the run
 * @param {number} from
 * @param {number} to
 */
export function cellsIn(level, cells, low, from, to) {
  const first = Math.floor((from - low) / level.part);
  let [a, b] = [0, cells.length];
  while (a < b) {
    const middle = (a + b) >> 1;
    if (level.at[cells[middle]] < first) a = middle + 1;
    else b = middle;
  }
  let end = a;
  while (end < cells.length && low + level.at[cells[end]] * level.part <= to) end += 1;
  return cells.subarray(a, end);
}

/**
 * Shows the first row of each layer without a shown one.
 * @param {Row[]} rows
 */
function keepLayers(rows) {
  const layers = new Set(rows.filter((row) => row.shown).map((row) => row.layer));
  for (const row of rows) if (row.first && !layers.has(row.layer)) row.shown = true;
}

/**
 * Positions the shown rows and returns the bands of the layers. Each layer gets about the same height: a few rows are tall enough
 * for text, many still fit on a screen. A layer without a shown row shows its first one, so that no layer vanishes.
 * @param {Row[]} rows
 * @param {number} top
 * @param {number} heading room above the rows of a layer in which names do not fit beside its own
 */
export function layOutRows(rows, top, heading) {
  keepLayers(rows);
  /** @type { { layer: string, top: number, bottom: number }[]} */
  const bands = [];
  let y = top;
  for (let at = 0; at < rows.length;) {
    let end = at + 1;
    while (end < rows.length && !rows[end].first) end += 1;
    const own = rows.slice(at, end);
    const shown = own.filter((row) => row.shown);
    /** @type {Map<number, number>} */
    const inGroup = new Map();
    for (const row of shown) inGroup.set(row.group, (inGroup.get(row.group) ?? 0) + 1);
    const band = { layer: own[0].layer, top: y, bottom: y };
    bands.push(band);
    const named = own.some((row) => row.head);
    if (named) y += heading;
    const pitch = Math.max(LEAST_HIGH, Math.min(MOST_HIGH, LAYER_ROOM / shown.length));
    const least = named && inGroup.size <= MOST_NAMED ? NAME_HEIGHT : 0;
    const leading = inGroup.size <= MOST_NAMED ? Math.max(1, Math.floor(LEADING / inGroup.size)) : 0;
    /** @type {Map<number, number>} */
    const before = new Map();
    for (const row of own) {
      const nth = before.get(row.group) ?? 0;
      if (row.shown) before.set(row.group, nth + 1);
      const high = Math.max(pitch, least / (inGroup.get(row.group) ?? 1), nth < leading ? LEADING_HIGH : 0);
      row.y = row.shown ? y : Math.max(y - high, band.top);
      row.h = high - (high > 6 ? 2 : 0.5);
      if (row.shown) y += high;
    }
    band.bottom = Math.max(y, band.top + LEAST_LAYER);
    y = band.bottom + LAYER_GAP;
    at = end;
  }
  return { bands, bottom: y - LAYER_GAP };
}

/**
 * For each position in the row, the latest end up to it: ascending even where boxes overlap, so that it can be searched.
 * @param {Int32Array} row
 * @param {Trace} trace
 */
function reachOf(row, trace) {
  const reach = new Float64Array(row.length);
  let latest = -Infinity;
  row.forEach((span, i) => {
    latest = Math.max(latest, trace.endOf(span));
    reach[i] = latest;
  });
  return reach;
}

/**
 * The first position in a row at which the span, or one before it, ends at or after the time.
 * @param {Row} row
 * @param {number} time
 */
export function firstReaching(row, time) {
  let low = 0;
  let high = row.reach.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.reach[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The span of a row at a time, within a tolerance; of several the longest, with their number.
 * @param {Row} row
 * @param {Trace} trace
 * @param {number} time
 * @param {number} tolerance
 */
export function spanAt(row, trace, time, tolerance) {
  let found = -1;
  let among = 0;
  for (let i = firstReaching(row, time - tolerance); i < row.spans.length; i += 1) {
    const span = row.spans[i];
    if (trace.spans.start[span] > time + tolerance) break;
    if (trace.endOf(span) < time - tolerance) continue;
    among += 1;
    const inside = trace.spans.start[span] <= time && trace.endOf(span) >= time;
    if (inside) return { span, among: 1 };
    if (found < 0 || trace.endOf(span) - trace.spans.start[span] > trace.endOf(found) - trace.spans.start[found])
      found = span;
  }
  return { span: found, among };
}
