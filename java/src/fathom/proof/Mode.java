package fathom.proof;

/**
 * How this virtual machine executes bytecode, proven from inside it instead of assumed from its options.
 *
 * <p>The available interfaces differ between machines, so each has its own class; a class is loaded only on its
 * machine, since the other one lacks the classes that it uses.
 */
public final class Mode {
    private Mode() {}

    /** Whether this is Android's runtime, which does not evaluate itself: it shows its {@link #maps}. */
    public static boolean isArt() {
        return System.getProperty("java.vm.name", "?").equals("Dalvik");
    }

    /**
     * Whether Android's framework is present: on its own runtime, or on Robolectric, whose launcher sets a property.
     */
    public static boolean isAndroid() {
        return isArt() || robolectric() != null;
    }

    private static String robolectric() {
        return System.getProperty("fathom.robolectric");
    }

    /** Returns the name of the virtual machine, as it reports it. */
    public static String runtime() {
        String version = System.getProperty("java.vm.version", "of no version");
        return isArt()
                ? "Dalvik " + version
                : "Robolectric " + robolectric() + " on " + System.getProperty("java.vm.name", "?") + " " + version;
    }

    /** Returns what Android's runtime reveals about itself, for the parent process. */
    public static String maps() throws Contradiction {
        return Art.maps();
    }

    /** Returns the proof that the mode is in force, after the work is done; `hot` are the methods that did it. */
    public static String prove(String mode, String[] hot) throws Contradiction {
        String machine = System.getProperty("java.vm.name", "?");
        try {
            return mode + ": " + new HotSpot().prove(mode, hot);
        } catch (LinkageError e) {
            throw new Contradiction("this virtual machine (" + machine + ") does not tell how it executes: " + e);
        }
    }

    /** The observations contradict the mode. */
    public static final class Contradiction extends Exception {
        private static final long serialVersionUID = 1;

        public Contradiction(String message) {
            super(message);
        }
    }
}
