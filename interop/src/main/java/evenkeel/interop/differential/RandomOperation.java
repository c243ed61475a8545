package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import evenkeel.interop.Show;
import evenkeel.interop.checks.Expect;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * One operation of the differential test, derived entirely from its seed: two instances do the same to two tables.
 *
 * If the server sets the timestamp, the operation first waits until the clock advances, so that on either side the
 * order of such timestamps is the order of operations. They are shown as {@code now}.
 */
final class RandomOperation {
  /** A stock server's PrefixFilter sometimes reads past the end of a row's bytes; such reads are not compared. */
  static final String CRASHED = "? the server ran into an index out of bounds";

  private final Random random;
  private final Domain domain = new Domain();
  private final StringBuilder text = new StringBuilder();

  RandomOperation(long seed) {
    this.random = new Random(seed);
  }

  /** Describes the operation, by the client objects' {@code toString}. */
  String text() {
    return text.toString();
  }

  /** Runs the operation and returns everything that the client sees of the answer. */
  String apply(Table table) throws Exception {
    int kind = random.nextInt(100);
    try {
      if (kind < 25) {
        return put(table);
      }
      if (kind < 37) {
        return delete(table);
      }
      if (kind < 43) {
        return readModifyWrite(table);
      }
      if (kind < 49) {
        return checkAndMutate(table);
      }
      if (kind < 54) {
        return rowMutations(table);
      }
      if (kind < 60) {
        return batch(table);
      }
      return kind < 75 ? get(table) : scan(table);
    } catch (RuntimeException | IOException e) {
      return "! " + Expect.root(e).getClass().getName();
    }
  }

  private static boolean crashed(Throwable failure) {
    Throwable root = Expect.root(failure);
    String message = String.valueOf(root.getMessage());
    // After many occurrences, the server's JIT compiler omits the exception's message.
    return root instanceof IndexOutOfBoundsException || message.contains("out of bounds for length")
        || message.contains("IndexOutOfBoundsException");
  }

  private boolean chance(int oneIn) {
    return random.nextInt(oneIn) == 0;
  }

  private void log(Object what) {
    text.append(what).append('\n');
  }

  private static void tick() {
    long now = System.currentTimeMillis();
    while (System.currentTimeMillis() < now + 2) {
      Thread.onSpinWait();
    }
  }

  private Put makePut(byte[] row) {
    Put put = new Put(row);
    for (int i = random.nextInt(4); i >= 0; i--) {
      byte[] family = chance(300) ? b("nope") : domain.family(random);
      if (chance(8)) {
        put.addColumn(family, domain.qualifier(random), domain.value(random));
      } else {
        put.addColumn(family, domain.qualifier(random), domain.time(random), domain.value(random));
      }
    }
    if (chance(20)) {
      put.setTTL(10_000_000L);
    }
    return put;
  }

  private Delete makeDelete(byte[] row) {
    Delete delete = new Delete(row);
    if (chance(12)) {
      return chance(2) ? delete : new Delete(row, domain.time(random));
    }
    for (int i = random.nextInt(2); i >= 0; i--) {
      byte[] family = domain.family(random);
      byte[] qualifier = domain.qualifier(random);
      int time = domain.time(random);
      switch (random.nextInt(9)) {
        case 0 -> delete.addColumn(family, qualifier);
        case 1, 2, 3 -> delete.addColumn(family, qualifier, time);
        case 4 -> delete.addColumns(family, qualifier);
        case 5 -> delete.addColumns(family, qualifier, time);
        case 6 -> delete.addFamily(family, time);
        case 7 -> delete.addFamilyVersion(family, time);
        default -> delete.addColumns(family, qualifier, time / 2 + 1);
      }
    }
    return delete;
  }

  private Increment makeIncrement(byte[] row) {
    Increment increment = new Increment(row).addColumn(domain.family(random), b("n"), random.nextInt(9) - 4);
    if (chance(20)) {
      increment.addColumn(domain.family(random), domain.qualifier(random), 1);
    }
    return increment;
  }

  private Append makeAppend(byte[] row) {
    return new Append(row).addColumn(domain.family(random), b("c"), b("+" + random.nextInt(10)));
  }

  private Mutation makeMutation(byte[] row) {
    return switch (random.nextInt(8)) {
      case 0 -> makeIncrement(row);
      case 1 -> makeAppend(row);
      case 2, 3, 4 -> makeDelete(row);
      default -> makePut(row);
    };
  }

  private static Mutation describe(Mutation mutation, StringBuilder text) {
    text.append(mutation.getClass().getSimpleName()).append(' ').append(mutation.toString(20)).append('\n');
    return mutation;
  }

  private String put(Table table) throws IOException {
    Put put = makePut(domain.row(random));
    describe(put, text);
    tick();
    table.put(put);
    return "done";
  }

  private String delete(Table table) throws IOException {
    Delete delete = makeDelete(domain.row(random));
    describe(delete, text);
    tick();
    table.delete(delete);
    return "done";
  }

  private String readModifyWrite(Table table) throws IOException {
    byte[] row = domain.row(random);
    tick();
    if (chance(2)) {
      Increment increment = makeIncrement(row).setReturnResults(!chance(5));
      describe(increment, text);
      return Show.row(table.increment(increment));
    }
    Append append = makeAppend(row).setReturnResults(!chance(5));
    describe(append, text);
    return Show.row(table.append(append));
  }

  private RowMutations makeRowMutations(byte[] row) throws IOException {
    RowMutations mutations = new RowMutations(row);
    for (int i = random.nextInt(3); i >= 0; i--) {
      Mutation mutation = chance(6) ? makeMutation(row) : chance(2) ? makePut(row) : makeDelete(row);
      mutations.add(describe(mutation, text));
    }
    return mutations;
  }

  private String rowMutations(Table table) throws IOException {
    RowMutations mutations = makeRowMutations(domain.row(random));
    tick();
    return Show.row(table.mutateRow(mutations));
  }

  private String checkAndMutate(Table table) throws IOException {
    byte[] row = domain.row(random);
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row);
    if (chance(5)) {
      builder.ifMatches(new RandomFilters(random, domain, false).next(1));
    } else if (chance(4)) {
      builder.ifNotExists(domain.family(random), domain.qualifier(random));
    } else {
      CompareOperator[] ops = CompareOperator.values();
      builder.ifMatches(domain.family(random), domain.qualifier(random), ops[random.nextInt(ops.length - 1)], domain.value(random));
    }
    if (chance(4)) {
      builder.timeRange(TimeRange.between(1, 1 + domain.time(random)));
    }
    CheckAndMutate check = switch (random.nextInt(6)) {
      case 0 -> builder.build(makeDelete(row));
      case 1 -> builder.build(makeIncrement(row));
      case 2 -> builder.build(makeAppend(row));
      case 3 -> builder.build(makeRowMutations(row));
      default -> builder.build(makePut(row));
    };
    log(check);
    tick();
    CheckAndMutateResult result = table.checkAndMutate(check);
    return result.isSuccess() + " " + Show.row(result.getResult());
  }

  /** Actions on distinct rows, since a batch may be applied in any order. */
  private String batch(Table table) throws Exception {
    TreeMap<byte[], Row> actions = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    for (int i = 1 + random.nextInt(6); i >= 0; i--) {
      byte[] row = domain.row(random);
      actions.put(row, chance(3) ? makeGet(row) : chance(5) ? makeRowMutations(row) : makeMutation(row));
    }
    List<Row> list = new ArrayList<>(actions.values());
    list.forEach(this::log);
    Object[] results = new Object[list.size()];
    tick();
    try {
      table.batch(list, results);
    } catch (RetriesExhaustedWithDetailsException e) {
      log("some actions failed");
    }
    StringBuilder out = new StringBuilder();
    for (Object result : results) {
      out.append(result instanceof Throwable t ? "! " + Expect.root(t).getClass().getName() : Show.row((Result) result)).append(" ; ");
    }
    return out.toString();
  }

  private Get makeGet(byte[] row) throws IOException {
    Get get = new Get(row);
    if (chance(3)) {
      get.addFamily(domain.family(random));
    }
    if (chance(3)) {
      get.addColumn(domain.family(random), domain.qualifier(random));
    }
    if (chance(2)) {
      get.readVersions(1 + random.nextInt(6));
    }
    if (chance(5)) {
      int from = domain.time(random);
      get.setTimeRange(from, from + domain.time(random));
    }
    if (chance(12)) {
      get.setTimestamp(domain.time(random));
    }
    if (chance(12)) {
      get.setColumnFamilyTimeRange(domain.family(random), 1, 1 + domain.time(random));
    }
    if (chance(10)) {
      get.setMaxResultsPerColumnFamily(1 + random.nextInt(3)).setRowOffsetPerColumnFamily(random.nextInt(3));
    }
    if (chance(4)) {
      get.setFilter(new RandomFilters(random, domain, false).next(2));
    }
    return get;
  }

  private String get(Table table) throws IOException {
    if (chance(5)) {
      List<Get> gets = List.of(makeGet(domain.row(random)), makeGet(domain.row(random)), makeGet(domain.row(random)));
      log(gets);
      return Show.rows(List.of(table.get(gets))).toString();
    }
    Get get = makeGet(domain.row(random));
    log(get);
    log(get.getFilter());
    String answer = chance(6) ? "exists " + table.exists(get) : Show.row(table.get(get));
    return answer + " ; newest " + newest(table, get.getRow());
  }

  /**
   * Reads the newest cells of a row twice: a server with a row cache answers at least the second read from it.
   * Evenkeel's row cache excludes the family with a TTL and MIN_VERSIONS.
   */
  private static String newest(Table table, byte[] row) throws IOException {
    Get get = new Get(row).addFamily(b("f")).addFamily(b("g")).addFamily(b("k"));
    String first = Show.row(table.get(get));
    String again = Show.row(table.get(get));
    return first.equals(again) ? first : first + " and then " + again;
  }

  private Scan makeScan() throws IOException {
    Scan scan = new Scan();
    if (chance(4)) {
      scan.setReversed(true).setLoadColumnFamiliesOnDemand(false);
    }
    byte[] one = domain.row(random);
    byte[] two = domain.row(random);
    boolean forward = (Bytes.compareTo(one, two) < 0) != scan.isReversed();
    if (chance(2)) {
      scan.withStartRow(forward ? one : two, !chance(4));
    }
    if (chance(2)) {
      scan.withStopRow(forward ? two : one, chance(3));
    }
    if (chance(3)) {
      scan.addFamily(domain.family(random));
    }
    if (chance(4)) {
      scan.addColumn(domain.family(random), domain.qualifier(random));
    }
    if (chance(2)) {
      scan.readVersions(1 + random.nextInt(6));
    }
    if (chance(5)) {
      int from = domain.time(random);
      scan.setTimeRange(from, from + domain.time(random));
    }
    if (chance(3)) {
      scan.setFilter(new RandomFilters(random, domain, scan.isReversed()).next(2));
    }
    limits(scan);
    return scan;
  }

  private void limits(Scan scan) {
    scan.setCaching(1 + random.nextInt(8));
    if (chance(6)) {
      scan.setLimit(1 + random.nextInt(6));
    }
    if (chance(6)) {
      scan.setMaxResultsPerColumnFamily(1 + random.nextInt(4)).setRowOffsetPerColumnFamily(random.nextInt(2));
    }
    if (chance(5)) {
      scan.setMaxResultSize(200 + random.nextInt(4000));
    }
    if (chance(8) && !scan.hasFilter()) {
      scan.setBatch(1 + random.nextInt(4));
    }
    if (chance(10)) {
      scan.setAllowPartialResults(true);
    }
    // A raw scan with a time range makes a stock 2.6.4 server loop forever.
    if (chance(12) && !scan.hasFilter() && scan.getTimeRange().isAllTime()) {
      scan.setRaw(true).readAllVersions();
    }
    if (chance(6)) {
      scan.setReadType(Scan.ReadType.values()[random.nextInt(3)]);
    }
    if (chance(10)) {
      scan.setIsolationLevel(IsolationLevel.READ_UNCOMMITTED);
    }
  }

  private String scan(Table table) throws IOException {
    Scan scan = makeScan();
    log(scan.toString(20));
    log(scan.getFilter());
    // Servers may split a row into results of different sizes, so the parts are joined.
    boolean joined = scan.getAllowPartialResults() || scan.getMaxResultSize() > 0 && scan.getBatch() > 0;
    StringBuilder out = new StringBuilder();
    String last = "";
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        String row = Show.row(result);
        String key = Show.text(result.getRow());
        if (joined && key.equals(last)) {
          out.setLength(out.length() - 2);
          out.append(' ').append(row, key.length() + 1, row.length()).append(' ');
        } else {
          out.append(row).append(' ');
        }
        last = key;
      }
    } catch (RuntimeException | IOException e) {
      if (crashed(e)) {
        return CRASHED;
      }
      out.append("! ").append(Expect.root(e).getClass().getName());
    }
    return out.toString();
  }
}
