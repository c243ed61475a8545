package evenkeel.interop.files;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Clients;
import evenkeel.interop.Rows;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Snapshots in a directory that one server writes and another one takes over. {@code FilesSnapshots take WORD} creates
 * table WORD, with a MOB family, and snapshot WORD_snap of its first 200 rows, then writes more rows. {@code use WORD} clones the snapshot
 * to WORD_clone, clones a snapshot of that clone to WORD_third, restores WORD, and drops the sources of the clones.
 * {@code look WORD} counts rows. Each prints the tables' rows, one line per table.
 */
public final class FilesSnapshots {
  private final Connection connection;
  private final Admin admin;

  private FilesSnapshots(Connection connection) throws Exception {
    this.connection = connection;
    this.admin = connection.getAdmin();
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    for (int i = 2; i < args.length; i++) {
      String[] pair = args[i].substring(2).split("=", 2);
      settings.setProperty(pair[0], pair[1]);
    }
    settings.setProperty("hbase.client.retries.number", "30");
    settings.setProperty("hbase.client.operation.timeout", "120000");
    settings.setProperty("hbase.client.meta.operation.timeout", "120000");
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("rpc", settings))) {
      FilesSnapshots run = new FilesSnapshots(connection);
      switch (args[0]) {
        case "take" -> run.take(args[1]);
        case "use" -> run.use(args[1]);
        case "look" -> run.look(args[1]);
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
  }

  private void take(String word) throws Exception {
    TableName name = TableName.valueOf(word);
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("g"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("m")).setMobEnabled(true).setMobThreshold(10).build())
        .build(), new byte[][] {b("r0100")});
    fill(name, 0, 150);
    admin.flush(name);
    fill(name, 150, 200);
    admin.snapshot(word + "_snap", name);
    fill(name, 200, 300);
    admin.flush(name);
    admin.majorCompact(name);
    print(name);
  }

  private void use(String word) throws Exception {
    TableName name = TableName.valueOf(word);
    TableName clone = TableName.valueOf(word + "_clone");
    TableName third = TableName.valueOf(word + "_third");
    admin.cloneSnapshot(word + "_snap", clone);
    print(clone);
    admin.snapshot(word + "_snap2", clone);
    admin.cloneSnapshot(word + "_snap2", third);
    admin.disableTable(name);
    admin.restoreSnapshot(word + "_snap");
    admin.enableTable(name);
    admin.deleteSnapshot(word + "_snap2");
    admin.disableTable(clone);
    admin.deleteTable(clone);
    admin.runCleanerChore();
    look(word);
  }

  private void look(String word) throws Exception {
    print(TableName.valueOf(word));
    print(TableName.valueOf(word + "_third"));
  }

  private void fill(TableName name, int from, int to) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = from; i < to; i++) {
      String row = String.format("r%04d", i);
      Put put = Rows.add(put(row, "f:q", 1, "v" + i), "g:q", 1, "w" + i);
      puts.add(Rows.add(put, "m:q", 1, "a value in a MOB file " + i));
    }
    try (Table table = connection.getTable(name)) {
      table.put(puts);
    }
  }

  private void print(TableName name) throws Exception {
    try (Table table = connection.getTable(name)) {
      List<String> rows = Rows.scan(table, new Scan());
      System.out.println(name + " " + rows.size() + " " + String.join("|", rows).hashCode());
    }
  }
}
