package evenkeel.interop.files;

import java.io.ByteArrayOutputStream;
import java.io.DataInput;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFilePrettyPrinter;
import org.apache.hadoop.hbase.io.hfile.HFileScanner;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.BloomFilter;
import org.apache.hadoop.hbase.util.BloomFilterFactory;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Reads store files with the stock reader and compares: {@code FilesRead <settings> <cells dir> <files dir> <stock
 * files dir>}. Each file is scanned completely; every cell is looked up by {@code seekTo}, {@code seekBefore} and the
 * bloom filters. For each bloom filter it prints the absent keys that pass. Exits with 1 if a file is missing, does not
 * match its setting and cells, is rejected by the stock tool for store files, or if that tool prints something else for
 * the file of the same name that stock HBase wrote.
 */
public final class FilesRead {
  private static final int ABSENT_KEYS = 1000;
  /** Cells of larger files are not printed; they are already compared one by one. */
  private static final long LARGE_FILE_BYTES = 1 << 20;

  private FilesRead() {
  }

  public static void main(String[] args) throws Exception {
    Path cells = Path.of(args[1]);
    boolean good = true;
    for (FilesSetting setting : FilesSetting.readAll(Path.of(args[0]))) {
      Path file = Path.of(args[2]).resolve(setting.name);
      try {
        check(setting, FilesCellText.read(cells.resolve(setting.text("cells"))), file);
        prettyPrint(setting, file, Path.of(args[3]).resolve(setting.name));
        System.out.println("ok " + setting.name);
      } catch (Throwable e) {
        good = false;
        System.out.println("FAILED " + setting.name + ": " + e);
        e.printStackTrace(System.out);
      }
    }
    System.exit(good ? 0 : 1);
  }

  private static void check(FilesSetting setting, List<KeyValue> cells, Path file) throws Exception {
    Configuration conf = setting.configuration();
    FileSystem fs = FileSystem.getLocal(conf).getRaw();
    try (HFile.Reader reader = HFile.createReader(fs, new org.apache.hadoop.fs.Path(file.toUri()), conf)) {
      expect(cells.size(), reader.getEntries(), "entries");
      List<String> lines = new ArrayList<>();
      cells.forEach(cell -> lines.add(FilesCellText.formatStored(cell, setting)));
      scan(reader.getScanner(conf, false, false), lines);
      if (!cells.isEmpty()) {
        expect(FilesCellText.hex(keyOf(cells.get(cells.size() - 1))), FilesCellText.hex(keyOf(reader.getLastKey().get())),
          "last key");
        seek(reader.getScanner(conf, false, true), cells, lines, setting);
        reader.midKey().orElseThrow(() -> new AssertionError("no middle key"));
      }
      blooms(reader, cells, setting);
    }
  }

  /** {@code hbase hfile}: reads the whole file, reports a wrong order, and must print the same as for stock's file. */
  private static void prettyPrint(FilesSetting setting, Path file, Path stock) throws Exception {
    String text = printed(setting, file, "-m", "-s", "-v", "-k");
    expect(true, text.startsWith("exit code 0\n"), "success of hbase hfile");
    expect(true, text.contains("Scanned kv count -> "), "a count from hbase hfile");
    // The tool compares rows without hbase:meta's order.
    if (!setting.text("order").equals("meta")) {
      expect(List.of(), text.lines().filter(line -> line.contains("WARNING")).toList(), "warnings from hbase hfile");
    }
    // Sizes depend on the compressor, so they are removed from the output for compressed files. (-s samples at random.)
    boolean plain = setting.text("compression").equals("NONE");
    boolean large = java.nio.file.Files.size(stock) > LARGE_FILE_BYTES;
    String[] options = plain ? new String[] {"-m", "-b", "-h", "-v", large ? "-k" : "-p"} : new String[] {"-v", large ? "-k" : "-p"};
    List<String> theirs = printed(setting, stock, options).lines().toList();
    List<String> ours = printed(setting, file, options).lines().toList();
    expect(theirs.size(), ours.size(), "lines from hbase hfile");
    for (int i = 0; i < ours.size(); i++) {
      expect(theirs.get(i), ours.get(i), "line " + i + " from hbase hfile");
    }
  }

  private static String printed(FilesSetting setting, Path file, String... options) throws Exception {
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    HFilePrettyPrinter printer = new HFilePrettyPrinter(setting.configuration());
    PrintStream stream = new PrintStream(printed);
    printer.setPrintStreams(stream, stream);
    List<String> args = new ArrayList<>(List.of(options));
    args.addAll(List.of("-f", file.toUri().toString()));
    int code = printer.run(args.toArray(new String[0]));
    stream.flush();
    return "exit code " + code + "\n" + printed.toString().replace(file.getParent().toString(), "");
  }

  private static void scan(HFileScanner scanner, List<String> lines) throws Exception {
    boolean more = scanner.seekTo();
    for (int i = 0; i < lines.size(); i++) {
      expect(true, more, "a cell " + i);
      expect(lines.get(i), FilesCellText.format(scanner.getCell()), "cell " + i);
      more = scanner.next();
    }
    expect(false, more, "more cells");
  }

  /** Stock seeks use only keys, so of several cells with the same key only the first is sought. */
  private static void seek(HFileScanner scanner, List<KeyValue> cells, List<String> lines, FilesSetting setting)
    throws Exception {
    int step = Math.max(1, cells.size() / 2000);
    for (int i = 0; i < cells.size(); i += step) {
      KeyValue cell = cells.get(i);
      if (i > 0 && setting.order().compare(cells.get(i - 1), keyOnly(cell)) >= 0) {
        continue;
      }
      if (i > 0 && PrivateCellUtil.compareKeyIgnoresMvcc(setting.order(), cells.get(i - 1), cell) == 0) {
        continue;
      }
      expect(0, scanner.seekTo(keyOnly(cell)), "seek to cell " + i);
      expect(lines.get(i), FilesCellText.format(scanner.getCell()), "sought cell " + i);
      if (i == 0 || !CellUtil.matchingRows(cells.get(i - 1), cell)) {
        seekBeforeRow(scanner, cell, i, lines);
      }
    }
  }

  /**
   * Stock HBase only seeks before the first key of a row, and only that works in all its encodings: before a later
   * cell, ROW_INDEX_V1 misses cells, and compressed tags of the previous cell are wrong.
   */
  private static void seekBeforeRow(HFileScanner scanner, KeyValue cell, int i, List<String> lines) throws Exception {
    Cell key = PrivateCellUtil.createFirstOnRow(CellUtil.cloneRow(cell));
    expect(i > 0, scanner.seekBefore(key), "seek before the row of cell " + i);
    if (i > 0) {
      String before = FilesCellText.format(scanner.getCell());
      expect(withoutTags(lines.get(i - 1)), withoutTags(before), "cell before " + i);
    }
  }

  private static String withoutTags(String line) {
    return line.substring(0, line.lastIndexOf(' '));
  }

  private static void blooms(HFile.Reader reader, List<KeyValue> cells, FilesSetting setting) throws Exception {
    DataInput general = reader.getGeneralBloomFilterMetadata();
    expect(setting.bloom() != BloomType.NONE && !cells.isEmpty(), general != null, "a general bloom filter");
    if (general != null) {
      BloomFilter filter = BloomFilterFactory.createFromMeta(general, reader);
      all(cells, cell -> inGeneral(filter, cell, setting), "the general bloom filter");
      StringBuilder passing = new StringBuilder();
      for (int i = 0; i < ABSENT_KEYS; i++) {
        KeyValue absent = new KeyValue(Bytes.toBytes(i + "absent"), new byte[0], Bytes.toBytes("q"));
        KeyValue row = new KeyValue(Bytes.toBytes(i + "absent"), new byte[0], new byte[0]);
        boolean passes = inGeneral(filter, absent, setting)
          || setting.bloom() == BloomType.ROWCOL && inGeneral(filter, row, setting);
        passing.append(passes ? " " + i : "");
      }
      System.out.println("bloom " + setting.name + passing);
    }
    List<KeyValue> deletes = cells.stream()
      .filter(cell -> PrivateCellUtil.isDeleteFamily(cell) || PrivateCellUtil.isDeleteFamilyVersion(cell)).toList();
    DataInput deleted = reader.getDeleteBloomFilterMetadata();
    expect(setting.bloom() != BloomType.ROWCOL && !deletes.isEmpty(), deleted != null, "a delete family bloom filter");
    if (deleted != null) {
      BloomFilter filter = BloomFilterFactory.createFromMeta(deleted, reader);
      all(deletes, cell -> contains(filter, CellUtil.cloneRow(cell)), "the delete family bloom filter");
    }
  }

  private static boolean inGeneral(BloomFilter filter, KeyValue cell, FilesSetting setting) {
    byte[] row = CellUtil.cloneRow(cell);
    return switch (setting.bloom()) {
      case ROWCOL -> filter.contains(PrivateCellUtil.createFirstOnRowCol(cell), null, BloomType.ROWCOL);
      case ROWPREFIX_FIXED_LENGTH -> contains(filter,
        java.util.Arrays.copyOf(row, Math.min(row.length, setting.number("prefix"))));
      default -> contains(filter, row);
    };
  }

  private static boolean contains(BloomFilter filter, byte[] key) {
    return filter.contains(key, 0, key.length, null);
  }

  private static void all(List<KeyValue> cells, Predicate<KeyValue> found, String where) {
    for (KeyValue cell : cells) {
      if (!found.test(cell)) {
        throw new AssertionError(cell + " is not in " + where);
      }
    }
  }

  private static Cell keyOnly(KeyValue cell) {
    return new KeyValue.KeyOnlyKeyValue(keyOf(cell));
  }

  private static byte[] keyOf(Cell cell) {
    return PrivateCellUtil.getCellKeySerializedAsKeyValueKey(cell);
  }

  private static void expect(Object wanted, Object got, String what) {
    if (!String.valueOf(wanted).equals(String.valueOf(got))) {
      throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
    }
  }
}
