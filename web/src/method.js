// How the figures were obtained: the header's facts and badges, coverage, losses, the confidence of links, and
// everything known about the device under test.

import { count, duration, mean, moment, percent } from './format.js';
import { el, fill, sureness, table } from './dom.js';
import { CONFIDENCES } from './data.js';

/** @import { PageOf, Trace } from './data.js' */
/** @import { Completeness, Fact, Loss, Probe, Summary } from './types.js' */

/**
 * A fact's value with its unit, or why it is unknown.
 * @param {Fact | string | number | null | undefined} fact
 */
function said(fact) {
  if (fact === null || fact === undefined) return null;
  if (typeof fact !== 'object') return String(fact);
  if (fact.value === null || fact.value === undefined) return fact.unknown ? `unknown: ${fact.unknown}` : null;
  return `${fact.value}${fact.unit ? ` ${fact.unit}` : ''}`;
}

/**
 * What the header shows of the device; the first known name is used.
 * @type {[string, string[]][]}
 */
const HEADLINES = [
  ['Device', ['device.model', 'device.platform']],
  ['CPU', ['cpu.model', 'cpu.architecture']],
  ['Kernel', ['kernel.release']],
  ['File system', ['fs.type']],
  ['Mount options', ['fs.options']],
  ['Disk', ['disk.name']],
  ['Model', ['disk.model']],
  ['I/O scheduler', ['disk.scheduler']],
  ['Write cache', ['disk.write_cache']],
  ['SQLite', ['sqlite.version']],
  ['Journal mode', ['sqlite.journal_mode']],
];

/**
 * @param {PageOf} page
 * @param {Record<'title' | 'command' | 'facts' | 'badges', HTMLElement>} nodes
 */
export function showHeader(page, nodes) {
  const { summary, trace } = page;
  const environment = summary.environment ?? {};
  const recording = summary.trace ?? {};
  const { start_ns: start = NaN, end_ns: end = NaN } = recording;
  const command = (recording.command ?? []).join(' ') || environment['trace.asked']?.value;
  nodes.title.textContent = page.title;
  fill(nodes.command, command ? el('code', {}, command) : null);
  const facts = HEADLINES.map(([term, names]) => [
    term,
    names.map((name) => said(environment[name])).find((value) => value && !value.startsWith('unknown')),
  ]).filter(([, value], i, all) => value && all.findIndex(([, other]) => other === value) === i);
  facts.push(
    ['Recorded', duration(end > start ? end - start : trace.high - trace.low)],
    ['Operations', count((summary.operations ?? []).reduce((sum, o) => sum + o.count, 0) || trace.operations.count)],
  );
  fill(
    nodes.facts,
    facts.map(([term, value]) => el('div', {}, el('dt', {}, term), el('dd', { title: value }, value))),
  );
  fill(nodes.badges, badges(summary, trace));
}

/**
 * Only an archive that counted its losses may be shown as free of losses.
 * @param {Loss | null | undefined} loss
 * @param {Completeness | undefined} check
 */
function lossBadge(loss, check) {
  if (!loss) return el('a', { class: 'badge warn', href: '#method' }, 'loss unknown');
  if (nothingLost(loss)) {
    if (check?.state === 'checked') return el('a', { class: 'badge good', href: '#method' }, 'no losses');
    if (check?.state === 'failed') return el('a', { class: 'badge bad', href: '#method' }, 'incomplete');
    return el('a', { class: 'badge warn', href: '#method' }, 'completeness not checked');
  }
  return el(
    'a',
    { class: 'badge bad', href: '#method' },
    everyRecordArrived(loss)
      ? `${count(loss.unattributed_commands ?? 0)} commands unattributed`
      : `${loss.at_least ? 'at least ' : ''}${count(loss.events + (loss.events_at_unknown_time ?? 0))} events lost`,
  );
}

/** @param {Loss} loss */
function nothingLost(loss) {
  return everyRecordArrived(loss) && !loss.unattributed_commands;
}

/** @param {Loss} loss */
function everyRecordArrived(loss) {
  return loss.events === 0 && !loss.events_at_unknown_time && !loss.at_least && (loss.intervals ?? []).length === 0;
}

/**
 * Whether a probe was not needed: nothing is missed of a file system that is not present.
 * @param {Probe} probe
 */
function unused(probe) {
  return probe.how === `no ${probe.probe.split('_')[0]} was mounted`;
}

/**
 * @param {Summary} summary
 * @param {Trace} trace
 */
function badges(summary, trace) {
  /** @type {HTMLElement[]} */
  const all = [lossBadge(summary.loss, summary.completeness)];
  if (said(summary.environment?.['virtual.accelerator']) === 'tcg')
    all.push(
      el(
        'a',
        { class: 'badge warn', href: '#method', title: 'an emulated processor (QEMU’s TCG)' },
        'emulated times: order, not speed',
      ),
    );
  if (summary.trace?.complete === false)
    all.push(el('a', { class: 'badge bad', href: '#method' }, 'interrupted recording'));
  const blind = (summary.coverage ?? []).filter((probe) => !probe.attached && !unused(probe));
  if (blind.length > 0)
    all.push(
      el(
        'a',
        { class: 'badge warn', href: '#method' },
        `${count(blind.length)} ${blind.length === 1 ? 'probe' : 'probes'} not attached`,
      ),
    );
  const histogram = histogramOf(summary);
  const total = histogram.reduce((sum, [, n]) => sum + n, 0);
  if (total > 0) {
    const sure = histogram
      .filter(([word]) => word === 'exact' || word === 'structural')
      .reduce((sum, [, n]) => sum + n, 0);
    all.push(
      el(
        'a',
        { class: 'badge', href: '#method' },
        `${percent(sure / total)} of ${count(total)} links exact or structural`,
      ),
    );
  }
  if (trace.leftOut?.why) all.push(el('span', { class: 'badge warn' }, 'spans in part'));
  return all;
}

/**
 * @param {Summary} summary
 * @returns {[string, number][]}
 */
function histogramOf(summary) {
  return [...CONFIDENCES].reverse().map((word) => [word, summary.links?.[word] ?? 0]);
}

/** @type {Record<string, string>} */
const MEANING = {
  exact: 'same kernel object, by its address and lifetime',
  structural: 'by a field of the kernel’s: inode and page, the system call a thread was in',
  interval: 'same thread, within the interval, and nothing was lost in it',
  address: 'same disk and sectors, close in time',
  guess: 'suggested by a name or a pattern',
};

/**
 * @param {Loss | null | undefined} loss
 * @param {Completeness | undefined} check
 * @param {Trace} trace
 */
function lossPart(loss, check, trace) {
  if (!loss) return el('p', { class: 'note' }, 'The archive has no information about losses.');
  if (nothingLost(loss)) {
    const why = check?.why ? `: ${check.why}` : '';
    if (check?.state === 'checked')
      return el('p', {}, 'No losses: every record arrived, and the recording matches each disk’s own statistics.');
    if (check?.state === 'failed')
      return el('p', { class: 'note' }, `No losses were detected, but the disks’ own statistics differ${why}.`);
    return el('p', { class: 'note' }, `No losses were detected; completeness was not checked${why}.`);
  }
  if (everyRecordArrived(loss)) {
    const commands = count(loss.unattributed_commands ?? 0);
    return el(
      'p',
      { class: 'note' },
      `Every record arrived, but the origin of ${commands} device commands is unknown.`,
    );
  }
  const rows = (loss.intervals ?? []).map((lost) => [
    `${lost.source}${lost.program ? ` (${lost.program})` : ''}`,
    lost.cpu ?? 'any',
    moment(lost.start_ns - trace.clock - trace.origin),
    duration(lost.end_ns - lost.start_ns),
    typeof lost.events === 'number' ? `${lost.at_least ? 'at least ' : ''}${count(lost.events)}` : 'unknown',
    count(lost.weakened_links),
  ]);
  if (loss.events_at_unknown_time)
    rows.push(['counted by the recorder', 'any', 'unknown', 'unknown', count(loss.events_at_unknown_time), 'unknown']);
  const columns = [
    { name: 'Source' },
    { name: 'CPU', number: true },
    { name: 'from', number: true },
    { name: 'length', number: true },
    { name: 'events', number: true },
    { name: 'links weakened', number: true },
  ];
  return table('Intervals with losses', columns, rows);
}

/**
 * @param {PageOf} page
 * @param {Record<'confidence' | 'losses' | 'coverage' | 'environment', HTMLElement>} nodes
 */
export function showMethod(page, nodes) {
  const { summary, trace } = page;
  const histogram = histogramOf(summary);
  const total = histogram.reduce((sum, [, n]) => sum + n, 0);
  fill(
    nodes.confidence,
    table(
      'Confidence of the links',
      [
        { name: 'Confidence' },
        { name: 'links', number: true },
        { name: 'share', number: true },
        {
          name: 'commands',
          number: true,
          title: 'device commands charged by a chain whose weakest link is this: sums of shares',
        },
        { name: 'what it means' },
      ],
      histogram.map(([word, n]) => [
        sureness(word),
        count(n),
        total > 0 ? percent(n / total) : '',
        mean(summary.cause_confidence?.[word]),
        MEANING[word],
      ]),
    ),
  );

  fill(
    nodes.losses,
    el('h3', {}, 'Losses'),
    lossPart(summary.loss, summary.completeness, trace),
    trace.leftOut?.why ? el('p', { class: 'note' }, trace.leftOut.why) : null,
  );

  const coverage = summary.coverage ?? [];
  fill(
    nodes.coverage,
    coverage.length === 0
      ? el('p', { class: 'note' }, 'The archive has no list of probes.')
      : table(
          'Coverage: layers and probes',
          [
            { name: 'Layer' },
            { name: 'Probe' },
            { name: 'attached' },
            { name: 'how, or why not' },
            { name: 'runs/s', number: true, title: 'sampled in a part of each second: see tracer.counted' },
            { name: 'missed', number: true },
            { name: 'price', number: true, title: 'mean time per run' },
          ],
          coverage.map((probe) => [
            probe.layer,
            el('code', {}, probe.probe),
            probe.attached ? 'yes' : el('strong', {}, 'no'),
            probe.how,
            typeof probe.runs_per_s === 'number' ? count(Math.round(probe.runs_per_s)) : '',
            count(probe.misses),
            duration(probe.price_ns),
          ]),
        ),
  );

  const blind = summary.blind ?? [];
  if (blind.length > 0)
    nodes.coverage.prepend(
      el(
        'ul',
        { class: 'blind' },
        blind.map((one) =>
          el('li', {}, el('strong', {}, `${one.layer}${one.wholly ? ', no probe attached' : ''}: `), one.means),
        ),
      ),
    );

  const facts = Object.entries(summary.environment ?? {});
  fill(
    nodes.environment,
    facts.length === 0
      ? el('p', { class: 'note' }, 'No facts about the device under test.')
      : table(
          'The device under test',
          [{ name: 'Fact' }, { name: 'Value' }, { name: 'read from' }, { name: 'holds for' }],
          facts.map(([name, fact]) => [
            name,
            said(fact) ?? '',
            fact?.source ?? '',
            fact?.varies ? `a ${fact.varies}` : '',
          ]),
        ),
  );
}
