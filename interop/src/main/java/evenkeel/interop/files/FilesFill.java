package evenkeel.interop.files;

import static evenkeel.interop.Rows.b;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;

/** The tables of {@link FilesTables}: each covers one property of files or one state that a crash can leave. */
final class FilesFill {
  private static final long TIME = 1_700_000_000_000L;
  /** Stock HBase has no BZIP2 codec of its own, and refuses BZIP2 tables if the native library is missing. */
  private static final String[] COMPRESSIONS = {"NONE", "GZ", "SNAPPY", "LZ4", "ZSTD"};

  private final Connection connection;
  private final Admin admin;
  private final String namespace;

  FilesFill(Connection connection, String namespace) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
    this.namespace = namespace;
  }

  void all() throws Exception {
    admin.createNamespace(NamespaceDescriptor.create(namespace).addConfiguration("color", "green").build());
    for (String compression : COMPRESSIONS) {
      compressed(compression);
    }
    versions();
    presplit();
    walOnly();
    split();
    merged();
    altered();
    deleted();
    disabled();
    create(table("empty").setColumnFamily(family("f").build()));
  }

  /** Writes the rows of a later round, which stay in the log: one at the start of each region of every enabled table. */
  static void more(Connection connection, String round) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      for (TableDescriptor descriptor : admin.listTableDescriptors()) {
        if (!admin.isTableEnabled(descriptor.getTableName())) {
          continue;
        }
        List<Put> puts = new ArrayList<>();
        for (RegionInfo region : admin.getRegions(descriptor.getTableName())) {
          for (ColumnFamilyDescriptor family : descriptor.getColumnFamilies()) {
            byte[] row = b(new String(region.getStartKey()) + "!" + round);
            puts.add(new Put(row).addColumn(family.getName(), b("more"), TIME + puts.size(), b(round + puts.size())));
          }
        }
        try (Table table = connection.getTable(descriptor.getTableName())) {
          table.put(puts);
        }
      }
    }
  }

  /** A family for each encoding: flushed twice and compacted to one file; later rows are in another file and in the log. */
  private void compressed(String compression) throws Exception {
    TableDescriptorBuilder builder = table("codec_" + compression.toLowerCase());
    for (DataBlockEncoding encoding : DataBlockEncoding.values()) {
      builder.setColumnFamily(family(encoding.name().toLowerCase()).setDataBlockEncoding(encoding).setBlocksize(2048)
        .setCompressionType(Compression.Algorithm.valueOf(compression)).build());
    }
    TableDescriptor made = create(builder);
    write(made, "a", 150);
    admin.flush(made.getTableName());
    write(made, "b", 150);
    admin.flush(made.getTableName());
    admin.majorCompact(made.getTableName());
    waitForFiles(made);
    write(made, "c", 30);
    admin.flush(made.getTableName());
    write(made, "d", 10);
  }

  /** Versions beyond the limit and every kind of delete, in files and in the log. */
  private void versions() throws Exception {
    TableDescriptor made = create(table("versions").setCompactionEnabled(false)
      .setColumnFamily(family("v").setMaxVersions(5).build())
      .setColumnFamily(family("k").setMaxVersions(3).setKeepDeletedCells(KeepDeletedCells.TRUE).build())
      .setColumnFamily(family("m").setMaxVersions(2).setMinVersions(1).setTimeToLive(1_000_000_000).build()));
    try (Table table = connection.getTable(made.getTableName())) {
      for (int version = 1; version <= 7; version++) {
        table.put(versionPuts(version));
      }
      admin.flush(made.getTableName());
      table.delete(deletes(0));
      admin.flush(made.getTableName());
      table.delete(deletes(20));
      table.put(versionPuts(9));
    }
  }

  private static List<Put> versionPuts(int version) {
    List<Put> puts = new ArrayList<>();
    for (int row = 0; row < 40; row++) {
      Put put = new Put(b(String.format("r%02d", row)));
      for (String family : new String[] {"v", "k", "m"}) {
        put.addColumn(b(family), b("q"), TIME + version, b(family + version));
        put.addColumn(b(family), b("r"), TIME + version, b(family + -version));
      }
      puts.add(put);
    }
    return puts;
  }

  private static List<Delete> deletes(int from) {
    List<Delete> deletes = new ArrayList<>();
    for (int row = from; row < from + 20; row++) {
      Delete delete = new Delete(b(String.format("r%02d", row)));
      for (String family : new String[] {"v", "k", "m"}) {
        switch (row % 5) {
          case 0 -> delete.addColumn(b(family), b("q"), TIME + 6);
          case 1 -> delete.addColumns(b(family), b("q"), TIME + 5);
          case 2 -> delete.addFamily(b(family), TIME + 4);
          case 3 -> delete.addFamilyVersion(b(family), TIME + 7);
          default -> delete.addColumns(b(family), b("nothing"), TIME);
        }
      }
      deletes.add(delete);
    }
    return deletes;
  }

  private void presplit() throws IOException {
    TableDescriptor made = create(table("presplit").setColumnFamily(family("c").setBloomFilterType(BloomType.ROWCOL).build())
      .setColumnFamily(family("p").setBloomFilterType(BloomType.ROWPREFIX_FIXED_LENGTH)
        .setConfiguration("RowPrefixBloomFilter.prefix_length", "2").build()), "b", "c", "d");
    for (String prefix : new String[] {"a", "b", "c", "d"}) {
      write(made, prefix, 100);
    }
    admin.flush(made.getTableName());
    write(made, "bb", 40);
    write(made, "dd", 40);
  }

  /** A table that was never flushed: all kinds of changes, a large value, tags. */
  private void walOnly() throws Exception {
    TableDescriptor made = create(
      TableDescriptorBuilder.newBuilder(TableName.valueOf(namespace + "_log")).setColumnFamily(family("f").build())
        .setColumnFamily(family("g").setMaxVersions(3).build()), "m");
    write(made, "a", 60);
    write(made, "n", 60);
    try (Table table = connection.getTable(made.getTableName())) {
      table.increment(new Increment(b("counter")).addColumn(b("f"), b("n"), 5).setTimestamp(TIME));
      table.increment(new Increment(b("counter")).addColumn(b("f"), b("n"), 7).setTimestamp(TIME + 1));
      table.append(new Append(b("text")).addColumn(b("g"), b("t"), b("one")).setTimestamp(TIME));
      table.append(new Append(b("text")).addColumn(b("g"), b("t"), b(" two")).setTimestamp(TIME + 1));
      byte[] large = new byte[1_500_000];
      new Random(3).nextBytes(large);
      table.put(new Put(b("large")).addColumn(b("f"), b("q"), TIME, large));
      table.put(new Put(b("tagged")).setTTL(TimeUnit.DAYS.toMillis(40_000)).addColumn(b("f"), b("q"), TIME, b("v")));
      Put put = new Put(b("pair")).addColumn(b("f"), b("q"), TIME, b("v"));
      table.mutateRow(RowMutations.of(List.of(put, new Delete(b("pair")).addColumn(b("g"), b("old"), TIME))));
      table.delete(new Delete(b("a00007")).addFamily(b("f"), TIME + 1_000_000));
    }
  }

  /** A region that is split while it has a file and rows in memory; both daughters are written to. */
  private void split() throws Exception {
    TableDescriptor made = create(table("split").setColumnFamily(family("f").build()));
    write(made, "s", 200);
    admin.flush(made.getTableName());
    write(made, "t", 20);
    byte[] region = admin.getRegions(made.getTableName()).get(0).getRegionName();
    admin.splitRegionAsync(region, b("s00100")).get(60, TimeUnit.SECONDS);
    write(made, "s00050", 10);
    write(made, "t", 30);
  }

  private void merged() throws Exception {
    TableDescriptor made = create(table("merged").setColumnFamily(family("f").build()), "f", "k");
    for (String prefix : new String[] {"a", "g", "l"}) {
      write(made, prefix, 50);
    }
    List<RegionInfo> regions = admin.getRegions(made.getTableName());
    byte[][] both = {regions.get(0).getRegionName(), regions.get(1).getRegionName()};
    admin.mergeRegionsAsync(both, false).get(60, TimeUnit.SECONDS);
    write(made, "h", 10);
  }

  /** A table with an altered descriptor: one family deleted and one added. */
  private void altered() throws IOException {
    TableDescriptor made = create(table("altered").setColumnFamily(family("a").build()).setColumnFamily(family("b").build()));
    write(made, "r", 40);
    admin.addColumnFamily(made.getTableName(), family("c").setMaxVersions(4).build());
    admin.deleteColumnFamily(made.getTableName(), b("b"));
    TableDescriptor now = admin.getDescriptor(made.getTableName());
    admin.modifyTable(TableDescriptorBuilder.newBuilder(now).setMaxFileSize(1L << 33).setValue("OWNER", "us").build());
    write(admin.getDescriptor(made.getTableName()), "s", 40);
  }

  private void deleted() throws IOException {
    TableDescriptor made = create(table("deleted").setColumnFamily(family("f").build()));
    write(made, "r", 20);
    admin.disableTable(made.getTableName());
    admin.deleteTable(made.getTableName());
  }

  private void disabled() throws IOException {
    TableDescriptor made = create(table("disabled").setColumnFamily(family("f").build()), "g");
    write(made, "d", 30);
    write(made, "h", 30);
    admin.disableTable(made.getTableName());
  }

  /** Writes {@code count} rows with this prefix, with a few columns in every family. */
  private void write(TableDescriptor made, String prefix, int count) throws IOException {
    Random random = new Random(prefix.hashCode());
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Put put = new Put(b(String.format("%s%05d", prefix, i)));
      for (ColumnFamilyDescriptor family : made.getColumnFamilies()) {
        for (int column = 0; column <= i % 3; column++) {
          byte[] value = new byte[random.nextInt(120)];
          random.nextBytes(value);
          put.addColumn(family.getName(), b("q" + column), TIME + random.nextInt(1000), value);
        }
      }
      puts.add(put);
    }
    try (Table table = connection.getTable(made.getTableName())) {
      table.put(puts);
    }
  }

  private TableDescriptorBuilder table(String name) {
    return TableDescriptorBuilder.newBuilder(TableName.valueOf(namespace, name));
  }

  private static ColumnFamilyDescriptorBuilder family(String name) {
    return ColumnFamilyDescriptorBuilder.newBuilder(b(name));
  }

  private TableDescriptor create(TableDescriptorBuilder builder, String... splits) throws IOException {
    TableDescriptor wanted = builder.build();
    byte[][] keys = new byte[splits.length][];
    for (int i = 0; i < splits.length; i++) {
      keys[i] = b(splits[i]);
    }
    if (keys.length == 0) {
      admin.createTable(wanted);
    } else {
      admin.createTable(wanted, keys);
    }
    return wanted;
  }

  /** Waits until every store has one file. */
  private void waitForFiles(TableDescriptor made) throws Exception {
    for (int tries = 0; tries < 600; tries++) {
      int files = 0;
      for (ServerName server : admin.getRegionServers()) {
        for (RegionMetrics region : admin.getRegionMetrics(server, made.getTableName())) {
          files += region.getStoreFileCount();
        }
      }
      if (files == made.getColumnFamilyCount()) {
        return;
      }
      Thread.sleep(50);
    }
    throw new IllegalStateException(made.getTableName() + " was not compacted in 30 s");
  }
}
