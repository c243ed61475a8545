package evenkeel.interop;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.scan;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.PageFilter;

/** Limits of a scan: batch, result size, cells a family, partial rows, cursors. */
final class LimitChecks {
  private final Suite suite;

  LimitChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("scan-batch", this::batch);
    suite.check("scan-batch-exact", this::batchExact);
    suite.check("scan-small-result-size", this::smallResultSize);
    suite.check("scan-partial-rows", this::partialRows);
    suite.check("scan-large-rows", this::largeRows);
    suite.check("scan-store-limit-and-offset", this::storeLimit);
    suite.check("scan-limit-and-page", this::limitAndPage);
    suite.check("scan-cursor", this::cursor);
    suite.check("scan-batch-limit-reversed", this::batchReversed);
  }

  /** Rows r0..r3 in two regions, row i with cells q00..q(i*5). */
  private Table stairs() throws IOException {
    Table table = suite.presplit("r2");
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      Put row = new Put(b("r" + i));
      for (int q = 0; q <= i * 5; q++) {
        Rows.add(row, String.format("f:q%02d", q), 1, "v" + q);
      }
      puts.add(row);
    }
    table.put(puts);
    return table;
  }

  private static List<String> shape(Table table, Scan scan) throws IOException {
    List<String> out = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        out.add(Show.text(result.getRow()) + ":" + result.size() + (result.mayHaveMoreCellsInRow() ? "+" : ""));
      }
    }
    return out;
  }

  private void batch() throws IOException {
    try (Table table = stairs()) {
      Expect.lines(shape(table, new Scan().setBatch(4)), "r0:1", "r1:4+", "r1:2", "r2:4+", "r2:4+", "r2:3", "r3:4+", "r3:4+",
          "r3:4+", "r3:4");
      for (int caching : new int[] {1, 2, 5}) {
        Expect.same(10, shape(table, new Scan().setBatch(4).setCaching(caching)).size());
      }
    }
  }

  private void batchExact() throws IOException {
    try (Table table = stairs()) {
      Expect.lines(Rows.keys(table, new Scan().setBatch(3).withStopRow(b("r2"))), "r0", "r1", "r1");
      Expect.lines(Rows.keys(table, new Scan().setBatch(6).withStopRow(b("r2"))), "r0", "r1");
    }
  }

  private static Map<String, Integer> cellsPerRow(Table table, Scan scan) throws IOException {
    Map<String, Integer> cells = new LinkedHashMap<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        cells.merge(Show.text(result.getRow()), result.size(), Integer::sum);
      }
    }
    return cells;
  }

  private void smallResultSize() throws IOException {
    try (Table table = stairs()) {
      for (long size : new long[] {1, 100, 1000}) {
        Expect.lines(shape(table, new Scan().setMaxResultSize(size)), "r0:1", "r1:6", "r2:11", "r3:16");
        Expect.lines(shape(table, new Scan().setMaxResultSize(size).setReversed(true)), "r3:16", "r2:11", "r1:6", "r0:1");
        Expect.same("{r0=1, r1=6, r2=11, r3=16}", cellsPerRow(table, new Scan().setMaxResultSize(size).setBatch(3)).toString());
      }
    }
  }

  private void partialRows() throws IOException {
    try (Table table = stairs()) {
      Scan partial = new Scan().setMaxResultSize(1).setAllowPartialResults(true);
      Expect.same("{r0=1, r1=6, r2=11, r3=16}", cellsPerRow(table, partial).toString());
      Expect.that(shape(table, partial).stream().anyMatch(line -> line.endsWith("+")), "some results are partial");
      Expect.same(34, shape(table, partial).size());
    }
  }

  private void largeRows() throws IOException {
    try (Table table = suite.table("f")) {
      byte[] value = new byte[300_000];
      for (int r = 0; r < 3; r++) {
        Put row = new Put(b("r" + r));
        for (int q = 0; q < 10; q++) {
          value[0] = (byte) q;
          row.addColumn(b("f"), b("q" + q), 1, value.clone());
        }
        table.put(row);
      }
      suite.admin.flush(table.getName());
      Expect.lines(shape(table, new Scan()), "r0:10", "r1:10", "r2:10");
      Expect.lines(shape(table, new Scan().setReversed(true)), "r2:10", "r1:10", "r0:10");
      Expect.same("{r0=10, r1=10, r2=10}", cellsPerRow(table, new Scan().setAllowPartialResults(true)).toString());
      try (ResultScanner scanner = table.getScanner(new Scan().setMaxResultSize(500_000))) {
        for (Result result : scanner) {
          int q = 0;
          for (Cell cell : result.rawCells()) {
            Expect.same((byte) q++, cell.getValueArray()[cell.getValueOffset()]);
          }
        }
      }
    }
  }

  private void storeLimit() throws IOException {
    try (Table table = stairs()) {
      Expect.lines(shape(table, new Scan().setMaxResultsPerColumnFamily(7)), "r0:1", "r1:6", "r2:7", "r3:7");
      Expect.lines(scan(table, new Scan().withStartRow(b("r3")).setMaxResultsPerColumnFamily(2).setRowOffsetPerColumnFamily(3)),
          "r3{f:q03@1=v3 f:q04@1=v4}");
    }
  }

  private void limitAndPage() throws IOException {
    try (Table table = stairs()) {
      Expect.lines(Rows.keys(table, new Scan().setLimit(3)), "r0", "r1", "r2");
      Expect.lines(Rows.keys(table, new Scan().setLimit(3).setCaching(2)), "r0", "r1", "r2");
      Expect.lines(Rows.keys(table, new Scan().setFilter(new PageFilter(1))), "r0", "r2");
      Expect.lines(Rows.keys(table, new Scan().setFilter(new PageFilter(5)).setLimit(2)), "r0", "r1");
      Expect.lines(shape(table, new Scan().setLimit(2).setMaxResultSize(1)), "r0:1", "r1:6");
    }
  }

  private void cursor() throws IOException {
    try (Table table = stairs(); ResultScanner scanner =
        table.getScanner(new Scan().setMaxResultSize(1).setNeedCursorResult(true))) {
      List<String> rows = new ArrayList<>();
      int cursors = 0;
      for (Result result : scanner) {
        if (result.isCursor()) {
          cursors++;
          Expect.that(Show.text(result.getCursor().getRow()).startsWith("r"), "a cursor names a row");
        } else {
          rows.add(Show.text(result.getRow()) + ":" + result.size());
        }
      }
      Expect.lines(rows, "r0:1", "r1:6", "r2:11", "r3:16");
      Expect.that(cursors > 0, "a row in pieces gives cursors");
    }
  }

  private void batchReversed() throws IOException {
    try (Table table = stairs()) {
      Expect.lines(shape(table, new Scan().setBatch(10).setReversed(true).withStartRow(b("r2"))), "r2:10+", "r2:1", "r1:6", "r0:1");
    }
  }
}
