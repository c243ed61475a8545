package evenkeel.interop.files;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Collections;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.InnerStoreCellComparator;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.ByteBuffAllocator;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.io.hfile.HFileScanner;
import org.apache.hadoop.hbase.io.hfile.LruBlockCache;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.CompactionTool;
import org.apache.hadoop.hbase.regionserver.HRegionFileSystem;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.util.FSTableDescriptors;
import org.apache.hadoop.util.DataChecksum;

/**
 * The cost of writing, reading, seeking in and compacting store files with stock HBase's classes. One JVM runs for the
 * whole report, so that compiled code is measured: it reads one command per line and answers with {@code done ITEMS
 * BYTES WALL_NS CPU_NS KIB KIB}, where CPU is that of the whole process, compiler and collector included. The commands
 * and their cells are those of {@code bench/src/hfile_report}.
 */
public final class FilesSpeed {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final int VALUE_BYTES = 100;
  private static final long CACHE_BYTES = 1L << 30;
  private static final OperatingSystemMXBean MACHINE = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  private final Configuration conf = configuration();
  private final FileSystem fs = FileSystem.getLocal(conf).getRaw();
  private KeyValue[] cells = {};

  private FilesSpeed() throws IOException {
  }

  public static void main(String[] args) throws Exception {
    FilesSpeed speed = new FilesSpeed();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null;) {
      try {
        System.out.println("done " + speed.run(line.split(" ")));
      } catch (Throwable e) {
        e.printStackTrace();
        System.out.println("failed " + line + ": " + e);
      }
      System.out.flush();
    }
    System.exit(0);
  }

  private static Configuration configuration() {
    Configuration conf = HBaseConfiguration.create();
    conf.set("fs.defaultFS", "file:///");
    conf.set("hbase.io.compress.zstd.codec", "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec");
    conf.set("hbase.io.compress.bzip2.codec", FilesCodecs.Bzip2.class.getName());
    Compression.Algorithm.ZSTD.reload(conf);
    Compression.Algorithm.BZIP2.reload(conf);
    return conf;
  }

  private String run(String[] words) throws Exception {
    return switch (words[0]) {
      case "write" -> write(new Path(words[1]), words[2], words[3], Integer.parseInt(words[4]), Integer.parseInt(words[5]));
      case "read" -> read(new Path(words[1]), Integer.parseInt(words[2]));
      case "seek" -> seek(new Path(words[1]), Integer.parseInt(words[2]));
      case "open" -> open(new Path(words[1]), Integer.parseInt(words[2]));
      case "grow" -> grow(new Path(words[1]), Long.parseLong(words[2]) << 20, Long.parseLong(words[3]) << 20);
      case "checksum" -> checksum(Long.parseLong(words[1]));
      case "layout" -> layout(words[1], words[2]);
      case "compact" -> compact(words[1]);
      default -> throw new IllegalArgumentException(words[0]);
    };
  }

  /** Measures work since its creation. */
  private static final class Meter {
    private final long wall = System.nanoTime();
    private final long cpu = MACHINE.getProcessCpuTime();

    String done(long items, long bytes, long first, long second) {
      long cpuTaken = MACHINE.getProcessCpuTime() - cpu;
      return items + " " + bytes + " " + (System.nanoTime() - wall) + " " + cpuTaken + " " + first + " " + second;
    }

    String done(long items, long bytes) {
      return done(items, bytes, 0, 0);
    }
  }

  /** The cells, kept between commands: cell {@code i} is the same on both sides. */
  private KeyValue[] cells(int count) {
    if (cells.length != count) {
      Stream stream = new Stream();
      cells = new KeyValue[count];
      for (int i = 0; i < count; i++) {
        cells[i] = stream.cell(i);
      }
    }
    return cells;
  }

  /** A sequence of cells: three columns per row, half of each value random. */
  private static final class Stream {
    private long state = 88172645463325252L;

    KeyValue cell(long i) {
      byte[] value = new byte[VALUE_BYTES];
      for (int b = 0; b < VALUE_BYTES; b++) {
        value[b] = '.';
      }
      for (int b = 0; b < VALUE_BYTES / 2; b++) {
        value[b] = (byte) next();
      }
      KeyValue cell =
        new KeyValue(row(i / 3), FAMILY, Bytes.toBytes("field" + i % 3), 1_700_000_000_000L + i, KeyValue.Type.Put, value);
      cell.setSequenceId(i + 1);
      return cell;
    }

    long next() {
      state ^= state << 13;
      state ^= state >>> 7;
      state ^= state << 17;
      return state >>> 8;
    }
  }

  private static byte[] row(long number) {
    return Bytes.toBytes(String.format("user%012d", number));
  }

  private StoreFileWriter writer(Path path, String encoding, String codec) throws IOException {
    fs.delete(path, false);
    var context = new HFileContextBuilder().withDataBlockEncoding(DataBlockEncoding.valueOf(encoding))
      .withCompression(Compression.Algorithm.valueOf(codec)).withHBaseCheckSum(true).withIncludesMvcc(true)
      .withCellComparator(InnerStoreCellComparator.INNER_STORE_COMPARATOR).build();
    return new StoreFileWriter.Builder(conf, fs).withFilePath(path).withBloomType(BloomType.ROW).withFileContext(context)
      .withMaxKeyCount(10_000_000).build();
  }

  private String write(Path path, String encoding, String codec, int count, int times) throws IOException {
    KeyValue[] all = cells(count);
    Meter meter = new Meter();
    long bytes = 0;
    for (int i = 0; i < times; i++) {
      StoreFileWriter writer = writer(path, encoding, codec);
      for (KeyValue cell : all) {
        writer.append(cell);
        bytes += cell.getLength();
      }
      writer.appendMetadata(77, false, Collections.emptySet());
      writer.close();
    }
    return meter.done((long) times * all.length, bytes);
  }

  private String read(Path path, int times) throws IOException {
    Meter meter = new Meter();
    long count = 0;
    long bytes = 0;
    for (int i = 0; i < times; i++) {
      try (HFile.Reader reader = HFile.createReader(fs, path, conf)) {
        HFileScanner scanner = reader.getScanner(conf, false, false);
        for (boolean more = scanner.seekTo(); more; more = scanner.next()) {
          count++;
          bytes += scanner.getCell().getSerializedSize();
        }
      }
    }
    return meter.done(count, bytes);
  }

  /** Seeks to the first cell of random rows, with every block in the cache. */
  private String seek(Path path, int seeks) throws IOException {
    CacheConfig cache = new CacheConfig(conf, null, new LruBlockCache(CACHE_BYTES, 64 << 10), ByteBuffAllocator.HEAP);
    try (HFile.Reader reader = HFile.createReader(fs, path, cache, true, conf)) {
      HFileScanner scanner = reader.getScanner(conf, true, true);
      for (boolean more = scanner.seekTo(); more;) {
        more = scanner.next();
      }
      long rows = (reader.getEntries() + 2) / 3;
      Stream random = new Stream();
      Cell[] keys = new Cell[seeks];
      for (int i = 0; i < seeks; i++) {
        keys[i] = PrivateCellUtil.createFirstOnRow(row(random.next() % rows));
      }
      long bytes = 0;
      Meter meter = new Meter();
      for (Cell key : keys) {
        int place = scanner.seekTo(key);
        if (place < 0 ? scanner.seekTo() : place == 0 || scanner.next()) {
          bytes += scanner.getCell().getSerializedSize();
        }
      }
      return meter.done(seeks, bytes);
    }
  }

  private String open(Path path, int times) throws IOException {
    Meter meter = new Meter();
    for (int i = 0; i < times; i++) {
      HFile.createReader(fs, path, conf).close();
    }
    return meter.done(times, fs.getFileStatus(path).getLen());
  }

  /** Writes one file, and samples the resident memory at two lengths. */
  private String grow(Path path, long first, long second) throws IOException {
    Meter meter = new Meter();
    StoreFileWriter writer = writer(path, "FAST_DIFF", "NONE");
    Stream stream = new Stream();
    long bytes = 0;
    long count = 0;
    long residentAtFirst = 0;
    while (bytes < second) {
      KeyValue cell = stream.cell(count++);
      writer.append(cell);
      bytes += cell.getLength();
      if (residentAtFirst == 0 && bytes >= first) {
        residentAtFirst = residentKib();
      }
    }
    long resident = residentKib();
    writer.appendMetadata(77, false, Collections.emptySet());
    writer.close();
    return meter.done(count, bytes, residentAtFirst, resident);
  }

  /** Computes checksums as for blocks that are written. */
  private static String checksum(long bytes) {
    DataChecksum sums = DataChecksum.newDataChecksum(DataChecksum.Type.CRC32C, 16 << 10);
    byte[] block = new byte[64 << 10];
    new Random(1).nextBytes(block);
    ByteBuffer data = ByteBuffer.wrap(block);
    ByteBuffer out = ByteBuffer.wrap(new byte[16]);
    Meter meter = new Meter();
    long done = 0;
    while (done < bytes) {
      sums.calculateChunkedSums(data, out);
      done += block.length;
    }
    return meter.done(done, done);
  }

  private static long residentKib() throws IOException {
    for (String line : Files.readAllLines(java.nio.file.Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    throw new IOException("no VmRSS");
  }

  private Configuration rooted(String root) throws IOException {
    Configuration rooted = new Configuration(conf);
    CommonFSUtils.setRootDir(rooted, new Path("file://" + root));
    return rooted;
  }

  /** Creates a root directory with one table of one region, for the files to compact. */
  private String layout(String root, String checksum) throws IOException {
    Configuration rooted = rooted(root);
    Meter meter = new Meter();
    TableName table = TableName.valueOf("speed");
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(table)
      .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(FAMILY)
        .setConfiguration("hbase.hstore.checksum.algorithm", checksum).build())
      .build();
    RegionInfo region = RegionInfoBuilder.newBuilder(table).setRegionId(1).build();
    new FSTableDescriptors(rooted).createTableDescriptor(descriptor);
    Path tableDir = CommonFSUtils.getTableDir(CommonFSUtils.getRootDir(rooted), table);
    HRegionFileSystem.createRegionOnFileSystem(rooted, FileSystem.get(rooted), tableDir, region);
    return meter.done(0, 0);
  }

  /** A major compaction by the stock tool. */
  private String compact(String root) throws Exception {
    Configuration rooted = rooted(root);
    // As in a server, which disables the checksums of the local file system.
    FileSystem.get(rooted).setWriteChecksum(false);
    FileSystem.get(rooted).setVerifyChecksum(false);
    CompactionTool tool = new CompactionTool();
    tool.setConf(rooted);
    Path tableDir = CommonFSUtils.getTableDir(CommonFSUtils.getRootDir(rooted), TableName.valueOf("speed"));
    Meter meter = new Meter();
    int code = tool.run(new String[] {"-compactOnce", "-major", tableDir.toString()});
    if (code != 0) {
      throw new IOException("CompactionTool: " + code);
    }
    return meter.done(0, 0);
  }
}
