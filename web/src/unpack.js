// Columns as stored in the page: deflated bytes in Base64, each column at its offset (see crates/report/src/pack.rs).
// Columns written as plain lists, as in short pages and tests, are read directly.

/** @import { Numbers, Place } from './types.js' */

const NONE = new Uint8Array(0);

/**
 * The bytes of all columns.
 * @param {string | undefined} packed
 */
export async function inflated(packed) {
  if (!packed) return NONE;
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The number of rows of a column.
 * @param {Numbers | Place | undefined} column
 */
export function rowsOf(column) {
  if (!column) return 0;
  return Array.isArray(column) ? column.length : column.rows;
}

/**
 * Fills `into` with a column's numbers; without a column, `into` keeps its contents. Ends are relative to `starts`,
 * which `shift` has already been subtracted from.
 * @template {Float64Array | Int32Array} Column
 * @param {Uint8Array} bytes
 * @param {Numbers | Place | undefined} column
 * @param {Column} into
 * @param {number} shift
 * @param {Float64Array | null} starts
 * @returns {Column}
 */
export function fillColumn(bytes, column, into, shift = 0, starts = null) {
  if (!column) return into;
  if (Array.isArray(column)) {
    column.forEach((value, i) => {
      if (value !== null && i < into.length) into[i] = Number(value) - shift;
    });
    return into;
  }
  const rows = Math.min(column.rows, into.length);
  if (column.form === 'reals') {
    const view = new DataView(bytes.buffer, bytes.byteOffset + column.at);
    for (let row = 0; row < rows; row += 1) {
      const value = view.getFloat64(row * 8, true);
      if (!Number.isNaN(value)) into[row] = value - shift;
    }
    return into;
  }
  const lengths = column.form === 'lengths';
  let { at } = column;
  let before = 0;
  for (let row = 0; row < rows; row += 1) {
    const byte = bytes[at++];
    let step = 0;
    if (byte < 0x80) {
      if (byte === 0) continue;
      step = ((byte - 1) >> 1) ^ -((byte - 1) & 1);
    } else {
      let code = byte & 0x7f;
      let next = byte;
      for (let shift = 7; next >= 0x80 && shift < 28; shift += 7) {
        next = bytes[at++];
        code |= (next & 0x7f) << shift;
      }
      // Above 28 bits, shifts are no longer exact; multiplication is.
      for (let scale = 2 ** 28; next >= 0x80; scale *= 128) {
        next = bytes[at++];
        code += (next & 0x7f) * scale;
      }
      code -= 1;
      if (code < 2 ** 31) step = (code >> 1) ^ -(code & 1);
      else step = code % 2 === 0 ? code / 2 : -(code + 1) / 2;
    }
    if (lengths) into[row] = (starts === null ? 0 : starts[row]) + step;
    else {
      before += step;
      into[row] = before - shift;
    }
  }
  return into;
}
