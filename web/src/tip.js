// The page's only tooltip.

import { el, fill } from './dom.js';

export class Tip {
  /** @param {HTMLElement} node */
  constructor(node) {
    this.node = node;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {string} head
   * @param {(string | null | undefined)[]} lines
   */
  show(x, y, head, lines) {
    fill(
      this.node,
      el('strong', {}, head),
      lines.filter(Boolean).map((line) => el('span', {}, line)),
    );
    this.node.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = this.node;
    this.node.style.left = `${Math.max(4, x + 14 + w > innerWidth ? x - w - 10 : x + 14)}px`;
    this.node.style.top = `${Math.max(4, y + 18 + h > innerHeight ? y - h - 10 : y + 18)}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}
