package evenkeel.interop.files;

import evenkeel.interop.Clients;
import java.util.Properties;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Tables for a directory that one server writes and another one reads: {@code FilesTables fill NAMESPACE
 * -Dkey=value...} creates and fills them, {@code more ROUND} writes some rows to every table, {@code digest} prints the
 * content, one line per fact. Nothing depends on the server, its clock or its random numbers, so servers with the same
 * content print the same.
 */
public final class FilesTables {
  private FilesTables() {
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    String argument = "";
    for (int i = 1; i < args.length; i++) {
      if (args[i].startsWith("-D")) {
        String[] pair = args[i].substring(2).split("=", 2);
        settings.setProperty(pair[0], pair[1]);
      } else {
        argument = args[i];
      }
    }
    // At the first call a server may not have taken over every region of a dead server yet.
    settings.setProperty("hbase.client.retries.number", "30");
    settings.setProperty("hbase.client.operation.timeout", "120000");
    settings.setProperty("hbase.client.meta.operation.timeout", "120000");
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("rpc", settings))) {
      switch (args[0]) {
        case "fill" -> new FilesFill(connection, argument).all();
        case "more" -> FilesFill.more(connection, argument);
        case "digest" -> new FilesDigest(connection, System.out).all();
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
  }
}
