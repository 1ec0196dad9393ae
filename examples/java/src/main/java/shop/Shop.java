package shop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A shop that appends its orders to a file. */
public final class Shop implements AutoCloseable {
    private final FileChannel file;

    public Shop(Path path) throws IOException {
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** Saves orders durably: all of them with one sync. */
    public void save(String... orders) throws IOException {
        for (String order : orders) {
            file.write(ByteBuffer.wrap((order + "\n").getBytes(StandardCharsets.UTF_8)));
        }
        file.force(false);
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
