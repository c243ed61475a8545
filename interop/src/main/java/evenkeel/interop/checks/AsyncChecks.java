package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.AdvancedScanResultConsumer;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ScanResultConsumer;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** The asynchronous client, whose implementation of the protocol differs from that of the blocking client of 2.x. */
final class AsyncChecks {
  private final Suite suite;
  private AsyncConnection connection;

  AsyncChecks(Suite suite) {
    this.suite = suite;
  }

  void all() throws Exception {
    connection = wait(ConnectionFactory.createAsyncConnection(suite.conf));
    suite.check("single", this::single);
    suite.check("atomic", this::atomic);
    suite.check("batch", this::batch);
    suite.check("scan-all", this::scanAll);
    suite.check("scanner-prefetch", this::scannerPrefetch);
    suite.check("scan-consumer", this::scanConsumer);
    suite.check("scan-suspend", this::scanSuspend);
    suite.check("scan-options", this::scanOptions);
    suite.check("buffered-mutator", this::bufferedMutator);
    suite.check("locator", this::locator);
    suite.check("admin", this::admin);
    suite.check("pipelined", this::pipelined);
    suite.check("errors", this::errors);
    connection.close();
  }

  private static <T> T wait(Future<T> future) throws Exception {
    return future.get(60, TimeUnit.SECONDS);
  }

  private AsyncTable<?> open(Table table) {
    return connection.getTable(table.getName(), java.util.concurrent.ForkJoinPool.commonPool());
  }

  private void single() throws Exception {
    try (Table made = suite.versioned()) {
      AsyncTable<?> table = open(made);
      wait(table.put(put("r", "f:q", 1, "1")));
      wait(table.put(put("r", "f:q", 2, "2")));
      Expect.same("r{f:q@2=2 f:q@1=1}", Show.row(wait(table.get(get("r").readAllVersions()))));
      Expect.same(true, wait(table.exists(get("r"))));
      wait(table.delete(delete("r").addColumn(b("f"), b("q"))));
      Expect.same("r{f:q@1=1}", Show.row(wait(table.get(get("r")))));
      wait(table.delete(delete("r")));
      Expect.same("-", Show.row(wait(table.get(get("r")))));
    }
  }

  private void atomic() throws Exception {
    try (Table made = suite.table("f")) {
      AsyncTable<?> table = open(made);
      Expect.same(3L, Rows.number(wait(table.increment(new Increment(b("r")).addColumn(b("f"), b("n"), 3))), "f:n"));
      Expect.same("r{f:t@now=x}", Show.row(wait(table.append(new Append(b("r")).addColumn(b("f"), b("t"), b("x"))))));
      Expect.same(true, wait(table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifEquals(b("f"), b("t"), b("x")).build(put("r", "f:p", 1, "p")))).isSuccess());
      Expect.same(false, wait(table.checkAndMutate(
          CheckAndMutate.newBuilder(b("r")).ifNotExists(b("f"), b("t")).build(delete("r")))).isSuccess());
      Result result = wait(table.mutateRow(RowMutations.of(List.of(delete("r").addColumns(b("f"), b("n")),
          new Append(b("r")).addColumn(b("f"), b("t"), b("y"))))));
      Expect.same("r{f:t@now=xy}", Show.row(result));
      Expect.same("r{f:p@1=p f:t@now=xy}", Show.row(wait(table.get(get("r")))));
    }
  }

  private void batch() throws Exception {
    try (Table made = suite.presplit("m")) {
      AsyncTable<?> table = open(made);
      wait(table.putAll(List.of(put("a", "f:q", 1, "1"), put("z", "f:q", 1, "2"))));
      List<Object> got = wait(table.batchAll(List.of(get("z"), put("b", "f:q", 1, "3"), get("none"), delete("a"))));
      Expect.same("z{f:q@1=2}", Show.row((Result) got.get(0)));
      Expect.same("-", Show.row((Result) got.get(2)));
      Expect.lines(Show.keys(wait(table.scanAll(new Scan()))), "b", "z");
      List<CompletableFuture<Void>> puts = table.put(List.of(put("ok", "f:q", 1, "v"), put("bad", "x:q", 1, "v")));
      wait(puts.get(0));
      Expect.fails(NoSuchColumnFamilyException.class, () -> wait(puts.get(1)));
    }
  }

  private Table filled(int rows) throws Exception {
    Table table = suite.presplit("r0300", "r0600");
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < rows; i++) {
      puts.add(put(String.format("r%04d", i), "f:q", 1, "v" + i));
    }
    table.put(puts);
    return table;
  }

  private void scanAll() throws Exception {
    try (Table made = filled(1000)) {
      AsyncTable<?> table = open(made);
      Expect.same(1000, wait(table.scanAll(new Scan().setCaching(77))).size());
      List<String> back = Show.keys(wait(table.scanAll(new Scan().setReversed(true).setLimit(450))));
      Expect.same(450, back.size());
      Expect.same("r0550", back.get(449));
      Expect.same(5, wait(table.scanAll(new Scan().withStartRow(b("r0298")).withStopRow(b("r0302"), true))).size());
    }
  }

  private void scannerPrefetch() throws Exception {
    try (Table made = filled(1000)) {
      int rows = 0;
      try (ResultScanner scanner = open(made).getScanner(new Scan().setCaching(10).setMaxResultSize(500).setAsyncPrefetch(true))) {
        for (Result result : scanner) {
          Expect.same(String.format("r%04d", rows++), Show.text(result.getRow()));
        }
      }
      Expect.same(1000, rows);
    }
  }

  private void scanConsumer() throws Exception {
    try (Table made = filled(700)) {
      List<Result> got = new ArrayList<>();
      CompletableFuture<Integer> done = new CompletableFuture<>();
      connection.getTable(made.getName(), java.util.concurrent.ForkJoinPool.commonPool()).scan(new Scan().setCaching(100),
          new ScanResultConsumer() {
            @Override
            public boolean onNext(Result result) {
              got.add(result);
              return got.size() < 500;
            }

            @Override
            public void onError(Throwable error) {
              done.completeExceptionally(error);
            }

            @Override
            public void onComplete() {
              done.complete(got.size());
            }
          });
      Expect.same(500, wait(done));
    }
  }

  private void scanSuspend() throws Exception {
    try (Table made = filled(100)) {
      List<Result> got = new ArrayList<>();
      CompletableFuture<Integer> done = new CompletableFuture<>();
      connection.getTable(made.getName()).scan(new Scan().setCaching(10), new AdvancedScanResultConsumer() {
        @Override
        public void onNext(Result[] results, ScanController controller) {
          got.addAll(List.of(results));
          if (got.size() == 20) {
            ScanResumer resumer = controller.suspend();
            CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(resumer::resume);
          }
        }

        @Override
        public void onError(Throwable error) {
          done.completeExceptionally(error);
        }

        @Override
        public void onComplete() {
          done.complete(got.size());
        }
      });
      Expect.same(100, wait(done));
    }
  }

  private void scanOptions() throws Exception {
    try (Table made = suite.table("f")) {
      Put row = new Put(b("r"));
      for (int i = 0; i < 20; i++) {
        row.addColumn(b("f"), Bytes.toBytes(i), 1, new byte[100]);
      }
      AsyncTable<?> table = open(made);
      wait(table.put(row));
      Expect.same(1, wait(table.scanAll(new Scan().setMaxResultSize(300))).size());
      Expect.same(4, wait(table.scanAll(new Scan().setBatch(6))).size());
      List<Result> partial = wait(table.scanAll(new Scan().setAllowPartialResults(true).setMaxResultSize(300)));
      Expect.that(partial.size() > 2, "the row comes in pieces");
      Expect.same(20, partial.stream().mapToInt(Result::size).sum());
    }
  }

  private void bufferedMutator() throws Exception {
    try (Table made = filled(0)) {
      try (var mutator = connection.getBufferedMutator(made.getName())) {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
          all.add(mutator.mutate(put(String.format("r%04d", i * 2), "f:q", 1, "v")));
        }
        mutator.flush();
        wait(CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0])));
      }
      Expect.same(500, wait(open(made).scanAll(new Scan())).size());
    }
  }

  private void locator() throws Exception {
    try (Table made = filled(0)) {
      var locator = connection.getRegionLocator(made.getName());
      Expect.same(3, wait(locator.getAllRegionLocations()).size());
      Expect.same("r0300", Bytes.toString(wait(locator.getRegionLocation(b("r0301"), true)).getRegion().getStartKey()));
      Expect.same(3, wait(locator.getStartKeys()).size());
    }
  }

  private void admin() throws Exception {
    AsyncAdmin admin = connection.getAdmin();
    TableName name = suite.name();
    wait(admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build()));
    Expect.same(true, wait(admin.tableExists(name)));
    Expect.same(true, wait(admin.isTableEnabled(name)));
    wait(admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("g")));
    Expect.same(2, wait(admin.getDescriptor(name)).getColumnFamilyCount());
    wait(connection.getTable(name).put(put("r", "g:q", 1, "v")));
    wait(admin.flush(name));
    wait(admin.split(name, b("m")));
    Expect.that(wait(admin.listTableNames(false)).contains(name), "it is listed");
    Expect.that(!wait(admin.getRegionServers()).isEmpty(), "a region server");
    Expect.that(wait(admin.getClusterMetrics()).getMasterName() != null, "a master");
    wait(admin.disableTable(name));
    wait(admin.truncateTable(name, false));
    Expect.same(0, wait(connection.getTable(name).scanAll(new Scan())).size());
    wait(admin.disableTable(name));
    wait(admin.deleteTable(name));
    Expect.same(false, wait(admin.tableExists(name)));
  }

  private void pipelined() throws Exception {
    try (Table made = filled(1000)) {
      AsyncTable<?> table = open(made);
      List<CompletableFuture<Result>> gets = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        gets.add(table.get(get(String.format("r%04d", i))));
      }
      for (int i = 0; i < 1000; i++) {
        Expect.same("v" + i, Bytes.toString(wait(gets.get(i)).value()));
      }
    }
  }

  private void errors() throws Exception {
    try (Table made = suite.table("f")) {
      Expect.fails(NoSuchColumnFamilyException.class, () -> wait(open(made).put(put("r", "x:q", "v"))));
      Expect.fails(NoSuchColumnFamilyException.class, () -> wait(open(made).scanAll(new Scan().addFamily(b("x")))));
      Expect.fails(TableNotFoundException.class, () -> wait(connection.getTable(suite.name()).get(get("r"))));
      Expect.fails(TableNotFoundException.class, () -> wait(connection.getAdmin().getDescriptor(suite.name())));
    }
  }
}
