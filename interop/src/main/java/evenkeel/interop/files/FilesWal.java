package evenkeel.interop.files;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.ExtendedCell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.regionserver.MultiVersionConcurrencyControl;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.FSHLogProvider;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALKeyImpl;
import org.apache.hadoop.hbase.wal.WALPrettyPrinter;
import org.apache.hadoop.hbase.wal.WALProvider;
import org.apache.hadoop.hbase.wal.WALStreamReader;

/**
 * WALs through the stock reader and writer. {@code write DIR ENTRIES MODE...} writes {@code DIR/MODE}, and beside it
 * {@code MODE.txt}, a line for each entry; {@code print FILE...} prints such lines for each file, and fails unless
 * {@code hbase wal} prints the same number of entries. A mode is {@code plain}, {@code dict}, {@code dicttags}
 * (dictionaries for tags too), or one of these with a codec for values.
 */
public final class FilesWal {
  private static final List<String> WITHOUT_VALUES = List.of("plain", "dict", "dicttags");

  private FilesWal() {
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("print")) {
      for (int i = 1; i < args.length; i++) {
        print(new Path(args[i]));
      }
      return;
    }
    for (int i = 3; i < args.length; i++) {
      List<String> lines = write(new Path(args[1], args[i]), Integer.parseInt(args[2]), args[i]);
      Files.write(java.nio.file.Path.of(args[1], args[i] + ".txt"), lines);
    }
  }

  private static void print(Path file) throws Exception {
    List<String> lines = read(file);
    lines.forEach(System.out::println);
    int printed = prettyPrinted(file);
    if (printed != lines.size()) {
      throw new IllegalStateException("hbase wal prints " + printed + " of " + lines.size() + " entries");
    }
  }

  private static List<String> read(Path file) throws Exception {
    Configuration conf = configuration("plain");
    List<String> lines = new ArrayList<>();
    try (WALStreamReader reader = WALFactory.createStreamReader(FileSystem.getLocal(conf).getRaw(), file, conf)) {
      for (WAL.Entry entry = reader.next(); entry != null; entry = reader.next()) {
        lines.add(line((WALKeyImpl) entry.getKey(), entry.getEdit()));
      }
    }
    return lines;
  }

  /** Returns the number of entries that the stock tool prints, with values. */
  private static int prettyPrinted(Path file) throws Exception {
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(printed, true);
    new WALPrettyPrinter(true, false, -1, Set.of(), null, null, null, false, false, out).processFile(configuration("plain"), file);
    return (int) printed.toString().lines().filter(line -> line.startsWith("Sequence=")).count();
  }

  private static List<String> write(Path file, int entries, String mode) throws Exception {
    Configuration conf = configuration(mode);
    WALProvider.Writer writer = FSHLogProvider.createWriter(conf, FileSystem.getLocal(conf).getRaw(), file, false);
    Random random = new Random(7);
    List<String> lines = new ArrayList<>();
    for (int i = 1; i <= entries; i++) {
      WALKeyImpl key = key(i);
      WALEdit edit = new WALEdit();
      for (int cells = 1 + random.nextInt(4); cells > 0; cells--) {
        edit.add(cell(i, random));
      }
      writer.append(new WAL.Entry(key, edit));
      lines.add(line(key, edit));
    }
    writer.close();
    return lines;
  }

  private static WALKeyImpl key(int i) {
    TreeMap<byte[], Integer> scopes = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    if (i % 5 == 0) {
      scopes.put(Bytes.toBytes("f" + i % 4), 1);
    }
    return new WALKeyImpl(Bytes.toBytes(String.format("%032x", i % 3)), TableName.valueOf(i % 2 == 0 ? "ns:t" : "t"), i,
      1_700_000_000_000L + i, new ArrayList<>(), i % 7, i % 11, new MultiVersionConcurrencyControl(), scopes);
  }

  private static KeyValue cell(int i, Random random) {
    byte[] row = Bytes.toBytes("row" + random.nextInt(50_000));
    byte[] value = new byte[random.nextInt(20) == 0 ? 0 : random.nextInt(random.nextInt(200) == 0 ? 400_000 : 200)];
    if (random.nextBoolean()) {
      random.nextBytes(value);
    }
    byte[] qualifier = Bytes.toBytes(random.nextInt(6) == 0 ? "" : "q" + random.nextInt(300));
    List<Tag> tags = new ArrayList<>();
    for (int tag = random.nextInt(3); tag > 0; tag--) {
      tags.add(new ArrayBackedTag((byte) (70 + tag), Bytes.toBytes("tag" + random.nextInt(5))));
    }
    KeyValue.Type type = random.nextInt(5) == 0 ? KeyValue.Type.DeleteColumn : KeyValue.Type.Put;
    return new KeyValue(row, Bytes.toBytes("f" + random.nextInt(4)), qualifier, 1000L + i, type, value, tags);
  }

  private static Configuration configuration(String mode) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("fs.defaultFS", "file:///");
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    conf.setBoolean("hbase.regionserver.wal.enablecompression", !mode.equals("plain"));
    conf.setBoolean("hbase.regionserver.wal.tags.enablecompression", !mode.equals("dict"));
    conf.setBoolean("hbase.regionserver.wal.value.enablecompression", !WITHOUT_VALUES.contains(mode));
    if (!WITHOUT_VALUES.contains(mode)) {
      conf.set("hbase.regionserver.wal.value.compression.type", mode);
    }
    // The pure Java codec of hbase-compression-zstd; Hadoop's, the default, needs a native library.
    conf.set("hbase.io.compress.zstd.codec", "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec");
    Compression.Algorithm.ZSTD.reload(conf);
    return conf;
  }

  private static String line(WALKeyImpl key, WALEdit edit) throws IOException {
    int scopes = key.getReplicationScopes() == null ? 0 : key.getReplicationScopes().size();
    StringBuilder line = new StringBuilder(Bytes.toStringBinary(key.getEncodedRegionName())).append(' ')
      .append(key.getTableName()).append(" seq=").append(key.getSequenceId()).append(" time=").append(key.getWriteTime())
      .append(" nonce=").append(key.getNonceGroup()).append('/').append(key.getNonce()).append(" scopes=").append(scopes);
    for (Cell cell : edit.getCells()) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      KeyValueUtil.oswrite((ExtendedCell) cell, out, true);
      line.append(" | ").append(HexFormat.of().formatHex(out.toByteArray()));
    }
    return line.toString();
  }
}
