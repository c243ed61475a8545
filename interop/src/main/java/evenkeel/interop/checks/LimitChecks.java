package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.scan;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.metrics.ScanMetrics;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueExcludeFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;

/** Limits of a scan: batch, result size, cells per family, partial rows, cursors. */
final class LimitChecks {
  /** The server's subclass of the client's exception. */
  private static final String ROW_TOO_BIG = "org.apache.hadoop.hbase.regionserver.RowTooBigException";

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
    suite.check("row-too-big", this::rowTooBig);
    suite.check("scan-block-bytes", this::blockBytes);
    suite.check("scan-size-counts-heap", this::heapSize);
    suite.check("scan-size-calls", this::callsBySize);
    suite.check("scan-size-calls-of-changed-rows", this::callsOfChangedRows);
    suite.check("scan-rows-scanned", this::rowsScanned);
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

  /** Twenty cells of 200 bytes in a family whose rows may have 2000 bytes. */
  private void rowTooBig() throws IOException {
    ColumnFamilyDescriptor family =
        ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setConfiguration("hbase.table.max.rowsize", "2000").build();
    try (Table table = suite.table(family)) {
      Put big = new Put(b("big"));
      for (int q = 0; q < 20; q++) {
        big.addColumn(b("f"), b(String.format("q%02d", q)), 1, new byte[200]);
      }
      table.put(List.of(big, put("small", "f:q", 1, "v")));
      for (int flushed = 0; flushed < 2; flushed++) {
        Expect.same(1, table.get(new Get(b("small"))).size());
        Expect.fails(ROW_TOO_BIG, () -> table.get(new Get(b("big"))));
        Expect.same(1, table.get(new Get(b("big")).addColumn(b("f"), b("q07"))).size());
        Expect.same(5, table.get(new Get(b("big")).setMaxResultsPerColumnFamily(5)).size());
        Expect.fails(ROW_TOO_BIG, () -> shape(table, new Scan()));
        Expect.lines(shape(table, new Scan().setBatch(5)), "big:5+", "big:5+", "big:5+", "big:5", "small:1");
        Expect.fails(ROW_TOO_BIG, () -> table.get(List.of(new Get(b("small")), new Get(b("big")))));
        suite.admin.flush(table.getName());
      }
    }
  }

  /** Bytes of the blocks that a scan read: none in memory; each block counts once, regardless of how many of its rows are read. */
  private void blockBytes() throws IOException {
    ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setBlocksize(4096).build();
    try (Table table = suite.table(family)) {
      List<Put> puts = new ArrayList<>();
      for (int r = 0; r < 100; r++) {
        puts.add(new Put(b(String.format("r%02d", r))).addColumn(b("f"), b("q"), 1, new byte[300]));
      }
      table.put(puts);
      Expect.same(0L, blockBytesOf(table, new Scan()));
      suite.admin.flush(table.getName());
      // A stock server counts the first block twice; sequence ids of one batch may take a byte or three.
      Expect.between(32_500, 37_500, blockBytesOf(table, new Scan()), "bytes of all blocks");
      Expect.between(32_500, 37_500, blockBytesOf(table, new Scan().setCaching(7)), "bytes of all blocks, in many calls");
      Scan two = new Scan().withStartRow(b("r03")).withStopRow(b("r05"));
      Expect.between(4_100, 8_700, blockBytesOf(table, two), "bytes of the block of two rows");
    }
  }

  /** Cells a call, by the heap size of a cell's class: in memory, of a block with whole cells, of an encoded one. */
  private void heapSize() throws IOException {
    ColumnFamilyDescriptor encoded =
        ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF).build();
    ColumnFamilyDescriptor whole =
        ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setDataBlockEncoding(DataBlockEncoding.ROW_INDEX_V1).build();
    try (Table plain = suite.table("f"); Table diff = suite.table(encoded); Table rowIndex = suite.table(whole)) {
      Put wide = new Put(b("r"));
      for (int q = 0; q < 100; q++) {
        Rows.add(wide, String.format("f:q%02d", q), 1, String.format("v%02d", q));
      }
      plain.put(wide);
      diff.put(wide);
      rowIndex.put(wide);
      Scan scan = new Scan().setMaxResultSize(3000).setAllowPartialResults(true);
      Scan keys = new Scan(scan).setFilter(new KeyOnlyFilter());
      Expect.lines(shape(plain, scan), "r:47+", "r:47+", "r:6");
      Expect.lines(shape(plain, keys), "r:35+", "r:35+", "r:30");
      suite.admin.flush(plain.getName());
      suite.admin.flush(diff.getName());
      Expect.lines(shape(plain, scan), "r:46+", "r:46+", "r:8");
      Expect.lines(shape(plain, keys), "r:46+", "r:46+", "r:8");
      Expect.lines(shape(diff, scan), "r:24+", "r:24+", "r:24+", "r:24+", "r:4");
      suite.admin.flush(rowIndex.getName());
      Expect.lines(shape(rowIndex, scan), "r:46+", "r:46+", "r:8");
      Expect.lines(shape(rowIndex, keys), "r:46+", "r:46+", "r:8");
    }
  }

  /** Rows with a cell in an encoded file and cells in memory, of which a filter of whole rows removes one. */
  private void callsOfChangedRows() throws IOException {
    ColumnFamilyDescriptor encoded =
        ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF).build();
    try (Table table = suite.table(encoded)) {
      List<String> rows = List.of("a", "b", "c", "d", "e", "f");
      for (String row : rows) {
        table.put(put(row, "f:q01", 1, "v01"));
      }
      suite.admin.flush(table.getName());
      for (String row : rows) {
        table.put(put(row, "f:q02", 1, "v02"));
        table.put(put(row, "f:q03", 1, "v03"));
      }
      Filter exclude = new SingleColumnValueExcludeFilter(b("f"), b("q03"), CompareOperator.EQUAL, b("v03"));
      List<Long> calls = new ArrayList<>();
      for (int size : new int[] {300, 384, 385, 500}) {
        calls.add(calls(table, new Scan().setMaxResultSize(size).setFilter(exclude)));
      }
      Expect.same("[3, 3, 2, 2]", calls.toString());
    }
  }

  /** Calls of a scan whose limit is reached at a row's end, also the last, and with rows that a filter drops. */
  private void callsBySize() throws IOException {
    try (Table table = suite.table("f")) {
      for (String row : "a b c d e f".split(" ")) {
        table.put(put(row, "f:q01", 1, "v01"));
      }
      Scan two = new Scan().setMaxResultSize(128);
      Filter noCell = new ValueFilter(CompareOperator.GREATER, new BinaryComparator(b("w")));
      Filter noRow = new SingleColumnValueFilter(b("f"), b("q01"), CompareOperator.EQUAL, b("w"));
      List<Long> calls = new ArrayList<>();
      calls.add(calls(table, two));
      calls.add(calls(table, new Scan(two).withStopRow(b("f"))));
      calls.add(calls(table, new Scan(two).setFilter(noCell)));
      calls.add(calls(table, new Scan(two).setFilter(noRow)));
      calls.add(calls(table, new Scan().setMaxResultSize(64).setFilter(noRow)));
      Expect.same("[4, 3, 1, 1, 1]", calls.toString());
    }
  }

  private static long calls(Table table, Scan scan) throws IOException {
    return metrics(table, scan).get(ScanMetrics.RPC_CALLS_METRIC_NAME);
  }

  /**
   * A row at whose key a filter ends the scan was not scanned; one with deferred families counts again for them. The
   * filter sees the cells of a row whose key it rejects.
   */
  private void rowsScanned() throws IOException {
    try (Table table = suite.table("f", "g")) {
      for (String row : "a b c d e f".split(" ")) {
        Put put = put(row, "f:q", 1, row);
        table.put(Rows.add(put, "g:q", 1, row));
      }
      Filter rejectsFirst = new FilterList(
          new WhileMatchFilter(new ValueFilter(CompareOperator.GREATER_OR_EQUAL, new BinaryComparator(b("d")))),
          new RowFilter(CompareOperator.GREATER_OR_EQUAL, new BinaryComparator(b("d"))));
      Filter one = new SingleColumnValueFilter(b("f"), b("q"), CompareOperator.GREATER, b("d"));
      List<String> scanned = new ArrayList<>();
      scanned.add(scanned(table, new Scan()));
      scanned.add(scanned(table, new Scan().setFilter(new PrefixFilter(b("c")))));
      scanned.add(scanned(table, new Scan().setFilter(new PageFilter(3))));
      scanned.add(scanned(table, new Scan().setFilter(new InclusiveStopFilter(b("c")))));
      scanned.add(scanned(table, new Scan().setFilter(new RowFilter(CompareOperator.LESS, new BinaryComparator(b("d"))))));
      scanned.add(scanned(table, new Scan().setLoadColumnFamiliesOnDemand(true).setFilter(one)));
      scanned.add(scanned(table, new Scan().setFilter(rejectsFirst)));
      Expect.lines(scanned, "6 0", "2 2", "3 0", "3 1", "6 3", "6 4", "1 1");
    }
  }

  private static String scanned(Table table, Scan scan) throws IOException {
    Map<String, Long> metrics = metrics(table, scan);
    return metrics.get(ScanMetrics.COUNT_OF_ROWS_SCANNED_KEY_METRIC_NAME) + " "
        + metrics.get(ScanMetrics.COUNT_OF_ROWS_FILTERED_KEY_METRIC_NAME);
  }

  private static Map<String, Long> metrics(Table table, Scan scan) throws IOException {
    try (ResultScanner scanner = table.getScanner(scan.setScanMetricsEnabled(true))) {
      for (Result result : scanner) {
        Expect.that(!result.isEmpty(), "a result has cells");
      }
      return scanner.getScanMetrics().getMetricsMap(false);
    }
  }

  private static long blockBytesOf(Table table, Scan scan) throws IOException {
    return metrics(table, scan).get(ScanMetrics.BLOCK_BYTES_SCANNED_KEY_METRIC_NAME);
  }
}
