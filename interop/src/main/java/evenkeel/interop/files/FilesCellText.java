package evenkeel.interop.files;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.ExtendedCell;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;

/**
 * Cells as text, one per line, which both sides read and write: {@code row family qualifier timestamp typeCode
 * sequenceId value tags}, separated by one space, byte strings in hexadecimal, {@code -} for an empty one.
 */
final class FilesCellText {
  private static final HexFormat HEX = HexFormat.of();

  private FilesCellText() {}

  static List<KeyValue> read(Path file) throws IOException {
    List<KeyValue> cells = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.US_ASCII)) {
      for (String line; (line = lines.readLine()) != null;) {
        cells.add(parse(line));
      }
    }
    return cells;
  }

  private static KeyValue parse(String line) {
    String[] part = line.split(" ");
    byte[] row = bytes(part[0]);
    byte[] family = bytes(part[1]);
    byte[] qualifier = bytes(part[2]);
    byte[] value = bytes(part[6]);
    byte[] tags = bytes(part[7]);
    KeyValue.Type type = KeyValue.Type.codeToType((byte) Integer.parseInt(part[4]));
    KeyValue cell = new KeyValue(row, 0, row.length, family, 0, family.length, qualifier, 0, qualifier.length,
      Long.parseLong(part[3]), type, value, 0, value.length, tags.length == 0 ? null : tags, 0, tags.length);
    cell.setSequenceId(Long.parseLong(part[5]));
    return cell;
  }

  static String format(Cell cell) {
    byte[] tags = PrivateCellUtil.cloneTags(cell);
    return String.join(" ", hex(CellUtil.cloneRow(cell)), hex(CellUtil.cloneFamily(cell)),
      hex(CellUtil.cloneQualifier(cell)), Long.toString(cell.getTimestamp()),
      Integer.toString(cell.getTypeByte() & 0xff), Long.toString(((ExtendedCell) cell).getSequenceId()),
      hex(CellUtil.cloneValue(cell)), hex(tags));
  }

  /** Returns the line of a cell as stored in a file: without the parts that the settings omit. */
  static String formatStored(KeyValue cell, FilesSetting setting) {
    String[] part = format(cell).split(" ");
    if (!setting.flag("mvcc")) {
      part[5] = "0";
    }
    if (!setting.flag("tags")) {
      part[7] = "-";
    }
    return String.join(" ", part);
  }

  static byte[] bytes(String hex) {
    return hex.equals("-") ? new byte[0] : HEX.parseHex(hex);
  }

  static String hex(byte[] bytes) {
    return bytes.length == 0 ? "-" : HEX.formatHex(bytes);
  }
}
