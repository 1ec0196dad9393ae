package fathom.robolectric;

import fathom.Main;
import org.junit.Test;
import org.junit.runner.JUnitCore;
import org.junit.runner.RunWith;
import org.junit.runner.notification.Failure;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;
import org.robolectric.annotation.SQLiteMode;

/**
 * The program on Robolectric: Android's framework classes on a JVM, with Android's own Skia and SQLite compiled for the
 * host. Its words come from the environment, since the sandbox loads classes of its own.
 */
public final class Host {
    private Host() {}

    /** The program ends the process; what comes back from it are failures of the sandbox. */
    public static void main(String[] none) {
        for (Failure failure : new JUnitCore().run(Program.class).getFailures()) {
            failure.getException().printStackTrace();
        }
        System.exit(1);
    }

    /** What the sandbox runs. */
    @RunWith(RobolectricTestRunner.class)
    @GraphicsMode(GraphicsMode.Mode.NATIVE)
    @SQLiteMode(SQLiteMode.Mode.NATIVE)
    @Config(sdk = 35, manifest = Config.NONE)
    public static final class Program {
        @Test
        public void asAProcess() {
            Main.main(new String[0]);
        }
    }
}
