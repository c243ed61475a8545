package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.keys;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.scan;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;

/** Which rows and cells a scan returns, in which order. */
final class ScanChecks {
  private final Suite suite;

  ScanChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("scan-bounds", this::bounds);
    suite.check("scan-bounds-reversed", this::boundsReversed);
    suite.check("scan-caching", this::caching);
    suite.check("scan-many-rows", this::manyRows);
    suite.check("scan-columns", this::columns);
    suite.check("scan-versions-and-times", this::versionsAndTimes);
    suite.check("scan-raw", this::raw);
    suite.check("scan-read-types", this::readTypes);
    suite.check("scan-isolation", this::isolation);
    suite.check("scan-snapshot-of-open", this::snapshotOfOpen);
    suite.check("scan-memstore-and-files", this::memstoreAndFiles);
    suite.check("scan-on-demand-families", this::onDemandFamilies);
    suite.check("scan-empty", this::empty);
    suite.check("scan-binary-keys", this::binaryKeys);
    suite.check("scan-metrics", this::metrics);
    suite.check("scan-renew-lease", this::renewLease);
  }

  /** Rows a..j, one cell each, in three regions. */
  private Table letters() throws IOException {
    Table table = suite.presplit("d", "g");
    List<Put> puts = new ArrayList<>();
    for (char c = 'a'; c <= 'j'; c++) {
      puts.add(put("" + c, "f:q", 1, "v" + c));
    }
    table.put(puts);
    return table;
  }

  private static String joined(Table table, Scan scan) throws IOException {
    return String.join("", keys(table, scan));
  }

  private void bounds() throws IOException {
    try (Table table = letters()) {
      Expect.same("abcdefghij", joined(table, new Scan()));
      Expect.same("cdefg", joined(table, new Scan().withStartRow(b("c")).withStopRow(b("h"))));
      Expect.same("cdefgh", joined(table, new Scan().withStartRow(b("c")).withStopRow(b("h"), true)));
      Expect.same("defg", joined(table, new Scan().withStartRow(b("c"), false).withStopRow(b("h"))));
      Expect.same("defgh", joined(table, new Scan().withStartRow(b("c"), false).withStopRow(b("h"), true)));
      Expect.same("d", joined(table, new Scan().withStartRow(b("d")).withStopRow(b("d"), true)));
      Expect.same("def", joined(table, new Scan().withStartRow(b("cc")).withStopRow(b("ff"))));
      Expect.same("ghij", joined(table, new Scan().withStartRow(b("f"), false)));
      Expect.same("abc", joined(table, new Scan().withStopRow(b("d"))));
      Expect.same("abcd", joined(table, new Scan().withStopRow(b("d"), true)));
      Expect.same("b", joined(table, new Scan().setStartStopRowForPrefixScan(b("b"))));
      Expect.same("", joined(table, new Scan().withStartRow(b("jj"))));
    }
  }

  private void boundsReversed() throws IOException {
    try (Table table = letters()) {
      Expect.same("jihgfedcba", joined(table, new Scan().setReversed(true)));
      Expect.same("gfed", joined(table, new Scan().setReversed(true).withStartRow(b("g")).withStopRow(b("c"))));
      Expect.same("gfedc", joined(table, new Scan().setReversed(true).withStartRow(b("g")).withStopRow(b("c"), true)));
      Expect.same("fedc", joined(table, new Scan().setReversed(true).withStartRow(b("g"), false).withStopRow(b("c"), true)));
      Expect.same("cba", joined(table, new Scan().setReversed(true).withStartRow(b("cc"))));
      Expect.same("jihg", joined(table, new Scan().setReversed(true).withStopRow(b("f"))));
      Expect.same("d", joined(table, new Scan().setReversed(true).withStartRow(b("d")).withStopRow(b("d"), true)));
      Expect.same("jih", joined(table, new Scan().setReversed(true).setLimit(3)));
      Expect.same("fe", joined(table, new Scan().setReversed(true).withStartRow(b("ff")).setLimit(2).setCaching(1)));
    }
  }

  private void caching() throws IOException {
    try (Table table = letters()) {
      for (int caching : new int[] {1, 2, 3, 100}) {
        Expect.same("abcdefghij", joined(table, new Scan().setCaching(caching)));
        Expect.same("jihgfedcba", joined(table, new Scan().setCaching(caching).setReversed(true)));
        Expect.same("bcde", joined(table, new Scan().setCaching(caching).withStartRow(b("b")).setLimit(4)));
      }
      Expect.same("a", joined(table, new Scan().setOneRowLimit()));
      try (ResultScanner scanner = table.getScanner(new Scan().setCaching(2))) {
        Expect.same(4, scanner.next(4).length);
        Expect.same("e", Show.text(scanner.next().getRow()));
      }
    }
  }

  private void manyRows() throws IOException {
    try (Table table = suite.presplit("row1", "row5")) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < 5000; i++) {
        puts.add(put(String.format("row%04d", i), "f:q", 1, "v" + i));
      }
      table.put(puts);
      suite.admin.flush(table.getName());
      int n = 0;
      try (ResultScanner scanner = table.getScanner(new Scan().setCaching(700))) {
        for (Result result : scanner) {
          Expect.same(String.format("row%04d{f:q@1=v%d}", n, n), Show.row(result));
          n++;
        }
      }
      Expect.same(5000, n);
      Expect.same(5000, keys(table, new Scan().setReversed(true)).size());
    }
  }

  private void columns() throws IOException {
    try (Table table = suite.table("f", "g", "h")) {
      table.put(Rows.add(Rows.add(put("r", "f:a", 1, "1"), "f:b", 1, "2"), "g:a", 1, "3"));
      table.put(put("s", "h:a", 1, "4"));
      Expect.lines(scan(table, new Scan().addFamily(b("g")).addFamily(b("h"))), "r{g:a@1=3}", "s{h:a@1=4}");
      Expect.lines(scan(table, new Scan().addColumn(b("f"), b("b")).addFamily(b("g"))), "r{f:b@1=2 g:a@1=3}");
      Expect.lines(scan(table, new Scan().addColumn(b("f"), b("none"))));
    }
  }

  private void versionsAndTimes() throws IOException {
    try (Table table = suite.versioned()) {
      for (int ts = 1; ts <= 4; ts++) {
        table.put(put("r", "f:q", ts, "v" + ts));
        table.put(put("s", "f:p", ts * 10, "v" + ts));
      }
      Expect.lines(scan(table, new Scan().readVersions(2)), "r{f:q@4=v4 f:q@3=v3}", "s{f:p@40=v4 f:p@30=v3}");
      Expect.lines(scan(table, new Scan().setTimeRange(3, 20).readAllVersions()), "r{f:q@4=v4 f:q@3=v3}", "s{f:p@10=v1}");
      Expect.lines(scan(table, new Scan().setTimestamp(2)), "r{f:q@2=v2}");
      Expect.lines(scan(table, new Scan().setColumnFamilyTimeRange(b("f"), 25, 35)), "s{f:p@30=v3}");
    }
  }

  private void raw() throws IOException {
    try (Table table = suite.versioned()) {
      table.put(put("r", "f:q", 1, "1"));
      table.put(put("r", "f:q", 2, "2"));
      table.delete(delete("r").addColumn(b("f"), b("q"), 2));
      table.delete(delete("r").addColumns(b("f"), b("q"), 1));
      table.delete(delete("r").addFamily(b("f"), 3));
      table.delete(delete("r").addFamilyVersion(b("f"), 2));
      Expect.lines(scan(table, new Scan()));
      Expect.lines(scan(table, new Scan().setRaw(true).readAllVersions()),
          "r{f:@3!DeleteFamily f:@2!DeleteFamilyVersion f:q@2!Delete f:q@2=2 f:q@1!DeleteColumn f:q@1=1}");
      // A flush drops cells hidden by its markers, and with a cell hidden by a family marker the rest of the cell's
      // column.
      suite.admin.flush(table.getName());
      Expect.lines(scan(table, new Scan().setRaw(true).readAllVersions()),
          "r{f:@3!DeleteFamily f:@2!DeleteFamilyVersion f:q@2!Delete}");
    }
  }

  private void readTypes() throws IOException {
    try (Table table = letters()) {
      for (Scan.ReadType type : Scan.ReadType.values()) {
        Expect.same("abcdefghij", joined(table, new Scan().setReadType(type).setCaching(3)));
      }
      Expect.same("abcdefghij", joined(table, new Scan().setCacheBlocks(false).setConsistency(Consistency.TIMELINE)));
    }
  }

  private void isolation() throws IOException {
    try (Table table = letters()) {
      for (IsolationLevel level : IsolationLevel.values()) {
        Expect.same("abcdefghij", joined(table, new Scan().setIsolationLevel(level)));
      }
    }
  }

  private void snapshotOfOpen() throws IOException {
    try (Table table = suite.versioned()) {
      for (char c = 'a'; c <= 'e'; c++) {
        table.put(put("" + c, "f:q", 1, "old"));
      }
      try (ResultScanner scanner = table.getScanner(new Scan().setCaching(1))) {
        Expect.same("a{f:q@1=old}", Show.row(scanner.next()));
        table.put(put("d", "f:q", 2, "new"));
        table.put(put("dd", "f:q", 2, "new"));
        table.delete(delete("e"));
        suite.admin.flush(table.getName());
        Expect.lines(Show.rows(scanner), "b{f:q@1=old}", "c{f:q@1=old}", "d{f:q@1=old}", "e{f:q@1=old}");
      }
      Expect.lines(keys(table, new Scan()), "a", "b", "c", "d", "dd");
    }
  }

  private void memstoreAndFiles() throws IOException {
    try (Table table = suite.versioned()) {
      for (int file = 0; file < 3; file++) {
        for (int i = file; i < 9; i += 2) {
          table.put(put("r" + i, "f:q", file, "file" + file));
        }
        suite.admin.flush(table.getName());
      }
      table.put(put("r4", "f:q", 9, "memory"));
      table.delete(delete("r2").addColumns(b("f"), b("q"), 9));
      Expect.lines(scan(table, new Scan()), "r0{f:q@0=file0}", "r1{f:q@1=file1}", "r3{f:q@1=file1}", "r4{f:q@9=memory}",
          "r5{f:q@1=file1}", "r6{f:q@2=file2}", "r7{f:q@1=file1}", "r8{f:q@2=file2}");
      Expect.same("r4{f:q@9=memory f:q@2=file2 f:q@0=file0}", Rows.readAll(table, "r4"));
    }
  }

  private void onDemandFamilies() throws IOException {
    try (Table table = suite.table("big", "key")) {
      for (int i = 0; i < 6; i++) {
        table.put(Rows.add(put("r" + i, "key:k", 1, "" + i % 2), "big:b", 1, "big" + i));
      }
      SingleColumnValueFilter odd = new SingleColumnValueFilter(b("key"), b("k"), CompareOperator.EQUAL, b("1"));
      odd.setFilterIfMissing(true);
      for (boolean onDemand : new boolean[] {true, false}) {
        Expect.lines(scan(table, new Scan().setFilter(odd).setLoadColumnFamiliesOnDemand(onDemand)),
            "r1{big:b@1=big1 key:k@1=1}", "r3{big:b@1=big3 key:k@1=1}", "r5{big:b@1=big5 key:k@1=1}");
      }
    }
  }

  private void empty() throws IOException {
    try (Table table = suite.presplit("m")) {
      Expect.lines(scan(table, new Scan()));
      Expect.lines(scan(table, new Scan().setReversed(true)));
      table.put(put("a", "f:q", 1, "v"));
      Expect.lines(scan(table, new Scan().withStartRow(b("b"))));
      Expect.lines(scan(table, new Scan().withStartRow(b("a"), false).withStopRow(b("b"))));
      Expect.lines(keys(table, new Scan().setReversed(true)), "a");
    }
  }

  private void binaryKeys() throws IOException {
    try (Table table = suite.table("f")) {
      byte[][] rows = {{0}, {0, 0}, {0, 1}, {1}, {127}, {(byte) 128}, {(byte) 255}, {(byte) 255, 0}, {(byte) 255, (byte) 255}};
      for (byte[] row : rows) {
        table.put(new Put(row).addColumn(b("f"), row, 1, row));
      }
      List<String> want = new ArrayList<>();
      for (byte[] row : rows) {
        want.add(Show.text(row));
      }
      Expect.same(want, keys(table, new Scan()));
      java.util.Collections.reverse(want);
      Expect.same(want, keys(table, new Scan().setReversed(true)));
      java.util.Collections.reverse(want);
      Expect.same(want.subList(1, 5), keys(table, new Scan().withStartRow(rows[1]).withStopRow(rows[5])));
    }
  }

  private void metrics() throws IOException {
    try (Table table = letters(); ResultScanner scanner = table.getScanner(new Scan().setScanMetricsEnabled(true))) {
      Expect.same(10, Show.keys(scanner).size());
      var metrics = scanner.getScanMetrics();
      Expect.same(10L, metrics.countOfRowsScanned.get());
      Expect.same(0L, metrics.countOfRowsFiltered.get());
      Expect.same(3L, metrics.countOfRegions.get());
    }
  }

  private void renewLease() throws IOException {
    try (Table table = letters(); ResultScanner scanner = table.getScanner(new Scan().setCaching(1))) {
      Expect.same("a", Show.text(scanner.next().getRow()));
      Expect.that(scanner.renewLease(), "an open scanner renews its lease");
      Expect.same("b", Show.text(scanner.next().getRow()));
    }
  }
}
