// Search by text: the spans and operations that a word is found in, be it in a statement, a path, a label, a kind or the name
// of a process or a disk.

/** @import { Trace } from './data.js' */

/**
 * What contains a text, whatever the case: the spans, and which operations do or have a span that does.
 * @param {Trace} trace
 * @param {string} text
 */
export function found(trace, text) {
  const wanted = text.toLowerCase();
  /** @param {string | undefined | null} said */
  const has = (said) => !!said && said.toLowerCase().includes(wanted);
  const { spans, operations, causes } = trace;
  const strings = trace.strings.map(has);
  const files = trace.files.map((file) => has(file.path) || has(file.class));
  const disks = trace.disks.map((disk) => has(disk.name));
  const shapes = trace.shapes.map((shape) => has(shape.text));
  const processes = new Set([...trace.processes].filter(([, name]) => has(name)).map(([tgid]) => tgid));
  const inOperation = new Uint8Array(operations.count);
  const isFound = new Uint8Array(spans.count);
  /** @type {number[]} */
  const list = [];
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
    list.push(span);
    if (spans.operation[span] >= 0) inOperation[spans.operation[span]] = 1;
  }
  for (let i = 0; i < causes.count; i += 1)
    if (causes.operation[i] >= 0 && isFound[causes.command[i]]) inOperation[causes.operation[i]] = 1;
  for (let i = 0; i < operations.count; i += 1) if (shapes[operations.shape[i]]) inOperation[i] = 1;
  return { spans: list, inOperation };
}
