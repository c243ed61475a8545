package evenkeel.interop;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/** Short forms of the calls that checks use most. */
public final class Rows {
  private Rows() {
  }

  public static byte[] b(String text) {
    return Bytes.toBytes(text);
  }

  public static Put put(String row, String column, String value) {
    return add(new Put(b(row)), column, value);
  }

  public static Put put(String row, String column, long ts, String value) {
    return add(new Put(b(row)), column, ts, value);
  }

  public static Put add(Put put, String column, String value) {
    return put.addColumn(family(column), qualifier(column), b(value));
  }

  public static Put add(Put put, String column, long ts, String value) {
    return put.addColumn(family(column), qualifier(column), ts, b(value));
  }

  public static Get get(String row) {
    return new Get(b(row));
  }

  public static Delete delete(String row) {
    return new Delete(b(row));
  }

  /** {@code f} of {@code f:q}. */
  public static byte[] family(String column) {
    return b(column.substring(0, column.indexOf(':')));
  }

  /** {@code q} of {@code f:q}. */
  public static byte[] qualifier(String column) {
    return b(column.substring(column.indexOf(':') + 1));
  }

  /** Returns the text of a plain Get of the row. */
  public static String read(Table table, String row) throws IOException {
    return Show.row(table.get(get(row)));
  }

  /** Returns the text of a Get of all versions of the row. */
  public static String readAll(Table table, String row) throws IOException {
    return Show.row(table.get(get(row).readAllVersions()));
  }

  public static List<String> scan(Table table, Scan scan) throws IOException {
    try (ResultScanner scanner = table.getScanner(scan)) {
      return Show.rows(scanner);
    }
  }

  public static List<String> keys(Table table, Scan scan) throws IOException {
    try (ResultScanner scanner = table.getScanner(scan)) {
      return Show.keys(scanner);
    }
  }

  /** Returns the text of the Result of a Get that may find nothing. */
  public static long number(Result result, String column) {
    return Bytes.toLong(result.getValue(family(column), qualifier(column)));
  }
}
