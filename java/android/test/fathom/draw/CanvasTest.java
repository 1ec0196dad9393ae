package fathom.draw;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import fathom.WrongResult;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Checks Android's canvas by the same arithmetic as Java2D, on Robolectric's real Skia. */
@RunWith(RobolectricTestRunner.class)
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@Config(sdk = 35, manifest = Config.NONE)
public class CanvasTest {
    @Test
    public void everyFigureHasItsPixels() throws WrongResult {
        for (String format : new String[] {"argb-pre", "rgb565"}) {
            for (String shape : new String[] {"rect", "line", "circle"}) {
                for (boolean antialias : new boolean[] {false, true}) {
                    Surface surface = new AndroidCanvas(480, 800, format, antialias);
                    System.out.println(format + ": " + surface.describe() + ": "
                            + new Pixels(surface, 480, 800, antialias).check(shape, 100));
                }
            }
        }
    }

    @Test
    public void aRectangleIsTheSameAsJava2ds() {
        Surface[] both = {new AndroidCanvas(64, 64, "argb-pre", false), new Java2d(64, 64, "argb-pre", false)};
        for (Surface surface : both) {
            surface.clear(0xff000000);
            surface.rect(3, 5, 20, 10, 0xffff0000);
            surface.rect(10, 8, 30, 40, 0xff00ff00);
        }
        for (int y = 0; y < 64; y++) {
            for (int x = 0; x < 64; x++) {
                assertEquals(x + ", " + y, both[1].pixel(x, y), both[0].pixel(x, y));
            }
        }
    }

    @Test
    public void aWrongFigureIsFound() {
        Surface surface = new AndroidCanvas(480, 800, "argb-pre", true);
        assertThrows(WrongResult.class, () -> new Pixels(surface, 480, 800, false).check("circle", 100));
    }
}
