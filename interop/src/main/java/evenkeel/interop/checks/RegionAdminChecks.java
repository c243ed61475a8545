package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotEnabledException;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.LogEntry;
import org.apache.hadoop.hbase.client.OnlineLogRecord;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ServerType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Region operations of the Admin: flush, compaction, split, merge, truncate, unassign and assign. */
final class RegionAdminChecks {
  private final Suite suite;

  RegionAdminChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("flush", this::flush);
    suite.check("compact", this::compact);
    suite.check("major-compact", this::majorCompact);
    suite.check("split-at-key", this::splitAtKey);
    suite.check("split-by-size", this::splitByMiddle);
    suite.check("split-errors", this::splitErrors);
    suite.check("split-policies", this::splitPolicies);
    suite.check("split-policy-unknown", this::splitPolicyUnknown);
    suite.check("split-restriction", this::splitRestriction);
    suite.check("merge", this::merge);
    suite.check("split-and-merge-of-table-off", this::splitAndMergeOff);
    suite.check("truncate-region", this::truncateRegion);
    suite.check("truncate-region-errors", this::truncateRegionErrors);
    suite.check("procedures-by-name", this::procedures);
    suite.check("store-file-trackers", this::trackers);
    suite.check("unassign-assign", this::unassignAssign);
    suite.check("roll-wal", this::rollWal);
    suite.check("slow-log", this::slowLog);
  }

  private Table filled(int rows, String... splits) throws IOException {
    Table table = suite.presplit(splits);
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < rows; i++) {
      puts.add(put(String.format("r%04d", i), "f:q", 1, "v" + i));
    }
    table.put(puts);
    return table;
  }

  /** The servers run with hbase.ipc.warn.response.size=200000, and record calls with larger responses. */
  private void slowLog() throws Exception {
    Table table = suite.presplit();
    String name = table.getName().getNameAsString();
    table.put(new Put(b("big\u00ff")).addColumn(b("f"), b("q"), new byte[300_000]));
    Set<ServerName> servers = Set.copyOf(suite.admin.getRegionServers());
    Expect.same(Collections.nCopies(servers.size(), true), suite.admin.clearSlowLogResponses(servers));
    table.get(new Get(b("big\u00ff")));
    table.get(new Get(b("small")));
    until("the large reply is in the log", () -> !logged("LARGE_LOG", Map.of("tableName", name)).isEmpty());
    List<OnlineLogRecord> large = logged("LARGE_LOG", Map.of("tableName", name));
    Expect.same(1, large.size());
    OnlineLogRecord record = large.get(0);
    String region = suite.admin.getRegions(table.getName()).get(0).getRegionNameAsString();
    Expect.same("Get", record.getMethodName());
    Expect.same("HRegionServer", record.getServerClass());
    Expect.same("Get(org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos$GetRequest)",
        record.getCallDetails());
    Expect.same("region= " + region + ", row= big\\xC3\\xBF", record.getParam());
    Expect.same(region, record.getRegionName());
    Expect.that(record.getResponseSize() >= 300_000, "bytes of the reply: " + record.getResponseSize());
    Expect.that(Math.abs(System.currentTimeMillis() - record.getStartTime()) < 60_000, "start time");
    Expect.that(logged("SLOW_LOG", Map.of("tableName", name)).isEmpty(), "it was not slow");
    Map<String, Object> wrongUser = Map.of("tableName", name, "userName", "nobody");
    Expect.same(1, logged("LARGE_LOG", wrongUser).size());
    Map<String, Object> both = new HashMap<>(wrongUser);
    both.put("filterByOperator", "AND");
    Expect.that(logged("LARGE_LOG", both).isEmpty(), "both of two filters");
    both.put("userName", record.getUserName());
    Expect.same(1, logged("LARGE_LOG", both).size());
    String host = record.getClientAddress().replaceAll(":[0-9]+$", "");
    Expect.that(!logged("LARGE_LOG", Map.of("clientAddress", host)).isEmpty(), "by host " + host);
    Expect.same(Collections.nCopies(servers.size(), true), suite.admin.clearSlowLogResponses(servers));
    Expect.that(logged("LARGE_LOG", Map.of("tableName", name)).isEmpty(), "nothing is left");
    Expect.that(suite.admin.getLogEntries(Set.of(), "BALANCER_DECISION", ServerType.MASTER, 10, Map.of()).isEmpty(),
        "no decision of the balancer");
  }

  private List<OnlineLogRecord> logged(String log, Map<String, Object> filters) throws IOException {
    Set<ServerName> servers = Set.copyOf(suite.admin.getRegionServers());
    List<OnlineLogRecord> records = new ArrayList<>();
    for (LogEntry entry : suite.admin.getLogEntries(servers, log, ServerType.REGION_SERVER, 100, filters)) {
      records.add((OnlineLogRecord) entry);
    }
    return records;
  }

  private static void until(String what, Callable<Boolean> holds) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (!holds.call()) {
      Expect.that(System.nanoTime() < end, what + " within 30 s");
      Thread.sleep(50);
    }
  }

  private int storeFiles(Table table) throws IOException {
    int files = 0;
    for (var server : suite.admin.getRegionServers()) {
      for (var region : suite.admin.getRegionMetrics(server, table.getName())) {
        files += region.getStoreFileCount();
      }
    }
    return files;
  }

  private void flush() throws Exception {
    try (Table table = filled(100, "r0050")) {
      Expect.same(0, storeFiles(table));
      suite.admin.flush(table.getName());
      Expect.same(2, storeFiles(table));
      table.put(put("r0000", "f:q", 2, "w"));
      suite.admin.flush(table.getName(), b("f"));
      Expect.same(3, storeFiles(table));
      table.put(put("r0099", "f:q", 2, "w"));
      for (RegionInfo region : suite.admin.getRegions(table.getName())) {
        suite.admin.flushRegion(region.getRegionName());
      }
      Expect.same(4, storeFiles(table));
      Expect.same(100, Rows.keys(table, new Scan()).size());
    }
  }

  private void compact() throws Exception {
    try (Table table = filled(10)) {
      for (int i = 0; i < 3; i++) {
        table.put(put("r000" + i, "f:q", 2, "w"));
        suite.admin.flush(table.getName());
      }
      Expect.same(3, storeFiles(table));
      suite.admin.compact(table.getName());
      until("three files become one", () -> storeFiles(table) == 1);
      until("no compaction is left", () -> suite.admin.getCompactionState(table.getName()) == CompactionState.NONE);
      Expect.same(10, Rows.keys(table, new Scan()).size());
    }
  }

  private void majorCompact() throws Exception {
    try (Table table = filled(10, "r0005")) {
      suite.admin.flush(table.getName());
      table.put(put("r0001", "f:q", 2, "w"));
      suite.admin.flush(table.getName());
      suite.admin.majorCompact(table.getName(), b("f"));
      until("one file a region", () -> storeFiles(table) == 2);
      until("a time of the last major compaction", () -> suite.admin.getLastMajorCompactionTimestamp(table.getName()) > 0);
      Expect.same("r0001{f:q@2=w}", Rows.read(table, "r0001"));
    }
  }

  private List<String> bounds(Table table) throws IOException {
    List<RegionInfo> regions = suite.admin.getRegions(table.getName());
    regions.sort(RegionInfo.COMPARATOR);
    List<String> out = new ArrayList<>();
    for (RegionInfo region : regions) {
      out.add(Bytes.toString(region.getStartKey()) + ".." + Bytes.toString(region.getEndKey()));
    }
    return out;
  }

  private void splitAtKey() throws Exception {
    try (Table table = filled(200)) {
      suite.admin.flush(table.getName());
      table.put(put("r0150x", "f:q", 1, "in memory"));
      suite.admin.split(table.getName(), b("r0120"));
      until("two regions", () -> bounds(table).equals(List.of("..r0120", "r0120..")));
      try (var locator = suite.connection.getRegionLocator(table.getName())) {
        until("both regions are open", () -> locator.getAllRegionLocations().stream().allMatch(l -> l.getServerName() != null));
      }
      Expect.same(201, Rows.keys(table, new Scan()).size());
      Expect.same(201, Rows.keys(table, new Scan().setReversed(true)).size());
      Expect.same("r0119{f:q@1=v119}", Rows.read(table, "r0119"));
      Expect.same("r0120{f:q@1=v120}", Rows.read(table, "r0120"));
      table.put(put("r0000", "f:q", 2, "left"));
      table.put(put("r0199", "f:q", 2, "right"));
      Expect.same("r0199{f:q@2=right}", Rows.read(table, "r0199"));
      suite.admin.majorCompact(table.getName());
      Expect.same(201, Rows.keys(table, new Scan()).size());
    }
  }

  private void splitByMiddle() throws Exception {
    try (Table table = suite.table("f")) {
      byte[] value = new byte[10_000];
      for (int i = 0; i < 100; i++) {
        table.put(new Put(b(String.format("r%04d", i))).addColumn(b("f"), b("q"), 1, value));
      }
      suite.admin.flush(table.getName());
      suite.admin.split(table.getName());
      until("two regions", () -> suite.admin.getRegions(table.getName()).size() == 2);
      String middle = bounds(table).get(1);
      Expect.that(middle.compareTo("r0020") > 0 && middle.compareTo("r0080") < 0, "a middle key, got " + middle);
      Expect.same(100, Rows.keys(table, new Scan()).size());
    }
  }

  private void splitErrors() throws Exception {
    try (Table table = filled(10, "r0005")) {
      RegionInfo second = suite.admin.getRegions(table.getName()).stream().max(RegionInfo.COMPARATOR).orElseThrow();
      Expect.fails(DoNotRetryIOException.class,
          () -> suite.admin.splitRegionAsync(second.getRegionName(), b("r0001")).get(30, TimeUnit.SECONDS));
      Expect.fails(IOException.class,
          () -> suite.admin.splitRegionAsync(second.getRegionName(), b("r0005")).get(30, TimeUnit.SECONDS));
    }
  }

  private static TableDescriptorBuilder policy(TableName name, String policy) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setRegionSplitPolicyClassName("org.apache.hadoop.hbase.regionserver." + policy)
        .setMemStoreFlushSize(1 << 20).setMaxFileSize(2 << 20)
        .setValue("hbase.hregion.max.filesize.jitter", "0")
        .setValue("hbase.increasing.policy.initial.size", Integer.toString(2 << 20));
  }

  /** Writes 6 MB, which are flushed at each MB; the rows are user00_00 to user59_09. */
  private void fill(TableName name) throws Exception {
    try (Table table = suite.connection.getTable(name)) {
      for (int i = 0; i < 600; i++) {
        String row = String.format("user%02d_%02d", i % 60, i / 60);
        table.put(new Put(b(row)).addColumn(b("f"), b("q"), 1, new byte[10_000]));
      }
    }
  }

  /** After a flush of a full MemStore, a region is split if its table's policy says so. */
  private void splitPolicies() throws Exception {
    TableName disabled = suite.name();
    suite.admin.createTable(policy(disabled, "DisabledRegionSplitPolicy").build());
    TableName off = suite.name();
    suite.admin.createTable(policy(off, "ConstantSizeRegionSplitPolicy").setSplitEnabled(false).build());
    fill(disabled);
    fill(off);
    for (String policy : List.of("ConstantSizeRegionSplitPolicy", "SteppingSplitPolicy",
        "IncreasingToUpperBoundRegionSplitPolicy", "KeyPrefixRegionSplitPolicy")) {
      TableName name = suite.name();
      suite.admin.createTable(
          policy(name, policy).setValue("KeyPrefixRegionSplitPolicy.prefix_length", "6").build());
      fill(name);
      until(policy + " splits", () -> suite.admin.getRegions(name).size() > 1);
      try (Table table = suite.connection.getTable(name)) {
        Expect.same(600, Rows.keys(table, new Scan()).size());
        int bytesMax = policy.startsWith("KeyPrefix") ? 6 : 9;
        for (RegionInfo region : suite.admin.getRegions(name)) {
          Expect.that(region.getStartKey().length <= bytesMax, policy + ": " + region.getRegionNameAsString());
        }
      }
    }
    Expect.same(1, suite.admin.getRegions(disabled).size());
    Expect.same(1, suite.admin.getRegions(off).size());
    byte[] region = suite.admin.getRegions(disabled).get(0).getRegionName();
    Throwable error = Expect.fails(DoNotRetryIOException.class,
        () -> suite.admin.splitRegionAsync(region, b("user30")).get(30, TimeUnit.SECONDS));
    Expect.that(error.getMessage().contains("NOT splittable"), error.getMessage());
  }

  private void splitPolicyUnknown() throws Exception {
    TableName name = suite.name();
    TableDescriptorBuilder unknown = policy(name, "Unknown");
    Throwable error = Expect.fails(DoNotRetryIOException.class, () -> suite.admin.createTable(unknown.build()));
    String expected = "Unable to load configured region split policy 'org.apache.hadoop.hbase.regionserver.Unknown'"
        + " for table '" + name + "'";
    Expect.that(error.getMessage().contains(expected), error.getMessage());
    Expect.that(!suite.admin.tableExists(name), "no table");
  }

  /** The middle of a table is a row; a restriction cuts it off. */
  private void splitRestriction() throws Exception {
    TableName name = suite.name();
    suite.admin.createTable(policy(name, "ConstantSizeRegionSplitPolicy").setMaxFileSize(1 << 30)
        .setValue("hbase.regionserver.region.split_restriction.type", "DelimitedKeyPrefix")
        .setValue("hbase.regionserver.region.split_restriction.delimiter", "_").build());
    fill(name);
    suite.admin.flush(name);
    suite.admin.majorCompact(name);
    until("one file", () -> storeFiles(suite.connection.getTable(name)) == 1);
    suite.admin.split(name);
    until("two regions", () -> suite.admin.getRegions(name).size() == 2);
    for (RegionInfo region : suite.admin.getRegions(name)) {
      Expect.that(region.getStartKey().length <= 6, region.getRegionNameAsString());
    }
  }

  private void merge() throws Exception {
    try (Table table = filled(30, "r0010", "r0020")) {
      suite.admin.flush(table.getName());
      List<RegionInfo> regions = suite.admin.getRegions(table.getName());
      regions.sort(RegionInfo.COMPARATOR);
      suite.admin.mergeRegionsAsync(new byte[][] {regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()},
          false).get(60, TimeUnit.SECONDS);
      Expect.lines(bounds(table), "..r0020", "r0020..");
      Expect.same(30, Rows.keys(table, new Scan()).size());
      table.put(put("r0005", "f:q", 2, "w"));
      Expect.same("r0005{f:q@2=w}", Rows.read(table, "r0005"));
    }
  }

  /** A table's own switches, which refuse splits and merges that a user asks for. */
  private void splitAndMergeOff() throws Exception {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(suite.name());
    builder.setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setSplitEnabled(false).setMergeEnabled(false);
    suite.admin.createTable(builder.build(), new byte[][] {b("m")});
    TableName name = builder.build().getTableName();
    List<RegionInfo> regions = suite.admin.getRegions(name);
    byte[][] both = {regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()};
    byte[] first = regions.get(0).getRegionName();
    String split = Expect.fails(DoNotRetryIOException.class,
        () -> suite.admin.splitRegionAsync(first, b("c")).get(30, TimeUnit.SECONDS)).getMessage();
    Expect.that(split.contains("Split region " + regions.get(0).getRegionNameAsString()
        + " failed as region split is disabled for the table"), split);
    String merge = Expect.fails(DoNotRetryIOException.class,
        () -> suite.admin.mergeRegionsAsync(both, false).get(30, TimeUnit.SECONDS)).getMessage();
    Expect.that(merge.contains("failed as region merge is disabled for the table"), merge);
    suite.admin.modifyTable(builder.setSplitEnabled(true).setMergeEnabled(true).build());
    suite.admin.mergeRegionsAsync(both, false).get(60, TimeUnit.SECONDS);
    Expect.same(1, suite.admin.getRegions(name).size());
    suite.admin.splitRegionAsync(suite.admin.getRegions(name).get(0).getRegionName(), b("c")).get(60, TimeUnit.SECONDS);
    Expect.same(2, suite.admin.getRegions(name).size());
  }

  /** Cells in files and in memory go, those of the other regions stay, and so do the region's name and bounds. */
  private void truncateRegion() throws Exception {
    try (Table table = filled(30, "r0010", "r0020")) {
      suite.admin.flush(table.getName());
      table.put(put("r0015", "f:q", 2, "in memory"));
      List<RegionInfo> regions = suite.admin.getRegions(table.getName());
      regions.sort(RegionInfo.COMPARATOR);
      suite.admin.truncateRegion(regions.get(1).getRegionName());
      Expect.same(20, Rows.keys(table, new Scan()).size());
      Expect.same(0, Rows.keys(table, new Scan().withStartRow(b("r0010")).withStopRow(b("r0020"))).size());
      List<RegionInfo> now = suite.admin.getRegions(table.getName());
      now.sort(RegionInfo.COMPARATOR);
      Expect.same(regions, now);
      table.put(put("r0015", "f:q", 1, "after"));
      Expect.same("r0015{f:q@1=after}", Rows.read(table, "r0015"));
      suite.admin.flush(table.getName());
      suite.admin.truncateRegionAsync(regions.get(1).getRegionName()).get(60, TimeUnit.SECONDS);
      Expect.same("-", Rows.read(table, "r0015"));
      Expect.same(20, Rows.keys(table, new Scan()).size());
    }
  }

  private void truncateRegionErrors() throws Exception {
    try (Table table = filled(10)) {
      byte[] name = suite.admin.getRegions(table.getName()).get(0).getRegionName();
      byte[] unknown = b("0123456789abcdef0123456789abcdef");
      Expect.fails(IllegalArgumentException.class,
          () -> suite.admin.truncateRegionAsync(unknown).get(30, TimeUnit.SECONDS));
      suite.admin.disableTable(table.getName());
      Expect.fails(TableNotEnabledException.class,
          () -> suite.admin.truncateRegionAsync(name).get(30, TimeUnit.SECONDS));
    }
  }

  /** The flush of clients before 2.6, and questions about procedures that are unknown or were never run. */
  private void procedures() throws Exception {
    try (Table table = filled(10)) {
      String name = table.getName().getNameAsString();
      Configuration once = new Configuration(suite.connection.getConfiguration());
      once.setInt(HConstants.HBASE_CLIENT_RETRIES_NUMBER, 1);
      try (Connection connection = ConnectionFactory.createConnection(once); Admin admin = connection.getAdmin()) {
        Expect.same(false, admin.isProcedureFinished("flush-table-proc", name, Map.of()));
        admin.execProcedure("flush-table-proc", name, new HashMap<>());
        Expect.same(1, storeFiles(table));
        Expect.same(true, admin.isProcedureFinished("flush-table-proc", name, Map.of()));
        Expect.fails(NoSuchColumnFamilyException.class,
            () -> admin.execProcedure("flush-table-proc", name, new HashMap<>(Map.of("family", "nope"))));
        String unknown = "The procedure is not registered: nope";
        Throwable done = Expect.fails(IOException.class, () -> admin.isProcedureFinished("nope", name, Map.of()));
        Expect.that(done.getMessage().contains(unknown), done.getMessage());
        Throwable run = Expect.fails(DoNotRetryIOException.class, () -> admin.execProcedure("nope", name, new HashMap<>()));
        Expect.that(run.getMessage().contains(unknown), run.getMessage());
        Throwable ret = Expect.fails(IOException.class, () -> admin.execProcedureWithReturn("nope", name, new HashMap<>()));
        Expect.that(ret.getMessage().contains(unknown), ret.getMessage());
      }
    }
  }

  /** Changes of a store file tracker: to the one in use, to lists, and those that HBase refuses. */
  private void trackers() throws Exception {
    try (Table table = filled(10)) {
      TableName name = table.getName();
      suite.admin.modifyTableStoreFileTracker(name, "DEFAULT");
      suite.admin.modifyTableStoreFileTracker(name,
          "org.apache.hadoop.hbase.regionserver.storefiletracker.DefaultStoreFileTracker");
      suite.admin.modifyColumnFamilyStoreFileTracker(name, b("f"), "default");
      Expect.same(10, Rows.keys(table, new Scan()).size());
      suite.admin.modifyTableStoreFileTracker(name, "FILE");
      Expect.same("FILE", suite.admin.getDescriptor(name).getValue("hbase.store.file-tracker.impl"));
      suite.admin.flush(name);
      Expect.same(10, Rows.keys(table, new Scan()).size());
      Expect.fails(DoNotRetryIOException.class, () -> suite.admin.modifyTableStoreFileTracker(name, "MIGRATION"));
      Expect.fails(NoSuchColumnFamilyException.class,
          () -> suite.admin.modifyColumnFamilyStoreFileTracker(name, b("nope"), "DEFAULT"));
      TableName none = TableName.valueOf("no-such-table");
      Expect.fails(TableNotFoundException.class, () -> suite.admin.modifyTableStoreFileTracker(none, "DEFAULT"));
      suite.admin.disableTable(name);
      Expect.fails(TableNotEnabledException.class, () -> suite.admin.modifyTableStoreFileTracker(name, "DEFAULT"));
    }
  }

  private void unassignAssign() throws Exception {
    try (Table table = filled(10)) {
      RegionInfo region = suite.admin.getRegions(table.getName()).get(0);
      suite.admin.unassign(region.getRegionName(), false);
      suite.admin.assign(region.getRegionName());
      Expect.same(10, Rows.keys(table, new Scan()).size());
      suite.admin.move(region.getEncodedNameAsBytes());
      Expect.same(10, Rows.keys(table, new Scan()).size());
    }
  }

  private void rollWal() throws Exception {
    try (Table table = filled(10)) {
      for (var server : suite.admin.getRegionServers()) {
        suite.admin.rollWALWriter(server);
      }
      table.put(put("after", "f:q", 1, "v"));
      Expect.same(11, Rows.keys(table, new Scan()).size());
    }
  }
}
