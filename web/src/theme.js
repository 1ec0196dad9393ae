// Colours and fonts of the canvases, read from the style sheet so that both follow the reader's light or dark mode.

/** @type {Map<string, string>} */
const PAINTS = new Map();
/** @type {CSSStyleDeclaration | null} */
let known = null;

/**
 * The value of a custom property of the page.
 * @param {string} name
 */
export function paint(name) {
  let value = PAINTS.get(name);
  if (value === undefined) {
    known ??= getComputedStyle(document.documentElement);
    value = known.getPropertyValue(`--${name}`).trim();
    PAINTS.set(name, value);
  }
  return value;
}

/**
 * Clears the cache and calls back whenever the reader's setting changes.
 * @param {() => void} redraw
 */
export function onThemeChange(redraw) {
  const changed = () => {
    PAINTS.clear();
    known = null;
    redraw();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
  matchMedia('print').addEventListener('change', changed);
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif';
export const FONT_BOLD = `600 ${FONT}`;

/**
 * A layer's colour.
 * @param {string} layer
 */
export function layerPaint(layer) {
  return paint(`layer-${layer.toLowerCase()}`) || paint('muted');
}

/**
 * @param {string} layer
 */
export function layerInk(layer) {
  return paint(`ink-${layer.toLowerCase()}`) || paint('text');
}

/**
 * Scales a canvas to the screen's resolution; returns its context and its size in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function sharpen(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/**
 * Draws diagonal strokes over a box: they mark a flush, and missing data, without relying on colour.
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {string} colour
 */
export function hatch(context, x, y, w, h, colour, gap = 5) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.4;
  context.beginPath();
  const start = Math.floor((x - h) / gap) * gap;
  for (let at = start; at < x + w; at += gap) {
    context.moveTo(at, y + h);
    context.lineTo(at + h, y);
  }
  context.stroke();
  context.restore();
}
