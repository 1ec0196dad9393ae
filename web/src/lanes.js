// Where each span is drawn. Rust has placed spans in lanes whose boxes do not overlap; here lanes become rows of pixels,
// and each row can be searched by time.

/** @import { Trace } from './data.js' */
/** @typedef { { layer: string, name: string, first: boolean, head: boolean, journal: boolean, spans: number[], reach: Float64Array, y: number, h: number } } Row */

const JOURNAL = /^jbd2/;

/**
 * Rows from the application down to the device. `first` marks a layer's first row, `head` that of a thread or disk within
 * it; where a row lies, the timeline says.
 * @param {Trace} trace
 */
export function buildRows(trace) {
  /** @type {Row[]} */
  const rows = [];
  /** @type {Map<string, Row>} */
  const rowAt = new Map();
  trace.layers.forEach((layer, l) => {
    const several = new Set(layer.lanes.map((lane) => lane.group)).size > 1;
    /** @type {number | null} */
    let group = null;
    layer.lanes.forEach((lane, i) => {
      /** @type {Row} */
      const row = {
        layer: layer.name,
        name: lane.name,
        first: i === 0,
        head: several && lane.group !== group,
        journal: JOURNAL.test(lane.name),
        spans: [],
        reach: new Float64Array(0),
        y: 0,
        h: 0,
      };
      group = lane.group;
      rowAt.set(`${l} ${i}`, row);
      rows.push(row);
    });
  });
  const { spans } = trace;
  const order = Array.from({ length: spans.count }, (_, i) => i).sort(
    (a, b) => spans.start[a] - spans.start[b] || trace.endOf(b) - trace.endOf(a),
  );
  for (const span of order) rowAt.get(`${spans.layer[span]} ${spans.lane[span]}`)?.spans.push(span);
  for (const row of rows) row.reach = reachOf(row.spans, trace);
  return rows;
}

/**
 * For each place in the row, the latest end up to it: ascending even where boxes overlap, so that it can be searched.
 * @param {number[]} row
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
 * The first place in a row whose span, or one before it, ends at or after the time.
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
 * The span of a row at a time, give or take a tolerance; of several the longest, with how many there were.
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
