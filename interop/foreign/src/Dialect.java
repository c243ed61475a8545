import java.io.IOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/** What HBase 1 and later clients have under different names. */
interface Dialect {
  void createTable(Connection connection, TableName name, String family, byte[][] splits) throws IOException;

  /** Puts if {@code family:qualifier} of the row has this value, or no value if it is null. */
  boolean checkAndPut(Table table, byte[] row, byte[] family, byte[] qualifier, byte[] value, Put put) throws IOException;

  int countRegions(Connection connection, TableName name) throws IOException;

  /** Whether the client waits for a clone or a restore in a way that servers of version 2 answer. */
  boolean canCloneSnapshots();

  /** Flushes by every other kind of Admin that the client has. */
  void flushOtherwise(Connection connection, TableName name) throws Exception;
}
