package fathom.draw;

import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.Paint;

/** Android's canvas on a bitmap in memory: Skia on the processor, no window and no graphics chip. */
public final class AndroidCanvas implements Surface {
    private final Bitmap bitmap;
    private final Canvas canvas;
    private final Paint fill = new Paint();
    private final Paint stroke = new Paint();

    public AndroidCanvas(int width, int height, String format, boolean antialias) {
        bitmap = Bitmap.createBitmap(width, height, config(format));
        canvas = new Canvas(bitmap);
        fill.setAntiAlias(antialias);
        stroke.setAntiAlias(antialias);
        stroke.setStyle(Paint.Style.STROKE);
        // 0 is a hairline, one pixel in each row or column; a width of 1 would be a bar one pixel thick across its
        // direction.
        stroke.setStrokeWidth(0);
    }

    /** Android always keeps colours premultiplied by alpha. */
    private static Bitmap.Config config(String format) {
        switch (format) {
            case "argb-pre":
                return Bitmap.Config.ARGB_8888;
            case "rgb565":
                return Bitmap.Config.RGB_565;
            default:
                throw new IllegalArgumentException("Android's canvas has argb-pre and rgb565, not " + format);
        }
    }

    @Override
    public void clear(int colour) {
        canvas.drawColor(colour);
    }

    @Override
    public void rect(int x, int y, int width, int height, int colour) {
        fill.setColor(colour);
        canvas.drawRect(x, y, x + width, y + height, fill);
    }

    @Override
    public void line(int x0, int y0, int x1, int y1, int colour) {
        stroke.setColor(colour);
        // Canvas coordinates are between pixels; a pixel's centre is half a pixel further.
        canvas.drawLine(x0 + 0.5f, y0 + 0.5f, x1 + 0.5f, y1 + 0.5f, stroke);
    }

    @Override
    public void circle(int x, int y, int r, int colour) {
        fill.setColor(colour);
        canvas.drawCircle(x, y, r, fill);
    }

    @Override
    public int pixel(int x, int y) {
        return bitmap.getPixel(x, y);
    }

    @Override
    public String describe() {
        return "Android's canvas, bitmap " + bitmap.getConfig() + ", antialiasing "
                + (fill.isAntiAlias() ? "on" : "off");
    }
}
