// Text search: the spans and operations that contain a text, in a statement, a path, a label, a kind or the name of a process
// or a disk. A timeline split into parts is searched part by part.

/** @import { Trace } from './data.js' */
/** @import { Parts } from './parts.js' */
/** @typedef { { spans: number[], inOperation: Uint8Array, done: number } } Found */

/**
 * A case-insensitive search: the matching spans, by their numbers in the whole recording, and the operations that match or have a
 * matching span. `done` is the fraction of the recording searched so far; results are yielded repeatedly until it is 1.
 * @param {Trace} trace
 * @param {Parts} parts
 * @param {string} text
 * @returns {AsyncGenerator<Found>}
 */
export async function* found(trace, parts, text) {
  const wanted = text.toLowerCase();
  /** @param {string | undefined | null} said */
  const has = (said) => !!said && said.toLowerCase().includes(wanted);
  const { operations } = trace;
  const strings = trace.strings.map(has);
  const files = trace.files.map((file) => has(file.path) || has(file.class));
  const disks = trace.disks.map((disk) => has(disk.name));
  const shapes = trace.shapes.map((shape) => has(shape.text));
  const processes = new Set([...trace.processes].filter(([, name]) => has(name)).map(([tgid]) => tgid));
  const inOperation = new Uint8Array(operations.count);
  for (let i = 0; i < operations.count; i += 1) if (shapes[operations.shape[i]]) inOperation[i] = 1;
  /** @type {number[]} */
  const list = [];
  /**
   * @param {Trace['held']} held
   * @param {(span: number) => number} numberOf -1: owned by another part
   */
  const look = ({ spans, causes }, numberOf) => {
    const isFound = new Uint8Array(spans.count);
    for (let span = 0; span < spans.count; span += 1) {
      const hit =
        strings[spans.label[span]] ||
        strings[spans.kind[span]] ||
        strings[spans.flags[span]] ||
        files[spans.file[span]] ||
        disks[spans.disk[span]] ||
        (spans.tgid[span] > 0 && processes.has(spans.tgid[span]));
      if (!hit) continue;
      isFound[span] = 1;
      const number = numberOf(span);
      if (number >= 0) list.push(number);
      if (spans.operation[span] >= 0) inOperation[spans.operation[span]] = 1;
    }
    for (let i = 0; i < causes.count; i += 1)
      if (causes.operation[i] >= 0 && isFound[causes.command[i]]) inOperation[causes.operation[i]] = 1;
  };
  if (!parts.any) {
    look(trace.held, (span) => span);
    yield { spans: list, inOperation, done: 1 };
    return;
  }
  for (let number = 0; number < trace.parts.length; number += 1) {
    const { first, own } = trace.parts[number];
    yield { spans: list, inOperation, done: number / trace.parts.length };
    const { held, rows } = await parts.read(number);
    look(held, (span) => (rows.spans[span] >= first && rows.spans[span] < first + own ? rows.spans[span] : -1));
  }
  yield { spans: list, inOperation, done: 1 };
}
