package android.graphics;

/**
 * Only compiled against, never shipped: the part of Android's class that the canvas uses, with Android's own
 * signatures.
 */
public class Canvas {
    public Canvas(Bitmap bitmap) {
        throw new UnsupportedOperationException();
    }

    public void drawColor(int color) {}

    public void drawRect(float left, float top, float right, float bottom, Paint paint) {}

    public void drawLine(float startX, float startY, float stopX, float stopY, Paint paint) {}

    public void drawCircle(float cx, float cy, float radius, Paint paint) {}
}
