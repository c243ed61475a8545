package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/** The same small workload through each cell codec and compressor that a stock client supports. */
final class CodecChecks {
  private static final String CODEC = "org.apache.hadoop.hbase.codec.";
  private static final String COMPRESS = "org.apache.hadoop.io.compress.";
  private final Suite suite;

  CodecChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    for (String codec : new String[] {"KeyValueCodec", "KeyValueCodecWithTags", "CellCodec", "CellCodecWithTags", "MessageCodec"}) {
      suite.check("codec-" + codec, () -> workload("hbase.client.rpc.codec", CODEC + codec));
    }
    suite.check("codec-none", () -> workload("hbase.client.default.rpc.codec", ""));
    for (String compressor : new String[] {"GzipCodec", "DefaultCodec"}) {
      suite.check("compressor-" + compressor, () -> workload("hbase.client.rpc.compressor", COMPRESS + compressor));
    }
  }

  private void workload(String key, String value) throws Exception {
    Configuration conf = new Configuration(suite.conf);
    conf.set(key, value);
    try (Table made = suite.versioned(); Connection connection = ConnectionFactory.createConnection(conf);
        Table table = connection.getTable(made.getName())) {
      single(table);
      many(table);
      atomic(table);
    }
  }

  private static void single(Table table) throws Exception {
    table.put(Rows.add(Rows.add(put("r", "f:a", 1, "1"), "f:", 2, ""), "f:b", 3, "3"));
    table.put(new Put(b("ttl")).addColumn(b("f"), b("q"), b("v")).setTTL(600_000));
    table.delete(delete("r").addColumn(b("f"), b("b"), 3));
    table.delete(delete("r").addFamilyVersion(b("f"), 2));
    Expect.same("r{f:a@1=1}", read(table, "r"));
    Expect.same("ttl{f:q@now=v}", read(table, "ttl"));
    Expect.same("-", read(table, "none"));
    Expect.that(table.exists(get("r")), "r exists");
    Expect.lines(Rows.scan(table, new Scan().withStopRow(b("s")).setRaw(true).readAllVersions()),
        "r{f:@2!DeleteFamilyVersion f:@2= f:a@1=1 f:b@3!Delete f:b@3=3}");
    table.delete(delete("r"));
    table.delete(delete("ttl"));
  }

  private static void many(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      puts.add(Rows.add(put(String.format("m%03d", i), "f:q", 1, "value " + i), "f:r", 1, "x".repeat(i)));
    }
    table.put(puts);
    Result[] got = table.get(List.of(get("m007"), get("none"), get("m299")));
    Expect.same(7, got[0].getValue(b("f"), b("r")).length);
    Expect.same("-", Show.row(got[1]));
    Expect.same(299, got[2].getValue(b("f"), b("r")).length);
    Expect.same(300, Rows.keys(table, new Scan().withStartRow(b("m")).setCaching(70)).size());
    Expect.same(600, Rows.keys(table, new Scan().withStartRow(b("m")).setBatch(1).setCaching(33)).size());
    Expect.same(300, Rows.keys(table, new Scan().withStartRow(b("n")).setReversed(true).setMaxResultSize(2000)).size());
  }

  private static void atomic(Table table) throws Exception {
    Expect.same(5L, Rows.number(table.increment(new Increment(b("a")).addColumn(b("f"), b("n"), 5)), "f:n"));
    Expect.same("a{f:t@now=x}", Show.row(table.append(new Append(b("a")).addColumn(b("f"), b("t"), b("x")))));
    Expect.that(table.checkAndMutate(CheckAndMutate.newBuilder(b("a")).ifEquals(b("f"), b("t"), b("x"))
        .build(RowMutations.of(List.of(put("a", "f:p", 1, "p"), delete("a").addColumns(b("f"), b("n")))))).isSuccess(), "x is x");
    Expect.same("a{f:p@1=p f:t@now=x}", read(table, "a"));
    Object[] results = new Object[3];
    table.batch(List.of(get("a").addColumn(b("f"), b("p")), put("b", "f:q", 1, "v"),
        new Append(b("a")).addColumn(b("f"), b("t"), b("y"))), results);
    Expect.same("a{f:p@1=p}", Show.row((Result) results[0]));
    Expect.same("a{f:t@now=xy}", Show.row((Result) results[2]));
  }
}
