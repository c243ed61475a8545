package evenkeel.interop.methods;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** What each method finds: a table with some rows, a namespace, a snapshot; and nothing that a method creates. */
final class Fixture implements AutoCloseable {
  static final TableName TABLE = TableName.valueOf("walk");
  static final TableName NEW_TABLE = TableName.valueOf("walk_new");
  static final String NAMESPACE = "walk_namespace";
  static final String NEW_NAMESPACE = "walk_namespace_new";
  static final String SNAPSHOT = "walk_snapshot";
  static final String NEW_SNAPSHOT = "walk_snapshot_new";

  final Connection connection;
  final AsyncConnection async;
  final Admin admin;
  /** True if a region of the table may be closed or replaced; {@code isTableAvailable} does not tell. */
  private boolean hasMovedRegions;

  Fixture(Configuration conf) throws Exception {
    connection = ConnectionFactory.createConnection(conf);
    async = ConnectionFactory.createAsyncConnection(conf).get(60, TimeUnit.SECONDS);
    admin = connection.getAdmin();
  }

  static TableDescriptorBuilder descriptor(TableName name) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("g"));
  }

  /** Restores what the last method changed, and disables the table for a method that needs that. */
  void prepare(String method) throws Exception {
    if (hasMovedRegions) {
      drop(TABLE);
      hasMovedRegions = false;
    }
    boolean two = method.startsWith("mergeRegions");
    drop(NEW_TABLE);
    if (!isWhole(two ? 2 : 1)) {
      drop(TABLE);
      create(two);
    }
    List<String> namespaces = List.of(admin.listNamespaces());
    if (namespaces.contains(NEW_NAMESPACE)) {
      admin.deleteNamespace(NEW_NAMESPACE);
    }
    if (!namespaces.contains(NAMESPACE)) {
      admin.createNamespace(NamespaceDescriptor.create(NAMESPACE).build());
    }
    List<String> snapshots = admin.listSnapshots().stream().map(SnapshotDescription::getName).toList();
    if (snapshots.contains(NEW_SNAPSHOT)) {
      admin.deleteSnapshot(NEW_SNAPSHOT);
    }
    if (!snapshots.contains(SNAPSHOT)) {
      admin.snapshot(SNAPSHOT, TABLE);
    }
    hasMovedRegions = method.matches("(?i)(close|split|merge|move|truncate).*|.*assigns?|setRegion.*|disable.*|clone.*");
    if (method.matches("(enable|delete|truncate)Tables?(Async)?|restoreSnapshot(Async)?")) {
      admin.disableTable(TABLE);
    }
  }

  private boolean isWhole(int regions) throws Exception {
    return admin.tableExists(TABLE) && admin.isTableEnabled(TABLE) && admin.isTableAvailable(TABLE)
        && admin.getRegions(TABLE).size() == regions
        && admin.getDescriptor(TABLE).equals(descriptor(TABLE).setValue("hbase.store.file-tracker.impl", "DEFAULT").build());
  }

  private void create(boolean two) throws Exception {
    admin.createTable(descriptor(TABLE).build(), two ? new byte[][] {Bytes.toBytes("m")} : null);
    try (Table table = connection.getTable(TABLE)) {
      for (String row : List.of("a", "k", "p", "r")) {
        table.put(new Put(Bytes.toBytes(row)).addColumn(Bytes.toBytes("f"), Bytes.toBytes("q"), Bytes.toBytes(1L)));
      }
    }
  }

  private void drop(TableName name) throws Exception {
    if (admin.tableExists(name)) {
      if (admin.isTableEnabled(name)) {
        admin.disableTable(name);
      }
      admin.deleteTable(name);
    }
  }

  /** Sets the switches to the state that a server starts with. */
  void resetSwitches() throws Exception {
    admin.splitSwitch(true, true);
    admin.mergeSwitch(true, true);
    admin.balancerSwitch(true, true);
    admin.normalizerSwitch(true);
    admin.catalogJanitorSwitch(true);
    admin.cleanerChoreSwitch(true);
    admin.snapshotCleanupSwitch(true, true);
    admin.compactionSwitch(true, List.of());
  }

  ServerName server() throws Exception {
    return admin.getRegionServers().iterator().next();
  }

  RegionInfo region(int index) throws Exception {
    List<RegionInfo> regions = admin.getRegions(TABLE);
    regions.sort(RegionInfo.COMPARATOR);
    return regions.get(index);
  }

  @Override
  public void close() throws Exception {
    prepare("");
    drop(TABLE);
    admin.deleteSnapshot(SNAPSHOT);
    admin.deleteNamespace(NAMESPACE);
    async.close();
    connection.close();
  }
}
