package fathom.draw;

import fathom.WrongResult;

/**
 * Checks one figure on a black surface, pixel by pixel, by arithmetic: how much is covered, how far it reaches, that
 * nothing is painted outside, and whether there are partly covered pixels, which must exist with antialiasing and must
 * not without.
 */
final class Pixels {
    private static final int BLACK = 0xff000000;
    private static final int WHITE = 0xffffffff;

    private final Surface surface;
    private final int width;
    private final int height;
    private final boolean antialias;

    Pixels(Surface surface, int width, int height, boolean antialias) {
        this.surface = surface;
        this.width = width;
        this.height = height;
        this.antialias = antialias;
    }

    String check(String shape, int extent) throws WrongResult {
        int x = (width - extent) / 2;
        int y = (height - extent) / 2;
        surface.clear(BLACK);
        double area;
        double tolerance;
        boolean partial = antialias;
        int reachX = extent;
        int reachY = extent;
        int slack = 0;
        switch (shape) {
            case "rect":
                surface.rect(x, y, extent, extent, WHITE);
                area = (double) extent * extent;
                tolerance = 0;
                // Its sides are on the borders of pixels.
                partial = false;
                break;
            case "line":
                reachY = extent / 2 + 1;
                surface.line(x, y, x + extent - 1, y + extent / 2, WHITE);
                // One pixel per column; an antialiased line covers its length, and may end at the middle of its last
                // pixel.
                double rise = extent / 2;
                area = antialias ? Math.hypot(extent - 1, rise) : extent;
                tolerance = antialias ? 2 + 0.15 * area : 1;
                slack = antialias ? 2 : 1;
                break;
            case "circle":
                int r = extent / 2;
                reachX = 2 * r;
                reachY = 2 * r;
                surface.circle(x + r, y + r, r, WHITE);
                area = Math.PI * r * r;
                // A fraction of the pixels on the rim, of which there are some 5.7 r.
                tolerance = antialias ? 0.01 * area + 4 : 0.8 * r + 4;
                slack = antialias ? 1 : 0;
                break;
            default:
                throw new IllegalArgumentException("no such shape: " + shape);
        }
        return compare(shape, x, y, reachX, reachY, slack, area, tolerance, partial);
    }

    private String compare(String shape, int x, int y, int reachX, int reachY, int slack, double area, double tolerance,
            boolean partial) throws WrongResult {
        int left = width;
        int right = -1;
        int top = height;
        int bottom = -1;
        int parts = 0;
        double covered = 0;
        for (int row = 0; row < height; row++) {
            for (int column = 0; column < width; column++) {
                int colour = surface.pixel(column, row);
                if (colour == BLACK) {
                    continue;
                }
                left = Math.min(left, column);
                right = Math.max(right, column);
                top = Math.min(top, row);
                bottom = Math.max(bottom, row);
                if (colour != WHITE) {
                    parts++;
                }
                covered += (colour & 0xff) / 255.0;
            }
        }
        String text = String.format(java.util.Locale.ROOT,
                "one %s covers %.1f pixels of %.1f expected, columns %d to %d, rows %d to %d, %d in part", shape,
                covered, area, left, right, top, bottom, parts);
        boolean within = Math.abs(left - x) <= slack && Math.abs(right - (x + reachX - 1)) <= slack
                && Math.abs(top - y) <= slack && Math.abs(bottom - (y + reachY - 1)) <= slack;
        if (Math.abs(covered - area) > tolerance || !within || partial != (parts > 0)) {
            throw new WrongResult(text);
        }
        return text;
    }
}
