import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.StoreFile;
import org.apache.hadoop.hbase.util.ChecksumType;

/**
 * Writes store files of version 2 with the writer of HBase 0.98 or 1.x: {@code OldFiles <settings> <cells dir> <out
 * dir>}, one file for each setting, named after it. The formats of settings and cells are those of {@code FilesWrite}.
 */
public final class OldFiles {
  private final Map<String, String> values = new HashMap<String, String>();
  private final String name;

  private OldFiles(String line) {
    String[] words = line.trim().split("\\s+");
    name = words[0];
    for (int i = 1; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      values.put(pair[0], pair[1]);
    }
  }

  public static void main(String[] args) throws Exception {
    // 0.98 accepts versions of this form only.
    System.setProperty("java.version", "1.8.0");
    Path out = Paths.get(args[2]);
    Files.createDirectories(out);
    for (String line : Files.readAllLines(Paths.get(args[0]), StandardCharsets.UTF_8)) {
      if (!line.trim().isEmpty() && !line.startsWith("#")) {
        OldFiles setting = new OldFiles(line);
        setting.write(Paths.get(args[1]).resolve(setting.text("cells", "cells.txt")), out.resolve(setting.name));
        System.out.println("wrote " + setting.name);
      }
    }
    System.exit(0);
  }

  private String text(String key, String value) {
    return values.containsKey(key) ? values.get(key) : value;
  }

  private int number(String key, int value) {
    return Integer.parseInt(text(key, Integer.toString(value)));
  }

  private void write(Path cells, Path file) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hfile.format.version", 2);
    conf.setInt("hfile.index.block.max.size", number("index", 131_072));
    conf.setInt("io.storefile.bloom.block.size", number("bloomblock", 131_072));
    conf.set("hbase.hash.type", text("hash", "murmur"));
    FileSystem fs = FileSystem.getLocal(conf).getRaw();
    HFileContext context = new HFileContextBuilder()
      .withDataBlockEncoding(DataBlockEncoding.valueOf(text("encoding", "NONE")))
      .withCompression(Compression.Algorithm.valueOf(text("compression", "NONE"))).withBlockSize(number("block", 65_536))
      .withChecksumType(ChecksumType.valueOf(text("checksum", "CRC32"))).withBytesPerCheckSum(number("bpc", 16_384))
      .withHBaseCheckSum(true).withIncludesMvcc(text("mvcc", "true").equals("true")).withIncludesTags(false).build();
    StoreFile.Writer writer = new StoreFile.WriterBuilder(conf, new CacheConfig(conf), fs)
      .withFilePath(new org.apache.hadoop.fs.Path(file.toUri()))
      .withComparator(text("order", "default").equals("meta") ? KeyValue.META_COMPARATOR : KeyValue.COMPARATOR)
      .withBloomType(BloomType.valueOf(text("bloom", "ROW"))).withMaxKeyCount(1_000_000).withFileContext(context).build();
    for (String line : Files.readAllLines(cells, StandardCharsets.US_ASCII)) {
      writer.append(cell(line));
    }
    writer.appendMetadata(77, false);
    writer.close();
  }

  private static KeyValue cell(String line) {
    String[] part = line.split(" ");
    byte[] row = bytes(part[0]);
    byte[] family = bytes(part[1]);
    byte[] qualifier = bytes(part[2]);
    byte[] value = bytes(part[6]);
    KeyValue.Type type = KeyValue.Type.codeToType((byte) Integer.parseInt(part[4]));
    KeyValue cell = new KeyValue(row, family, qualifier, Long.parseLong(part[3]), type, value);
    SequenceIds.set(cell, Long.parseLong(part[5]));
    return cell;
  }

  private static byte[] bytes(String hex) {
    return hex.equals("-") ? new byte[0] : HexFormat.of().parseHex(hex);
  }
}
