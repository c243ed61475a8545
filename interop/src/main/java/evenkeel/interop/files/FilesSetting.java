package evenkeel.interop.files;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CellComparator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.InnerStoreCellComparator;
import org.apache.hadoop.hbase.MetaCellComparator;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.ChecksumType;

/**
 * One way to write a file: a line {@code name key=value ...} of a settings file. Keys and their defaults are in
 * {@link #DEFAULTS}.
 */
final class FilesSetting {
  /** The file of the cells, and defaults, which are HBase's where HBase has one. */
  private static final Map<String, String> DEFAULTS = Map.ofEntries(Map.entry("cells", "cells.txt"),
    Map.entry("encoding", "NONE"), Map.entry("compression", "NONE"), Map.entry("zstd", "hadoop"),
    Map.entry("block", "65536"), Map.entry("checksum", "CRC32C"), Map.entry("bpc", "16384"),
    Map.entry("mvcc", "true"), Map.entry("tags", "false"), Map.entry("compresstags", "false"),
    Map.entry("bloom", "ROW"), Map.entry("prefix", "3"), Map.entry("bloomblock", "131072"),
    Map.entry("hash", "murmur"), Map.entry("index", "131072"), Map.entry("entries", "16"),
    Map.entry("order", "default"), Map.entry("created", "1700000000000"));

  final String name;
  private final Map<String, String> values = new HashMap<>(DEFAULTS);

  private FilesSetting(String line) {
    String[] words = line.trim().split("\\s+");
    name = words[0];
    for (int i = 1; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      if (!DEFAULTS.containsKey(pair[0])) {
        throw new IllegalArgumentException(line);
      }
      values.put(pair[0], pair[1]);
    }
  }

  static List<FilesSetting> readAll(Path file) throws IOException {
    List<FilesSetting> settings = new ArrayList<>();
    for (String line : Files.readAllLines(file)) {
      if (!line.isBlank() && !line.startsWith("#")) {
        settings.add(new FilesSetting(line));
      }
    }
    return settings;
  }

  String text(String key) {
    return values.get(key);
  }

  int number(String key) {
    return Integer.parseInt(values.get(key));
  }

  boolean flag(String key) {
    return Boolean.parseBoolean(values.get(key));
  }

  BloomType bloom() {
    return BloomType.valueOf(text("bloom"));
  }

  CellComparator order() {
    return text("order").equals("meta") ? MetaCellComparator.META_COMPARATOR
      : InnerStoreCellComparator.INNER_STORE_COMPARATOR;
  }

  Configuration configuration() {
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hfile.index.block.max.size", number("index"));
    conf.setInt("hfile.index.block.min.entries", number("entries"));
    conf.setInt("io.storefile.bloom.block.size", number("bloomblock"));
    conf.set("hbase.hash.type", text("hash"));
    conf.set("RowPrefixBloomFilter.prefix_length", text("prefix"));
    boolean framed = text("zstd").equals("framed");
    conf.set("hbase.io.compress.zstd.codec",
      framed ? "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec" : FilesCodecs.ZstdStreams.class.getName());
    Compression.Algorithm.ZSTD.reload(conf);
    conf.set("hbase.io.compress.bzip2.codec", FilesCodecs.Bzip2.class.getName());
    Compression.Algorithm.BZIP2.reload(conf);
    return conf;
  }

  HFileContext context() {
    return new HFileContextBuilder().withDataBlockEncoding(DataBlockEncoding.valueOf(text("encoding")))
      .withCompression(Compression.Algorithm.valueOf(text("compression"))).withBlockSize(number("block"))
      .withChecksumType(ChecksumType.valueOf(text("checksum"))).withBytesPerCheckSum(number("bpc"))
      .withHBaseCheckSum(true).withIncludesMvcc(flag("mvcc")).withIncludesTags(flag("tags"))
      .withCompressTags(flag("compresstags")).withCreateTime(Long.parseLong(text("created")))
      .withCellComparator(order()).build();
  }
}
