import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * One small program for clients of every version: tables, writes and reads, batches, scans of several calls, checks, flush,
 * compaction, snapshots. Arguments are {@code key=value} settings and {@code table=NAME}; prints {@code ok} at the end. With
 * {@code only=create} it creates the table and leaves it, for clients that cannot.
 */
public final class ForeignClient {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final int ROWS = 300;

  private final Dialect dialect = new OwnDialect();
  private final Connection connection;
  private final Admin admin;
  private final TableName name;

  private ForeignClient(Connection connection, String table) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
    this.name = TableName.valueOf(table);
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.client.retries.number", 8);
    conf.setInt("hbase.client.pause", 50);
    String table = "foreign";
    boolean onlyCreates = false;
    for (String arg : args) {
      String[] pair = arg.split("=", 2);
      if (pair[0].equals("table")) {
        table = pair[1];
      } else if (pair[0].equals("only")) {
        onlyCreates = pair[1].equals("create");
      } else {
        conf.set(pair[0], pair[1]);
      }
    }
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      ForeignClient client = new ForeignClient(connection, table);
      client.create();
      if (!onlyCreates) {
        client.run();
      }
    }
    System.out.println("ok");
    System.exit(0);
  }

  private void create() throws IOException {
    dialect.createTable(connection, name, "f", new byte[][] {Bytes.toBytes("r100"), Bytes.toBytes("r200")});
    same(3, dialect.countRegions(connection, name));
  }

  private void run() throws Exception {
    try (Table table = connection.getTable(name)) {
      writes(table);
      batches(table);
      checks(table);
      scans(table);
      files(table);
      snapshots(table);
    }
    drop(name);
    try (Table gone = connection.getTable(name)) {
      gone.get(new Get(F));
      throw new IllegalStateException("a dropped table answers");
    } catch (TableNotFoundException e) {
      System.out.println("dropped");
    }
  }

  private static byte[] row(int i) {
    return Bytes.toBytes(String.format("r%03d", i));
  }

  private void writes(Table table) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      puts.add(new Put(row(i)).addColumn(F, Q, Bytes.toBytes("v" + i)));
    }
    table.put(puts);
    same("v42", Bytes.toString(table.get(new Get(row(42))).getValue(F, Q)));
    same(true, table.exists(new Get(row(7))));
    same(false, table.exists(new Get(Bytes.toBytes("none"))));
    same(5L, table.incrementColumnValue(row(0), F, Bytes.toBytes("n"), 5));
    same(7L, Bytes.toLong(table.increment(new Increment(row(0)).addColumn(F, Bytes.toBytes("n"), 2)).value()));
    Append append = new Append(row(1));
    append.add(new org.apache.hadoop.hbase.KeyValue(row(1), F, Q, Bytes.toBytes("+")));
    same("v1+", Bytes.toString(table.append(append).value()));
    table.delete(new Delete(row(2)));
    same(true, table.get(new Get(row(2))).isEmpty());
    System.out.println("writes");
  }

  private void batches(Table table) throws Exception {
    List<Row> actions = new ArrayList<>();
    actions.add(new Put(row(2)).addColumn(F, Q, Bytes.toBytes("v2")));
    actions.add(new Get(row(150)));
    actions.add(new Delete(row(299)));
    actions.add(new Get(row(250)));
    Object[] results = new Object[actions.size()];
    table.batch(actions, results);
    same("v150", Bytes.toString(((Result) results[1]).getValue(F, Q)));
    same("v250", Bytes.toString(((Result) results[3]).getValue(F, Q)));
    Result[] gets = table.get(Arrays.asList(new Get(row(3)), new Get(row(299)), new Get(row(103))));
    same("v3 null v103", Bytes.toString(gets[0].value()) + " " + gets[1].value() + " " + Bytes.toString(gets[2].value()));
    RowMutations both = new RowMutations(row(5));
    both.add(new Put(row(5)).addColumn(F, Bytes.toBytes("other"), Bytes.toBytes("o")));
    both.add(new Delete(row(5)).addColumns(F, Q));
    table.mutateRow(both);
    same("o", Bytes.toString(table.get(new Get(row(5))).value()));
    table.put(new Put(row(5)).addColumn(F, Q, Bytes.toBytes("v5")));
    table.put(new Put(row(299)).addColumn(F, Q, Bytes.toBytes("v299")));
    System.out.println("batches");
  }

  private void checks(Table table) throws IOException {
    Put put = new Put(row(8)).addColumn(F, Q, Bytes.toBytes("checked"));
    same(false, dialect.checkAndPut(table, row(8), F, Q, Bytes.toBytes("wrong"), put));
    same(true, dialect.checkAndPut(table, row(8), F, Q, Bytes.toBytes("v8"), put));
    same(false, dialect.checkAndPut(table, row(8), F, Q, null, put));
    same(true, dialect.checkAndPut(table, row(8), F, Bytes.toBytes("absent"), null, put));
    same("checked", Bytes.toString(table.get(new Get(row(8))).value()));
    System.out.println("checks");
  }

  private static int count(Table table, Scan scan) throws IOException {
    int rows = 0;
    byte[] last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        if (last != null && Bytes.compareTo(last, result.getRow()) * (scan.isReversed() ? -1 : 1) >= 0) {
          throw new IllegalStateException("rows out of order: " + Bytes.toString(result.getRow()));
        }
        last = result.getRow();
        rows++;
      }
    }
    return rows;
  }

  private static Scan caching(int rows) {
    return new Scan().addFamily(F).setCaching(rows);
  }

  private void scans(Table table) throws IOException {
    same(ROWS, count(table, new Scan()));
    same(ROWS, count(table, caching(7)));
    same(ROWS, count(table, caching(7).setReversed(true)));
    same(ROWS, count(table, caching(1000).setMaxResultSize(500)));
    same(100, count(table, caching(7).setFilter(new PrefixFilter(Bytes.toBytes("r1")))));
    try (ResultScanner scanner = table.getScanner(caching(3))) {
      for (int i = 0; i < 10; i++) {
        same("r00" + i, Bytes.toString(scanner.next().getRow()));
      }
    }
    System.out.println("scans");
  }

  private void files(Table table) throws Exception {
    admin.flush(name);
    table.put(new Put(row(9)).addColumn(F, Q, Bytes.toBytes("v9")));
    dialect.flushOtherwise(connection, name);
    table.put(new Put(row(10)).addColumn(F, Q, Bytes.toBytes("v10")));
    admin.flush(name);
    admin.compact(name);
    admin.majorCompact(name);
    same(ROWS, count(table, caching(50)));
    System.out.println("files");
  }

  private void snapshots(Table table) throws IOException {
    String snapshot = name.getNameAsString() + "-snapshot";
    TableName clone = TableName.valueOf(name.getNameAsString() + "-clone");
    admin.snapshot(snapshot, name);
    if (dialect.canCloneSnapshots()) {
      clone(table, snapshot, clone);
    }
    admin.deleteSnapshot(snapshot);
    System.out.println("snapshots");
  }

  private void clone(Table table, String snapshot, TableName clone) throws IOException {
    table.delete(new Delete(row(11)));
    admin.cloneSnapshot(snapshot, clone);
    try (Table cloned = connection.getTable(clone)) {
      same(ROWS, count(cloned, caching(100)));
    }
    same(ROWS - 1, count(table, caching(100)));
    drop(clone);
    admin.disableTable(name);
    admin.restoreSnapshot(snapshot);
    admin.enableTable(name);
    same(ROWS, count(table, caching(100)));
  }

  private void drop(TableName table) throws IOException {
    admin.disableTable(table);
    admin.deleteTable(table);
    same(false, admin.tableExists(table));
  }

  private static void same(Object want, Object got) {
    if (!want.equals(got)) {
      throw new IllegalStateException("want " + want + ", got " + got);
    }
  }
}
