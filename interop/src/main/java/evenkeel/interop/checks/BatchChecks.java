package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Many actions in one call, across regions, some of them failing. */
final class BatchChecks {
  private final Suite suite;

  BatchChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("batch-mixed", this::mixed);
    suite.check("batch-failures", this::failures);
    suite.check("batch-callback", this::callback);
    suite.check("batch-same-row", this::sameRow);
    suite.check("batch-large", this::large);
  }

  private void mixed() throws Exception {
    try (Table table = suite.presplit("h", "p")) {
      table.put(put("a", "f:q", 1, "va"));
      table.put(put("k", "f:q", 1, "vk"));
      table.put(put("z", "f:q", 1, "vz"));
      List<? extends Row> actions = List.of(get("z"), put("b", "f:q", 1, "vb"), delete("k"),
          new Increment(b("c")).addColumn(b("f"), b("n"), 2), new Append(b("a")).addColumn(b("f"), b("q"), b("+")),
          RowMutations.of(List.of(put("q", "f:x", 1, "1"), put("q", "f:y", 1, "2"))), get("none"));
      Object[] results = new Object[actions.size()];
      table.batch(actions, results);
      Expect.same("z{f:q@1=vz}", Show.row((Result) results[0]));
      Expect.same("-", Show.row((Result) results[1]));
      Expect.same("-", Show.row((Result) results[2]));
      Expect.same(2L, Rows.number((Result) results[3], "f:n"));
      Expect.same("a{f:q@now=va+}", Show.row((Result) results[4]));
      Expect.that(results[5] instanceof Result, "row mutations give a result");
      Expect.same("-", Show.row((Result) results[6]));
      Expect.lines(Rows.keys(table, new Scan()), "a", "b", "c", "q", "z");
      Expect.same("q{f:x@1=1 f:y@1=2}", read(table, "q"));
    }
  }

  private void failures() throws Exception {
    try (Table table = suite.presplit("m")) {
      List<? extends Row> actions =
          List.of(put("a", "f:q", 1, "v"), put("b", "x:q", 1, "v"), put("z", "f:q", 1, "v"), get("y").addFamily(b("x")),
              put("c", "f:q", 1, "v"));
      Object[] results = new Object[actions.size()];
      RetriesExhaustedWithDetailsException failed = null;
      try {
        table.batch(actions, results);
      } catch (RetriesExhaustedWithDetailsException e) {
        failed = e;
      }
      Expect.that(failed != null, "the batch fails");
      Expect.same(2, failed.getNumExceptions());
      for (int i : new int[] {1, 3}) {
        Expect.same(NoSuchColumnFamilyException.class, Expect.root((Throwable) results[i]).getClass());
      }
      for (int i : new int[] {0, 2, 4}) {
        Expect.that(results[i] instanceof Result, "action " + i + " went through");
      }
      Expect.lines(Rows.keys(table, new Scan()), "a", "c", "z");
      List<Put> puts = List.of(put("p1", "f:q", 1, "v"), put("p2", "x:q", 1, "v"));
      Expect.fails(NoSuchColumnFamilyException.class, () -> table.put(puts));
      Expect.same("p1{f:q@1=v}", read(table, "p1"));
    }
  }

  private void callback() throws Exception {
    try (Table table = suite.presplit("m")) {
      List<String> seen = new ArrayList<>();
      List<Put> puts = List.of(put("a", "f:q", 1, "v"), put("z", "f:q", 1, "v"));
      table.<Result>batchCallback(puts, new Object[2], (region, row, result) -> {
        synchronized (seen) {
          seen.add(Bytes.toString(row));
        }
      });
      Expect.same(List.of("a", "z"), seen.stream().sorted().toList());
    }
  }

  private void sameRow() throws Exception {
    try (Table table = suite.versioned()) {
      List<Row> actions = new ArrayList<>();
      for (int i = 0; i < 50; i++) {
        actions.add(new Increment(b("r")).addColumn(b("f"), b("n"), 1));
      }
      Object[] results = new Object[actions.size()];
      table.batch(actions, results);
      Expect.same(50L, Rows.number(table.get(get("r")), "f:n"));
      long sum = 0;
      for (Object result : results) {
        sum += Rows.number((Result) result, "f:n");
      }
      Expect.same(50L * 51 / 2, sum);
    }
  }

  private void large() throws IOException {
    try (Table table = suite.presplit("3", "6")) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < 3000; i++) {
        puts.add(put(i % 9 + "-" + i, "f:q", 1, "v" + i));
      }
      table.put(puts);
      var gets = puts.stream().map(p -> new org.apache.hadoop.hbase.client.Get(p.getRow())).toList();
      Result[] got = table.get(gets);
      for (int i = 0; i < 3000; i++) {
        Expect.same("v" + i, Bytes.toString(got[i].value()));
      }
      table.delete(new ArrayList<>(puts.stream().map(p -> new org.apache.hadoop.hbase.client.Delete(p.getRow())).toList()));
      Expect.same(0, Rows.keys(table, new Scan()).size());
    }
  }
}
