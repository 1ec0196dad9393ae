package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.fathom.FathomExtension;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(FathomExtension.class)
class ShopTest {
    @Test
    void ordersShareASync(@TempDir Path directory, FathomExtension.Counter fathom) throws Exception {
        try (Shop shop = new Shop(directory.resolve("orders"))) {
            fathom.reset();
            shop.save("tea", "coffee", "milk");
            assertEquals(1, fathom.fsyncs());
        }
    }

    @Test
    void ordersSavedOneByOneDoNot(@TempDir Path directory, FathomExtension.Counter fathom) throws Exception {
        try (Shop shop = new Shop(directory.resolve("orders"))) {
            fathom.reset();
            for (int n = 0; n < 5; n++) {
                shop.save("tea");
            }
            assertEquals(5, fathom.fsyncs());
        }
    }
}
