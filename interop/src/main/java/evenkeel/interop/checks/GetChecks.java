package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;

/** The options of Get. */
final class GetChecks {
  private final Suite suite;

  GetChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("exists", this::exists);
    suite.check("multi-get", this::multiGet);
    suite.check("versions", this::versions);
    suite.check("time-range", this::timeRange);
    suite.check("family-time-range", this::familyTimeRange);
    suite.check("store-limit-and-offset", this::storeLimit);
    suite.check("get-options", this::options);
  }

  private void exists() throws IOException {
    try (Table table = suite.presplit("m")) {
      table.put(put("a", "f:q", 1, "v"));
      table.put(put("z", "f:q", 1, "v"));
      Expect.that(table.exists(get("a")), "a exists");
      Expect.that(!table.exists(get("b")), "b does not");
      Expect.that(!table.exists(get("a").addColumn(b("f"), b("other"))), "a has no f:other");
      Expect.same("[true, false, true]", Arrays.toString(table.exists(List.of(get("a"), get("b"), get("z")))));
      Result only = table.get(get("a").setCheckExistenceOnly(true));
      Expect.same(true, only.getExists());
      Expect.that(only.isEmpty(), "existence comes without cells");
    }
  }

  private void multiGet() throws IOException {
    try (Table table = suite.presplit("c", "e")) {
      for (String row : new String[] {"a", "c", "f"}) {
        table.put(put(row, "f:q", 1, row));
      }
      Result[] got = table.get(List.of(get("f"), get("b"), get("a"), get("c"), get("f")));
      Expect.lines(Show.rows(Arrays.asList(got)), "f{f:q@1=f}", "-", "a{f:q@1=a}", "c{f:q@1=c}", "f{f:q@1=f}");
      Expect.same(0, table.get(List.<Get>of()).length);
    }
  }

  private static Table five(Suite suite) throws IOException {
    Table table = suite.versioned();
    for (int ts = 10; ts <= 50; ts += 10) {
      table.put(put("r", "f:q", ts, "v" + ts));
    }
    return table;
  }

  private void versions() throws IOException {
    try (Table table = five(suite)) {
      Expect.same("r{f:q@50=v50}", Show.row(table.get(get("r"))));
      Expect.same("r{f:q@50=v50 f:q@40=v40}", Show.row(table.get(get("r").readVersions(2))));
      Expect.same("r{f:q@50=v50 f:q@40=v40 f:q@30=v30 f:q@20=v20 f:q@10=v10}", Rows.readAll(table, "r"));
    }
  }

  private void timeRange() throws IOException {
    try (Table table = five(suite)) {
      Expect.same("r{f:q@30=v30}", Show.row(table.get(get("r").setTimeRange(10, 40))));
      Expect.same("r{f:q@30=v30 f:q@20=v20 f:q@10=v10}", Show.row(table.get(get("r").setTimeRange(10, 40).readAllVersions())));
      Expect.same("r{f:q@20=v20}", Show.row(table.get(get("r").setTimestamp(20))));
      Expect.same("-", Show.row(table.get(get("r").setTimestamp(21))));
      Expect.same("-", Show.row(table.get(get("r").setTimeRange(51, Long.MAX_VALUE))));
    }
  }

  private void familyTimeRange() throws IOException {
    try (Table table = suite.table("f", "g")) {
      table.put(Rows.add(put("r", "f:q", 10, "x"), "g:q", 10, "y"));
      Get narrow = get("r").setColumnFamilyTimeRange(b("f"), 11, 20);
      Expect.same("r{g:q@10=y}", Show.row(table.get(narrow)));
      Get both = get("r").setTimeRange(11, 20).setColumnFamilyTimeRange(b("g"), 5, 11);
      Expect.same("r{g:q@10=y}", Show.row(table.get(both)));
    }
  }

  private void storeLimit() throws IOException {
    try (Table table = suite.table("f", "g")) {
      var row = put("r", "g:a", 1, "v");
      for (String qualifier : new String[] {"a", "b", "c", "d"}) {
        Rows.add(row, "f:" + qualifier, 1, "v");
      }
      table.put(row);
      Expect.same("r{f:a@1=v f:b@1=v g:a@1=v}", Show.row(table.get(get("r").setMaxResultsPerColumnFamily(2))));
      Expect.same("r{f:b@1=v f:c@1=v}",
          Show.row(table.get(get("r").setMaxResultsPerColumnFamily(2).setRowOffsetPerColumnFamily(1))));
      Expect.same("r{f:d@1=v}", Show.row(table.get(get("r").setRowOffsetPerColumnFamily(3).setMaxResultsPerColumnFamily(9))));
    }
  }

  private void options() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(Rows.add(put("r", "f:a", 1, "x"), "f:b", 1, "y"));
      Expect.same("r{f:a@1=x f:b@1=y}", Show.row(table.get(get("r").setCacheBlocks(false))));
      Result timeline = table.get(get("r").setConsistency(Consistency.TIMELINE));
      Expect.same("r{f:a@1=x f:b@1=y}", Show.row(timeline));
      Expect.that(!timeline.isStale(), "the primary is not stale");
      Expect.same("r{f:b@1=y}", Show.row(table.get(get("r").setFilter(new ColumnPaginationFilter(1, 1)))));
      Expect.same("r{f:a@1=x f:b@1=y}", Show.row(table.get(get("r").setId("named").setPriority(10))));
      Expect.same("r{f:a@1=x f:b@1=y}", Show.row(table.get(get("r").setAttribute("unheard-of", b("x")))));
    }
  }
}
