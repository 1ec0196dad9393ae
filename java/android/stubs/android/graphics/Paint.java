package android.graphics;

/**
 * Only compiled against, never shipped: the part of Android's class that the canvas uses, with Android's own
 * signatures.
 */
public class Paint {
    public void setAntiAlias(boolean aa) {}

    public final boolean isAntiAlias() {
        throw new UnsupportedOperationException();
    }

    public void setStyle(Style style) {}

    public void setStrokeWidth(float width) {}

    public void setColor(int color) {}

    public enum Style { FILL, STROKE }
}
