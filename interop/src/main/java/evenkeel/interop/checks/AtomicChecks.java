package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;
import static evenkeel.interop.Rows.readAll;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Read-modify-write: Increment, Append, RowMutations, and every form of check-and-mutate. */
final class AtomicChecks {
  private final Suite suite;

  AtomicChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("increment", this::increment);
    suite.check("increment-options", this::incrementOptions);
    suite.check("increment-time-range", this::incrementTimeRange);
    suite.check("increment-not-a-long", this::incrementNotALong);
    suite.check("increment-threads", this::incrementThreads);
    suite.check("append", this::append);
    suite.check("row-mutations", this::rowMutations);
    suite.check("row-mutations-results", this::rowMutationsResults);
    suite.check("row-mutations-all-or-nothing", this::rowMutationsAllOrNothing);
    suite.check("check-operators", this::checkOperators);
    suite.check("check-null", this::checkNull);
    suite.check("check-empty-value", this::checkEmptyValue);
    suite.check("check-filter", this::checkFilter);
    suite.check("check-time-range", this::checkTimeRange);
    suite.check("check-and-delete", this::checkAndDelete);
    suite.check("check-and-increment-append", this::checkAndIncrementAppend);
    suite.check("check-and-row-mutations", this::checkAndRowMutations);
    suite.check("check-many", this::checkMany);
    suite.check("check-wrong-family", this::checkWrongFamily);
    suite.check("check-deprecated-builder", this::checkDeprecatedBuilder);
  }

  private static Increment inc(String row, String column, long amount) {
    return new Increment(b(row)).addColumn(Rows.family(column), Rows.qualifier(column), amount);
  }

  private static Append app(String row, String column, String value) {
    return new Append(b(row)).addColumn(Rows.family(column), Rows.qualifier(column), b(value));
  }

  private void increment() throws IOException {
    try (Table table = suite.table("f")) {
      Expect.same(5L, Rows.number(table.increment(inc("r", "f:n", 5)), "f:n"));
      Expect.same(2L, Rows.number(table.increment(inc("r", "f:n", -3)), "f:n"));
      Expect.same(2L, Rows.number(table.increment(inc("r", "f:n", 0)), "f:n"));
      Expect.same(12L, table.incrementColumnValue(b("r"), b("f"), b("n"), 10));
      table.put(new Put(b("r")).addColumn(b("f"), b("p"), Bytes.toBytes(Long.MAX_VALUE)));
      Result both = table.increment(inc("r", "f:p", 1).addColumn(b("f"), b("n"), 1).addColumn(b("f"), b("new"), 7));
      Expect.same(13L, Rows.number(both, "f:n"));
      Expect.same(7L, Rows.number(both, "f:new"));
      Expect.same(Long.MIN_VALUE, Rows.number(both, "f:p"));
      Expect.same(3, both.size());
    }
  }

  private void incrementOptions() throws IOException {
    try (Table table = suite.versioned()) {
      Result none = table.increment(inc("r", "f:n", 5).setReturnResults(false));
      Expect.that(none == null || none.isEmpty(), "no result was asked for");
      long future = System.currentTimeMillis() + 1_000_000;
      table.put(new Put(b("r")).addColumn(b("f"), b("n"), future, Bytes.toBytes(41L)));
      Expect.same(42L, Rows.number(table.increment(inc("r", "f:n", 1)), "f:n"));
      Expect.that(table.get(Rows.get("r")).rawCells()[0].getTimestamp() > future, "time of the new cell is past the old one");
    }
  }

  private void incrementTimeRange() throws IOException {
    try (Table table = suite.versioned()) {
      table.put(new Put(b("r")).addColumn(b("f"), b("n"), 10, Bytes.toBytes(100L)));
      Expect.same(1L, Rows.number(table.increment(inc("r", "f:n", 1).setTimeRange(20, 1000)), "f:n"));
      Expect.same(103L, Rows.number(table.increment(inc("r", "f:n", 3).setTimeRange(5, 15)), "f:n"));
    }
  }

  private void incrementNotALong() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:n", 1, "four"));
      Expect.fails(DoNotRetryIOException.class, () -> table.increment(inc("r", "f:n", 1)));
      Expect.same("r{f:n@1=four}", read(table, "r"));
    }
  }

  private void incrementThreads() throws Exception {
    try (Table table = suite.table("f")) {
      Thread[] threads = new Thread[4];
      for (int i = 0; i < threads.length; i++) {
        threads[i] = new Thread(() -> {
          try (Table own = suite.connection.getTable(table.getName())) {
            for (int n = 0; n < 100; n++) {
              own.increment(inc("r", "f:n", 1));
            }
          } catch (IOException e) {
            throw new RuntimeException(e);
          }
        });
        threads[i].start();
      }
      for (Thread thread : threads) {
        thread.join();
      }
      Expect.same(400L, Rows.number(table.get(Rows.get("r")), "f:n"));
    }
  }

  private void append() throws IOException {
    try (Table table = suite.table("f", "g")) {
      Expect.same("r{f:q@now=a}", Show.row(table.append(app("r", "f:q", "a"))));
      Expect.same("r{f:q@now=ab g:q@now=x}", Show.row(table.append(app("r", "f:q", "b").addColumn(b("g"), b("q"), b("x")))));
      Result none = table.append(app("r", "f:q", "c").setReturnResults(false));
      Expect.that(none == null || none.isEmpty(), "no result was asked for");
      table.append(app("r", "f:q", ""));
      Expect.same("r{f:q@now=abc g:q@now=x}", read(table, "r"));
      table.put(put("s", "f:q", 10, "old"));
      Expect.same("s{f:q@now=new}", Show.row(table.append(app("s", "f:q", "new").setTimeRange(20, 30))));
    }
  }

  private void rowMutations() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(Rows.add(put("r", "f:a", 1, "1"), "f:b", 1, "1"));
      table.mutateRow(RowMutations.of(List.of(put("r", "f:c", 2, "2"), delete("r").addColumns(b("f"), b("a"), 5),
          put("r", "f:b", 3, "3"))));
      Expect.same("r{f:b@3=3 f:c@2=2}", read(table, "r"));
    }
  }

  private void rowMutationsResults() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:text", 1, "a"));
      Result result = table.mutateRow(RowMutations.of(List.of(inc("r", "f:n", 4), app("r", "f:text", "b"),
          put("r", "f:p", 1, "put"))));
      Expect.same(4L, Rows.number(result, "f:n"));
      Expect.same("ab", Bytes.toString(result.getValue(b("f"), b("text"))));
      Expect.same(2, result.size());
      Expect.same("put", Bytes.toString(table.get(Rows.get("r")).getValue(b("f"), b("p"))));
    }
  }

  private void rowMutationsAllOrNothing() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:keep", 1, "v"));
      Expect.fails(NoSuchColumnFamilyException.class, () -> table.mutateRow(
          RowMutations.of(List.of(put("r", "f:no", 1, "v"), delete("r").addFamily(b("f")), put("r", "x:q", 1, "v")))));
      Expect.same("r{f:keep@1=v}", read(table, "r"));
    }
  }

  private void checkOperators() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:q", 1, "m"));
      // The comparison is "given value OP cell value": GREATER is true if the given value is greater.
      Object[][] cases = {{"EQUAL", "m", true}, {"EQUAL", "a", false}, {"NOT_EQUAL", "m", false}, {"NOT_EQUAL", "a", true},
          {"LESS", "a", true}, {"LESS", "m", false}, {"LESS", "z", false}, {"LESS_OR_EQUAL", "m", true},
          {"LESS_OR_EQUAL", "z", false}, {"GREATER", "z", true}, {"GREATER", "m", false}, {"GREATER", "a", false},
          {"GREATER_OR_EQUAL", "m", true}, {"GREATER_OR_EQUAL", "a", false}};
      for (Object[] c : cases) {
        String mark = c[0] + "-" + c[1];
        CheckAndMutate check = CheckAndMutate.newBuilder(b("r"))
            .ifMatches(b("f"), b("q"), CompareOperator.valueOf((String) c[0]), b((String) c[1])).build(put("r", "f:out", 1, mark));
        Expect.same(c[2], table.checkAndMutate(check).isSuccess());
        Expect.same(c[2], mark.equals(Bytes.toString(table.get(Rows.get("r")).getValue(b("f"), b("out")))));
      }
      CheckAndMutate missing = CheckAndMutate.newBuilder(b("r"))
          .ifMatches(b("f"), b("none"), CompareOperator.NOT_EQUAL, b("x")).build(put("r", "f:out", 1, "missing"));
      Expect.same(false, table.checkAndMutate(missing).isSuccess());
    }
  }

  private void checkNull() throws IOException {
    try (Table table = suite.table("f")) {
      CheckAndMutate first = CheckAndMutate.newBuilder(b("r")).ifNotExists(b("f"), b("q")).build(put("r", "f:q", 1, "1"));
      Expect.same(true, table.checkAndMutate(first).isSuccess());
      Expect.same(false, table.checkAndMutate(first).isSuccess());
      CheckAndMutate there = CheckAndMutate.newBuilder(b("r")).ifMatches(b("f"), b("q"), CompareOperator.NOT_EQUAL, null)
          .build(put("r", "f:q", 2, "2"));
      Expect.same(true, table.checkAndMutate(there).isSuccess());
      Expect.same("r{f:q@2=2}", read(table, "r"));
      CheckAndMutate noColumn = CheckAndMutate.newBuilder(b("r")).ifMatches(b("f"), b("none"), CompareOperator.NOT_EQUAL, null)
          .build(put("r", "f:q", 3, "3"));
      Expect.same(false, table.checkAndMutate(noColumn).isSuccess());
    }
  }

  private void checkEmptyValue() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:q", 1, ""));
      CheckAndMutate absent = CheckAndMutate.newBuilder(b("r")).ifNotExists(b("f"), b("q")).build(put("r", "f:out", 1, "1"));
      Expect.same(true, table.checkAndMutate(absent).isSuccess());
      CheckAndMutate empty = CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b("")).build(put("r", "f:out", 2, "2"));
      Expect.same(true, table.checkAndMutate(empty).isSuccess());
      CheckAndMutate other = CheckAndMutate.newBuilder(b("r")).ifMatches(b("f"), b("q"), CompareOperator.NOT_EQUAL, b(""))
          .build(put("r", "f:out", 3, "3"));
      Expect.same(false, table.checkAndMutate(other).isSuccess());
    }
  }

  private static SingleColumnValueFilter is(String column, String value) {
    return new SingleColumnValueFilter(Rows.family(column), Rows.qualifier(column), CompareOperator.EQUAL, b(value));
  }

  private void checkFilter() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(Rows.add(put("r", "f:a", 1, "a"), "f:b", 1, "b"));
      CheckAndMutate both = CheckAndMutate.newBuilder(b("r")).ifMatches(new FilterList(is("f:a", "a"), is("f:b", "b")))
          .build(put("r", "f:out", 1, "both"));
      Expect.same(true, table.checkAndMutate(both).isSuccess());
      CheckAndMutate one = CheckAndMutate.newBuilder(b("r")).ifMatches(new FilterList(is("f:a", "a"), is("f:b", "x")))
          .build(put("r", "f:out", 2, "one"));
      Expect.same(false, table.checkAndMutate(one).isSuccess());
      CheckAndMutate late = CheckAndMutate.newBuilder(b("r")).ifMatches(is("f:a", "a")).timeRange(TimeRange.from(5))
          .build(put("r", "f:out", 3, "late"));
      Expect.same(false, table.checkAndMutate(late).isSuccess());
      Expect.same("r{f:a@1=a f:b@1=b f:out@1=both}", read(table, "r"));
    }
  }

  private void checkTimeRange() throws IOException {
    try (Table table = suite.versioned()) {
      table.put(put("r", "f:q", 10, "old"));
      table.put(put("r", "f:q", 20, "new"));
      CheckAndMutate old = CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b("old"))
          .timeRange(TimeRange.between(5, 15)).build(put("r", "f:out", 1, "1"));
      Expect.same(true, table.checkAndMutate(old).isSuccess());
      CheckAndMutate outside = CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("q"), b("new"))
          .timeRange(TimeRange.between(5, 15)).build(put("r", "f:out", 2, "2"));
      Expect.same(false, table.checkAndMutate(outside).isSuccess());
    }
  }

  private void checkAndDelete() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(Rows.add(put("r", "f:a", 1, "a"), "f:b", 1, "b"));
      CheckAndMutate wrong = CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("x")).build(delete("r"));
      Expect.same(false, table.checkAndMutate(wrong).isSuccess());
      CheckAndMutate right = CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("a"))
          .build(delete("r").addColumns(b("f"), b("b")));
      Expect.same(true, table.checkAndMutate(right).isSuccess());
      Expect.same("r{f:a@1=a}", read(table, "r"));
    }
  }

  private void checkAndIncrementAppend() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:a", 1, "a"));
      CheckAndMutateResult inc = table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("a")).build(inc("r", "f:n", 3)));
      Expect.same(true, inc.isSuccess());
      Expect.same(3L, Rows.number(inc.getResult(), "f:n"));
      CheckAndMutateResult app = table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("a")).build(app("r", "f:a", "b")));
      Expect.same("r{f:a@now=ab}", Show.row(app.getResult()));
      CheckAndMutateResult no = table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("a")).build(app("r", "f:a", "c")));
      Expect.same(false, no.isSuccess());
      Expect.that(no.getResult() == null, "no result when nothing was done");
    }
  }

  private void checkAndRowMutations() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:a", 1, "a"));
      RowMutations many = RowMutations.of(List.of(put("r", "f:b", 2, "b"), delete("r").addColumns(b("f"), b("a"), 5),
          inc("r", "f:n", 9)));
      CheckAndMutateResult no = table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("x")).build(many));
      Expect.same(false, no.isSuccess());
      Expect.same("r{f:a@1=a}", read(table, "r"));
      CheckAndMutateResult yes = table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("a"), b("a")).build(many));
      Expect.same(true, yes.isSuccess());
      Expect.same(9L, Rows.number(yes.getResult(), "f:n"));
      Expect.same("r{f:b@2=b f:n@now=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x09}", read(table, "r"));
    }
  }

  private void checkMany() throws IOException {
    try (Table table = suite.presplit("m")) {
      table.put(put("a", "f:q", 1, "1"));
      table.put(put("z", "f:q", 1, "1"));
      List<CheckAndMutateResult> results = table.checkAndMutate(List.of(
          CheckAndMutate.newBuilder(b("z")).ifEquals(b("f"), b("q"), b("1")).build(put("z", "f:q", 2, "2")),
          CheckAndMutate.newBuilder(b("a")).ifEquals(b("f"), b("q"), b("9")).build(put("a", "f:q", 2, "2")),
          CheckAndMutate.newBuilder(b("a")).ifNotExists(b("f"), b("n")).build(inc("a", "f:n", 5))));
      Expect.same("[true, false, true]", results.stream().map(CheckAndMutateResult::isSuccess).toList().toString());
      Expect.same(5L, Rows.number(results.get(2).getResult(), "f:n"));
      Expect.same("z{f:q@2=2}", read(table, "z"));
      Expect.same("a{f:n@now=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x05 f:q@1=1}", read(table, "a"));
    }
  }

  private void checkWrongFamily() throws IOException {
    try (Table table = suite.table("f")) {
      Expect.fails(NoSuchColumnFamilyException.class, () -> table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifNotExists(b("x"), b("q")).build(put("r", "f:q", 1, "v"))));
      Expect.fails(NoSuchColumnFamilyException.class, () -> table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifNotExists(b("f"), b("q")).build(put("r", "x:q", 1, "v"))));
      Expect.same("-", read(table, "r"));
    }
  }

  @SuppressWarnings("deprecation")
  private void checkDeprecatedBuilder() throws IOException {
    try (Table table = suite.versioned()) {
      Expect.that(table.checkAndMutate(b("r"), b("f")).qualifier(b("q")).ifNotExists().thenPut(put("r", "f:q", 1, "1")),
          "absent, so put");
      Expect.that(!table.checkAndMutate(b("r"), b("f")).qualifier(b("q")).ifEquals(b("2")).thenDelete(delete("r")),
          "other value, so no delete");
      Expect.that(table.checkAndMutate(b("r"), b("f")).qualifier(b("q")).timeRange(TimeRange.at(1)).ifEquals(b("1"))
          .thenMutate(RowMutations.of(List.of(put("r", "f:q", 2, "2"), put("r", "f:p", 2, "2")))), "equal, so mutate");
      Expect.same("r{f:p@2=2 f:q@2=2 f:q@1=1}", readAll(table, "r"));
      Expect.that(table.checkAndMutate(b("r"), is("f:q", "2")).thenDelete(delete("r")), "filter holds, so delete");
      Expect.same(0, Rows.scan(table, new Scan()).size());
    }
  }
}
