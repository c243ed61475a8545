package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import java.io.IOException;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.client.coprocessor.AggregationClient;
import org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter;
import org.apache.hadoop.hbase.exceptions.UnknownProtocolException;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.protobuf.generated.ClientProtos.MutationProto;
import org.apache.hadoop.hbase.protobuf.generated.ClientProtos.MutationProto.MutationType;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MultiRowMutationService;
import org.apache.hadoop.hbase.protobuf.generated.MultiRowMutationProtos.MutateRowsRequest;
import org.apache.hadoop.hbase.util.Bytes;

/** The two endpoints that applications enable by naming HBase's classes in a table's descriptor. */
final class EndpointChecks {
  private static final String AGGREGATE = "org.apache.hadoop.hbase.coprocessor.AggregateImplementation";
  private static final String MULTI_ROW = "org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint";
  private final Suite suite;

  EndpointChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("aggregate", this::aggregate);
    suite.check("aggregate-range-and-filter", this::aggregateRange);
    suite.check("aggregate-empty", this::aggregateEmpty);
    suite.check("multi-row-mutation", this::multiRow);
    suite.check("multi-row-mutation-outside-region", this::multiRowOutside);
    suite.check("not-registered", this::notRegistered);
  }

  private Table with(String coprocessor, byte[][] splits) throws IOException {
    TableDescriptor table = TableDescriptorBuilder.newBuilder(suite.name()).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setCoprocessor(coprocessor).build();
    suite.admin.createTable(table, splits);
    return suite.connection.getTable(table.getTableName());
  }

  /** Rows r00..r19 in three regions, f:n = 10 * i. */
  private Table numbers() throws IOException {
    Table table = with(AGGREGATE, new byte[][] {b("r05"), b("r12")});
    for (int i = 0; i < 20; i++) {
      table.put(new Put(b(String.format("r%02d", i))).addColumn(b("f"), b("n"), Bytes.toBytes(10L * i)));
    }
    return table;
  }

  private void aggregate() throws Exception {
    LongColumnInterpreter longs = new LongColumnInterpreter();
    try (Table table = numbers(); AggregationClient client = new AggregationClient(suite.connection)) {
      Scan scan = new Scan().addColumn(b("f"), b("n"));
      call(() -> Expect.same(190L, client.max(table, longs, scan)));
      call(() -> Expect.same(0L, client.min(table, longs, scan)));
      call(() -> Expect.same(1900L, client.sum(table, longs, scan)));
      call(() -> Expect.same(20L, client.rowCount(table, longs, scan)));
      call(() -> Expect.same(95.0, client.avg(table, longs, scan)));
      call(() -> Expect.same(true, Math.abs(client.std(table, longs, scan) - 57.66) < 0.01));
      call(() -> Expect.same(80L, client.median(table, longs, scan)));
    }
  }

  private interface Call {
    void call() throws Throwable;
  }

  private static void call(Call call) throws Exception {
    try {
      call.call();
    } catch (Exception | Error e) {
      throw e;
    } catch (Throwable t) {
      throw new Exception(t);
    }
  }

  private void aggregateRange() throws Exception {
    LongColumnInterpreter longs = new LongColumnInterpreter();
    try (Table table = numbers(); AggregationClient client = new AggregationClient(suite.connection)) {
      Scan range = new Scan().addColumn(b("f"), b("n")).withStartRow(b("r03")).withStopRow(b("r06"));
      call(() -> Expect.same(30L + 40 + 50, client.sum(table, longs, range)));
      call(() -> Expect.same(3L, client.rowCount(table, longs, range)));
      Scan filtered = new Scan().addColumn(b("f"), b("n")).setFilter(new PrefixFilter(b("r1")));
      call(() -> Expect.same(10L, client.rowCount(table, longs, filtered)));
    }
  }

  private void aggregateEmpty() throws Exception {
    LongColumnInterpreter longs = new LongColumnInterpreter();
    try (Table table = with(AGGREGATE, null); AggregationClient client = new AggregationClient(suite.connection)) {
      Scan scan = new Scan().addColumn(b("f"), b("n"));
      call(() -> Expect.same(null, client.max(table, longs, scan)));
      call(() -> Expect.same(0L, client.rowCount(table, longs, scan)));
    }
  }

  private static MutateRowsRequest request(MutationProto... mutations) {
    MutateRowsRequest.Builder request = MutateRowsRequest.newBuilder();
    for (MutationProto mutation : mutations) {
      request.addMutationRequest(mutation);
    }
    return request.build();
  }

  private static void mutate(Table table, String row, MutateRowsRequest request) throws Exception {
    MultiRowMutationService.newBlockingStub(table.coprocessorService(b(row))).mutateRows(null, request);
  }

  private void multiRow() throws Exception {
    try (Table table = with(MULTI_ROW, null)) {
      table.put(put("gone", "f:q", 1, "v"));
      mutate(table, "a", request(ProtobufUtil.toMutation(MutationType.PUT, put("a", "f:q", 1, "1")),
          ProtobufUtil.toMutation(MutationType.PUT, put("b", "f:q", 1, "2")),
          ProtobufUtil.toMutation(MutationType.DELETE, delete("gone"))));
      Expect.lines(Rows.scan(table, new Scan()), "a{f:q@1=1}", "b{f:q@1=2}");
    }
  }

  private void multiRowOutside() throws Exception {
    try (Table table = with(MULTI_ROW, new byte[][] {b("m")})) {
      try {
        mutate(table, "a", request(ProtobufUtil.toMutation(MutationType.PUT, put("a", "f:q", 1, "1")),
            ProtobufUtil.toMutation(MutationType.PUT, put("z", "f:q", 1, "2"))));
        throw new Expect.Mismatch("rows of two regions went through");
      } catch (com.google.protobuf.ServiceException e) {
        Expect.same(0, Rows.scan(table, new Scan()).size());
      }
    }
  }

  private void notRegistered() throws Exception {
    try (Table table = suite.table("f")) {
      try {
        mutate(table, "a", request(ProtobufUtil.toMutation(MutationType.PUT, put("a", "f:q", 1, "1"))));
        throw new Expect.Mismatch("no endpoint, and yet it answers");
      } catch (com.google.protobuf.ServiceException e) {
        Expect.same(UnknownProtocolException.class, Expect.root(e.getCause()).getClass());
      }
    }
  }
}
