// Translates pointer, wheel and keys into changes of the visible window and of the selection. The wheel alone scrolls the page,
// as a reader expects, until the timeline has the focus; the wheel with Ctrl, and pinching, always zoom.

import { panned, zoomed } from './scale.js';

/** @typedef { { from: number, to: number } } View */

const CLICK_PIXELS = 4;
const WHEEL_STEP = 0.0016;
const LINE_PIXELS = 16;

/**
 * Handles pointer, wheel and keys; `act.step` takes 1 or -1.
 * @param {HTMLCanvasElement} canvas
 * @param { { timeAt(x: number): number, plotWidth: number } } timeline
 * @param { { view(): View, setView(view: View): void, hover(x: number, y: number): void, leave(): void, choose(x: number, y: number): void, clear(): void, step(by: number): void, fit(): void } } act
 */
export function followGestures(canvas, timeline, act) {
  /** @type {Map<number, { x: number, y: number }>} */
  const pointers = new Map();
  let moved = 0;

  /** @param {MouseEvent} event */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) moved = 0;
  });

  canvas.addEventListener('pointermove', (event) => {
    const at = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      act.hover(at.x, at.y);
      return;
    }
    const others = [...pointers.entries()].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
    const view = act.view();
    moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    pointers.set(event.pointerId, at);
    if (moved < CLICK_PIXELS) return;
    act.leave();
    if (others.length === 1) {
      const apart = Math.max(Math.abs(before.x - others[0].x), 8);
      act.setView(
        zoomed(view, apart / Math.max(Math.abs(at.x - others[0].x), 8), timeline.timeAt((at.x + others[0].x) / 2)),
      );
    } else if (others.length === 0) act.setView(panned(view, (before.x - at.x) / timeline.plotWidth));
  });

  /** @param {PointerEvent} event */
  const released = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const at = place(event);
    if (event.type === 'pointerup' && moved < CLICK_PIXELS && pointers.size === 0) act.choose(at.x, at.y);
  };
  canvas.addEventListener('pointerup', released);
  canvas.addEventListener('pointercancel', released);
  canvas.addEventListener('pointerleave', () => act.leave());

  canvas.addEventListener(
    'wheel',
    (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !sideways && document.activeElement !== canvas) return;
      event.preventDefault();
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PIXELS : 1;
      if (sideways) {
        act.setView(panned(act.view(), ((event.deltaX || event.deltaY) * unit) / timeline.plotWidth));
        return;
      }
      const factor = Math.exp(
        Math.max(-300, Math.min(300, event.deltaY * unit)) * WHEEL_STEP * (event.ctrlKey ? 4 : 1),
      );
      act.setView(zoomed(act.view(), factor, timeline.timeAt(place(event).x)));
    },
    { passive: false },
  );

  canvas.addEventListener('dblclick', (event) => {
    act.setView(zoomed(act.view(), 0.4, timeline.timeAt(place(event).x)));
  });

  const centre = () => (act.view().from + act.view().to) / 2;
  /** @type {Record<string, (fast: boolean) => void>} */
  const keys = {
    ArrowLeft: (fast) => act.setView(panned(act.view(), fast ? -0.8 : -0.15)),
    ArrowRight: (fast) => act.setView(panned(act.view(), fast ? 0.8 : 0.15)),
    ArrowUp: () => act.step(-1),
    ArrowDown: () => act.step(1),
    '+': () => act.setView(zoomed(act.view(), 0.6, centre())),
    '=': () => act.setView(zoomed(act.view(), 0.6, centre())),
    '-': () => act.setView(zoomed(act.view(), 1 / 0.6, centre())),
    0: () => act.fit(),
    Escape: () => act.clear(),
  };
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key](event.shiftKey);
  });
}
