package evenkeel.interop.checks.filters;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import evenkeel.interop.checks.Expect;
import evenkeel.interop.checks.Suite;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.ColumnValueFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.RandomRowFilter;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Runs every case of {@link FilterCases} in several kinds of read over one small table and compares the results with
 * stock HBase's ({@code expected/filters.txt}, see {@link Recording}).
 *
 * The table has rows r0..r7, s1 and s2-2024 in two regions, half of it flushed; columns f:a (two versions), f:ab (even rows),
 * f:b (longs), g:c (decimals), g:prefix-x (every third row).
 */
public final class FilterChecks {
  private final Suite suite;
  private Table table;

  public FilterChecks(Suite suite) {
    this.suite = suite;
  }

  public void all() throws Exception {
    Recording recording = Recording.open("filters");
    fill();
    for (Map.Entry<String, FilterCases.Maker> one : FilterCases.all().entrySet()) {
      suite.check(one.getKey(), () -> recording.compare(one.getKey(), outcomes(one.getKey(), one.getValue())));
    }
    recording.save();
    suite.check("random-some", this::randomSome);
    suite.check("reversed-on-demand", this::reversedOnDemand);
    table.close();
  }

  private void fill() throws IOException {
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(suite.name())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("f")).setMaxVersions(3).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setMaxVersions(3).build()).build();
    suite.admin.createTable(descriptor, new byte[][] {b("r4")});
    table = suite.connection.getTable(descriptor.getTableName());
    List<String> rows = List.of("r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "s1", "s2-2024");
    for (int i = 0; i < rows.size(); i++) {
      table.put(put(rows.get(i), "f:a", 1, "old" + i));
    }
    suite.admin.flush(table.getName());
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < rows.size(); i++) {
      puts.add(row(rows.get(i), i));
    }
    table.put(puts);
  }

  private static Put row(String key, int i) {
    Put row = put(key, "f:a", 10 + i, "v" + i);
    row.addColumn(b("f"), b("b"), 20, Bytes.toBytes((i - 4) * 100L));
    row.addColumn(b("g"), b("c"), 10 + i, Bytes.toBytes(new BigDecimal(i + ".5")));
    if (i % 2 == 0) {
      Rows.add(row, "f:ab", 10 + i, "even");
    }
    if (i % 3 == 0) {
      Rows.add(row, "g:prefix-x", 30, "Prefix" + i);
    }
    return row;
  }

  /** Returns the result of each kind of read, one line each. */
  private List<String> outcomes(String name, FilterCases.Maker maker) {
    List<String> lines = new ArrayList<>();
    lines.add("scan: " + outcome(() -> scan(new Scan().setFilter(maker.make()))));
    if (!FilterCases.NEVER_REVERSED.contains(name)) {
      Scan reversed = new Scan().setReversed(true).setLoadColumnFamiliesOnDemand(false).setCaching(2);
      lines.add("reversed: " + outcome(() -> scan(reversed.setFilter(maker.make()))));
    }
    lines.add("versions: " + outcome(() -> scan(
        new Scan().setFilter(maker.make()).readAllVersions().withStartRow(b("r2")).withStopRow(b("r5")).setCaching(1))));
    lines.add("batch: " + outcome(() -> scan(new Scan().setFilter(maker.make()).setBatch(2).withStartRow(b("r3")).setLimit(3))));
    lines.add("get: " + outcome(() -> Show.row(table.get(Rows.get("r3").setFilter(maker.make()).readVersions(2)))));
    return lines;
  }

  private interface Read {
    String read() throws Exception;
  }

  private static String outcome(Read read) {
    try {
      return read.read();
    } catch (Throwable t) {
      return "! " + Expect.root(t).getClass().getName();
    }
  }

  private String scan(Scan scan) throws IOException {
    List<String> rows = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        rows.add(Show.row(result));
      }
    }
    return rows.isEmpty() ? "-" : String.join(" ", rows);
  }

  /** A reversed scan with essential families and the server's default of loading families on demand: stock HBase refuses it. */
  private void reversedOnDemand() {
    Filter oneFamily = new ColumnValueFilter(b("f"), b("a"), CompareOperator.EQUAL, b("v3"));
    Expect.fails(DoNotRetryIOException.class, () -> scan(new Scan().setReversed(true).setFilter(oneFamily)));
  }

  private void randomSome() throws IOException {
    Filter half = new RandomRowFilter(0.5f);
    int rows = 0;
    for (int i = 0; i < 20; i++) {
      rows += Rows.keys(table, new Scan().setFilter(half)).size();
    }
    Expect.between(40, 160, rows, "about half of 200 rows:");
  }
}
