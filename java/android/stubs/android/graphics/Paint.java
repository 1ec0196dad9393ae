package android.graphics;

/** Compiled against only, never shipped: what of Android's class the canvas uses, by Android's own signatures. */
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
