package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.InvalidFamilyOperationException;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotDisabledException;
import org.apache.hadoop.hbase.TableNotEnabledException;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Table operations of the Admin: life cycle, schema, listing, errors. */
final class TableAdminChecks {
  private final Suite suite;

  TableAdminChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("table-life", this::tableLife);
    suite.check("create-errors", this::createErrors);
    suite.check("create-splits", this::createSplits);
    suite.check("descriptor-kept", this::descriptorKept);
    suite.check("descriptor-defaults", this::descriptorDefaults);
    suite.check("family-add-modify-delete", this::families);
    suite.check("modify-table", this::modifyTable);
    suite.check("alter-keeps-data", this::alterKeepsData);
    suite.check("state-errors", this::stateErrors);
    suite.check("truncate", this::truncate);
    suite.check("truncate-preserve", this::truncatePreserve);
    suite.check("list", this::list);
    suite.check("cluster-metrics", this::clusterMetrics);
    suite.check("balancer-and-switches", this::switches);
  }

  private void tableLife() throws IOException {
    TableName name = suite.name();
    Expect.that(!suite.admin.tableExists(name), "not there yet");
    suite.admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    Expect.that(suite.admin.tableExists(name), "there");
    Expect.that(suite.admin.isTableEnabled(name) && !suite.admin.isTableDisabled(name), "enabled");
    Expect.that(suite.admin.isTableAvailable(name), "available");
    suite.admin.disableTable(name);
    Expect.that(suite.admin.isTableDisabled(name) && !suite.admin.isTableEnabled(name), "disabled");
    suite.admin.enableTable(name);
    Expect.that(suite.admin.isTableEnabled(name), "enabled again");
    suite.admin.disableTable(name);
    suite.admin.deleteTable(name);
    Expect.that(!suite.admin.tableExists(name), "gone");
    suite.admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    try (Table table = suite.connection.getTable(name)) {
      Expect.same(0, Rows.scan(table, new Scan()).size());
    }
  }

  private static TableDescriptorBuilder of(TableName name) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"));
  }

  private void createErrors() throws IOException {
    try (Table table = suite.table("f")) {
      Expect.fails(TableExistsException.class, () -> suite.admin.createTable(of(table.getName()).build()));
    }
    Expect.fails(NamespaceNotFoundException.class,
        () -> suite.admin.createTable(of(TableName.valueOf("no_such_ns", "t")).build()));
    Expect.fails(DoNotRetryIOException.class,
        () -> suite.admin.createTable(TableDescriptorBuilder.newBuilder(suite.name()).build()));
    Expect.fails(DoNotRetryIOException.class, () -> suite.admin.createTable(of(suite.name()).setColumnFamily(
        ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setTimeToLive(0).build()).build()));
    Expect.fails(IllegalArgumentException.class, () -> suite.admin.createTable(of(suite.name()).setColumnFamily(
        ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setMinVersions(5).setMaxVersions(2).build()).build()));
  }

  private void createSplits() throws IOException {
    TableName name = suite.name();
    suite.admin.createTable(of(name).build(), b("aaa"), b("zzz"), 5);
    List<RegionInfo> regions = suite.admin.getRegions(name);
    regions.sort(RegionInfo.COMPARATOR);
    Expect.same(5, regions.size());
    Expect.same("", Bytes.toString(regions.get(0).getStartKey()));
    Expect.same("aaa", Bytes.toString(regions.get(0).getEndKey()));
    Expect.same("zzz", Bytes.toString(regions.get(4).getStartKey()));
    for (int i = 1; i < 5; i++) {
      Expect.that(Arrays.equals(regions.get(i - 1).getEndKey(), regions.get(i).getStartKey()), "no holes");
    }
    Expect.fails(IllegalArgumentException.class,
        () -> suite.admin.createTable(of(suite.name()).build(), new byte[][] {b("b"), b("b")}));
  }

  private void descriptorKept() throws IOException {
    ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(7).setMinVersions(2)
        .setTimeToLive(86400).setBlocksize(8192).setBloomFilterType(BloomType.ROWCOL).setInMemory(true)
        .setCompressionType(Compression.Algorithm.GZ).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF)
        .setBlockCacheEnabled(false).setScope(1).setValue("my.attribute", "kept").setConfiguration("hbase.some.key", "1").build();
    TableDescriptor made = TableDescriptorBuilder.newBuilder(suite.name()).setColumnFamily(family)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("other")).setMaxFileSize(1L << 30).setMemStoreFlushSize(1 << 22)
        .setValue("owner.note", "kept too").setDurability(org.apache.hadoop.hbase.client.Durability.ASYNC_WAL)
        .setCompactionEnabled(true).setSplitEnabled(false).setPriority(3).build();
    suite.admin.createTable(made);
    TableDescriptor got = suite.admin.getDescriptor(made.getTableName());
    Expect.same(made.getColumnFamily(b("f")), got.getColumnFamily(b("f")));
    Expect.same(made.getColumnFamily(b("other")), got.getColumnFamily(b("other")));
    made.getValues().forEach((key, value) -> Expect.same(value, got.getValues().get(key)));
    Expect.same("DEFAULT", got.getValue("hbase.store.file-tracker.impl"));
    try (Table table = suite.connection.getTable(made.getTableName())) {
      table.put(put("r", "f:q", "v"));
      suite.admin.flush(table.getName());
      Expect.same("r{f:q@now=v}", read(table, "r"));
    }
  }

  private void descriptorDefaults() throws IOException {
    try (Table table = suite.table("f")) {
      String text = table.getDescriptor().toString();
      Expect.same("'" + table.getName() + "', "
          + "{TABLE_ATTRIBUTES => {METADATA => {'hbase.store.file-tracker.impl' => 'DEFAULT'}}}, {NAME => 'f', "
              + "INDEX_BLOCK_ENCODING => 'NONE', VERSIONS => '1', KEEP_DELETED_CELLS => 'FALSE', DATA_BLOCK_ENCODING => 'NONE', "
              + "TTL => 'FOREVER', MIN_VERSIONS => '0', REPLICATION_SCOPE => '0', BLOOMFILTER => 'ROW', IN_MEMORY => 'false', "
              + "COMPRESSION => 'NONE', BLOCKCACHE => 'true', BLOCKSIZE => '65536 B (64KB)'}", text);
    }
  }

  private void families() throws IOException {
    try (Table table = suite.table("f", "g")) {
      TableName name = table.getName();
      table.put(Rows.add(put("r", "f:q", 1, "1"), "g:q", 1, "2"));
      suite.admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("h"));
      table.put(put("r", "h:q", 1, "3"));
      Expect.same("r{f:q@1=1 g:q@1=2 h:q@1=3}", read(table, "r"));
      suite.admin.modifyColumnFamily(name, ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(4).build());
      Expect.same(4, suite.admin.getDescriptor(name).getColumnFamily(b("f")).getMaxVersions());
      suite.admin.deleteColumnFamily(name, b("g"));
      Expect.same("r{f:q@1=1 h:q@1=3}", read(table, "r"));
      Expect.fails(NoSuchColumnFamilyException.class, () -> table.put(put("r", "g:q", "v")));
      suite.admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("g"));
      Expect.same("r{f:q@1=1 h:q@1=3}", read(table, "r"));
      Expect.fails(InvalidFamilyOperationException.class,
          () -> suite.admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("f")));
      Expect.fails(InvalidFamilyOperationException.class, () -> suite.admin.deleteColumnFamily(name, b("zz")));
      Expect.fails(InvalidFamilyOperationException.class,
          () -> suite.admin.modifyColumnFamily(name, ColumnFamilyDescriptorBuilder.of("zz")));
    }
  }

  private void modifyTable() throws IOException {
    try (Table table = suite.table("f")) {
      TableDescriptor changed = TableDescriptorBuilder.newBuilder(table.getDescriptor()).setMaxFileSize(12345678)
          .setValue("note", "n").setColumnFamily(ColumnFamilyDescriptorBuilder.of("g")).build();
      suite.admin.modifyTable(changed);
      TableDescriptor got = suite.admin.getDescriptor(table.getName());
      Expect.same(changed, got);
      suite.admin.modifyTable(TableDescriptorBuilder.newBuilder(got).removeColumnFamily(b("g")).removeValue(b("note")).build());
      Expect.same("[f]", suite.admin.getDescriptor(table.getName()).getColumnFamilyNames().stream().map(Bytes::toString).toList()
          .toString());
      Expect.fails(TableNotFoundException.class, () -> suite.admin.modifyTable(of(suite.name()).build()));
    }
  }

  private void alterKeepsData() throws IOException {
    try (Table table = suite.presplit("m")) {
      table.put(put("a", "f:q", 1, "1"));
      suite.admin.flush(table.getName());
      table.put(put("z", "f:q", 1, "2"));
      suite.admin.modifyColumnFamily(table.getName(), ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(3).build());
      table.put(put("a", "f:q", 2, "3"));
      Expect.same("a{f:q@2=3 f:q@1=1}", Rows.readAll(table, "a"));
      Expect.same("z{f:q@1=2}", Rows.readAll(table, "z"));
    }
  }

  private void stateErrors() throws IOException {
    TableName missing = suite.name();
    Expect.fails(TableNotFoundException.class, () -> suite.admin.disableTable(missing));
    Expect.fails(TableNotFoundException.class, () -> suite.admin.enableTable(missing));
    Expect.fails(TableNotFoundException.class, () -> suite.admin.deleteTable(missing));
    Expect.fails(TableNotFoundException.class, () -> suite.admin.getDescriptor(missing));
    Expect.fails(TableNotFoundException.class, () -> suite.admin.isTableEnabled(missing));
    Expect.fails(TableNotFoundException.class, () -> suite.admin.flush(missing));
    try (Table table = suite.table("f")) {
      Expect.fails(TableNotDisabledException.class, () -> suite.admin.deleteTable(table.getName()));
      Expect.fails(TableNotDisabledException.class, () -> suite.admin.enableTable(table.getName()));
      Expect.fails(TableNotDisabledException.class, () -> suite.admin.truncateTable(table.getName(), false));
      suite.admin.disableTable(table.getName());
      Expect.fails(TableNotEnabledException.class, () -> suite.admin.disableTable(table.getName()));
    }
  }

  private void truncate() throws IOException {
    try (Table table = suite.presplit("m")) {
      table.put(put("a", "f:q", 1, "1"));
      suite.admin.flush(table.getName());
      suite.admin.disableTable(table.getName());
      suite.admin.truncateTable(table.getName(), false);
      Expect.that(suite.admin.isTableEnabled(table.getName()), "truncated tables are enabled");
      Expect.same(0, Rows.scan(table, new Scan()).size());
      Expect.same(1, suite.admin.getRegions(table.getName()).size());
      table.put(put("a", "f:q", 1, "2"));
      Expect.same("a{f:q@1=2}", read(table, "a"));
    }
  }

  private void truncatePreserve() throws IOException {
    try (Table table = suite.presplit("g", "m")) {
      table.put(put("a", "f:q", 1, "1"));
      suite.admin.disableTable(table.getName());
      suite.admin.truncateTable(table.getName(), true);
      Expect.same(0, Rows.scan(table, new Scan()).size());
      Expect.same(3, suite.admin.getRegions(table.getName()).size());
      table.put(put("z", "f:q", 1, "2"));
      Expect.same("z{f:q@1=2}", read(table, "z"));
    }
  }

  private void list() throws IOException {
    try (Table one = suite.table("f"); Table two = suite.table("f")) {
      Pattern mine = Pattern.compile(one.getName().getNameAsString() + "|" + two.getName().getNameAsString());
      TableName[] names = suite.admin.listTableNames(mine, false);
      Arrays.sort(names, Comparator.naturalOrder());
      Expect.same(List.of(one.getName(), two.getName()), Arrays.asList(names));
      Expect.that(Arrays.asList(suite.admin.listTableNames()).containsAll(Arrays.asList(names)), "all tables hold both");
      Expect.that(Arrays.stream(suite.admin.listTableNames()).noneMatch(TableName::isSystemTable), "no system tables");
      Expect.that(Arrays.asList(suite.admin.listTableNames((Pattern) null, true)).contains(TableName.META_TABLE_NAME),
          "system tables when asked for");
      Expect.same(2, suite.admin.listTableDescriptors(mine, false).size());
      Expect.same(1, suite.admin.listTableDescriptors(List.of(two.getName())).size());
      Expect.same(0, suite.admin.listTableNames(Pattern.compile("no_such_.*"), true).length);
      suite.admin.disableTable(two.getName());
      Expect.that(suite.admin.listTableNamesByState(false).contains(two.getName()), "disabled tables hold the second");
      Expect.that(suite.admin.listTableNamesByState(true).contains(one.getName()), "enabled tables hold the first");
      Expect.that(!suite.admin.listTableNamesByState(true).contains(two.getName()), "and not the second");
    }
  }

  private void clusterMetrics() throws IOException {
    try (Table table = suite.presplit("m")) {
      table.put(put("a", "f:q", 1, "1"));
      ClusterMetrics metrics = suite.admin.getClusterMetrics();
      Expect.that(metrics.getHBaseVersion() != null && metrics.getHBaseVersion().startsWith("2."), "a version 2 of HBase");
      Expect.that(metrics.getClusterId().length() == 36, "the cluster id is a UUID");
      Expect.that(metrics.getMasterName() != null, "a master");
      Expect.that(!metrics.getLiveServerMetrics().isEmpty(), "a live server");
      Expect.same(0, metrics.getDeadServerNames().size());
      Expect.that(metrics.getRegionStatesInTransition().stream()
          .noneMatch(state -> state.getRegion().getTable().equals(table.getName())), "no region of the table in transition");
      var servers = suite.admin.getRegionServers();
      Expect.same(metrics.getLiveServerMetrics().keySet(), new java.util.HashSet<>(servers));
      int regions = 0;
      for (var server : servers) {
        regions += suite.admin.getRegionMetrics(server, table.getName()).size();
        Expect.that(!suite.admin.getRegions(server).isEmpty(), "the server has regions");
      }
      Expect.same(2, regions);
      ClusterMetrics few = suite.admin.getClusterMetrics(EnumSet.of(ClusterMetrics.Option.CLUSTER_ID));
      Expect.same(metrics.getClusterId(), few.getClusterId());
      ClusterMetrics counts = suite.admin.getClusterMetrics(EnumSet.of(ClusterMetrics.Option.TABLE_TO_REGIONS_COUNT));
      var count = counts.getTableRegionStatesCount().get(table.getName());
      Expect.same(2, count.getTotalRegions());
      Expect.same(2, count.getOpenRegions());
    }
  }

  private void switches() throws IOException {
    boolean balancer = suite.admin.isBalancerEnabled();
    Expect.same(balancer, suite.admin.balancerSwitch(false, true));
    Expect.that(!suite.admin.isBalancerEnabled(), "the balancer is off");
    Expect.same(false, suite.admin.balancerSwitch(balancer, true));
    boolean split = suite.admin.isSplitEnabled();
    Expect.same(split, suite.admin.splitSwitch(split, true));
    boolean merge = suite.admin.isMergeEnabled();
    Expect.same(merge, suite.admin.mergeSwitch(merge, true));
    Expect.that(!suite.admin.isMasterInMaintenanceMode(), "not in maintenance");
    Expect.same(0, suite.admin.listDecommissionedRegionServers().size());
    Expect.same(0, suite.admin.listReplicationPeers().size());
    Expect.that(suite.admin.getSecurityCapabilities() != null, "security capabilities, if none");
    Expect.same(0, suite.admin.listSnapshots(Pattern.compile("no_such_snapshot")).size());
  }
}
