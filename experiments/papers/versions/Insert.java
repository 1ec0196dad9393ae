import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;

/** INSERTs by an older SQLite, inside sqlite-jdbc. Prints its version and the journal mode in force. */
public final class Insert {
    private Insert() {}

    /** args: database, journal mode, page size, INSERTs, then the statements that create the tables. */
    public static void main(String[] args) throws Exception {
        Class.forName("org.sqlite.JDBC");
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + args[0])) {
            Statement statement = connection.createStatement();
            statement.executeUpdate("PRAGMA page_size=" + args[2]);
            String mode = first(statement, "PRAGMA journal_mode=" + args[1]);
            for (int i = 4; i < args.length; i++) {
                statement.executeUpdate(args[i]);
            }
            System.out.println(first(statement, "SELECT sqlite_version()") + " " + mode);
            PreparedStatement insert = connection.prepareStatement("INSERT INTO t (i, s) VALUES (?, ?)");
            for (int i = 0; i < Integer.parseInt(args[3]); i++) {
                insert.setInt(1, i);
                insert.setString(2, "x".repeat(20));
                insert.executeUpdate();
            }
        }
    }

    private static String first(Statement statement, String sql) throws Exception {
        try (ResultSet result = statement.executeQuery(sql)) {
            return result.next() ? result.getString(1) : "";
        }
    }
}
