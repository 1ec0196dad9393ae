import java.awt.Color;
import java.awt.Graphics2D;
import java.awt.image.BufferedImage;

/**
 * Rectangles on an image in memory again, written independently of Fathom's: direct calls, without the surface
 * interface. One line of JSON per iteration.
 *
 *     javac Rectangles.java && java Rectangles ITERATIONS FIGURES
 */
public class Rectangles {
    public static void main(String[] words) {
        int iterations = Integer.parseInt(words[0]);
        int figures = Integer.parseInt(words[1]);
        BufferedImage image = new BufferedImage(480, 800, BufferedImage.TYPE_INT_ARGB_PRE);
        Graphics2D canvas = image.createGraphics();
        Color[] colours = {Color.WHITE, Color.RED, Color.GREEN, Color.BLUE, Color.YELLOW, Color.CYAN};
        long[] ns = new long[iterations];
        int random = 1;
        int last = 0;
        for (int n = 0; n < iterations; n++) {
            long begin = System.nanoTime();
            for (int i = 0; i < figures; i++) {
                random = random * 1664525 + 1013904223;
                int x = (random >>> 9) % 380;
                random = random * 1664525 + 1013904223;
                int y = (random >>> 9) % 700;
                canvas.setColor(colours[i % colours.length]);
                canvas.fillRect(x, y, 100, 100);
                last = x + 480 * y;
            }
            ns[n] = System.nanoTime() - begin;
        }
        Color painted = new Color(image.getRGB(last % 480, last / 480));
        boolean right = painted.equals(colours[(figures - 1) % colours.length]);
        for (long v : ns) {
            System.out.println("{\"metric\":\"iteration\",\"unit\":\"ns\",\"v\":" + v + "}");
        }
        System.out.println("{\"verified\":" + right + ",\"by\":\"the last rectangle has its colour\"}");
        System.exit(right ? 0 : 1);
    }
}
