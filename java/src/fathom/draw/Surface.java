package fathom.draw;

/**
 * What can be drawn on, as small as a benchmark needs it: Java2D's image on a host, Android's canvas on a device.
 * Colours are 0xAARRGGBB. Shapes are filled, lines one pixel wide, and coordinates name pixels, from 0 at the top left.
 */
public interface Surface {
    /** Paints every pixel. */
    void clear(int colour);

    /** The pixels from x to x + width - 1 and y to y + height - 1. */
    void rect(int x, int y, int width, int height, int colour);

    /** The pixels from (x0, y0) to (x1, y1). */
    void line(int x0, int y0, int x1, int y1, int colour);

    /** The disc that touches the sides of the square of 2 r pixels whose middle corner is (x, y). */
    void circle(int x, int y, int r, int colour);

    /** The colour of a pixel, as near as the format holds it. */
    int pixel(int x, int y);

    /** What draws, on what. */
    String describe();
}
