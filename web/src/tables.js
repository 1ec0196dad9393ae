// The numbers of `fathom show` per statement: time by layer, the counts at each layer, the gaps between phases,
// and the account of the device's commands.

import { bytes, count, duration, mean, percent } from './format.js';
import { el, fill, swatch, table, terms } from './dom.js';
import { depthChart, deviceTimes, distributionBars } from './times.js';

/** @import { Child } from './dom.js' */
/** @import { Counts, DiskCommands, FileUse, LayerTime, OperationSummary, SlowWait, StatementCounts, Summary } from './types.js' */
/** @typedef { LayerTime & { name: string, ns: number } } NamedTime */

const LAYERS = ['App', 'Database', 'Syscall', 'FileSystem', 'Block', 'IoScheduler', 'Driver', 'RunQueue', 'Tracer'];
const OPEN_AT_FIRST = 3;
/** Of the processes that caused commands outside of operations, only this many are listed: a build starts thousands. */
const MOST_PROCESSES = 20;

/**
 * Layers with time in them, from the application down, and the time that no slice explains.
 * @param {OperationSummary} operation
 */
function layerTimes(operation) {
  const layers = operation.layers ?? {};
  const names = [
    ...LAYERS.filter((name) => name in layers),
    ...Object.keys(layers).filter((name) => !LAYERS.includes(name)),
  ];
  /** @type {NamedTime[]} */
  const times = names
    .map((name) => ({ name, ...layers[name], ns: layers[name].exclusive_ns ?? 0 }))
    .filter((layer) => layer.ns > 0);
  if (operation.unexplained_ns > 0) times.push({ name: 'unexplained', ns: operation.unexplained_ns });
  return { times, sum: times.reduce((total, layer) => total + layer.ns, 0) };
}

/**
 * What the thread did or waited for, longest first: "device 80 %, flush 20 %".
 * @param {NamedTime} time
 */
function reasonsOf(time) {
  const reasons = Object.entries(time.reasons ?? {})
    .filter(([, ns]) => ns > 0)
    .sort((a, b) => b[1] - a[1]);
  return reasons.length === 1
    ? reasons[0][0]
    : reasons.map(([reason, ns]) => `${reason} ${percent(ns / time.ns)}`).join(', ');
}

/**
 * Time by layer as a bar and in numbers. The exclusive times of all executions add up to their latencies.
 * @param {OperationSummary} operation
 * @returns {HTMLElement[]}
 */
function timePart(operation) {
  const { times, sum } = layerTimes(operation);
  if (sum === 0) return [el('p', { class: 'note' }, 'Its time was not split into layers.')];
  const said = times.map((t) => `${t.name} ${percent(t.ns / sum)}`).join(', ');
  const rows = times.map((t) => [
    el('span', {}, swatch(t.name), t.name),
    duration(t.p50_ns),
    duration(t.p95_ns),
    duration(t.ns),
    percent(t.ns / sum),
    reasonsOf(t),
  ]);
  return [
    el(
      'div',
      { class: 'bar', role: 'img', 'aria-label': `Time by layer: ${said}` },
      times.map((t) =>
        el('i', {
          class: `layer-${t.name.toLowerCase()}`,
          style: { width: `${(100 * t.ns) / sum}%` },
          title: `${t.name}: ${percent(t.ns / sum)}`,
        }),
      ),
    ),
    table(
      'Time by layer; each nanosecond belongs to the deepest layer that was waited on',
      [
        { name: 'Layer' },
        { name: 'median', number: true },
        { name: 'p95', number: true },
        { name: 'sum', number: true },
        { name: 'share', number: true },
        { name: 'state' },
      ],
      rows,
    ),
    ...waitsPart(operation),
    ...slowWaitsPart(operation),
    ...tracerPart(operation),
  ];
}

/**
 * What the statement waited for besides the disk, and what ended the wait.
 * @param {OperationSummary} operation
 */
function waitsPart(operation) {
  const waits = operation.waits ?? [];
  if (waits.length === 0) return [];
  return [
    table(
      'What it waited for beside the disk, as far as the kernel tells',
      [
        { name: 'Wait' },
        { name: 'file' },
        { name: 'held or ended by' },
        { name: 'in' },
        { name: 'times', number: true },
        { name: 'sum', number: true },
      ],
      waits.map((w) => [
        w.wait,
        (w.file ?? '').split('/').pop() ?? '',
        w.by_tgid === null ? '' : `${w.by_process ?? ''} (${w.by_tgid})`.trim(),
        w.by_statement ?? '',
        String(w.times),
        duration(w.ns),
      ]),
    ),
  ];
}

/**
 * Functions, each called by the one after it.
 * @param {string[]} functions
 */
export function callers(functions) {
  return functions.join(' ← ');
}

/**
 * The program's functions in a sleep; marked if the last is not the outermost.
 * @param {SlowWait} wait
 */
export function callersInProgram(wait) {
  return callers(wait.program.length > 0 && wait.program_ended !== null ? [...wait.program, '?'] : wait.program);
}

/**
 * Where its threads slept longest, with the longest expanded: call chains are long, and wider than a table column.
 * @param {OperationSummary} operation
 */
function slowWaitsPart(operation) {
  const waits = operation.slow_waits ?? [];
  if (waits.length === 0) return [];
  return [
    el(
      'div',
      { class: 'slow-waits' },
      el('p', {}, 'Where it slept longest: a choice of the longest sleeps, each function called by the one behind it'),
      waits.map((w, i) =>
        el(
          'details',
          { open: i === 0 },
          el(
            'summary',
            {},
            `${duration(w.longest_ns)}${w.call === null ? '' : ` in ${w.call}`}${w.times > 1 ? `, the longest of ${w.times} like it` : ''}`,
          ),
          terms([
            ['program', callersInProgram(w) || `unknown (${w.program_ended ?? 'no function'})`],
            ['ends', w.program.length > 0 ? w.program_ended : null],
            ['kernel', callers(w.kernel)],
          ]),
        ),
      ),
    ),
  ];
}

/**
 * Reports it if the recording itself took more than a tenth of the time.
 * @param {OperationSummary} operation
 */
function tracerPart(operation) {
  const part = operation.tracer;
  if (!part?.large) return [];
  /** @param {number} ns */
  const of = (ns) => percent(ns / (operation.latency_ns?.sum ?? NaN));
  return [
    el(
      'p',
      { class: 'note' },
      el('strong', {}, 'Tracer overhead is high here: '),
      `${of(part.ns)} (${of(part.low_ns)} to ${of(part.high_ns)}) of the latency, by the cost of its probes on this machine. `,
      'Counts are not affected; for times, measure an untraced run.',
    ),
  ];
}

/** @param {StatementCounts | undefined} counts */
function countsPart(counts) {
  if (!counts?.rows?.length) return [];
  let layer = '';
  const rows = counts.rows.map((row) => {
    const head = row.layer === layer ? '' : el('span', {}, swatch(row.layer), row.layer);
    layer = row.layer;
    return [
      head,
      `${row.name}${row.class ? `, ${row.class}` : ''}`,
      mean(row.count),
      row.bytes === null ? '' : bytes(row.bytes),
      row.note ?? '',
    ];
  });
  return [
    table(
      'Counts per execution: means, shared commands by their shares',
      [
        { name: 'Layer' },
        { name: 'What' },
        { name: 'count', number: true },
        { name: 'bytes', number: true },
        { name: '' },
      ],
      rows,
    ),
  ];
}

/**
 * Phases are runs of writes to files of one class without a sync between them.
 * @param {OperationSummary} operation
 */
function gapsPart(operation) {
  const phases = operation.phases ?? [];
  const gaps = operation.gaps ?? [];
  const parts = [];
  if (phases.length > 0) {
    parts.push(
      table(
        'Phases: runs of writes to one class of file, without a sync between them',
        [
          { name: 'Phase' },
          { name: 'writes', number: true },
          { name: 'bytes', number: true },
          { name: 'median', number: true },
          { name: 'p95', number: true },
          { name: 'times', number: true },
        ],
        phases.map((phase) => [
          phase.phase,
          mean(phase.writes),
          bytes(phase.bytes),
          duration(phase.duration_ns?.p50),
          duration(phase.duration_ns?.p95),
          count(phase.count),
        ]),
      ),
    );
  }
  if (gaps.length > 0) {
    parts.push(
      table(
        'Gaps from one phase to the next',
        [
          { name: 'From' },
          { name: 'to' },
          { name: 'fsyncs', number: true },
          { name: 'median', number: true },
          { name: 'p95', number: true },
          { name: 'times', number: true },
        ],
        gaps.map((gap) => [
          gap.from,
          gap.to,
          mean(gap.fsyncs),
          duration(gap.duration_ns?.p50),
          duration(gap.duration_ns?.p95),
          count(gap.count),
        ]),
      ),
    );
  }
  return parts;
}

/**
 * One statement: how long it took, where, and how often each layer was entered.
 * @param {OperationSummary} operation
 * @param {StatementCounts | undefined} counts
 * @param {boolean} open
 */
function statementPart(operation, counts, open) {
  const latency = operation.latency_ns ?? {};
  /** @type {(term: string, value: string) => HTMLElement} */
  const number = (term, value) => el('span', {}, el('small', {}, term), el('b', {}, value));
  return el(
    'details',
    { class: 'statement-part', open },
    el(
      'summary',
      {},
      el('span', { class: 'statement' }, operation.statement ?? ''),
      el(
        'span',
        { class: 'numbers' },
        number('executions', count(operation.count)),
        number('median', duration(latency.p50)),
        number('p95', duration(latency.p95)),
        latency.p99 === undefined ? null : number('p99', duration(latency.p99)),
        latency.max === undefined ? null : number('max', duration(latency.max)),
        number('sum', duration(latency.sum)),
      ),
    ),
    el(
      'div',
      { class: 'columns' },
      el('div', {}, timePart(operation), distributionBars(operation.distribution), gapsPart(operation)),
      el('div', {}, countsPart(counts)),
    ),
  );
}

/**
 * @param {HTMLElement} node
 * @param {Summary} summary
 * @param {Counts} counts
 */
export function showStatements(node, summary, counts) {
  const operations = summary.operations ?? [];
  if (operations.length === 0) {
    fill(node, el('p', { class: 'note' }, 'No operation was recorded.'));
    return;
  }
  const byStatement = new Map((counts.statements ?? []).map((statement) => [statement.statement, statement]));
  fill(
    node,
    operations.map((operation, i) => statementPart(operation, byStatement.get(operation.statement), i < OPEN_AT_FIRST)),
  );
}

/** @type {['attributed' | 'other_processes' | 'tracer' | 'unattributed', string][]} */
const ACCOUNT = [
  ['attributed', 'the recorded operations and processes'],
  ['other_processes', 'other processes'],
  ['tracer', 'tracer (Fathom)'],
  ['unattributed', 'unattributed'],
];

/**
 * Every device command in the window is on one of these lines.
 * @param {HTMLElement} node
 * @param {Summary} summary
 */
export function showAccount(node, summary) {
  const account = summary.device_commands;
  if (!account) {
    fill(node, el('p', { class: 'note' }, 'Device commands were not counted.'));
    return;
  }
  const total = account.total ?? 0;
  const incomplete =
    (account.incomplete ? `; ${count(account.incomplete)} without a completion` : '') +
    (account.untimed ? `; ${count(account.untimed)} of unknown duration` : '');
  /** @type {Child[][]} */
  const rows = [];
  for (const [key, words] of ACCOUNT) {
    const number = account[key];
    if (typeof number !== 'number') continue;
    rows.push([
      `charged to ${words}`,
      mean(number),
      percent(total > 0 ? number / total : 0),
      el(
        'span',
        { class: 'meter', 'aria-hidden': 'true' },
        el('i', { style: { width: `${total > 0 ? (100 * number) / total : 0}%` } }),
      ),
    ]);
  }
  rows.push([`all${incomplete}`, count(total), '', '']);
  const outside = account.processes ?? [];
  const processes = outside
    .slice(0, MOST_PROCESSES)
    .map((process) => [
      process.name || process.origin,
      process.tgid ?? '',
      process.origin,
      mean(process.commands),
      bytes(process.bytes),
    ]);
  fill(
    node,
    table(
      'Origin of the device commands, on the disks that hold the files',
      [{ name: 'Commands' }, { name: 'number', number: true }, { name: 'share', number: true }, { name: '' }],
      rows,
      { class: 'account' },
    ),
    diskTable(account.by_disk ?? {}),
    timesTable(account.by_disk ?? {}),
    processes.length > 0
      ? table(
          'Commands outside of operations',
          [
            { name: 'Process' },
            { name: 'pid', number: true },
            { name: 'origin' },
            { name: 'commands', number: true },
            { name: 'bytes', number: true },
          ],
          processes,
        )
      : null,
    outside.length > processes.length
      ? el('p', { class: 'note' }, `and ${count(outside.length - processes.length)} more, which caused fewer commands`)
      : null,
  );
}

/**
 * Stacked disks carry the same work several times: each disk is counted separately.
 * @param {Record<string, DiskCommands>} disks
 */
function diskTable(disks) {
  const rows = Object.entries(disks).map(([name, disk]) => {
    const kinds = Object.entries(disk.kinds ?? {})
      .filter(([, n]) => n > 0)
      .map(([kind, n]) => `${kind} ${count(n)}`)
      .join(', ');
    return [name, disk.role ?? '', count(disk.total), kinds, bytes(disk.bytes_read), bytes(disk.bytes_written)];
  });
  return rows.length === 0
    ? null
    : table(
        'By disk; each disk of a stack is counted separately',
        [
          { name: 'Disk' },
          { name: 'role' },
          { name: 'commands', number: true },
          { name: 'kinds' },
          { name: 'read', number: true },
          { name: 'written', number: true },
        ],
        rows,
      );
}

/**
 * Queue to issue and issue to completion, as btt names them.
 * @param {Record<string, DiskCommands>} disks
 */
function timesTable(disks) {
  const { rows, depths } = deviceTimes(disks);
  if (rows.length === 0) return null;
  const numbers = ['median', 'p99', 'max'].map((name) => ({ name, number: true }));
  return el(
    'div',
    { class: 'scroll device-times' },
    table(
      'Device times. Q2D: from the first bio of a command to its issue; D2C: from its issue to its completion',
      [
        { name: 'disk' },
        { name: 'kind' },
        { name: 'Q2D', number: true },
        ...numbers,
        { name: 'D2C', number: true },
        ...numbers,
      ],
      rows,
    ),
    depths.map((depth) => el('p', { class: 'note' }, depth)),
    Object.entries(disks).map(([name, disk]) => depthChart(name, disk)),
  );
}

/**
 * The use of all files of one name: a rollback journal is a new file in every transaction.
 * @param {FileUse[]} files
 */
function filesByName(files) {
  /** @type {Map<string, FileUse & { files: number }>} */
  const named = new Map();
  for (const file of files) {
    // Without a name, use the inode.
    const key = [file.class, file.dev, file.path ?? `\u0000${file.ino}`].join('\u0000');
    const sum = named.get(key);
    if (!sum) named.set(key, { ...file, files: 1 });
    else {
      sum.files += 1;
      sum.writes += file.writes;
      sum.bytes_written += file.bytes_written;
      sum.reads += file.reads;
      sum.bytes_read += file.bytes_read;
    }
  }
  return [...named.values()];
}

/**
 * Files that the operations used.
 * @param {HTMLElement} node
 * @param {Summary} summary
 */
export function showFiles(node, summary) {
  const files = summary.files ?? [];
  fill(
    node,
    files.length === 0
      ? null
      : table(
          'Files that the operations read or wrote',
          [
            { name: 'File' },
            { name: 'class' },
            { name: 'count', number: true },
            { name: 'writes', number: true },
            { name: 'bytes', number: true },
            { name: 'reads', number: true },
            { name: 'bytes', number: true },
          ],
          filesByName(files).map((file) => [
            el('span', { class: 'path' }, file.path ?? `inode ${file.ino}: name unknown`),
            file.class,
            el('span', { title: `on device ${file.dev}` }, count(file.files)),
            count(file.writes),
            bytes(file.bytes_written),
            count(file.reads),
            bytes(file.bytes_read),
          ]),
        ),
  );
}
