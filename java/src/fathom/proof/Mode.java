package fathom.proof;

/**
 * How this virtual machine executes bytecode, proven from inside it and not taken from what it was asked for.
 *
 * <p>What can be asked differs between machines, so the questions live in a class of their own for each; a class is
 * loaded only where it belongs, since the other machine lacks what it is made of.
 */
public final class Mode {
    private Mode() {}

    /** Whether this is Android's runtime, which does not judge itself: it shows its {@link #maps}. */
    public static boolean isArt() {
        return System.getProperty("java.vm.name", "?").equals("Dalvik");
    }

    /** Whether Android's framework is here: on its own runtime, or on Robolectric, whose launcher says so. */
    public static boolean isAndroid() {
        return isArt() || robolectric() != null;
    }

    private static String robolectric() {
        return System.getProperty("fathom.robolectric");
    }

    /** What runs this, by its own word. */
    public static String runtime() {
        String version = System.getProperty("java.vm.version", "of no version");
        return isArt()
                ? "Dalvik " + version
                : "Robolectric " + robolectric() + " on " + System.getProperty("java.vm.name", "?") + " " + version;
    }

    /** What Android's runtime shows of itself, for who started it. */
    public static String maps() throws Contradiction {
        return Art.maps();
    }

    /** The proof that the mode is in force, after the work is done; `hot` are the methods that had to do it. */
    public static String prove(String mode, String[] hot) throws Contradiction {
        String machine = System.getProperty("java.vm.name", "?");
        try {
            return mode + ": " + new HotSpot().prove(mode, hot);
        } catch (LinkageError e) {
            throw new Contradiction("this virtual machine (" + machine + ") does not tell how it executes: " + e);
        }
    }

    /** What was found is not what the mode says. */
    public static final class Contradiction extends Exception {
        private static final long serialVersionUID = 1;

        public Contradiction(String message) {
            super(message);
        }
    }
}
