package fathom.draw;

import fathom.Main;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/**
 * Runs the whole program as a device would, with its arguments in the environment, on Robolectric's real Skia. It exits
 * the JVM itself.
 */
@RunWith(RobolectricTestRunner.class)
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@Config(sdk = 35, manifest = Config.NONE)
public class ProgramTest {
    @Test
    public void asAProcess() {
        System.setProperty("java.vm.name", "Dalvik");
        Main.main(new String[0]);
    }
}
