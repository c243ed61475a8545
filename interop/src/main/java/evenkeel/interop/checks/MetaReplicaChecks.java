package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.RegionReplicaUtil;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.RequestConverter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hbase.thirdparty.com.google.protobuf.ServiceException;

/**
 * Replicas of hbase:meta, on servers that refresh their store files often.
 *
 * <p>Settings with the prefix {@link #OWN}: {@code primary} and {@code secondary} are the ports of the RegionServers
 * that get the default replica and replica 1; {@code found} is the number of replicas that {@link #kept} waits for, and
 * {@code next} the number that it asks for then.
 */
final class MetaReplicaChecks {
  private static final String OWN = "evenkeel.interop.meta.";
  private static final String MODE = "hbase.locator.meta.replicas.mode";
  private static final TableName META = TableName.META_TABLE_NAME;
  private final Suite suite;

  MetaReplicaChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("alter", this::alter);
    suite.check("placement", this::place);
    suite.check("registries", () -> registries(Set.of(0, 1)));
    suite.check("reads-after-flush-and-refresh", this::reads);
    suite.check("writes-are-rejected", this::writes);
    suite.check("lookups-load-balance", () -> lookups(MODE, "LoadBalance"));
    suite.check("lookups-hedged", () -> lookups("hbase.meta.replicas.use", "true"));
    suite.check("async-lookups-load-balance", () -> asyncLookups(MODE, "LoadBalance"));
    suite.check("async-lookups-hedged", () -> asyncLookups(MODE, "HedgedRead"));
    suite.check("compaction", this::compaction);
    suite.check("unassign-assign", this::unassign);
    suite.check("more-and-fewer-replicas", this::moreAndFewer);
  }

  /** On servers that replicate the MemStore of hbase:meta, and refresh no store files periodically. */
  void memstores() {
    if (suite.conf.get(OWN + "primary") != null) {
      suite.check("placement", () -> {
        replicas(2);
        until("the replica is served", () -> served().equals(ids(2)));
        place();
      });
    }
    suite.check("rows-without-a-flush", this::unflushedRows);
  }

  private void unflushedRows() throws Exception {
    replicas(2);
    until("the replica is served", () -> served().equals(ids(2)));
    for (int i = 0; i < 3; i++) {
      RegionInfo region = suite.admin.getRegions(suite.table("f").getName()).get(0);
      until("the replica has the row", () -> !read(region, 1).isEmpty());
      Expect.that(read(region, 1).isStale(), "the answer of a secondary replica is stale");
      suite.admin.flush(META);
      Expect.that(!read(region, 1).isEmpty(), "the row stays");
    }
  }

  /** What an earlier server left is served, and the next server finds another number. */
  void kept() {
    int found = suite.conf.getInt(OWN + "found", 1);
    int next = suite.conf.getInt(OWN + "next", found);
    suite.check("found-" + found, () -> {
      until("the replicas are served", () -> served().equals(ids(found)));
      Expect.same(found, suite.admin.getDescriptor(META).getRegionReplication());
      registries(ids(found));
    });
    suite.check("next-" + next, () -> {
      replicas(next);
      until("the replicas are served", () -> served().equals(ids(next)));
      Expect.same(next, suite.admin.getDescriptor(META).getRegionReplication());
      if (next > 1) {
        lookups(MODE, "LoadBalance");
      }
    });
  }

  private static Set<Integer> ids(int count) {
    Set<Integer> ids = new TreeSet<>();
    for (int id = 0; id < count; id++) {
      ids.add(id);
    }
    return ids;
  }

  private static void until(String what, Callable<Boolean> holds) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!holds.call()) {
      Expect.that(System.nanoTime() < end, what + " within 60 s");
      Thread.sleep(50);
    }
  }

  private static RegionInfo replica(int id) {
    return RegionReplicaUtil.getRegionInfoForReplica(RegionInfoBuilder.FIRST_META_REGIONINFO, id);
  }

  private void replicas(int count) throws IOException {
    suite.admin.modifyTable(
        TableDescriptorBuilder.newBuilder(suite.admin.getDescriptor(META)).setRegionReplication(count).build());
  }

  /** Returns the servers of the replicas, as the registry of a connection has them. */
  private static Map<Integer, HRegionLocation> locations(Connection connection) throws IOException {
    Map<Integer, HRegionLocation> locations = new TreeMap<>();
    try (RegionLocator locator = connection.getRegionLocator(META)) {
      for (HRegionLocation location : locator.getRegionLocations(HConstants.EMPTY_START_ROW, true)) {
        if (location != null && location.getServerName() != null) {
          locations.put(location.getRegion().getReplicaId(), location);
        }
      }
    }
    return locations;
  }

  private Set<Integer> served() throws IOException {
    return locations(suite.connection).keySet();
  }

  private Connection with(String... settings) throws IOException {
    Configuration conf = new Configuration(suite.conf);
    for (int i = 0; i < settings.length; i += 2) {
      conf.set(settings[i], settings[i + 1]);
    }
    return ConnectionFactory.createConnection(conf);
  }

  private void alter() throws Exception {
    Expect.same(Set.of(0), served());
    replicas(2);
    until("two replicas", () -> served().equals(Set.of(0, 1)));
    Expect.same(2, suite.admin.getDescriptor(META).getRegionReplication());
    RegionInfo region = locations(suite.connection).get(1).getRegion();
    Expect.same("hbase:meta,,1_0001 534574363", Bytes.toString(region.getRegionName()) + " " + region.getEncodedName());
  }

  private ServerName server(String which) throws IOException {
    int port = suite.conf.getInt(OWN + which, 0);
    return suite.admin.getRegionServers().stream().filter(server -> server.getPort() == port).findFirst().orElse(null);
  }

  private void place() throws Exception {
    ServerName primary = server("primary");
    ServerName secondary = server("secondary");
    if (primary == null || secondary == null) {
      Expect.that(suite.conf.get(OWN + "primary") == null, "both servers are live");
      return;
    }
    List<ServerName> wanted = List.of(primary, secondary);
    until("the replicas are at their places", () -> {
      boolean there = true;
      for (int id = 0; id < 2; id++) {
        HRegionLocation location = locations(suite.connection).get(id);
        if (location == null || !wanted.get(id).equals(location.getServerName())) {
          there = false;
          try {
            suite.admin.move(replica(id).getEncodedNameAsBytes(), wanted.get(id));
          } catch (IOException e) {
            System.out.println(replica(id) + " is not moved yet: " + e);
          }
        }
      }
      return there;
    });
  }

  /** Each registry that has an address knows the replicas. */
  private void registries(Set<Integer> ids) throws Exception {
    String prefix = "org.apache.hadoop.hbase.client.";
    Map<String, String> addresses = Map.of("ZKConnectionRegistry", "hbase.zookeeper.quorum", "MasterRegistry",
        "hbase.masters", "RpcConnectionRegistry", "hbase.client.bootstrap.servers");
    for (Map.Entry<String, String> registry : addresses.entrySet()) {
      if (suite.conf.get(registry.getValue()) == null) {
        continue;
      }
      try (Connection connection = with("hbase.client.registry.impl", prefix + registry.getKey())) {
        until(registry.getKey() + " has the replicas " + ids, () -> locations(connection).keySet().equals(ids));
      }
    }
  }

  /** Creates a table with a row, and waits until replica 1 of hbase:meta shows its region. */
  private TableName known() throws Exception {
    Table rows = suite.table("f");
    rows.put(put("a", "f:q", 1, "v"));
    RegionInfo region = suite.admin.getRegions(rows.getName()).get(0);
    suite.admin.flush(META);
    until("the replica shows the table", () -> !read(region, 1).isEmpty());
    return rows.getName();
  }

  private Result read(RegionInfo region, int replica) throws IOException {
    try (Table meta = suite.connection.getTable(META)) {
      return meta.get(new Get(region.getRegionName()).addFamily(HConstants.CATALOG_FAMILY)
          .setConsistency(Consistency.TIMELINE).setReplicaId(replica));
    }
  }

  private void reads() throws Exception {
    TableName before = known();
    Expect.that(read(suite.admin.getRegions(before).get(0), 1).isStale(), "the answer of a secondary replica is stale");
    TableName after = suite.table("f").getName();
    Thread.sleep(1000);
    RegionInfo region = suite.admin.getRegions(after).get(0);
    Expect.that(read(region, 1).isEmpty(), "the row of hbase:meta is not flushed");
    Expect.that(!read(region, 0).isEmpty(), "the default replica has it");
    suite.admin.flush(META);
    until("the replica is refreshed", () -> !read(region, 1).isEmpty());
  }

  private void writes() throws Exception {
    HRegionLocation location = locations(suite.connection).get(1);
    var stub = ((ClusterConnection) suite.connection).getClient(location.getServerName());
    Throwable error = Expect.fails(DoNotRetryIOException.class, () -> {
      try {
        stub.mutate(null, RequestConverter.buildMutateRequest(replica(1).getRegionName(), put("a", "info:q", 9, "no")));
      } catch (ServiceException e) {
        throw ProtobufUtil.handleRemoteException(e);
      }
    });
    Expect.that(error.getMessage().contains("region is read only"), error.getMessage());
  }

  /** Returns the reads that replica 1 has served. */
  private long reads1() throws IOException {
    long reads = 0;
    for (ServerName server : suite.admin.getRegionServers()) {
      for (var region : suite.admin.getRegionMetrics(server, META)) {
        if (region.getNameAsString().contains("_0001")) {
          reads += region.getReadRequestCount();
        }
      }
    }
    return reads;
  }

  private void lookups(String key, String value) throws Exception {
    TableName table = known();
    long before = reads1();
    try (Connection connection = with(key, value, "hbase.client.meta.replica.scan.timeout", "1");
        RegionLocator locator = connection.getRegionLocator(table);
        Table rows = connection.getTable(table)) {
      until("replica 1 is asked", () -> {
        Expect.same(table, locator.getRegionLocation(b("a"), true).getRegion().getTable());
        return reads1() > before;
      });
      Expect.same("v", Bytes.toString(rows.get(new Get(b("a"))).value()));
    }
  }

  private void asyncLookups(String key, String value) throws Exception {
    TableName table = known();
    long before = reads1();
    Configuration conf = new Configuration(suite.conf);
    conf.set(key, value);
    conf.set("hbase.client.meta.replica.scan.timeout", "1");
    try (AsyncConnection connection = ConnectionFactory.createAsyncConnection(conf).get(60, TimeUnit.SECONDS)) {
      until("replica 1 is asked", () -> {
        HRegionLocation found =
            connection.getRegionLocator(table).getRegionLocation(b("a"), true).get(60, TimeUnit.SECONDS);
        Expect.same(table, found.getRegion().getTable());
        return reads1() > before;
      });
      Result row = connection.getTable(table).get(new Get(b("a"))).get(60, TimeUnit.SECONDS);
      Expect.same("v", Bytes.toString(row.value()));
    }
  }

  private void compaction() throws Exception {
    TableName table = known();
    RegionInfo region = suite.admin.getRegions(table).get(0);
    suite.admin.majorCompact(META);
    until("the compaction ends", () -> suite.admin.getCompactionState(META) == CompactionState.NONE);
    for (int i = 0; i < 20; i++) {
      Expect.that(!read(region, 1).isEmpty(), "the replica shows the table");
      Thread.sleep(50);
    }
  }

  private void unassign() throws Exception {
    suite.admin.unassign(replica(1).getRegionName(), false);
    until("the replica is closed", () -> served().equals(Set.of(0)));
    suite.admin.assign(replica(1).getRegionName());
    until("the replica is open", () -> served().equals(Set.of(0, 1)));
    Expect.that(read(suite.admin.getRegions(known()).get(0), 1).isStale(), "the replica answers");
  }

  private void moreAndFewer() throws Exception {
    replicas(3);
    until("three replicas", () -> served().equals(Set.of(0, 1, 2)));
    registries(Set.of(0, 1, 2));
    RegionInfo region = suite.admin.getRegions(known()).get(0);
    until("the new replica shows the table", () -> read(region, 2).isStale() && !read(region, 2).isEmpty());
    replicas(1);
    until("one replica", () -> served().equals(Set.of(0)));
    registries(Set.of(0));
    Expect.same(1, suite.admin.getDescriptor(META).getRegionReplication());
    Expect.that(!read(region, 0).isEmpty(), "the default replica answers");
  }
}
