package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.ipc.HBaseRpcController;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.RequestConverter;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos;
import org.apache.hadoop.hbase.shaded.protobuf.generated.HBaseProtos;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hbase.thirdparty.com.google.protobuf.ServiceException;

/** Tables with REGION_REPLICATION above 1, on a server that refreshes store files of replicas often. */
final class ReplicaChecks {
  private final Suite suite;

  ReplicaChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("locations", this::locations);
    suite.check("columns-of-meta", this::columns);
    suite.check("reads-after-flush-and-refresh", this::reads);
    suite.check("primary-answers-first", this::primaryFirst);
    suite.check("raw-calls-to-a-replica", this::rawCalls);
    suite.check("compaction", this::compaction);
    suite.check("more-and-fewer-replicas", this::alter);
    suite.check("disable-and-enable", this::disable);
    suite.check("split", this::split);
    suite.check("merge", this::merge);
    suite.check("unassign-assign-move", this::unassign);
    suite.check("truncate", this::truncate);
    suite.check("clone-of-a-snapshot", this::cloned);
    suite.check("metrics", this::metrics);
    suite.check("illegal", this::illegal);
  }

  /** On a server that replicates MemStores, and refreshes no store files periodically. */
  void memstores() {
    suite.check("edits-without-a-flush", this::unflushedEdits);
    suite.check("edits-around-flushes", this::editsAroundFlushes);
    suite.check("rows-of-a-scan", this::scanOfUnflushed);
    suite.check("edits-without-a-log", this::unloggedEdits);
    suite.check("files-of-compactions-and-loads", this::newFiles);
    suite.check("replicas-of-later", this::laterReplicas);
    suite.check("memstore-replication-off", this::memstoreReplicationOff);
  }

  private void delete(TableName table, String row) throws IOException {
    try (Table rows = suite.connection.getTable(table)) {
      rows.delete(new Delete(b(row)));
    }
  }

  private void shows(TableName table, String row, String value) throws Exception {
    until("replica 1 shows " + value + " of " + row, () -> value(table, row, 1).equals(value));
  }

  private void unflushedEdits() throws Exception {
    TableName table = create(3, "m");
    // A flush tells the replicas of the edits before their opening.
    for (String row : List.of("b", "y")) {
      write(table, row, "1");
      shows(table, row, "1 stale");
      until("replica 2, too", () -> value(table, row, 2).equals("1 stale"));
    }
    int before = files(table, 0);
    for (String row : List.of("a", "z")) {
      write(table, row, "1");
      shows(table, row, "1 stale");
      until("replica 2, too", () -> value(table, row, 2).equals("1 stale"));
      write(table, row, "2");
      shows(table, row, "2 stale");
      delete(table, row);
      shows(table, row, "-");
      write(table, row, "3");
      shows(table, row, "3 stale");
    }
    try (Table rows = suite.connection.getTable(table)) {
      rows.increment(new Increment(b("n")).addColumn(b("f"), b("q"), 5));
      rows.increment(new Increment(b("n")).addColumn(b("f"), b("q"), 2));
      String seven = Bytes.toString(Bytes.toBytes(7L)) + " stale";
      shows(table, "n", seven);
    }
    Expect.same(before, files(table, 0));
  }

  private void editsAroundFlushes() throws Exception {
    TableName table = create(2);
    for (int i = 0; i < 4; i++) {
      write(table, "a", "a" + i);
      write(table, "r" + i, "v" + i);
      shows(table, "r" + i, "v" + i + " stale");
      suite.admin.flush(table);
      for (int row = 0; row <= i; row++) {
        Expect.same("v" + row + " stale", value(table, "r" + row, 1));
      }
      Expect.same("a" + i + " stale", value(table, "a", 1));
      write(table, "a", "b" + i);
      shows(table, "a", "b" + i + " stale");
    }
    delete(table, "r1");
    shows(table, "r1", "-");
    suite.admin.flush(table);
    for (int i = 0; i < 20; i++) {
      Expect.same("-", value(table, "r1", 1));
      Expect.same("b3 stale", value(table, "a", 1));
      Thread.sleep(50);
    }
  }

  private void scanOfUnflushed() throws Exception {
    TableName table = create(2);
    List<String> expected = new ArrayList<>();
    for (int i = 0; i < 40; i++) {
      String row = String.format("r%02d", i);
      write(table, row, "v");
      expected.add(row);
      if (i == 20) {
        suite.admin.flush(table);
      }
    }
    Scan scan = new Scan().setConsistency(Consistency.TIMELINE).setReplicaId(1);
    try (Table rows = suite.connection.getTable(table)) {
      until("the replica has all rows", () -> Rows.keys(rows, new Scan(scan)).equals(expected));
    }
  }

  private void unloggedEdits() throws Exception {
    TableName table = create(2);
    // A flush for a replica that has just been opened is over.
    write(table, "c", "3");
    shows(table, "c", "3 stale");
    try (Table rows = suite.connection.getTable(table)) {
      rows.put(put("a", "f:q", System.currentTimeMillis(), "1").setDurability(Durability.SKIP_WAL));
      write(table, "b", "2");
      shows(table, "b", "2 stale");
      Expect.same("-", value(table, "a", 1));
      suite.admin.flush(table);
      shows(table, "a", "1 stale");
    }
  }

  private void newFiles() throws Exception {
    TableName table = create(2);
    for (int i = 0; i < 3; i++) {
      write(table, "r" + i, "v" + i);
      suite.admin.flush(table);
    }
    shows(table, "r2", "v2 stale");
    suite.admin.majorCompact(table);
    until("the compaction ends", () -> files(table, 0) == 1
        && suite.admin.getCompactionState(table) == CompactionState.NONE);
    until("the replica reads the new file", () -> files(table, 1) == 1);
    for (int i = 0; i < 3; i++) {
      Expect.same("v" + i + " stale", value(table, "r" + i, 1));
    }
  }

  private void laterReplicas() throws Exception {
    TableName table = create(1);
    write(table, "a", "1");
    replicas(table, 2);
    until("two replicas", () -> served(table).equals(Set.of("/0", "/1")));
    shows(table, "a", "1 stale");
    write(table, "b", "2");
    shows(table, "b", "2 stale");
    RegionInfo replica = region(table, "a", 1);
    suite.admin.unassign(replica.getRegionName(), false);
    write(table, "c", "3");
    suite.admin.assign(replica.getRegionName());
    shows(table, "c", "3 stale");
    Expect.same("1 stale", value(table, "a", 1));
    suite.admin.unassign(region(table, "a", 0).getRegionName(), false);
    suite.admin.assign(region(table, "a", 0).getRegionName());
    write(table, "d", "4");
    shows(table, "d", "4 stale");
  }

  private void memstoreReplicationOff() throws Exception {
    TableName table = suite.name();
    suite.admin.createTable(TableDescriptorBuilder.newBuilder(table)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setRegionReplication(2)
        .setRegionMemStoreReplication(false).build());
    write(table, "a", "1");
    Thread.sleep(3000);
    Expect.same("-", value(table, "a", 1));
    suite.admin.flush(table);
    shows(table, "a", "1 stale");
  }

  private static void until(String what, Callable<Boolean> holds) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!holds.call()) {
      Expect.that(System.nanoTime() < end, what + " within 60 s");
      Thread.sleep(50);
    }
  }

  private TableName create(int replicas, String... splits) throws IOException {
    TableName name = suite.name();
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setRegionReplication(replicas);
    suite.admin.createTable(table.build(), splits.length == 0 ? null
        : Arrays.stream(splits).map(Bytes::toBytes).toArray(byte[][]::new));
    return name;
  }

  private List<HRegionLocation> all(TableName table) throws IOException {
    try (RegionLocator locator = suite.connection.getRegionLocator(table)) {
      locator.clearRegionLocationCache();
      return locator.getAllRegionLocations();
    }
  }

  /** Returns start key and replica id of every region that has a server. */
  private Set<String> served(TableName table) throws IOException {
    Set<String> served = new TreeSet<>();
    for (HRegionLocation location : all(table)) {
      if (location != null && location.getServerName() != null) {
        RegionInfo region = location.getRegion();
        served.add(Bytes.toString(region.getStartKey()) + "/" + region.getReplicaId());
      }
    }
    return served;
  }

  private RegionInfo region(TableName table, String row, int replica) throws IOException {
    try (RegionLocator locator = suite.connection.getRegionLocator(table)) {
      return locator.getRegionLocation(b(row), replica, true).getRegion();
    }
  }

  private static Get get(String row, int replica) {
    return new Get(b(row)).setConsistency(Consistency.TIMELINE).setReplicaId(replica);
  }

  private String value(TableName table, String row, int replica) throws IOException {
    try (Table rows = suite.connection.getTable(table)) {
      Result result = rows.get(get(row, replica));
      return result.isEmpty() ? "-" : Bytes.toString(result.value()) + (result.isStale() ? " stale" : "");
    }
  }

  private void write(TableName table, String row, String value) throws IOException {
    try (Table rows = suite.connection.getTable(table)) {
      rows.put(put(row, "f:q", System.currentTimeMillis(), value));
    }
  }

  private void locations() throws Exception {
    TableName table = create(2, "m");
    Expect.same(Set.of("/0", "/1", "m/0", "m/1"), served(table));
    try (RegionLocator locator = suite.connection.getRegionLocator(table)) {
      List<HRegionLocation> replicas = locator.getRegionLocations(b("z"), true);
      Expect.same(2, replicas.size());
      RegionInfo primary = replicas.get(0).getRegion();
      RegionInfo secondary = replicas.get(1).getRegion();
      Expect.same(1, secondary.getReplicaId());
      String name = secondary.getRegionNameAsString();
      Expect.that(name.startsWith(table + ",m," + primary.getRegionId() + "_0001."), name);
      Expect.that(replicas.get(1).getSeqNum() > 0, "an open sequence number");
      Set<String> online = new TreeSet<>();
      suite.admin.getRegions(replicas.get(1).getServerName()).forEach(region -> online.add(region.getRegionNameAsString()));
      Expect.that(online.contains(name), "its server has it online");
    }
    Expect.same(4, suite.admin.getRegions(table).size());
  }

  /** Returns the qualifiers of the columns of replicas in the only row of a table, with their texts. */
  private Set<String> columnsOf(TableName table) throws Exception {
    Set<String> columns = new TreeSet<>();
    Scan scan = new Scan().withStartRow(b(table + ",,")).withStopRow(b(table + "-")).addFamily(b("info"));
    try (Table meta = suite.connection.getTable(TableName.META_TABLE_NAME); ResultScanner scanner = meta.getScanner(scan)) {
      for (Result row : scanner) {
        for (Cell cell : row.rawCells()) {
          String qualifier = Bytes.toString(CellUtil.cloneQualifier(cell));
          if (qualifier.contains("_")) {
            String state = qualifier.startsWith("state") ? "=" + Bytes.toString(CellUtil.cloneValue(cell)) : "";
            columns.add(qualifier + state);
          }
        }
        RegionInfo info = RegionInfo.parseFrom(row.getValue(b("info"), b("regioninfo")));
        Expect.same(0, info.getReplicaId());
        Expect.that(Arrays.equals(row.getRow(), info.getRegionName()), "the row is that of the default replica");
      }
    }
    return columns;
  }

  private void columns() throws Exception {
    TableName table = create(3);
    Expect.same(new TreeSet<>(List.of("seqnumDuringOpen_0001", "seqnumDuringOpen_0002", "server_0001", "server_0002",
        "serverstartcode_0001", "serverstartcode_0002", "sn_0001", "sn_0002", "state_0001=OPEN", "state_0002=OPEN")),
        columnsOf(table));
  }

  private void reads() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    Thread.sleep(1000);
    Expect.same("-", value(table, "a", 1));
    Expect.same("1", value(table, "a", 0));
    suite.admin.flush(table);
    until("the replica shows the flushed row", () -> value(table, "a", 1).equals("1 stale"));
    write(table, "b", "2");
    try (Table rows = suite.connection.getTable(table)) {
      Expect.same(true, rows.exists(get("a", 1)));
      Expect.same(false, rows.exists(get("b", 1)));
      // A batch goes to any replica, and both have the row.
      Result[] results = rows.get(List.of(get("a", 0), get("none", 0)));
      Expect.same("1 true", Bytes.toString(results[0].value()) + " " + results[1].isEmpty());
      Scan scan = new Scan().setConsistency(Consistency.TIMELINE).setReplicaId(1);
      try (ResultScanner scanner = rows.getScanner(scan)) {
        Result first = scanner.next();
        Expect.same("a true", Bytes.toString(first.getRow()) + " " + first.isStale());
        Expect.that(scanner.next() == null, "b is not flushed");
      }
      Expect.same(List.of("a", "b"), Rows.keys(rows, new Scan()));
      // As in HBase, a strong read goes to the default replica.
      Expect.same(false, rows.get(new Get(b("b")).setReplicaId(1)).isStale());
    }
  }

  private void primaryFirst() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    try (Table rows = suite.connection.getTable(table)) {
      for (int i = 0; i < 20; i++) {
        rows.get(new Get(b("a")));
      }
      boolean fresh = false;
      for (int i = 0; i < 50 && !fresh; i++) {
        Result result = rows.get(new Get(b("a")).setConsistency(Consistency.TIMELINE));
        fresh = !result.isStale() && "1".equals(Bytes.toString(result.value()));
      }
      Expect.that(fresh, "the default replica answers");
    }
  }

  private ClientProtos.ClientService.BlockingInterface stub(HRegionLocation location) throws IOException {
    return ((ClusterConnection) suite.connection).getClient(location.getServerName());
  }

  private static void raw(ClientProtos.ClientService.BlockingInterface stub, ClientProtos.MutateRequest request)
      throws IOException {
    try {
      stub.mutate(null, request);
    } catch (ServiceException e) {
      throw ProtobufUtil.handleRemoteException(e);
    }
  }

  private void rawCalls() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    suite.admin.flush(table);
    until("the replica shows the row", () -> value(table, "a", 1).equals("1 stale"));
    HRegionLocation replica;
    try (RegionLocator locator = suite.connection.getRegionLocator(table)) {
      replica = locator.getRegionLocation(b("a"), 1, true);
    }
    byte[] name = replica.getRegion().getRegionName();
    ClientProtos.ClientService.BlockingInterface stub = stub(replica);
    Throwable error = Expect.fails(DoNotRetryIOException.class,
        () -> raw(stub, RequestConverter.buildMutateRequest(name, put("a", "f:q", 9, "no"))));
    Expect.that(error.getMessage().contains("region is read only"), error.getMessage());
    // The server does not look at the consistency.
    Expect.same("1 true", answer(stub, name, new Get(b("a"))));
    Expect.same("- true", answer(stub, name, new Get(b("x"))));
    ClientProtos.Result exists =
        stub.get(null, RequestConverter.buildGetRequest(name, new Get(b("a")).setCheckExistenceOnly(true))).getResult();
    Expect.same("true true", exists.getExists() + " " + exists.getStale());
    ClientProtos.ScanResponse scanned =
        stub.scan(controller(), RequestConverter.buildScanRequest(name, new Scan(), 10, true));
    Expect.same("1 true", scanned.getCellsPerResultCount() + " " + scanned.getStale());
    ClientProtos.RegionAction.Builder gets = ClientProtos.RegionAction.newBuilder()
        .setRegion(RequestConverter.buildRegionSpecifier(
            HBaseProtos.RegionSpecifier.RegionSpecifierType.REGION_NAME, name));
    for (String row : List.of("a", "x")) {
      gets.addAction(ClientProtos.Action.newBuilder().setIndex(gets.getActionCount())
          .setGet(ProtobufUtil.toGet(new Get(b(row)))));
    }
    ClientProtos.MultiResponse multi =
        stub.multi(controller(), ClientProtos.MultiRequest.newBuilder().addRegionAction(gets).build());
    List<String> shown = new ArrayList<>();
    for (ClientProtos.ResultOrException one : multi.getRegionActionResult(0).getResultOrExceptionList()) {
      shown.add(one.getResult().getAssociatedCellCount() + " " + one.getResult().getStale());
    }
    Expect.same(List.of("1 true", "0 true"), shown);
  }

  private HBaseRpcController controller() {
    return ((ClusterConnection) suite.connection).getRpcControllerFactory().newController();
  }

  private String answer(ClientProtos.ClientService.BlockingInterface stub, byte[] region, Get get) throws Exception {
    HBaseRpcController controller = controller();
    ClientProtos.Result message = stub.get(controller, RequestConverter.buildGetRequest(region, get)).getResult();
    Result result = ProtobufUtil.toResult(message, controller.cellScanner());
    return (result.isEmpty() ? "-" : Bytes.toString(result.value())) + " " + message.getStale();
  }

  private void compaction() throws Exception {
    TableName table = create(2);
    for (int i = 0; i < 3; i++) {
      write(table, "r" + i, "v" + i);
      suite.admin.flush(table);
    }
    until("the replica shows all rows", () -> value(table, "r2", 1).equals("v2 stale"));
    suite.admin.majorCompact(table);
    until("the compaction ends", () -> files(table, 0) == 1
        && suite.admin.getCompactionState(table) == CompactionState.NONE);
    for (int i = 0; i < 20; i++) {
      for (int row = 0; row < 3; row++) {
        Expect.same("v" + row + " stale", value(table, "r" + row, 1));
      }
      Thread.sleep(50);
    }
    until("the replica reads the new file", () -> files(table, 1) == 1);
    Expect.same("v1 stale", value(table, "r1", 1));
  }

  private int files(TableName table, int replica) throws IOException {
    int files = 0;
    String suffix = String.format("_%04X.", replica);
    for (var server : suite.admin.getRegionServers()) {
      for (var region : suite.admin.getRegionMetrics(server, table)) {
        boolean secondary = region.getNameAsString().contains("_000");
        if (replica == 0 ? !secondary : region.getNameAsString().contains(suffix)) {
          files += region.getStoreFileCount();
        }
      }
    }
    return files;
  }

  private void replicas(TableName table, int count) throws IOException {
    suite.admin.modifyTable(
        TableDescriptorBuilder.newBuilder(suite.admin.getDescriptor(table)).setRegionReplication(count).build());
  }

  private void alter() throws Exception {
    TableName table = create(1);
    write(table, "a", "1");
    suite.admin.flush(table);
    Expect.same(Set.of("/0"), served(table));
    replicas(table, 3);
    until("three replicas", () -> served(table).equals(Set.of("/0", "/1", "/2")));
    Expect.same("1 stale", value(table, "a", 1));
    Expect.same("1 stale", value(table, "a", 2));
    replicas(table, 2);
    until("two replicas", () -> served(table).equals(Set.of("/0", "/1")));
    Expect.same(new TreeSet<>(List.of("seqnumDuringOpen_0001", "server_0001", "serverstartcode_0001", "sn_0001",
        "state_0001=OPEN")), columnsOf(table));
    Expect.same("1 stale", value(table, "a", 1));
    replicas(table, 1);
    until("one replica", () -> served(table).equals(Set.of("/0")));
    Expect.same(Set.of(), columnsOf(table));
    Expect.same("1", value(table, "a", 0));
  }

  private void disable() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    suite.admin.disableTable(table);
    Expect.that(columnsOf(table).contains("state_0001=CLOSED"), "closed, got " + columnsOf(table));
    suite.admin.modifyTable(
        TableDescriptorBuilder.newBuilder(suite.admin.getDescriptor(table)).setRegionReplication(3).build());
    suite.admin.enableTable(table);
    until("all are open", () -> served(table).equals(Set.of("/0", "/1", "/2")));
    Expect.that(columnsOf(table).containsAll(Set.of("state_0001=OPEN", "state_0002=OPEN")), "got " + columnsOf(table));
    Expect.same("1 stale", value(table, "a", 1));
    suite.admin.disableTable(table);
    suite.admin.deleteTable(table);
    Expect.same(Set.of(), columnsOf(table));
  }

  private void split() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    write(table, "z", "2");
    suite.admin.flush(table);
    suite.admin.splitRegionAsync(region(table, "a", 0).getRegionName(), b("m")).get(60, TimeUnit.SECONDS);
    until("the daughters have replicas", () -> served(table).equals(Set.of("/0", "/1", "m/0", "m/1")));
    until("the replicas have the rows",
        () -> value(table, "a", 1).equals("1 stale") && value(table, "z", 1).equals("2 stale"));
    write(table, "b", "3");
    suite.admin.flush(table);
    until("a daughter's replica is refreshed", () -> value(table, "b", 1).equals("3 stale"));
    Expect.same("2 stale", value(table, "z", 1));
  }

  private void merge() throws Exception {
    TableName table = create(2, "m");
    write(table, "a", "1");
    write(table, "z", "2");
    byte[][] both = {region(table, "a", 0).getRegionName(), region(table, "z", 0).getRegionName()};
    suite.admin.mergeRegionsAsync(both, false).get(60, TimeUnit.SECONDS);
    until("the merged region has a replica", () -> served(table).equals(Set.of("/0", "/1")));
    until("the replica has the rows",
        () -> value(table, "a", 1).equals("1 stale") && value(table, "z", 1).equals("2 stale"));
  }

  private void unassign() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    suite.admin.flush(table);
    RegionInfo replica = region(table, "a", 1);
    suite.admin.unassign(replica.getRegionName(), false);
    Expect.that(columnsOf(table).contains("state_0001=CLOSED"), "closed, got " + columnsOf(table));
    suite.admin.assign(replica.getRegionName());
    Expect.that(columnsOf(table).contains("state_0001=OPEN"), "open, got " + columnsOf(table));
    Expect.same("1 stale", value(table, "a", 1));
    suite.admin.move(replica.getEncodedNameAsBytes());
    until("it is open again", () -> value(table, "a", 1).equals("1 stale"));
    suite.admin.flushRegion(replica.getRegionName());
    suite.admin.compactRegion(replica.getRegionName());
    Expect.same("1 stale", value(table, "a", 1));
  }

  private void truncate() throws Exception {
    TableName table = create(2, "m");
    write(table, "a", "1");
    suite.admin.disableTable(table);
    suite.admin.truncateTable(table, true);
    until("all are open", () -> served(table).equals(Set.of("/0", "/1", "m/0", "m/1")));
    Expect.same("-", value(table, "a", 1));
    write(table, "a", "2");
    suite.admin.flush(table);
    until("the replica has the row", () -> value(table, "a", 1).equals("2 stale"));
  }

  private void cloned() throws Exception {
    TableName table = create(2);
    write(table, "a", "1");
    String snapshot = "s-" + table.getQualifierAsString();
    suite.admin.snapshot(snapshot, table);
    TableName clone = suite.name();
    suite.admin.cloneSnapshot(snapshot, clone);
    suite.admin.deleteSnapshot(snapshot);
    until("the clone has replicas", () -> served(clone).equals(Set.of("/0", "/1")));
    Expect.same("1 stale", value(clone, "a", 1));
  }

  private void metrics() throws Exception {
    TableName table = create(2);
    List<String> names = new ArrayList<>();
    for (var server : suite.admin.getRegionServers()) {
      suite.admin.getRegionMetrics(server, table).forEach(region -> names.add(region.getNameAsString()));
    }
    Expect.same(2, names.size());
    Expect.same(1L, names.stream().filter(name -> name.contains("_0001.")).count());
  }

  private void illegal() throws Exception {
    TableName table = create(2);
    byte[] replica = region(table, "a", 1).getRegionName();
    Expect.fails(IllegalArgumentException.class,
        () -> suite.admin.splitRegionAsync(replica, b("m")).get(60, TimeUnit.SECONDS));
    Expect.fails(IllegalArgumentException.class,
        () -> suite.admin.truncateRegionAsync(replica).get(60, TimeUnit.SECONDS));
    Throwable none = Expect.fails(DoNotRetryIOException.class, () -> {
      TableDescriptorBuilder zero = TableDescriptorBuilder.newBuilder(suite.name())
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setRegionReplication(0);
      suite.admin.createTable(zero.build());
    });
    Expect.that(none.getMessage().contains("Table region replication should be at least one."), none.getMessage());
  }
}
