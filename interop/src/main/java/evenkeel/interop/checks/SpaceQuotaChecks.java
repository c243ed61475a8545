package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.quotas.QuotaFilter;
import org.apache.hadoop.hbase.quotas.QuotaSettings;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.QuotaTableUtil;
import org.apache.hadoop.hbase.quotas.SpaceQuotaSnapshotView;
import org.apache.hadoop.hbase.quotas.SpaceViolationPolicy;
import org.apache.hadoop.hbase.snapshot.RestoreSnapshotException;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Quotas of space and limits of namespaces, on a server with {@code hbase.quota.enabled} and short periods of the
 * chores of quotas. Sizes and policies reach the server after some periods, so checks wait for them.
 */
final class SpaceQuotaChecks {
  private static final TableName QUOTAS = TableName.valueOf("hbase:quota");
  private static final String LIMITED = "org.apache.hadoop.hbase.quotas.SpaceLimitingException";
  private static final String EXCEEDED = "org.apache.hadoop.hbase.quotas.QuotaExceededException";
  private static final byte[] F = b("f");
  private static final byte[] Q = b("q");
  private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(60);
  private static final int VALUE_BYTES = 8000;
  private static final long LIMIT_BYTES = 4000;

  private final Suite suite;

  SpaceQuotaChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("policies", this::policies);
    suite.check("disable", this::disable);
    suite.check("namespace", this::namespace);
    suite.check("snapshot-sizes", this::snapshotSizes);
    suite.check("list", this::list);
    suite.check("invalid", this::invalid);
    suite.check("delete", this::delete);
    suite.check("namespace-tables", this::namespaceTables);
    suite.check("namespace-regions", this::namespaceRegions);
    suite.check("namespace-values", this::namespaceValues);
  }

  /** A connection whose calls are not retried, and a table with a store file of more than the limit. */
  private final class Full implements AutoCloseable {
    final Connection connection;
    final TableName name;
    final Table table;

    Full(TableName name) throws Exception {
      this.name = name;
      suite.create(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")))
          .close();
      Configuration conf = new Configuration(suite.conf);
      conf.setInt("hbase.client.retries.number", 0);
      connection = ConnectionFactory.createConnection(conf);
      table = connection.getTable(name);
      byte[] value = new byte[VALUE_BYTES];
      new java.util.Random(1).nextBytes(value);
      table.put(new Put(b("full")).addColumn(F, Q, value));
      suite.admin.flush(name);
    }

    void put() throws Exception {
      table.put(valued("r"));
    }

    void puts() throws Exception {
      table.put(List.of(valued("r"), valued("s")));
    }

    void delete() throws Exception {
      table.delete(new Delete(b("gone")));
    }

    void increment() throws Exception {
      table.increment(new Increment(b("n")).addColumn(F, b("n"), 1));
    }

    void append() throws Exception {
      table.append(new Append(b("r")).addColumn(F, Q, b("v")));
    }

    /** The condition never holds. */
    void checkAndPut() throws Exception {
      table.checkAndMutate(CheckAndMutate.newBuilder(b("r")).ifEquals(F, b("none"), b("x")).build(valued("r")));
    }

    void rowMutations() throws Exception {
      table.mutateRow(RowMutations.of(List.of(valued("r"), new Delete(b("r")).addColumns(F, b("none")))));
    }

    @Override
    public void close() throws Exception {
      table.close();
      connection.close();
    }
  }

  private static Put valued(String row) {
    return new Put(b(row)).addColumn(F, Q, b("v"));
  }

  private void set(QuotaSettings settings) throws Exception {
    suite.admin.setQuota(settings);
  }

  /** Repeats the call until a quota of space refuses it, and returns the first line of the message. */
  private static String refused(Suite.Body call) throws Exception {
    long end = System.nanoTime() + DEADLINE_NS;
    while (true) {
      try {
        call.run();
      } catch (Exception e) {
        Throwable root = Expect.root(e);
        if (root.getClass().getName().equals(LIMITED)) {
          return root.getMessage().lines().findFirst().orElse("");
        }
        throw e;
      }
      Expect.that(System.nanoTime() < end, "a quota refuses the call within 60 s");
      Thread.sleep(50);
    }
  }

  /** Repeats the call until no quota of space refuses it. */
  private static void passes(Suite.Body call) throws Exception {
    long end = System.nanoTime() + DEADLINE_NS;
    while (true) {
      try {
        call.run();
        return;
      } catch (Exception e) {
        if (!Expect.root(e).getClass().getName().equals(LIMITED)) {
          throw e;
        }
        Expect.that(System.nanoTime() < end, "the call passes within 60 s");
        Thread.sleep(50);
      }
    }
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  private static void await(String what, Condition condition) throws Exception {
    long end = System.nanoTime() + DEADLINE_NS;
    while (!condition.holds()) {
      Expect.that(System.nanoTime() < end, what + " within 60 s");
      Thread.sleep(50);
    }
  }

  private void policies() throws Exception {
    Map<SpaceViolationPolicy, Full> tables = new LinkedHashMap<>();
    for (SpaceViolationPolicy policy : List.of(SpaceViolationPolicy.NO_INSERTS, SpaceViolationPolicy.NO_WRITES,
        SpaceViolationPolicy.NO_WRITES_COMPACTIONS)) {
      tables.put(policy, new Full(suite.name()));
    }
    for (Map.Entry<SpaceViolationPolicy, Full> entry : tables.entrySet()) {
      set(QuotaSettingsFactory.limitTableSpace(entry.getValue().name, LIMIT_BYTES, entry.getKey()));
    }
    for (Map.Entry<SpaceViolationPolicy, Full> entry : tables.entrySet()) {
      policy(entry.getKey(), entry.getValue());
    }
    boolean removes = true;
    for (Full at : tables.values()) {
      // A policy ends by the removal of the quota, or by a limit that the table does not exceed.
      set(removes ? QuotaSettingsFactory.removeTableSpaceLimit(at.name)
          : QuotaSettingsFactory.limitTableSpace(at.name, 1L << 40, SpaceViolationPolicy.NO_INSERTS));
      removes = false;
    }
    for (Full at : tables.values()) {
      passes(at::put);
      passes(at::increment);
      set(QuotaSettingsFactory.removeTableSpaceLimit(at.name));
      at.close();
    }
  }

  private void policy(SpaceViolationPolicy policy, Full at) throws Exception {
    String rest = "s are disallowed due to a space quota.";
    Expect.same(policy + " Put" + rest, refused(at::put));
    Result before = at.table.get(new Get(b("r")));
    Expect.same(policy + " Put" + rest, refused(at::puts));
    Expect.same(policy + " Increment" + rest, refused(at::increment));
    Expect.same(policy + " Append" + rest, refused(at::append));
    Expect.same(policy + " Put" + rest, refused(at::checkAndPut));
    Expect.same(policy + " Put" + rest, refused(at::rowMutations));
    if (policy == SpaceViolationPolicy.NO_INSERTS) {
      at.delete();
      Object[] results = new Object[2];
      Expect.fails(LIMITED, () -> at.table.batch(List.<Row>of(new Delete(b("gone")), valued("r")), results));
      Expect.that(Arrays.stream(results).allMatch(Throwable.class::isInstance),
          "a batch of a region is refused as a whole");
    } else {
      Expect.same(policy + " Delete" + rest, refused(at::delete));
    }
    Result.compareResults(before, at.table.get(new Get(b("r"))));
    SpaceQuotaSnapshotView use = suite.admin.getCurrentSpaceQuotaSnapshot(at.name);
    Expect.same(true, use.getQuotaStatus().isInViolation());
    Expect.same(policy, use.getQuotaStatus().getPolicy().get());
    Expect.same(LIMIT_BYTES, use.getLimit());
    Expect.between(VALUE_BYTES, 3 * VALUE_BYTES, use.getUsage(), "the use");
    Expect.same(use.getUsage(), suite.admin.getSpaceQuotaTableSizes().get(at.name));
    ServerName server = suite.admin.getRegionServers().iterator().next();
    SpaceQuotaSnapshotView ofServer = suite.admin.getRegionServerSpaceQuotaSnapshots(server).get(at.name);
    Expect.same(policy, ofServer.getQuotaStatus().getPolicy().get());
    Expect.same(use.getUsage(), ofServer.getUsage());
    Expect.same(LIMIT_BYTES, QuotaTableUtil.getSnapshots(suite.connection).get(at.name).getLimit());
    stored(policy, at.name, use.getUsage());
  }

  /** The cell of hbase:quota is the message that stock HBase writes. */
  private void stored(SpaceViolationPolicy policy, TableName name, long usage) throws Exception {
    int number = switch (policy) {
      case DISABLE -> 1;
      case NO_WRITES_COMPACTIONS -> 2;
      case NO_WRITES -> 3;
      case NO_INSERTS -> 4;
    };
    try (Table quotas = suite.connection.getTable(QUOTAS)) {
      Result row = quotas.get(new Get(b("t." + name)));
      byte[] value = row.getValue(b("u"), b("p"));
      byte[] status = {0x0a, 0x04, 0x08, (byte) number, 0x10, 0x01, 0x10};
      byte[] want = Bytes.add(status, varint(usage), Bytes.add(new byte[] {0x18}, varint(LIMIT_BYTES)));
      Expect.same(Bytes.toStringBinary(want), Bytes.toStringBinary(value));
      byte[] quota = row.getValue(b("q"), b("s"));
      byte[] space = Bytes.add(Bytes.add(new byte[] {0x08}, varint(LIMIT_BYTES)), new byte[] {0x10, (byte) number});
      want = Bytes.add(b("PBUF"), new byte[] {0x1a, (byte) space.length}, space);
      Expect.same(Bytes.toStringBinary(want), Bytes.toStringBinary(quota));
    }
  }

  private static byte[] varint(long value) {
    byte[] bytes = {};
    for (long rest = value; ; rest >>>= 7) {
      if (rest < 128) {
        return Bytes.add(bytes, new byte[] {(byte) rest});
      }
      bytes = Bytes.add(bytes, new byte[] {(byte) (rest & 127 | 128)});
    }
  }

  private void disable() throws Exception {
    try (Full at = new Full(suite.name())) {
      set(QuotaSettingsFactory.limitTableSpace(at.name, LIMIT_BYTES, SpaceViolationPolicy.DISABLE));
      await("the table is disabled", () -> suite.admin.isTableDisabled(at.name));
      String message = Expect.fails("org.apache.hadoop.hbase.security.AccessDeniedException",
          () -> suite.admin.enableTable(at.name)).getMessage();
      Expect.that(message.contains("Enabling the table '" + at.name + "' is disallowed due to a violated space quota."),
          message);
      set(QuotaSettingsFactory.removeTableSpaceLimit(at.name));
      Expect.same(true, suite.admin.isTableEnabled(at.name));
      passes(at::put);
    }
  }

  private void namespace() throws Exception {
    String namespace = suite.word("space");
    suite.admin.createNamespace(NamespaceDescriptor.create(namespace).build());
    try (Full own = new Full(suite.name(namespace)); Full other = new Full(suite.name(namespace))) {
      set(QuotaSettingsFactory.limitTableSpace(own.name, LIMIT_BYTES, SpaceViolationPolicy.NO_INSERTS));
      Expect.same("NO_INSERTS Puts are disallowed due to a space quota.", refused(own::put));
      set(QuotaSettingsFactory.limitNamespaceSpace(namespace, LIMIT_BYTES, SpaceViolationPolicy.NO_WRITES));
      Expect.same("NO_WRITES Puts are disallowed due to a space quota.", refused(other::put));
      Expect.same("NO_INSERTS Puts are disallowed due to a space quota.", refused(own::put));
      SpaceQuotaSnapshotView use = suite.admin.getCurrentSpaceQuotaSnapshot(namespace);
      Expect.same(SpaceViolationPolicy.NO_WRITES, use.getQuotaStatus().getPolicy().get());
      Expect.between(2 * VALUE_BYTES, 6 * VALUE_BYTES, use.getUsage(), "the use");
      set(QuotaSettingsFactory.removeNamespaceSpaceLimit(namespace));
      passes(other::put);
      refused(own::put);
      set(QuotaSettingsFactory.removeTableSpaceLimit(own.name));
      passes(own::put);
    }
  }

  private void snapshotSizes() throws Exception {
    try (Full at = new Full(suite.name())) {
      String snapshot = suite.word("snap");
      suite.admin.snapshot(snapshot, at.name);
      set(QuotaSettingsFactory.limitTableSpace(at.name, 1L << 40, SpaceViolationPolicy.NO_WRITES));
      await("the snapshot has no files of its own", () -> Long.valueOf(0).equals(size(snapshot)));
      suite.admin.disableTable(at.name);
      suite.admin.truncateTable(at.name, false);
      await("the snapshot has the files of the table", () -> size(snapshot) > VALUE_BYTES);
      long bytes = size(snapshot);
      await("the table is charged", () -> {
        SpaceQuotaSnapshotView use = suite.admin.getCurrentSpaceQuotaSnapshot(at.name);
        return use != null && use.getUsage() >= bytes;
      });
      suite.admin.deleteSnapshot(snapshot);
      await("the size of a deleted snapshot is deleted", () -> size(snapshot) == null);
      set(QuotaSettingsFactory.removeTableSpaceLimit(at.name));
    }
  }

  private Long size(String snapshot) throws Exception {
    return QuotaTableUtil.getObservedSnapshotSizes(suite.connection).get(snapshot);
  }

  private List<String> texts(QuotaFilter filter) throws Exception {
    return suite.admin.getQuota(filter).stream().map(QuotaSettings::toString).toList();
  }

  private void list() throws Exception {
    TableName table = TableName.valueOf("default", suite.word("listed"));
    String namespace = suite.word("ns");
    set(QuotaSettingsFactory.limitTableSpace(table, 5L << 30, SpaceViolationPolicy.NO_WRITES_COMPACTIONS));
    set(QuotaSettingsFactory.limitNamespaceSpace(namespace, 1536, SpaceViolationPolicy.DISABLE));
    QuotaFilter ofTable = new QuotaFilter().setTableFilter(table.getNameAsString());
    QuotaFilter ofNamespace = new QuotaFilter().setNamespaceFilter(namespace);
    Expect.same(List.of("TYPE => SPACE, TABLE => " + table + ", LIMIT => 5.00G, VIOLATION_POLICY => NO_WRITES_COMPACTIONS"),
        texts(ofTable));
    Expect.same(List.of("TYPE => SPACE, NAMESPACE => " + namespace + ", LIMIT => 1.50K, VIOLATION_POLICY => DISABLE"),
        texts(ofNamespace));
    set(QuotaSettingsFactory.limitTableSpace(table, 7, SpaceViolationPolicy.NO_INSERTS));
    Expect.same(List.of("TYPE => SPACE, TABLE => " + table + ", LIMIT => 7.00B, VIOLATION_POLICY => NO_INSERTS"),
        texts(ofTable));
    set(QuotaSettingsFactory.removeTableSpaceLimit(table));
    set(QuotaSettingsFactory.removeNamespaceSpaceLimit(namespace));
    Expect.same(List.of(), texts(ofTable));
    Expect.same(List.of(), texts(ofNamespace));
    set(QuotaSettingsFactory.removeTableSpaceLimit(table));
  }

  /** A table that does not exist may have a quota, and the client itself refuses other values. */
  private void invalid() throws Exception {
    Expect.fails(IllegalArgumentException.class,
        () -> QuotaSettingsFactory.limitTableSpace(TableName.valueOf("t"), -1, SpaceViolationPolicy.DISABLE));
    TableName absent = TableName.valueOf("default", suite.word("absent"));
    set(QuotaSettingsFactory.limitTableSpace(absent, 1, SpaceViolationPolicy.DISABLE));
    Expect.same(null, suite.admin.getCurrentSpaceQuotaSnapshot(absent));
    set(QuotaSettingsFactory.removeTableSpaceLimit(absent));
  }

  /** The quota and the use of a deleted table are removed. */
  private void delete() throws Exception {
    try (Full at = new Full(suite.name())) {
      set(QuotaSettingsFactory.limitTableSpace(at.name, LIMIT_BYTES, SpaceViolationPolicy.NO_WRITES));
      refused(at::put);
      suite.admin.disableTable(at.name);
      suite.admin.deleteTable(at.name);
      Expect.same(List.of(), texts(new QuotaFilter().setTableFilter(at.name.getNameAsString())));
      try (Table quotas = suite.connection.getTable(QUOTAS)) {
        Expect.same(true, quotas.get(new Get(b("t." + at.name))).isEmpty());
      }
    }
    try (Full again = new Full(suite.name())) {
      again.put();
    }
  }

  private NamespaceDescriptor limited(String namespace, String tables, String regions) {
    return NamespaceDescriptor.create(namespace).addConfiguration("hbase.namespace.quota.maxtables", tables)
        .addConfiguration("hbase.namespace.quota.maxregions", regions).build();
  }

  private void create(TableName name, String... splits) throws Exception {
    byte[][] keys = new byte[splits.length][];
    for (int i = 0; i < splits.length; i++) {
      keys[i] = b(splits[i]);
    }
    suite.admin.createTable(
        TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build(),
        keys.length == 0 ? null : keys);
  }

  private static void exceeds(String want, Suite.Body call) {
    String message = Expect.fails(EXCEEDED, call).getMessage();
    Expect.that(message.contains(want), message);
  }

  private void namespaceTables() throws Exception {
    String namespace = suite.word("limited");
    suite.admin.createNamespace(limited(namespace, "2", "5"));
    TableName a = suite.name(namespace);
    TableName b = suite.name(namespace);
    TableName c = TableName.valueOf(namespace, "c");
    create(a, "m");
    exceeds("The table " + c + " is not allowed to have 4 regions. The total number of regions permitted is only 5,"
        + " while current region count is 2. This may be transient, please retry later if there are any ongoing split"
        + " operations in the namespace.", () -> create(c, "c", "m", "t"));
    create(b);
    exceeds("The table " + c + " cannot be created as it would exceed maximum number of tables allowed  in the"
        + " namespace.  The total number of tables permitted is 2", () -> create(c));
    String snapshot = suite.word("snap");
    suite.admin.snapshot(snapshot, a);
    exceeds("The table " + c + " cannot be created as it would exceed maximum number of tables allowed  in the"
        + " namespace.  The total number of tables permitted is 2", () -> suite.admin.cloneSnapshot(snapshot, c));
    suite.admin.modifyNamespace(limited(namespace, "3", "4"));
    exceeds("The table " + c + " is not allowed to have 2 regions.", () -> suite.admin.cloneSnapshot(snapshot, c));
    suite.admin.disableTable(b);
    suite.admin.deleteTable(b);
    suite.admin.cloneSnapshot(snapshot, b);
    suite.admin.deleteSnapshot(snapshot);
  }

  private void namespaceRegions() throws Exception {
    String namespace = suite.word("limited");
    suite.admin.createNamespace(limited(namespace, "5", "3"));
    TableName a = suite.name(namespace);
    create(a, "m");
    String snapshot = suite.word("snap");
    suite.admin.snapshot(snapshot, a);
    suite.admin.splitRegionAsync(region(a, "c"), b("c")).get(60, TimeUnit.SECONDS);
    RegionInfo second = suite.connection.getRegionLocator(a).getRegionLocation(b("t"), true).getRegion();
    exceeds("Region split not possible for :" + second.getEncodedName() + " as quota limits are exceeded ",
        () -> suite.admin.splitRegionAsync(second.getRegionName(), b("t")).get(60, TimeUnit.SECONDS));
    Expect.same(3, suite.admin.getRegions(a).size());
    suite.admin.disableTable(a);
    suite.admin.truncateTable(a, false);
    suite.admin.modifyNamespace(limited(namespace, "5", "1"));
    suite.admin.disableTable(a);
    exceeds("The table " + a + " region count cannot be updated as it would exceed maximum number of regions allowed in"
        + " the namespace.  The total number of regions permitted is 1", () -> restore(snapshot));
    suite.admin.enableTable(a);
    suite.admin.deleteSnapshot(snapshot);
  }

  /** The client has an exception of its own around that of the master. */
  private void restore(String snapshot) throws Exception {
    try {
      suite.admin.restoreSnapshot(snapshot, false);
    } catch (RestoreSnapshotException e) {
      Throwable cause = e.getCause();
      throw cause instanceof Exception inner ? inner : e;
    }
  }

  private byte[] region(TableName table, String row) throws Exception {
    return suite.connection.getRegionLocator(table).getRegionLocation(b(row), true).getRegion().getRegionName();
  }

  private void namespaceValues() throws Exception {
    String namespace = suite.word("values");
    String constraint = "org.apache.hadoop.hbase.constraint.ConstraintException";
    String message = Expect.fails(constraint, () -> suite.admin.createNamespace(limited(namespace, "1", "0")))
        .getMessage();
    Expect.that(message.contains("The max region quota for " + namespace + " is less than or equal to zero."), message);
    message = Expect.fails(constraint, () -> suite.admin.createNamespace(limited(namespace, "-5", "1"))).getMessage();
    Expect.that(message.contains("The max tables quota for " + namespace + " is less than or equal to zero."), message);
    message = Expect.fails("org.apache.hadoop.hbase.DoNotRetryIOException",
        () -> suite.admin.createNamespace(limited(namespace, "five", "1"))).getMessage();
    Expect.that(message.contains("NumberFormatException while getting max tables."), message);
    suite.admin.createNamespace(limited(namespace, "1", "1"));
    message = Expect.fails(constraint, () -> suite.admin.modifyNamespace(limited(namespace, "1", "0"))).getMessage();
    Expect.that(message.contains("The max region quota for " + namespace + " is less than or equal to zero."), message);
    Expect.same("1", suite.admin.getNamespaceDescriptor(namespace)
        .getConfigurationValue("hbase.namespace.quota.maxregions"));
    suite.admin.deleteNamespace(namespace);
  }
}
