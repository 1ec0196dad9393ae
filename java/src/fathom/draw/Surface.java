package fathom.draw;

/**
 * The minimal drawing surface that a benchmark needs: Java2D's image on a host, Android's canvas on a device. Colours
 * are 0xAARRGGBB. Shapes are filled, lines are one pixel wide, and coordinates are pixels, from 0 at the top left.
 */
public interface Surface {
    /** Paints every pixel. */
    void clear(int colour);

    /** Fills the pixels from x to x + width - 1 and y to y + height - 1. */
    void rect(int x, int y, int width, int height, int colour);

    /** Draws the pixels from (x0, y0) to (x1, y1). */
    void line(int x0, int y0, int x1, int y1, int colour);

    /** Fills the disc that touches the sides of the square of 2 r pixels whose middle corner is (x, y). */
    void circle(int x, int y, int r, int colour);

    /** Returns the colour of a pixel, as exactly as the format represents it. */
    int pixel(int x, int y);

    /** Describes the library that draws, and its target. */
    String describe();
}
