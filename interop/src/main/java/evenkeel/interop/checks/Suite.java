package evenkeel.interop.checks;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * One run of one group: its connection, the tables that its checks created, and the counts of passed and failed checks.
 *
 * Table names contain the start time of the run, so two runs against one server do not conflict. Tables are dropped
 * together when the suite closes, because a drop takes several seconds on a stock master and no check waits for it.
 */
public final class Suite implements AutoCloseable {
  /** The body of a check: returns if the behaviour is right, throws if it is not. */
  public interface Body {
    void run() throws Exception;
  }

  final Configuration conf;
  public final Connection connection;
  public final Admin admin;
  private final String group;
  private final String only;
  private final String stamp = Long.toString(System.currentTimeMillis(), 36);
  private final List<TableName> made = new ArrayList<>();
  private int tables;
  private int passed;
  private int failed;

  Suite(String group, String only, Configuration conf) throws IOException {
    this.group = group;
    this.only = only;
    this.conf = conf;
    this.connection = ConnectionFactory.createConnection(conf);
    this.admin = connection.getAdmin();
  }

  int passed() {
    return passed;
  }

  int failed() {
    return failed;
  }

  /** Runs one check and prints its line. */
  public void check(String name, Body body) {
    String full = group + "/" + name;
    if (!full.contains(only)) {
      return;
    }
    long start = System.nanoTime();
    try {
      body.run();
      passed++;
      System.out.printf("ok %s (%d ms)%n", full, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
    } catch (Throwable t) {
      failed++;
      System.out.printf("FAILED %s: %s%n", full, t instanceof Expect.Mismatch ? t.getMessage() + at(t) : trace(t));
    }
  }

  /** Returns a table name that no other check and no other run uses. */
  public TableName name() {
    return name("default");
  }

  /** As {@link #name()}, in a namespace. */
  TableName name(String namespace) {
    TableName name = TableName.valueOf(namespace, "iop_" + group + "_" + stamp + "_" + tables++);
    made.add(name);
    return name;
  }

  /** Returns a word for other names (namespaces) that no other run uses. */
  String word(String prefix) {
    return prefix + "_" + stamp + "_" + tables++;
  }

  /** Creates a table with these families, each with one version. */
  Table table(String... families) throws IOException {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name());
    for (String family : families) {
      table.setColumnFamily(ColumnFamilyDescriptorBuilder.of(family));
    }
    return create(table);
  }

  /** Creates a table with one family, built by the caller. */
  Table table(ColumnFamilyDescriptor family) throws IOException {
    return create(TableDescriptorBuilder.newBuilder(name()).setColumnFamily(family));
  }

  /** Creates a table with family {@code f}, which keeps many versions. */
  Table versioned() throws IOException {
    return table(ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes("f")).setMaxVersions(10).build());
  }

  /** Creates a table with family {@code f}, split at these keys. */
  Table presplit(String... keys) throws IOException {
    byte[][] splits = new byte[keys.length][];
    for (int i = 0; i < keys.length; i++) {
      splits[i] = Bytes.toBytes(keys[i]);
    }
    TableDescriptor table =
        TableDescriptorBuilder.newBuilder(name()).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build();
    admin.createTable(table, splits);
    return connection.getTable(table.getTableName());
  }

  /** Creates and opens a table; it is dropped only if its name is from {@link #name()}. */
  Table create(TableDescriptorBuilder table) throws IOException {
    TableDescriptor descriptor = table.build();
    admin.createTable(descriptor);
    return connection.getTable(descriptor.getTableName());
  }

  @Override
  public void close() throws Exception {
    try (AsyncConnection async = ConnectionFactory.createAsyncConnection(conf).get(30, TimeUnit.SECONDS)) {
      AsyncAdmin drops = async.getAdmin();
      List<CompletableFuture<Void>> pending = new ArrayList<>();
      for (TableName table : made) {
        pending.add(drop(drops, table));
      }
      CompletableFuture.allOf(pending.toArray(new CompletableFuture<?>[0])).get(120, TimeUnit.SECONDS);
    }
    admin.close();
    connection.close();
  }

  private static CompletableFuture<Void> drop(AsyncAdmin admin, TableName table) {
    return admin.tableExists(table).thenCompose(exists -> {
      if (!exists) {
        return CompletableFuture.completedFuture(null);
      }
      return admin.isTableDisabled(table)
          .thenCompose(off -> off ? CompletableFuture.<Void>completedFuture(null) : admin.disableTable(table))
          .thenCompose(done -> admin.deleteTable(table));
    });
  }

  private static String at(Throwable t) {
    for (StackTraceElement frame : t.getStackTrace()) {
      if (!frame.getClassName().equals(Expect.class.getName())) {
        return " (" + frame.getFileName() + ":" + frame.getLineNumber() + ")";
      }
    }
    return "";
  }

  private static String trace(Throwable t) {
    StringWriter text = new StringWriter();
    t.printStackTrace(new PrintWriter(text));
    return text.toString().trim();
  }
}
