import java.io.IOException;
import org.apache.hadoop.hbase.HColumnDescriptor;
import org.apache.hadoop.hbase.HTableDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/** Clients of HBase 1. */
final class OwnDialect implements Dialect {
  @Override
  public void createTable(Connection connection, TableName name, String family, byte[][] splits) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(new HTableDescriptor(name).addFamily(new HColumnDescriptor(family)), splits);
    }
  }

  @Override
  public boolean checkAndPut(Table table, byte[] row, byte[] family, byte[] qualifier, byte[] value, Put put)
      throws IOException {
    return table.checkAndPut(row, family, qualifier, value, put);
  }

  @Override
  public int countRegions(Connection connection, TableName name) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      return admin.getTableRegions(name).size();
    }
  }

  @Override
  public boolean canCloneSnapshots() {
    // It asks IsRestoreSnapshotDone, which HBase 2 removed.
    return false;
  }

  @Override
  public void flushOtherwise(Connection connection, TableName name) {
    // There is one Admin.
  }
}
