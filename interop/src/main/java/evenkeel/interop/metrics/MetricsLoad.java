package evenkeel.interop.metrics;

import evenkeel.interop.Clients;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A load with known counts, for a comparison of two servers' metrics: {@code MetricsLoad TABLE -Dkey=value...}.
 *
 * <p>Each kind of request is made a different number of times, so that a count in the wrong metric is detected. At the
 * end every region has one store file and a non-empty MemStore.
 */
public final class MetricsLoad {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] QUALIFIER = Bytes.toBytes("q");
  private static final byte[] COUNT = Bytes.toBytes("n");
  private static final byte[][] SPLITS = {Bytes.toBytes("row-1"), Bytes.toBytes("row-2")};
  private static final long COMPACTION_SECONDS = 60;

  private MetricsLoad() {}

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    for (String arg : args) {
      if (arg.startsWith("-D")) {
        String[] pair = arg.substring(2).split("=", 2);
        settings.setProperty(pair[0], pair[1]);
      }
    }
    TableName name = TableName.valueOf(args[0]);
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("zk", settings));
        Admin admin = connection.getAdmin();
        Table table = connection.getTable(name)) {
      var family = ColumnFamilyDescriptorBuilder.of(FAMILY);
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family).build(), SPLITS);
      put(table);
      admin.flush(name);
      read(table);
      change(table);
      check(table);
      admin.flush(name);
      compact(admin, name);
      for (int i = 0; i < 23; i++) {
        table.put(newPut(i));
      }
      table.put(newPut(24).setDurability(Durability.SKIP_WAL));
    }
  }

  /** Rows are spread over the three regions. */
  private static byte[] row(int number) {
    return Bytes.toBytes("row-" + number % 3 + "-" + String.format("%06d", number));
  }

  private static Put newPut(int number) {
    return new Put(row(number)).addColumn(FAMILY, QUALIFIER, Bytes.toBytes("value " + number + "-".repeat(200)));
  }

  private static void put(Table table) throws Exception {
    for (int i = 0; i < 211; i++) {
      table.put(newPut(i));
    }
    for (int batch = 0; batch < 10; batch++) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < 60; i++) {
        puts.add(newPut(1000 + 60 * batch + i));
      }
      table.put(puts);
    }
  }

  private static void read(Table table) throws Exception {
    for (int i = 0; i < 101; i++) {
      table.get(new Get(row(i)));
    }
    List<Get> gets = new ArrayList<>();
    for (int i = 0; i < 57; i++) {
      gets.add(new Get(row(i)));
    }
    table.get(gets);
    for (int i = 0; i < 7; i++) {
      scan(table, new Scan().setCaching(100));
    }
    scan(table, new Scan().setFilter(new RowFilter(CompareOperator.EQUAL, new SubstringComparator("0007"))));
  }

  private static void scan(Table table, Scan scan) throws Exception {
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result row = scanner.next(); row != null; row = scanner.next()) {
        if (row.isEmpty()) {
          throw new IllegalStateException("an empty row");
        }
      }
    }
  }

  private static void change(Table table) throws Exception {
    for (int i = 0; i < 11; i++) {
      table.increment(new Increment(row(i)).addColumn(FAMILY, COUNT, 1));
    }
    for (int i = 0; i < 13; i++) {
      table.append(new Append(row(i)).addColumn(FAMILY, QUALIFIER, Bytes.toBytes("+")));
    }
    for (int i = 0; i < 17; i++) {
      table.delete(new Delete(row(100 + i)));
    }
    List<Delete> deletes = new ArrayList<>();
    for (int i = 0; i < 19; i++) {
      deletes.add(new Delete(row(150 + i)));
    }
    table.delete(deletes);
  }

  private static void check(Table table) throws Exception {
    for (int i = 0; i < 8; i++) {
      byte[] expected = Bytes.toBytes(i < 5 ? "value " + (30 + i) + "-".repeat(200) : "another");
      var check = CheckAndMutate.newBuilder(row(30 + i)).ifEquals(FAMILY, QUALIFIER, expected);
      table.checkAndMutate(check.build(newPut(30 + i)));
    }
    for (int i = 0; i < 2; i++) {
      var check = CheckAndMutate.newBuilder(row(40 + i)).ifNotExists(FAMILY, Bytes.toBytes("none"));
      table.checkAndMutate(check.build(new Delete(row(40 + i))));
    }
  }

  private static void compact(Admin admin, TableName name) throws Exception {
    admin.majorCompact(name);
    long before = System.nanoTime();
    while (admin.getCompactionState(name) != CompactionState.NONE || files(admin, name) > 3) {
      if (System.nanoTime() - before > COMPACTION_SECONDS * 1_000_000_000L) {
        throw new IllegalStateException("no end of the compaction");
      }
      Thread.sleep(100);
    }
  }

  /** Returns the number of store files from the server's region metrics. */
  private static long files(Admin admin, TableName name) throws Exception {
    long files = 0;
    for (var server : admin.getRegionServers()) {
      for (var region : admin.getRegionMetrics(server, name)) {
        files += region.getStoreFileCount();
      }
    }
    return files;
  }
}
