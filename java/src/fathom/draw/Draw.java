package fathom.draw;

import fathom.Clock;
import fathom.Load;
import fathom.Measured;
import fathom.Options;
import fathom.Series;
import fathom.WrongResult;
import fathom.proof.Mode;
import java.lang.reflect.InvocationTargetException;

/**
 * Draws one shape repeatedly, at positions and in colours of a fixed sequence (paper 000, section 4.4). Before and
 * after, one of each is drawn alone and its pixels are checked by arithmetic; after each iteration a checksum over a
 * sample of the image must equal that of the first, since every iteration draws the same.
 */
public final class Draw implements Load {
    private static final int BLACK = 0xff000000;
    /** Colours that every format represents exactly. */
    private static final int[] COLOURS = {0xffffffff, 0xffff0000, 0xff00ff00, 0xff0000ff, 0xffffff00, 0xff00ffff};

    private final Surface surface;
    private final String shape;
    private final boolean antialias;
    private final int width;
    private final int height;
    private final int extent;
    private long sum;
    private long sumOf;
    private long drawn;

    Draw(Surface surface, String shape, boolean antialias, int width, int height, int extent) {
        this.surface = surface;
        this.shape = shape;
        this.antialias = antialias;
        this.width = width;
        this.height = height;
        this.extent = extent;
    }

    public static Measured measure(Options options, Clock clock) throws WrongResult {
        long[] size = options.numbers("size");
        boolean antialias = options.text("antialias").equals("on");
        Surface surface = surface((int) size[0], (int) size[1], options.text("format"), antialias);
        int extent = (int) options.number("extent", 100);
        Draw draw = new Draw(surface, options.text("shape"), antialias, (int) size[0], (int) size[1], extent);
        return Series.run(new Load[] {draw}, "figure", options, clock);
    }

    private static Surface surface(int width, int height, String format, boolean antialias) {
        if (!Mode.isAndroid()) {
            return new Java2d(width, height, format, antialias);
        }
        // Only compiled for a device; see java/android.
        try {
            Class<?> type = Class.forName("fathom.draw.AndroidCanvas");
            return (Surface) type.getConstructor(int.class, int.class, String.class, boolean.class)
                    .newInstance(width, height, format, antialias);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof IllegalArgumentException) {
                throw(IllegalArgumentException) e.getCause();
            }
            throw new IllegalStateException("Android's canvas does not work here: " + e.getCause(), e);
        } catch (ReflectiveOperationException | LinkageError e) {
            throw new IllegalStateException("Android's canvas is not here: " + e, e);
        }
    }

    /** Draws the first `count` figures of the sequence. */
    private void figures(long count) {
        int random = 101010;
        int wide = width - extent;
        int high = height - extent;
        for (long i = 0; i < count; i++) {
            random = random * 1103515245 + 12345;
            int x = (random >>> 8) % wide;
            random = random * 1103515245 + 12345;
            int y = (random >>> 8) % high;
            int colour = COLOURS[(int) (i % COLOURS.length)];
            switch (shape) {
                case "rect":
                    surface.rect(x, y, extent, extent, colour);
                    break;
                case "line":
                    // From the left, up or down, at one of many slopes.
                    int rise = (random >>> 4) % extent;
                    surface.line(x, y + rise, x + extent - 1, y + extent - 1 - rise, colour);
                    break;
                default:
                    surface.circle(x + extent / 2, y + extent / 2, extent / 2, colour);
                    break;
            }
        }
    }

    @Override
    public String name() {
        return shape;
    }

    @Override
    public String hotMethod() {
        return "fathom.draw.Draw.figures";
    }

    @Override
    public double work() {
        return 1;
    }

    @Override
    public void run(long inner, Clock clock, long[] time) throws WrongResult {
        surface.clear(BLACK);
        time[0] = clock.now();
        figures(inner);
        time[1] = clock.now() - time[0];
        drawn += inner;
        long now = sum();
        if (sumOf == inner && sum != now) {
            throw new WrongResult("the same " + inner + " figures gave another image");
        }
        sumOf = inner;
        sum = now;
    }

    /** Returns the checksum of every 13th pixel of every 7th row. */
    private long sum() {
        long all = 0xcbf29ce484222325L;
        for (int y = 0; y < height; y += 7) {
            for (int x = 0; x < width; x += 13) {
                all = (all ^ surface.pixel(x, y)) * 0x00000100000001b3L;
            }
        }
        return all;
    }

    @Override
    public String check() throws WrongResult {
        return surface.describe() + "; " + new Pixels(surface, width, height, antialias).check(shape, extent);
    }

    @Override
    public String left() throws WrongResult {
        surface.clear(BLACK);
        figures(sumOf);
        if (sum() != sum) {
            throw new WrongResult("the same " + sumOf + " figures gave another image");
        }
        return String.format("%d figures, sum of the image %016x", drawn, sum);
    }
}
