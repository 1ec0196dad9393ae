package fathom.draw;

import java.awt.Color;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;

/** Java2D on an image in memory: no window, no screen, no graphics card. */
final class Java2d implements Surface {
    private final BufferedImage image;
    private final Graphics2D graphics;
    private final boolean antialias;
    private int last;

    Java2d(int width, int height, String format, boolean antialias) {
        image = new BufferedImage(width, height, type(format));
        graphics = image.createGraphics();
        this.antialias = antialias;
        graphics.setRenderingHint(RenderingHints.KEY_ANTIALIASING,
                antialias ? RenderingHints.VALUE_ANTIALIAS_ON : RenderingHints.VALUE_ANTIALIAS_OFF);
        // Keep pixels at their coordinates; the default may move a shape by half a pixel.
        graphics.setRenderingHint(RenderingHints.KEY_STROKE_CONTROL, RenderingHints.VALUE_STROKE_PURE);
        graphics.setColor(new Color(last, true));
    }

    private static int type(String format) {
        switch (format) {
            case "argb":
                return BufferedImage.TYPE_INT_ARGB;
            case "argb-pre":
                return BufferedImage.TYPE_INT_ARGB_PRE;
            case "rgb":
                return BufferedImage.TYPE_INT_RGB;
            case "rgb565":
                return BufferedImage.TYPE_USHORT_565_RGB;
            default:
                throw new IllegalArgumentException("Java2D has no format " + format);
        }
    }

    private void colour(int colour) {
        if (colour != last) {
            graphics.setColor(new Color(colour, true));
            last = colour;
        }
    }

    @Override
    public void clear(int colour) {
        colour(colour);
        graphics.fillRect(0, 0, image.getWidth(), image.getHeight());
    }

    @Override
    public void rect(int x, int y, int width, int height, int colour) {
        colour(colour);
        graphics.fillRect(x, y, width, height);
    }

    @Override
    public void line(int x0, int y0, int x1, int y1, int colour) {
        colour(colour);
        graphics.drawLine(x0, y0, x1, y1);
    }

    @Override
    public void circle(int x, int y, int r, int colour) {
        colour(colour);
        graphics.fillOval(x - r, y - r, 2 * r, 2 * r);
    }

    @Override
    public int pixel(int x, int y) {
        return image.getRGB(x, y);
    }

    @Override
    public String describe() {
        return "Java2D, image type " + image.getType() + ", antialiasing " + (antialias ? "on" : "off") + ", renderer "
                + System.getProperty("sun.java2d.renderer", "the JDK's own");
    }
}
