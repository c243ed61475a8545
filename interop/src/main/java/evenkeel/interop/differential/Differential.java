package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import evenkeel.interop.Clients;
import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/**
 * Applies the same random operations to two servers and compares every answer.
 *
 * <pre>java evenkeel.interop.differential.Differential --ops N --seed S
 *     -Akey=value ... [-Bkey=value ...]</pre>
 *
 * {@code -A} and {@code -B} are the settings of the two clients; without {@code -B} both tables are on one server,
 * which must agree with itself. {@code --ops 0} runs until a difference or a kill. At a difference it prints the seed,
 * the number of the operation, the operation, both answers and the differing raw cells of both tables, and exits with
 * 1. The same seed makes the same operations.
 */
public final class Differential {
  private static final int FLUSH_EVERY = 150;
  private static final int COMPACT_EVERY = 6;
  /** Slower operations are printed: a server that loops holds a scanner open, and flushes keep the cells that it may read. */
  private static final long SLOW_MS = 3000;

  /** One of the two servers and its table. */
  private static final class Side implements AutoCloseable {
    final String name;
    final Connection connection;
    final Admin admin;
    final Table table;

    Side(String name, Properties settings, TableName tableName) throws IOException {
      this.name = name;
      Configuration conf = Clients.configuration("zk", settings);
      conf.setInt(HConstants.HBASE_CLIENT_RETRIES_NUMBER, 4);
      conf.setInt(HConstants.HBASE_CLIENT_SCANNER_TIMEOUT_PERIOD, 10_000);
      connection = ConnectionFactory.createConnection(conf);
      admin = connection.getAdmin();
      admin.createTable(Domain.table(tableName), Domain.SPLITS);
      table = connection.getTable(tableName);
    }

    /** Compacts each store to one file; returns when it is done. */
    void majorCompact() throws Exception {
      for (int file = 0; file < 2; file++) {
        for (byte[] row : new byte[][] {b("a"), b("r5"), b("zz")}) {
          Put everywhere = new Put(row);
          for (byte[] family : table.getDescriptor().getColumnFamilyNames()) {
            everywhere.addColumn(family, b("file"), 1, b("" + file));
          }
          table.put(everywhere);
        }
        admin.flush(table.getName());
      }
      admin.majorCompact(table.getName());
      int stores = Domain.families() * (Domain.SPLITS.length + 1);
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (storeFiles() > stores) {
        if (System.nanoTime() > end) {
          throw new IOException(name + " does not compact to " + stores + " files within 60 s");
        }
        Thread.sleep(20);
      }
    }

    private int storeFiles() throws IOException {
      int files = 0;
      for (var server : admin.getRegionServers()) {
        for (var region : admin.getRegionMetrics(server, table.getName())) {
          files += region.getStoreFileCount();
        }
      }
      return files;
    }

    @Override
    public void close() throws IOException {
      admin.disableTable(table.getName());
      admin.deleteTable(table.getName());
      connection.close();
    }
  }

  private Differential() {
  }

  public static void main(String[] args) throws Exception {
    Properties[] settings = {new Properties(), new Properties()};
    long ops = 1000;
    long seed = 1;
    for (int i = 0; i < args.length; i++) {
      switch (args[i].substring(0, 2)) {
        case "-A", "-B" -> {
          int eq = args[i].indexOf('=');
          settings[args[i].charAt(1) - 'A'].setProperty(args[i].substring(2, eq), args[i].substring(eq + 1));
        }
        default -> {
          long number = Long.parseLong(args[i + 1]);
          if (args[i].equals("--ops")) {
            ops = number;
          } else if (args[i].equals("--seed")) {
            seed = number;
          } else {
            throw new IllegalArgumentException(args[i]);
          }
          i++;
        }
      }
    }
    if (settings[1].isEmpty()) {
      settings[1] = settings[0];
    }
    System.exit(run(settings, ops, seed) ? 0 : 1);
  }

  private static boolean run(Properties[] settings, long ops, long seed) throws Exception {
    String stamp = "diff_" + Long.toString(System.currentTimeMillis(), 36);
    Random random = new Random(seed);
    try (Side one = new Side("A", settings[0], TableName.valueOf(stamp + "_a"));
        Side two = new Side("B", settings[1], TableName.valueOf(stamp + "_b"))) {
      int flushes = 0;
      long unanswered = 0;
      for (long n = 0; ops == 0 || n < ops; n++) {
        long opSeed = random.nextLong();
        if (random.nextInt(FLUSH_EVERY) == 0 && maintain(one, two, ++flushes)) {
          continue;
        }
        RandomOperation first = new RandomOperation(opSeed);
        long start = System.nanoTime();
        String want = first.apply(one.table);
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        if (millis > SLOW_MS) {
          System.out.println("operation " + n + " took A " + millis + " ms: " + want + "\n" + first.text().indent(2));
        }
        String got = new RandomOperation(opSeed).apply(two.table);
        if (want.equals(RandomOperation.CRASHED)) {
          unanswered++;
        }
        if (want.equals(RandomOperation.CRASHED) || want.contains("java.io.IOException")) {
          reopen(one, two);
        }
        if (!want.equals(RandomOperation.CRASHED) && !want.equals(got)) {
          report(seed, n, first.text(), want, got, one, two);
          return false;
        }
        if ((n + 1) % 1000 == 0) {
          System.out.println((n + 1) + " operations, the same");
        }
      }
      System.out.println(unanswered + " reads that A did not answer");
      boolean same = compareAll(one, two);
      System.out.println(same ? "1 passed, 0 failed" : "0 passed, 1 failed");
      return same;
    }
  }

  /** A stock server does not close the scanner of a crashed read, so its later flushes keep more cells. */
  private static void reopen(Side one, Side two) throws IOException {
    for (Side side : Arrays.asList(one, two)) {
      side.admin.disableTable(side.table.getName());
      side.admin.enableTable(side.table.getName());
    }
  }

  private static boolean maintain(Side one, Side two, int flushes) throws Exception {
    for (Side side : Arrays.asList(one, two)) {
      if (flushes % COMPACT_EVERY == 0) {
        side.majorCompact();
      } else {
        side.admin.flush(side.table.getName());
      }
    }
    return true;
  }

  /** Returns all cells that ordinary reads see at the end; raw cells may differ between servers. */
  private static boolean compareAll(Side one, Side two) throws IOException {
    Scan all = new Scan().readAllVersions();
    String want = String.join("\n", Rows.scan(one.table, all));
    String got = String.join("\n", Rows.scan(two.table, all));
    if (want.equals(got)) {
      return true;
    }
    System.out.println("the tables differ at the end:\n" + differing(want, got));
    System.out.println("rows whose raw cells differ:\n" + differing(raw(one), raw(two)));
    return false;
  }

  private static String raw(Side side) throws IOException {
    StringBuilder out = new StringBuilder();
    try (ResultScanner scanner = side.table.getScanner(new Scan().setRaw(true).readAllVersions())) {
      for (Result row : scanner) {
        out.append(Show.ranked(row)).append('\n');
      }
    }
    return out.toString();
  }

  /** Prints the cells that only one side has, row by row, for a few rows. */
  private static String differing(String want, String got) {
    StringBuilder out = new StringBuilder();
    want.lines().filter(line -> !got.contains(line)).limit(5).forEach(line -> out.append(onlyIn("  A ", line, got)));
    got.lines().filter(line -> !want.contains(line)).limit(5).forEach(line -> out.append(onlyIn("  B ", line, want)));
    return out.toString();
  }

  private static String onlyIn(String side, String line, String others) {
    String row = line.substring(0, line.indexOf('{') + 1);
    List<String> other = List.of(others.lines().filter(o -> o.startsWith(row)).findFirst().orElse("").split(" "));
    List<String> cells = new ArrayList<>(List.of(line.split(" ")));
    cells.removeAll(other);
    return side + row + " " + String.join(" ", cells) + "\n";
  }

  private static void report(long seed, long n, String operation, String want, String got, Side one, Side two) throws IOException {
    System.out.println("DIFFERENCE: seed " + seed + ", operation " + n);
    System.out.println(operation.indent(2));
    System.out.println("A answered " + want);
    System.out.println("B answered " + got);
    System.out.println("rows whose raw cells differ now:\n" + differing(raw(one), raw(two)));
    System.out.println("0 passed, 1 failed");
  }
}
