package evenkeel.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Cells and results as short text, so that the expectations of checks are readable.
 *
 * A put is {@code f:q@5=v}, a delete marker {@code f:q@5!DeleteColumn}, a row {@code key{cell cell}}, no cells {@code
 * -}. Timestamps above {@link #CLOCK} are from the server's clock and are shown as {@code now}.
 */
public final class Show {
  /** Explicit timestamps of checks are far below this; larger ones are clock times. */
  static final long CLOCK = 1_000_000_000_000L;
  private static final int LONGEST = 48;

  private Show() {
  }

  static String cell(Cell cell) {
    String column = Bytes.toString(CellUtil.cloneFamily(cell)) + ":" + text(CellUtil.cloneQualifier(cell));
    String time = cell.getTimestamp() > CLOCK ? "now" : Long.toString(cell.getTimestamp());
    String tail = cell.getType() == Cell.Type.Put ? "=" + text(CellUtil.cloneValue(cell)) : "!" + cell.getType();
    return column + "@" + time + tail;
  }

  public static String row(Result result) {
    if (result == null || result.isEmpty()) {
      return result != null && result.isCursor() ? "cursor" : "-";
    }
    StringBuilder out = new StringBuilder(text(result.getRow())).append('{');
    String separator = "";
    for (Cell cell : result.rawCells()) {
      out.append(separator).append(cell(cell));
      separator = " ";
    }
    return out.append('}').toString();
  }

  /** As {@link #row}, with {@code now1}, {@code now2}... for the server's timestamps in the row, oldest first. */
  public static String ranked(Result result) {
    TreeSet<Long> times = new TreeSet<>();
    for (Cell cell : result.rawCells()) {
      if (cell.getTimestamp() > CLOCK) {
        times.add(cell.getTimestamp());
      }
    }
    StringBuilder out = new StringBuilder(text(result.getRow())).append('{');
    for (Cell cell : result.rawCells()) {
      int rank = cell.getTimestamp() > CLOCK ? times.headSet(cell.getTimestamp(), true).size() : 0;
      out.append(' ').append(cell(cell).replaceFirst("@now", "@now" + rank));
    }
    return out.append(" }").toString();
  }

  public static List<String> rows(Iterable<Result> results) {
    List<String> out = new ArrayList<>();
    for (Result result : results) {
      out.add(row(result));
    }
    return out;
  }

  /** The row keys only. */
  public static List<String> keys(Iterable<Result> results) {
    List<String> out = new ArrayList<>();
    for (Result result : results) {
      out.add(text(result.getRow()));
    }
    return out;
  }

  /** Printable bytes; long ones as length and hash. */
  public static String text(byte[] bytes) {
    return bytes.length > LONGEST ? "<" + bytes.length + " bytes " + Bytes.hashCode(bytes) + ">" : Bytes.toStringBinary(bytes);
  }
}
