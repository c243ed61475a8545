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
 * If the server sets the timestamp, the operation first waits until the clock has advanced since the last such operation,
 * so that on either side the order of such timestamps is the order of operations. They are shown as {@code now}.
 */
final class RandomOperation {
  /**
   * A stock server's PrefixFilter sometimes reads past the end of a row's bytes, and its reversed scans fail in a half of
   * a file without a row before the one they are at (HalfStoreFileReader.seekTo); such reads are not compared.
   */
  static final String CRASHED = "? the server ran into an exception that is not for clients";

  private final Random random;
  private final Domain domain;
  private final RandomMutations mutations;
  private final RandomReads reads;
  private final StringBuilder text = new StringBuilder();
  private Side side;
  private boolean takesTime;

  RandomOperation(long seed, Domain domain) {
    this.random = new Random(seed);
    this.domain = domain;
    this.mutations = new RandomMutations(random, domain);
    this.reads = new RandomReads(random, domain);
  }

  /** Describes the operation, by the client objects' {@code toString}. */
  String text() {
    return text.toString();
  }

  /** Runs the operation and returns everything that the client sees of the answer. */
  String apply(Side on) throws Exception {
    side = on;
    Table table = side.table;
    int kind = random.nextInt(100);
    try {
      if (kind < 25) {
        return put(table);
      }
      if (kind < 37) {
        return delete(table);
      }
      if (kind < 43) {
        return readModifyWrite();
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
    } finally {
      if (takesTime) {
        side.timed();
      }
    }
  }

  private static boolean crashed(Throwable failure) {
    Throwable root = Expect.root(failure);
    String message = String.valueOf(root.getMessage());
    // After many occurrences, the server's JIT compiler omits the exception's message.
    return root instanceof IndexOutOfBoundsException || message.contains("out of bounds for length")
        || message.contains("IndexOutOfBoundsException") || message.contains("Cell.getRowLength()\" because \"r\" is null");
  }

  private boolean chance(int oneIn) {
    return random.nextInt(oneIn) == 0;
  }

  private void log(Object what) {
    text.append(what).append('\n');
  }

  private void log(Mutation mutation) throws IOException {
    text.append(mutation.getClass().getSimpleName()).append(' ').append(mutation.toString(20)).append('\n');
  }

  /** Before an action whose cells get the server's time: waits for a time that no earlier action has. */
  private void tick(Row action) {
    if (RandomMutations.takesTime(action)) {
      tick();
    }
  }

  private void tick() {
    takesTime = true;
    side.tick();
  }

  private String put(Table table) throws IOException {
    if (chance(10)) {
      List<Put> puts = List.of(mutations.put(domain.row(random)), mutations.put(domain.row(random)));
      log(puts);
      puts.forEach(this::tick);
      if (Bytes.equals(puts.get(0).getRow(), puts.get(1).getRow())) {
        // The order of two mutations of a row in a batch is not defined.
        table.put(puts.get(0));
      } else {
        table.put(puts);
      }
      return "done";
    }
    Put put = mutations.put(domain.row(random));
    log((Mutation) put);
    tick(put);
    table.put(put);
    return "done";
  }

  private String delete(Table table) throws IOException {
    Delete delete = mutations.delete(domain.row(random));
    log((Mutation) delete);
    tick(delete);
    table.delete(delete);
    return "done";
  }

  private String readModifyWrite() throws Exception {
    byte[] row = domain.row(random);
    boolean returns = !chance(5);
    boolean repeats = chance(6);
    long nonce = random.nextLong();
    tick();
    if (chance(2)) {
      Increment increment = mutations.increment(row).setReturnResults(returns);
      log((Mutation) increment);
      return repeats ? side.twice(increment, nonce) : Show.row(side.table.increment(increment));
    }
    Append append = mutations.append(row).setReturnResults(returns);
    log((Mutation) append);
    return repeats ? side.twice(append, nonce) : Show.row(side.table.append(append));
  }

  private String rowMutations(Table table) throws IOException {
    RowMutations several = mutations.several(domain.row(random));
    for (Mutation mutation : several.getMutations()) {
      log(mutation);
    }
    tick(several);
    return Show.row(table.mutateRow(several));
  }

  private CheckAndMutate check(byte[] row) throws IOException {
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row);
    if (chance(5)) {
      builder.ifMatches(RandomFilters.ofRow(random, domain).next(1));
    } else if (chance(4)) {
      builder.ifNotExists(domain.family(random), domain.qualifier(random));
    } else {
      CompareOperator[] ops = CompareOperator.values();
      builder.ifMatches(domain.family(random), domain.qualifier(random), ops[random.nextInt(ops.length - 1)], domain.value(random));
    }
    if (chance(4) && !domain.steady) {
      builder.timeRange(TimeRange.between(1, 1 + domain.time(random)));
    }
    return switch (random.nextInt(6)) {
      case 0 -> builder.build(mutations.delete(row));
      case 1 -> builder.build(mutations.increment(row));
      case 2 -> builder.build(mutations.append(row));
      case 3 -> builder.build(mutations.several(row));
      default -> builder.build(mutations.put(row));
    };
  }

  /** Describes a check and its action, which the client's class does not. */
  private static String text(CheckAndMutate check) {
    String condition = check.hasFilter() ? check.getFilter().toString()
        : Show.text(check.getFamily()) + ":" + Show.text(check.getQualifier()) + " " + check.getCompareOp() + " "
            + (check.getValue() == null ? "nothing" : Show.text(check.getValue()));
    return "if " + condition + " in " + check.getTimeRange() + " of " + Show.text(check.getRow()) + " then " + check.getAction();
  }

  private String checkAndMutate(Table table) throws IOException {
    if (chance(8)) {
      List<CheckAndMutate> checks = List.of(check(b("r1")), check(b("r5")), check(b("r9")));
      checks.forEach(one -> log(text(one)));
      tick();
      StringBuilder out = new StringBuilder();
      for (CheckAndMutateResult result : table.checkAndMutate(checks)) {
        out.append(result.isSuccess()).append(' ').append(Show.row(result.getResult())).append(" ; ");
      }
      return out.toString();
    }
    CheckAndMutate check = check(domain.row(random));
    log(text(check));
    tick(check);
    CheckAndMutateResult result = table.checkAndMutate(check);
    return result.isSuccess() + " " + Show.row(result.getResult());
  }

  /** Actions on distinct rows, since a batch may be applied in any order. */
  private String batch(Table table) throws Exception {
    TreeMap<byte[], Row> actions = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    for (int i = 1 + random.nextInt(6); i >= 0; i--) {
      byte[] row = domain.row(random);
      actions.put(row, chance(3) ? reads.get(row) : chance(5) ? mutations.several(row) : mutations.any(row));
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
      out.append(result instanceof Throwable t ? "! " + Expect.root(t).getClass().getName() : row((Result) result)).append(" ; ");
    }
    return out.toString();
  }

  /** A row, or the answer to a Get that asks only whether there is one. */
  private static String row(Result result) {
    return result == null || result.getExists() == null ? Show.row(result) : "exists " + result.getExists();
  }

  private String get(Table table) throws IOException {
    if (chance(8) && domain.replicas > 1) {
      Get get = reads.ofReplica(domain.row(random));
      log(get);
      Result result = table.get(get);
      return Show.row(result) + (result.isStale() ? " stale" : "");
    }
    if (chance(5)) {
      List<Get> gets = List.of(reads.get(domain.row(random)), reads.get(domain.row(random)), reads.get(domain.row(random)));
      log(gets);
      StringBuilder out = new StringBuilder();
      for (Result result : table.get(gets)) {
        out.append(row(result)).append(' ');
      }
      return out.toString();
    }
    Get get = reads.get(domain.row(random));
    log(get);
    log(get.getFilter());
    String answer = chance(6) ? "exists " + table.exists(get) : row(table.get(get));
    return answer + " ; newest " + newest(table, get.getRow());
  }

  /**
   * Reads the newest cells of a row twice: a server with a row cache answers at least the second read from it.
   * Evenkeel's row cache excludes families with a TTL.
   */
  private String newest(Table table, byte[] row) throws IOException {
    Get get = new Get(row);
    domain.eternal.forEach(family -> get.addFamily(b(family)));
    String first = Show.row(table.get(get));
    String again = Show.row(table.get(get));
    return first.equals(again) ? first : first + " and then " + again;
  }

  private String scan(Table table) throws IOException {
    Scan scan = chance(8) && domain.replicas > 1 ? reads.scanOfReplica() : reads.scan();
    log(scan.toString(20));
    log(scan.getFilter());
    // Servers may split a row into results of different sizes, so the parts are joined.
    boolean joined = scan.getAllowPartialResults() || scan.getMaxResultSize() > 0 && scan.getBatch() > 0;
    StringBuilder out = new StringBuilder();
    String last = "";
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        // How often a server shows how far it is depends on its speed.
        if (result.isCursor()) {
          continue;
        }
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
