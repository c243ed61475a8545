import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/** Clients of HBase 2 and 3. */
final class OwnDialect implements Dialect {
  @Override
  public void createTable(Connection connection, TableName name, String family, byte[][] splits) throws IOException {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
    table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family.getBytes()).build());
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(table.build(), splits);
    }
  }

  @Override
  public boolean checkAndPut(Table table, byte[] row, byte[] family, byte[] qualifier, byte[] value, Put put)
      throws IOException {
    Table.CheckAndMutateBuilder check = table.checkAndMutate(row, family).qualifier(qualifier);
    return (value == null ? check.ifNotExists() : check.ifEquals(value)).thenPut(put);
  }

  @Override
  public int countRegions(Connection connection, TableName name) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      return admin.getRegions(name).size();
    }
  }

  @Override
  public boolean canCloneSnapshots() {
    return true;
  }

  @Override
  public void flushOtherwise(Connection connection, TableName name) throws Exception {
    try (AsyncConnection async =
        ConnectionFactory.createAsyncConnection(connection.getConfiguration()).get(30, TimeUnit.SECONDS)) {
      async.getAdmin().flush(name).get(60, TimeUnit.SECONDS);
    }
  }
}
