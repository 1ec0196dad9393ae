// Several recordings on one time axis: how long their operations and calls took, and what their disks carried. Rust puts them on
// one clock, or reports why it could not.

import { byId, fill } from './dom.js';
import { Flows } from './flows.js';

/** @import { FlowChart } from './types.js' */
/** @import { Tip } from './tip.js' */

/**
 * Creates the charts; the page draws them.
 * @param {Tip} tip
 * @returns {Flows[]}
 */
export function showTogether(tip) {
  const block = document.querySelector('script.together');
  if (!block) return [];
  /** @type {{ charts: FlowChart[], note: string }} */
  const { charts, note } = JSON.parse(block.textContent);
  const flows = charts.map((chart) => new Flows(chart, tip));
  byId('together').hidden = false;
  byId('together-note').textContent = note;
  fill(
    byId('together-body'),
    flows.map((chart) => chart.node),
  );
  return flows;
}
