package android.graphics;

/**
 * Only compiled against, never shipped: the part of Android's class that the canvas uses, with Android's own
 * signatures.
 */
public final class Bitmap {
    private Bitmap() {}

    public static Bitmap createBitmap(int width, int height, Config config) {
        throw new UnsupportedOperationException();
    }

    public int getPixel(int x, int y) {
        throw new UnsupportedOperationException();
    }

    public Config getConfig() {
        throw new UnsupportedOperationException();
    }

    public enum Config { RGB_565, ARGB_8888 }
}
