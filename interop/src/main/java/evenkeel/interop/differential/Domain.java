package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The rows, families, columns, timestamps and values of one table of the differential test: few, so that operations
 * overlap.
 *
 * In an exact table, most timestamps are explicit and small, so Puts arrive in any order of their times and deletes hide
 * later Puts. The effect depends on which files exist, so nothing but operations flushes or compacts, and raw reads and
 * reads of time ranges are compared, too. In a steady table every cell has the server's time, so the order of times is
 * the order of operations, and versions beyond VERSIONS are never visible again. Then no answer depends on the time of a
 * flush or a compaction, and the servers flush and compact by themselves.
 */
final class Domain {
  /** Bytes of the shortest row. */
  static final int ROW_BYTES_MIN = 2;
  static final byte[][] SPLITS = {b("r4"), b("r8")};
  static final String[] NAMES = {"f", "g", "k", "t"};
  /** A column of values of eight bytes, for LongComparator, which fails on other lengths. */
  static final byte[] LONGS = b("l");
  /** A column of values of BigDecimal, for BigDecimalComparator. */
  static final byte[] DECIMALS = b("m");
  /** Without the empty qualifier: over delete markers in it, a stock server's compaction may loop forever. */
  private static final String[] QUALIFIERS = {"0", "a", "ab", "b", "c", "n"};

  /** Every cell has the server's time. */
  final boolean steady;
  /** REGION_REPLICATION. */
  final int replicas;
  /** The families that the table has now. */
  List<String> families = new ArrayList<>();
  /** Those among them without a TTL. */
  List<String> eternal = new ArrayList<>();

  /** Families with NEW_VERSION_BEHAVIOR: over markers of a family, a stock server's scanner may loop forever. */
  Set<String> newVersions = new HashSet<>();
  /** A family has MOB files. Filters see references in the place of its values, with the names of files. */
  boolean mob;

  /** A family's files are in stripes. A stock server's reversed scan reads only the stripes from its start row upwards. */
  boolean stripes;

  Domain(boolean steady, int replicas) {
    this.steady = steady;
    this.replicas = replicas;
  }

  byte[] row(Random random) {
    return b("r" + random.nextInt(10) + (random.nextInt(4) == 0 ? "x" : ""));
  }

  byte[] family(Random random) {
    return b(families.get(random.nextInt(families.size())));
  }

  byte[] qualifier(Random random) {
    return b(QUALIFIERS[random.nextInt(QUALIFIERS.length)]);
  }

  int time(Random random) {
    return 1 + random.nextInt(30);
  }

  byte[] value(Random random) {
    return switch (random.nextInt(8)) {
      case 0 -> new byte[0];
      case 1 -> Bytes.toBytes((long) random.nextInt(100));
      case 2 -> new byte[] {(byte) random.nextInt(256), (byte) random.nextInt(256)};
      case 3 -> new byte[random.nextInt(steady ? 6000 : 3000)];
      default -> b("" + (char) ('a' + random.nextInt(4)) + random.nextInt(5));
    };
  }

  byte[] longValue(Random random) {
    return Bytes.toBytes((long) random.nextInt(9) - 4);
  }

  byte[] decimal(Random random) {
    return Bytes.toBytes(BigDecimal.valueOf(random.nextInt(900) - 450L, 2));
  }
}
