package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.util.Random;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The rows, columns, timestamps and values that the differential test draws from: few, so that operations overlap.
 *
 * Families: f keeps 3 versions, g one, k five and its deleted cells; in t every explicit timestamp is past the TTL, and
 * MIN_VERSIONS keeps 2 of them. Automatic compactions are disabled, because the time of a minor compaction is visible
 * in raw scans and in the effect of late Puts: only operations request compactions.
 */
final class Domain {
  static final byte[][] SPLITS = {b("r4"), b("r8")};
  private static final String[] FAMILIES = {"f", "g", "k", "t"};
  /** Without the empty qualifier: over delete markers in it, a stock server's compaction may loop forever. */
  private static final String[] QUALIFIERS = {"0", "a", "ab", "b", "c", "n"};

  byte[] row(Random random) {
    return b("r" + random.nextInt(10) + (random.nextInt(4) == 0 ? "x" : ""));
  }

  byte[] family(Random random) {
    return b(FAMILIES[random.nextInt(FAMILIES.length)]);
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
      case 3 -> new byte[random.nextInt(3000)];
      default -> b("" + (char) ('a' + random.nextInt(4)) + random.nextInt(5));
    };
  }

  static int families() {
    return FAMILIES.length;
  }

  static TableDescriptor table(TableName name) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamily(family("f").setMaxVersions(3).build())
        .setColumnFamily(family("g").build())
        .setColumnFamily(family("k").setMaxVersions(5).setKeepDeletedCells(KeepDeletedCells.TRUE).build())
        .setColumnFamily(family("t").setMaxVersions(4).setMinVersions(2).setTimeToLive(1_000_000).build()).build();
  }

  private static ColumnFamilyDescriptorBuilder family(String name) {
    return ColumnFamilyDescriptorBuilder.newBuilder(ColumnFamilyDescriptorBuilder.of(name))
        .setConfiguration("hbase.hstore.compaction.min", "1000").setConfiguration("hbase.hstore.blockingStoreFiles", "1000");
  }

}
