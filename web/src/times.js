// Distributions of times: a statement's latencies as bars, and how long device commands waited and took, by disk and kind.

import { count, digits, duration } from './format.js';
import { el } from './dom.js';

/** @import { Bin, DiskCommands, Times } from './types.js' */

/**
 * Bars on a logarithmic time axis, one per bin; empty bins keep their place.
 * @param {Bin[] | undefined} bins
 */
export function distributionBars(bins) {
  if (!bins || bins.length === 0) return null;
  const most = bins.reduce((a, bin) => Math.max(a, bin.count), 1);
  /** @param {number} ns */
  const place = (ns) => Math.log2(Math.max(ns, 1));
  const [low, high] = [place(bins[0].from_ns), place(bins[bins.length - 1].to_ns)];
  /** @param {number} ns */
  const x = (ns) => (100 * (place(ns) - low)) / Math.max(high - low, 1e-9);
  return el(
    'figure',
    { class: 'distribution' },
    el(
      'div',
      {
        class: 'bins',
        role: 'img',
        'aria-label': `Latencies from ${duration(bins[0].from_ns)} to ${duration(bins[bins.length - 1].to_ns)}`,
      },
      bins.map((bin) =>
        el('i', {
          dataset: { count: bin.count },
          title: `${count(bin.count)} from ${duration(bin.from_ns)} to ${duration(bin.to_ns)}`,
          style: {
            left: `${x(bin.from_ns)}%`,
            width: `${Math.max(x(bin.to_ns) - x(bin.from_ns), 0.4)}%`,
            height: `${Math.max((100 * bin.count) / most, 3)}%`,
          },
        }),
      ),
    ),
    el(
      'figcaption',
      {},
      el('span', {}, duration(bins[0].from_ns)),
      el('span', {}, 'latency, logarithmic'),
      el('span', {}, duration(bins[bins.length - 1].to_ns)),
    ),
  );
}

/**
 * Rows of the table of device times, and one sentence per disk on its queue depth.
 * @param {Record<string, DiskCommands>} disks
 */
export function deviceTimes(disks) {
  const rows = [];
  const depths = [];
  for (const [name, disk] of Object.entries(disks)) {
    for (const [kind, times] of Object.entries(disk.times ?? {}))
      rows.push([
        name,
        kind,
        ...cells(times.queued, times.queue_to_issue_ns),
        ...cells(times.completed, times.issue_to_complete_ns),
      ]);
    if (disk.depth_max)
      depths.push(
        `${name}: ${digits(disk.depth_mean ?? 0)} commands at the device on average, ${count(disk.depth_max)} at most.`,
      );
  }
  return { rows, depths };
}

/**
 * The queue depth of a disk over the recording: one bar per interval, with the mean in front of the maximum.
 * @param {string} name
 * @param {DiskCommands} disk
 */
export function depthChart(name, disk) {
  const parts = disk.depth_over_time ?? [];
  const most = disk.depth_max ?? 0;
  if (parts.length === 0 || most === 0) return null;
  /**
   * @param {string} which
   * @param {number} value
   */
  const bar = (which, value) => el('i', { class: which, style: { width: '100%', height: `${(100 * value) / most}%` } });
  return el(
    'figure',
    { class: 'depth', dataset: { disk: name, parts: parts.length, most } },
    el(
      'div',
      { class: 'parts', role: 'img', 'aria-label': `Commands at ${name} at once over time, ${count(most)} at most` },
      parts.map((part) =>
        el(
          'span',
          { title: `at ${duration(part.from_ns)}: ${digits(part.mean)} on average, ${count(part.max)} at most` },
          bar('most', part.max),
          bar('mean', part.mean),
        ),
      ),
    ),
    el(
      'figcaption',
      {},
      el('span', {}, '0'),
      el('span', {}, `${name}: commands at the device at once, mean and most (${count(most)})`),
      el('span', {}, duration((parts[parts.length - 1].from_ns * parts.length) / Math.max(parts.length - 1, 1))),
    ),
  );
}

/**
 * @param {number} n
 * @param {Times} times
 */
function cells(n, times) {
  return [count(n), ...[times.p50, times.p99, times.max].map((ns) => (n > 0 && ns !== undefined ? duration(ns) : '–'))];
}
