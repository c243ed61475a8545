package evenkeel.interop.differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Applies the same random operations to random tables of two servers and compares every answer.
 *
 * <pre>java evenkeel.interop.differential.Differential --ops N --seed S [--table K] [--minutes M]
 *     -Akey=value ... [-Bkey=value ...]</pre>
 *
 * {@code -A} and {@code -B} are the settings of the two clients; without {@code -B} both tables are on one server,
 * which must agree with itself. Each table has random attributes and gets a few thousand operations, all derived from
 * the seed and the number of the table; {@code --table} is the first one. {@code --ops 0} runs until a difference or a
 * kill, or until a table ends after {@code --minutes}. At a difference it prints the seed, the table, the number of the
 * operation, the operation, both answers, the differing raw cells of both tables and a command that repeats it, and exits
 * with 1.
 */
public final class Differential {
  private static final int MAINTAIN_EVERY = 250;
  private static final int TABLE_OPS_MIN = 1500;
  private static final int TABLE_OPS_MAX = 4500;
  /** Slower operations are printed: a server that loops holds a scanner open, and flushes keep the cells that it may read. */
  private static final long SLOW_MS = 3000;

  private final Pair pair;
  private final long seed;
  private long unanswered;
  /** The current table and the operations of it and of all tables, for the report. */
  private long table;
  private long inTable;
  private long total;
  private String attributes = "";

  private Differential(Pair pair, long seed, long table) {
    this.pair = pair;
    this.seed = seed;
    this.table = table;
  }

  public static void main(String[] args) throws Exception {
    Properties[] settings = {new Properties(), new Properties()};
    Properties numbers = new Properties();
    for (int i = 0; i < args.length; i++) {
      switch (args[i].substring(0, 2)) {
        case "-A", "-B" -> {
          int eq = args[i].indexOf('=');
          settings[args[i].charAt(1) - 'A'].setProperty(args[i].substring(2, eq), args[i].substring(eq + 1));
        }
        default -> numbers.setProperty(args[i], args[++i]);
      }
    }
    if (settings[1].isEmpty()) {
      settings[1] = settings[0];
    }
    long ops = Long.parseLong(numbers.getProperty("--ops", "1000"));
    long minutes = Long.parseLong(numbers.getProperty("--minutes", "0"));
    long seed = Long.parseLong(numbers.getProperty("--seed", "1"));
    long first = Long.parseLong(numbers.getProperty("--table", "0"));
    boolean same;
    try (Pair pair = new Pair(new Side("A", settings[0]), new Side("B", settings[1]))) {
      same = new Differential(pair, seed, first).run(ops, minutes);
    }
    System.exit(same ? 0 : 1);
  }

  private boolean run(long ops, long minutes) {
    long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(minutes);
    try {
      while ((ops == 0 || total < ops) && (minutes == 0 || System.nanoTime() < end)) {
        table(ops == 0 ? Long.MAX_VALUE : ops - total);
        table++;
      }
    } catch (Pair.Difference e) {
      System.out.println("DIFFERENCE: " + where());
      System.out.println(e.operation.indent(2));
      System.out.println("A answered " + e.want);
      System.out.println("B answered " + e.got);
      failed();
      return false;
    } catch (Exception e) {
      System.out.println("FAILED: " + where());
      e.printStackTrace(System.out);
      failed();
      return false;
    }
    System.out.println(unanswered + " reads that A did not answer");
    System.out.println(total + " operations, 1 passed, 0 failed");
    return true;
  }

  private String where() {
    return "seed " + seed + ", table " + table + ", operation " + inTable + " of the table, " + total + " of all";
  }

  private void failed() {
    System.out.println("the table: " + attributes);
    try {
      System.out.println("rows that differ now:\n" + differing(pair.one.cells(), pair.two.cells()));
      System.out.println("rows whose raw cells differ now:\n" + differing(pair.one.raw(), pair.two.raw()));
    } catch (Exception e) {
      System.out.println("the cells cannot be read: " + e);
    }
    System.out.println("to repeat it: EVENKEEL_INTEROP_SEED=" + seed + " EVENKEEL_INTEROP_TABLE=" + table + " EVENKEEL_INTEROP_OPS="
        + (inTable + 1) + " cargo test -p evenkeel-interop --test differential -- random_operations");
    System.out.println("0 passed, 1 failed");
  }

  /** Makes the next table, applies its operations, at most this many, and drops it. */
  private void table(long most) throws Exception {
    // The seeds of neighbouring tables must not be alike.
    Random random = new Random(new SplittableRandom(seed * 1_000_003 + table).nextLong());
    Domain domain = new Domain(random.nextInt(3) == 0, random.nextInt(3) == 0 ? 2 : 1);
    TableDescriptor drawn = new RandomTable(random, domain).table(TableName.valueOf("drawn"));
    attributes = (domain.steady ? "steady " : "exact ") + Side.attributes(drawn);
    long ops = Math.min(most, TABLE_OPS_MIN + random.nextInt(TABLE_OPS_MAX - TABLE_OPS_MIN));
    String stamp = "diff_" + Long.toString(System.currentTimeMillis(), 36);
    inTable = 0;
    pair.same("create", side -> {
      TableName name = TableName.valueOf(stamp + "_" + side.name);
      side.create(TableDescriptorBuilder.copy(name, drawn), domain);
      return side.shape();
    });
    RandomMaintenance maintenance = new RandomMaintenance(pair, domain);
    for (; inTable < ops; inTable++, total++) {
      long opSeed = random.nextLong();
      if (random.nextInt(MAINTAIN_EVERY) == 0) {
        maintenance.step(opSeed);
      } else {
        operation(opSeed, domain, maintenance);
      }
      if ((total + 1) % 1000 == 0) {
        System.out.println((total + 1) + " operations, the same");
      }
    }
    compareAll();
    maintenance.deleteSnapshot();
    pair.both(Differential::drop, Differential::drop);
  }

  private static String drop(Side side) throws Exception {
    side.drop();
    return "done";
  }

  private void operation(long opSeed, Domain domain, RandomMaintenance maintenance) throws Exception {
    RandomOperation first = new RandomOperation(opSeed, domain);
    long start = System.nanoTime();
    String[] answers = pair.both(first::apply, new RandomOperation(opSeed, domain)::apply);
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    String want = answers[0];
    if (millis > SLOW_MS) {
      System.out.println(where() + " took " + millis + " ms: " + want + "\n" + first.text().indent(2));
    }
    boolean crashed = want.equals(RandomOperation.CRASHED);
    if (crashed) {
      unanswered++;
    } else if (!want.equals(answers[1])) {
      throw new Pair.Difference(first.text(), want, answers[1]);
    }
    // A stock server does not close the scanner of a crashed read, so its later flushes keep more cells.
    if (crashed || want.contains("java.io.IOException")) {
      maintenance.reopen();
    }
  }

  /** Compares all cells that ordinary reads see at the end; raw cells may differ between servers. */
  private void compareAll() throws Exception {
    String[] answers = pair.both(Side::cells, Side::cells);
    if (!answers[0].equals(answers[1])) {
      throw new Pair.Difference("the tables differ at the end:\n" + differing(answers[0], answers[1]), "as above", "as above");
    }
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
}
