package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.quotas.QuotaFilter;
import org.apache.hadoop.hbase.quotas.QuotaScope;
import org.apache.hadoop.hbase.quotas.QuotaSettings;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.RpcThrottlingException;
import org.apache.hadoop.hbase.quotas.ThrottleType;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.security.User;

/**
 * Quotas, on a server with {@code hbase.quota.enabled} and a short {@code hbase.quota.refresh.period}. A stock server
 * applies a change some time after its call has returned, so checks wait for its effect.
 */
final class QuotaChecks {
  private static final TableName QUOTAS = TableName.valueOf("hbase:quota");
  private static final byte[] F = b("f");
  private static final byte[] Q = b("q");
  private static final long HOUR_MS = 3_600_000;
  private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(60);

  private final Suite suite;
  private final String user;

  QuotaChecks(Suite suite) throws Exception {
    this.suite = suite;
    this.user = User.getCurrent().getShortName();
  }

  void all() {
    suite.check("table", this::quotaTable);
    suite.check("targets", this::targets);
    suite.check("kinds", this::kinds);
    suite.check("after-the-wait", this::afterTheWait);
    suite.check("batch", this::batch);
    suite.check("scan", this::scan);
    suite.check("throttle-switch", this::throttleSwitch);
    suite.check("exceed", this::exceed);
    suite.check("invalid", this::invalid);
    suite.check("list", this::list);
    suite.check("delete", this::delete);
    // It leaves an empty quota, at which HBase's client ends a list.
    suite.check("bypass", this::bypass);
  }

  private void quotaTable() throws Exception {
    ColumnFamilyDescriptor[] families = suite.admin.getDescriptor(QUOTAS).getColumnFamilies();
    Expect.same(List.of("q", "u"),
        Arrays.stream(families).map(ColumnFamilyDescriptor::getNameAsString).collect(Collectors.toList()));
    for (ColumnFamilyDescriptor family : families) {
      Expect.same(1, family.getMaxVersions());
      Expect.same(BloomType.ROW, family.getBloomFilterType());
      Expect.same(0, family.getScope());
    }
    Expect.same(true, suite.admin.isTableEnabled(QUOTAS));
    Expect.same(true, suite.admin.isRpcThrottleEnabled());
  }

  /** A connection whose calls are not retried, and a table with one row. */
  private final class Impatient implements AutoCloseable {
    final Connection connection;
    final TableName name;
    final Table table;

    Impatient() throws Exception {
      this(suite.name());
    }

    Impatient(TableName name) throws Exception {
      this.name = name;
      suite.create(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")))
          .close();
      Configuration conf = new Configuration(suite.conf);
      conf.setInt("hbase.client.retries.number", 0);
      connection = ConnectionFactory.createConnection(conf);
      table = connection.getTable(name);
      put();
    }

    void put() throws Exception {
      table.put(new Put(b("r")).addColumn(F, Q, new byte[1000]));
    }

    void get() throws Exception {
      Expect.same(1, table.get(new Get(b("r"))).size());
    }

    void increment() throws Exception {
      table.increment(new Increment(b("n")).addColumn(F, Q, 1));
    }

    @Override
    public void close() throws Exception {
      table.close();
      connection.close();
    }
  }

  /** Repeats the call until a quota refuses it, and returns the refusal. */
  private static RpcThrottlingException refused(Suite.Body call) throws Exception {
    long end = System.nanoTime() + DEADLINE_NS;
    while (true) {
      try {
        call.run();
      } catch (Exception e) {
        Throwable root = Expect.root(e);
        if (root instanceof RpcThrottlingException refusal) {
          return refusal;
        }
        throw e;
      }
      Expect.that(System.nanoTime() < end, "a quota refuses the call within 60 s");
      Thread.sleep(20);
    }
  }

  /** Repeats the call until it passes five times in a row: the quota is gone. */
  private static void passes(Suite.Body call) throws Exception {
    passes(call, 5);
  }

  private static void passes(Suite.Body call, int times) throws Exception {
    long end = System.nanoTime() + DEADLINE_NS;
    int passed = 0;
    while (passed < times) {
      try {
        call.run();
        passed++;
      } catch (Exception e) {
        if (!(Expect.root(e) instanceof RpcThrottlingException)) {
          throw e;
        }
        passed = 0;
        Expect.that(System.nanoTime() < end, "the call passes within 60 s");
        Thread.sleep(50);
      }
    }
  }

  private void set(QuotaSettings settings) throws Exception {
    suite.admin.setQuota(settings);
  }

  private static void expect(RpcThrottlingException.Type type, RpcThrottlingException refusal) {
    Expect.same(type, refusal.getType());
    Expect.between(1, 2 * HOUR_MS, refusal.getWaitInterval(), "the wait");
    Expect.that(!(refusal.getCause() instanceof DoNotRetryIOException), "the client may retry");
  }

  private void targets() throws Exception {
    String namespace = suite.word("quotas");
    suite.admin.createNamespace(NamespaceDescriptor.create(namespace).build());
    ThrottleType type = ThrottleType.REQUEST_NUMBER;
    try (Impatient at = new Impatient(suite.name(namespace))) {
      List<QuotaSettings> set = List.of(
          QuotaSettingsFactory.throttleUser(user, type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleUser(user, at.name, type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleUser(user, namespace, type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleTable(at.name, type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleNamespace(namespace, type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleRegionServer("all", type, 1, TimeUnit.HOURS),
          QuotaSettingsFactory.throttleTable(at.name, type, 1, TimeUnit.HOURS, QuotaScope.CLUSTER));
      List<QuotaSettings> removed = List.of(
          QuotaSettingsFactory.unthrottleUser(user),
          QuotaSettingsFactory.unthrottleUser(user, at.name),
          QuotaSettingsFactory.unthrottleUser(user, namespace),
          QuotaSettingsFactory.unthrottleTable(at.name),
          QuotaSettingsFactory.unthrottleNamespace(namespace),
          QuotaSettingsFactory.unthrottleRegionServer("all"),
          QuotaSettingsFactory.unthrottleTableByThrottleType(at.name, type));
      for (int i = 0; i < set.size(); i++) {
        passes(at::get);
        set(set.get(i));
        expect(RpcThrottlingException.Type.NumRequestsExceeded, refused(at::get));
        expect(RpcThrottlingException.Type.NumRequestsExceeded, refused(at::put));
        set(removed.get(i));
        passes(at::put);
      }
    }
  }

  private void kinds() throws Exception {
    try (Impatient at = new Impatient()) {
      kind(at, ThrottleType.WRITE_NUMBER, 1, RpcThrottlingException.Type.NumWriteRequestsExceeded, at::put);
      kind(at, ThrottleType.READ_NUMBER, 1, RpcThrottlingException.Type.NumReadRequestsExceeded, at::get);
      kind(at, ThrottleType.WRITE_SIZE, 1500, RpcThrottlingException.Type.WriteSizeExceeded, at::put);
      kind(at, ThrottleType.READ_SIZE, 2000, RpcThrottlingException.Type.ReadSizeExceeded, at::get);
      kind(at, ThrottleType.REQUEST_SIZE, 1500, RpcThrottlingException.Type.RequestSizeExceeded, at::put);
      kind(at, ThrottleType.REQUEST_CAPACITY_UNIT, 1, RpcThrottlingException.Type.RequestCapacityUnitExceeded,
          at::put);
      kind(at, ThrottleType.WRITE_CAPACITY_UNIT, 1, RpcThrottlingException.Type.WriteCapacityUnitExceeded, at::put);
      kind(at, ThrottleType.READ_CAPACITY_UNIT, 64, RpcThrottlingException.Type.ReadCapacityUnitExceeded, at::get);
      kind(at, ThrottleType.ATOMIC_REQUEST_NUMBER, 2, RpcThrottlingException.Type.AtomicRequestNumberExceeded,
          at::increment);
      kind(at, ThrottleType.ATOMIC_WRITE_SIZE, 100, RpcThrottlingException.Type.AtomicWriteSizeExceeded,
          at::increment);
    }
  }

  private void kind(Impatient at, ThrottleType kind, long limit, RpcThrottlingException.Type type, Suite.Body call)
      throws Exception {
    set(QuotaSettingsFactory.throttleTable(at.name, kind, limit, TimeUnit.HOURS));
    Expect.same(List.of(kind), throttleTypes(new QuotaFilter().setTableFilter(at.name.getNameAsString())));
    expect(type, refused(call));
    set(QuotaSettingsFactory.unthrottleTableByThrottleType(at.name, kind));
    passes(call);
  }

  private List<ThrottleType> throttleTypes(QuotaFilter filter) throws Exception {
    List<ThrottleType> types = new ArrayList<>();
    for (QuotaSettings settings : suite.admin.getQuota(filter)) {
      String text = settings.toString();
      types.add(ThrottleType.valueOf(text.replaceFirst(".*THROTTLE_TYPE => (\\w+).*", "$1")));
    }
    return types;
  }

  /** The wait of a refusal is enough, and clients that retry wait for it. */
  private void afterTheWait() throws Exception {
    try (Impatient at = new Impatient(); Table patient = suite.connection.getTable(at.name)) {
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.REQUEST_NUMBER, 1, TimeUnit.SECONDS));
      RpcThrottlingException refusal = refused(() -> {
        for (int i = 0; i < 20; i++) {
          at.get();
        }
      });
      Expect.between(1, 1000, refusal.getWaitInterval(), "the wait");
      Expect.that(refusal.getMessage().contains("number of requests exceeded - wait "), refusal.getMessage());
      Thread.sleep(refusal.getWaitInterval() + 20);
      at.get();
      long start = System.nanoTime();
      for (int i = 0; i < 4; i++) {
        Expect.same(1, patient.get(new Get(b("r"))).size());
      }
      long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
      Expect.between(2000, 30_000, tookMs, "4 Gets at one a second");
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(at::get);
    }
  }

  private void batch() throws Exception {
    try (Impatient at = new Impatient()) {
      List<Get> gets = List.of(new Get(b("r")), new Get(b("s")), new Get(b("t")));
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.READ_NUMBER, 3, TimeUnit.HOURS));
      expect(RpcThrottlingException.Type.NumReadRequestsExceeded, refused(() -> at.table.get(gets)));
      at.put();
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.WRITE_NUMBER, 2, TimeUnit.HOURS));
      List<Put> puts = new ArrayList<>();
      for (String row : List.of("a", "b", "c", "d")) {
        puts.add(new Put(b(row)).addColumn(F, Q, b("v")));
      }
      expect(RpcThrottlingException.Type.NumWriteRequestsExceeded, refused(() -> at.table.put(puts)));
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(() -> at.table.get(gets));
    }
  }

  /** A refused call of a scan is made again, and no row is lost. */
  private void scan() throws Exception {
    try (Impatient at = new Impatient(); Table patient = suite.connection.getTable(at.name)) {
      for (int i = 0; i < 8; i++) {
        patient.put(new Put(b("row" + i)).addColumn(F, Q, b("v")));
      }
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.READ_NUMBER, 1, TimeUnit.HOURS));
      refused(at::get);
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.READ_NUMBER, 4, TimeUnit.SECONDS));
      passes(at::get, 1);
      List<String> rows = new ArrayList<>();
      try (ResultScanner scanner = patient.getScanner(new Scan().setCaching(1))) {
        for (Result row : scanner) {
          rows.add(new String(row.getRow()));
        }
      }
      Expect.same(List.of("r", "row0", "row1", "row2", "row3", "row4", "row5", "row6", "row7"), rows);
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(at::get);
    }
  }

  private void bypass() throws Exception {
    try (Impatient at = new Impatient()) {
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.REQUEST_NUMBER, 1, TimeUnit.HOURS));
      refused(at::get);
      set(QuotaSettingsFactory.bypassGlobals(user, true));
      passes(at::get);
      Expect.same(List.of("GLOBAL_BYPASS => true"), texts(new QuotaFilter().setUserFilter(user)));
      set(QuotaSettingsFactory.bypassGlobals(user, false));
      refused(at::get);
      Expect.same(List.of(), texts(new QuotaFilter().setUserFilter(user)));
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(at::get);
    }
  }

  private void throttleSwitch() throws Exception {
    try (Impatient at = new Impatient()) {
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.REQUEST_NUMBER, 1, TimeUnit.HOURS));
      refused(at::get);
      Expect.same(true, suite.admin.switchRpcThrottle(false));
      Expect.same(false, suite.admin.isRpcThrottleEnabled());
      passes(at::get);
      Expect.same(false, suite.admin.switchRpcThrottle(false));
      Expect.same(false, suite.admin.switchRpcThrottle(true));
      Expect.same(true, suite.admin.isRpcThrottleEnabled());
      refused(at::get);
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(at::get);
    }
  }

  private void exceed() throws Exception {
    try (Impatient at = new Impatient()) {
      String message = Expect.fails(DoNotRetryIOException.class, () -> suite.admin.exceedThrottleQuotaSwitch(true))
          .getMessage();
      Expect.that(message.contains("Please set region server quota before enable exceed throttle quota"), message);
      set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.READ_NUMBER, 10_000, TimeUnit.SECONDS));
      message = Expect.fails(DoNotRetryIOException.class, () -> suite.admin.exceedThrottleQuotaSwitch(true))
          .getMessage();
      Expect.that(message.contains("Please set at least one write region server quota"), message);
      set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.WRITE_NUMBER, 10_000, TimeUnit.MINUTES));
      message = Expect.fails(DoNotRetryIOException.class, () -> suite.admin.exceedThrottleQuotaSwitch(true))
          .getMessage();
      Expect.that(message.contains("All region server quota must be in seconds time unit"), message);
      set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.WRITE_NUMBER, 10_000, TimeUnit.SECONDS));
      set(QuotaSettingsFactory.throttleTable(at.name, ThrottleType.REQUEST_NUMBER, 1, TimeUnit.HOURS));
      refused(at::get);
      Expect.same(false, suite.admin.exceedThrottleQuotaSwitch(true));
      passes(at::get);
      Expect.same(true, suite.admin.exceedThrottleQuotaSwitch(true));
      Expect.same(true, suite.admin.exceedThrottleQuotaSwitch(false));
      set(QuotaSettingsFactory.unthrottleRegionServer("all"));
      refused(at::get);
      set(QuotaSettingsFactory.unthrottleTable(at.name));
      passes(at::get);
    }
  }

  private void invalid() throws Exception {
    QuotaSettings zero = QuotaSettingsFactory.throttleUser("nobody", ThrottleType.READ_SIZE, 0, TimeUnit.SECONDS);
    String message = Expect.fails(DoNotRetryIOException.class, () -> set(zero)).getMessage();
    Expect.that(message.contains("java.lang.UnsupportedOperationException: The throttle limit must be greater then 0,"
        + " got 0"), message);
    set(QuotaSettingsFactory.unthrottleUser("nobody"));
    Expect.same(List.of(), texts(new QuotaFilter().setUserFilter("nobody")));
  }

  private List<String> texts(QuotaFilter filter) throws Exception {
    List<String> texts = new ArrayList<>();
    for (QuotaSettings settings : suite.admin.getQuota(filter)) {
      texts.add(settings.toString());
    }
    return texts;
  }

  /** Returns the owners of quotas: user, table, namespace and region server. */
  private TreeSet<String> owners(QuotaFilter filter) throws Exception {
    TreeSet<String> owners = new TreeSet<>();
    for (QuotaSettings of : suite.admin.getQuota(filter)) {
      owners.add(of.getUserName() + "/" + of.getTableName() + "/" + of.getNamespace() + "/" + of.getRegionServer());
    }
    return owners;
  }

  private void list() throws Exception {
    String first = suite.word("first");
    String second = suite.word("second");
    TableName table = TableName.valueOf("default", suite.word("listed"));
    String namespace = suite.word("ns");
    ThrottleType type = ThrottleType.READ_NUMBER;
    set(QuotaSettingsFactory.throttleUser(first, type, 1, TimeUnit.SECONDS));
    set(QuotaSettingsFactory.throttleUser(first, ThrottleType.WRITE_SIZE, 5L << 20, TimeUnit.MINUTES,
        QuotaScope.CLUSTER));
    set(QuotaSettingsFactory.throttleUser(first, table, ThrottleType.REQUEST_CAPACITY_UNIT, 7, TimeUnit.DAYS));
    set(QuotaSettingsFactory.throttleUser(first, namespace, type, 3, TimeUnit.HOURS));
    set(QuotaSettingsFactory.throttleUser(second, type, 4, TimeUnit.SECONDS));
    set(QuotaSettingsFactory.throttleTable(table, type, 5, TimeUnit.SECONDS));
    set(QuotaSettingsFactory.throttleNamespace(namespace, type, 6, TimeUnit.SECONDS));
    String a = first + "/null/null/null";
    String b = first + "/" + table + "/null/null";
    String c = first + "/null/" + namespace + "/null";
    String d = second + "/null/null/null";
    String e = "null/" + table + "/null/null";
    String f = "null/null/" + namespace + "/null";
    Expect.that(owners(new QuotaFilter()).containsAll(List.of(a, b, c, d, e, f)), "all are listed without a filter");
    Expect.same(new TreeSet<>(List.of(a, b, c)), owners(new QuotaFilter().setUserFilter(first)));
    Expect.same(new TreeSet<>(List.of(a, b, c)), owners(new QuotaFilter().setUserFilter(first.charAt(0) + ".*"
        + first.substring(2))));
    Expect.same(new TreeSet<>(List.of(b)), owners(new QuotaFilter().setUserFilter(first).setTableFilter(
        table.getNameAsString())));
    Expect.same(new TreeSet<>(List.of(b)), owners(new QuotaFilter().setUserFilter(first).setTableFilter(".*")));
    Expect.same(new TreeSet<>(List.of(c)), owners(new QuotaFilter().setUserFilter(first).setNamespaceFilter(
        namespace)));
    Expect.same(new TreeSet<>(List.of(e)), owners(new QuotaFilter().setTableFilter(table.getNameAsString())));
    Expect.same(new TreeSet<>(List.of(f)), owners(new QuotaFilter().setNamespaceFilter(namespace)));
    Expect.same(List.of(
        "TYPE => THROTTLE, THROTTLE_TYPE => WRITE_SIZE, LIMIT => 5.00M/min, SCOPE => CLUSTER",
        "TYPE => THROTTLE, THROTTLE_TYPE => READ_NUMBER, LIMIT => 1req/sec, SCOPE => MACHINE",
        "TYPE => THROTTLE, THROTTLE_TYPE => REQUEST_CAPACITY_UNIT, LIMIT => 7CU/day, SCOPE => MACHINE",
        "TYPE => THROTTLE, THROTTLE_TYPE => READ_NUMBER, LIMIT => 3req/hour, SCOPE => MACHINE"),
        texts(new QuotaFilter().setUserFilter(first)));
    // One kind alone, then, as in HBase, the whole row of the user with the quotas on tables and namespaces.
    set(QuotaSettingsFactory.unthrottleUserByThrottleType(first, type));
    Expect.same(3, texts(new QuotaFilter().setUserFilter(first)).size());
    set(QuotaSettingsFactory.unthrottleUser(first, table));
    Expect.same(2, texts(new QuotaFilter().setUserFilter(first)).size());
    set(QuotaSettingsFactory.unthrottleUser(first));
    Expect.same(List.of(), texts(new QuotaFilter().setUserFilter(first)));
    set(QuotaSettingsFactory.unthrottleUser(second));
    set(QuotaSettingsFactory.unthrottleTable(table));
    set(QuotaSettingsFactory.unthrottleNamespace(namespace));
    Expect.same(List.of(), texts(new QuotaFilter().setTableFilter(table.getNameAsString())));
  }

  /** The quotas of a deleted table or namespace are removed, but not those of users on them. */
  private void delete() throws Exception {
    String namespace = suite.word("deleted");
    suite.admin.createNamespace(NamespaceDescriptor.create(namespace).build());
    TableName name = TableName.valueOf(namespace, "t");
    suite.admin.createTable(
        TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    ThrottleType type = ThrottleType.READ_NUMBER;
    String of = suite.word("user");
    set(QuotaSettingsFactory.throttleTable(name, type, 1, TimeUnit.SECONDS));
    set(QuotaSettingsFactory.throttleNamespace(namespace, type, 1, TimeUnit.SECONDS));
    set(QuotaSettingsFactory.throttleUser(of, name, type, 1, TimeUnit.SECONDS));
    suite.admin.disableTable(name);
    suite.admin.deleteTable(name);
    Expect.same(List.of(), texts(new QuotaFilter().setTableFilter(name.getNameAsString())));
    Expect.same(1, texts(new QuotaFilter().setNamespaceFilter(namespace)).size());
    suite.admin.deleteNamespace(namespace);
    Expect.same(List.of(), texts(new QuotaFilter().setNamespaceFilter(namespace)));
    Expect.same(1, texts(new QuotaFilter().setUserFilter(of)).size());
    set(QuotaSettingsFactory.unthrottleUser(of));
  }
}
