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
 * host. Its arguments come from the environment, since the sandbox loads its own copies of the classes.
 */
public final class Host {
    private Host() {}

    /** The program exits the process; whatever returns from it is a failure of the sandbox. */
    public static void main(String[] none) {
        for (Failure failure : new JUnitCore().run(Program.class).getFailures()) {
            failure.getException().printStackTrace();
        }
        System.exit(1);
    }

    /** The test that the sandbox runs. */
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
