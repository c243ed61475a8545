package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * hbase:slowlog, on a server with {@code hbase.regionserver.slowlog.systable.enabled}, {@code
 * hbase.regionserver.slowlog.buffer.enabled}, {@code hbase.ipc.warn.response.size=200000} and a short {@code
 * hbase.slowlog.systable.chore.duration}.
 */
final class SlowLogTableChecks {
  private static final TableName NAME = TableName.valueOf("hbase:slowlog");
  private static final Set<String> COLUMNS = Set.of("block_bytes_scanned", "call_details", "client_address",
      "fs_read_time", "method_name", "param", "processing_time", "queue_time", "region_name", "response_size",
      "server_class", "start_time", "type", "username");
  private static final long DIGITS = 100_000;

  private final Suite suite;

  SlowLogTableChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("descriptor", this::descriptor);
    suite.check("large-call", this::largeCall);
  }

  private void descriptor() throws Exception {
    ColumnFamilyDescriptor[] families = suite.admin.getDescriptor(NAME).getColumnFamilies();
    Expect.same(1, families.length);
    Expect.same("info", families[0].getNameAsString());
    Expect.same(1, families[0].getMaxVersions());
    Expect.same(false, families[0].isBlockCacheEnabled());
    Expect.same(0, families[0].getScope());
  }

  private void largeCall() throws Exception {
    Table table = suite.presplit();
    table.put(new Put(b("big")).addColumn(b("f"), b("q"), new byte[300_000]));
    table.get(new Get(b("big")));
    String region = suite.admin.getRegions(table.getName()).get(0).getRegionNameAsString();
    Result row = rowOf(region);
    Map<String, String> call = new HashMap<>();
    for (Cell cell : row.rawCells()) {
      Expect.same("info", Bytes.toString(CellUtil.cloneFamily(cell)));
      call.put(Bytes.toString(CellUtil.cloneQualifier(cell)), Bytes.toString(CellUtil.cloneValue(cell)));
    }
    Expect.same(new TreeSet<>(COLUMNS), new TreeSet<>(call.keySet()));
    Expect.same(8, row.getRow().length);
    long written = Bytes.toLong(row.getRow()) / DIGITS;
    Expect.that(Math.abs(System.currentTimeMillis() - written) < 60_000, "the key begins with the time: " + written);
    Expect.same("Get", call.get("method_name"));
    Expect.same("LARGE_LOG", call.get("type"));
    Expect.same("HRegionServer", call.get("server_class"));
    Expect.same("Get(org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos$GetRequest)",
        call.get("call_details"));
    Expect.same("region= " + region + ", row= big", call.get("param"));
    Expect.that(Long.parseLong(call.get("response_size")) >= 300_000, call.get("response_size"));
    Expect.that(Long.parseLong(call.get("start_time")) <= written, "begun before it was written");
    for (String number : Set.of("processing_time", "queue_time", "fs_read_time", "block_bytes_scanned")) {
      Expect.that(Long.parseLong(call.get(number)) >= 0, number);
    }
  }

  /** Waits for the row of a call of the region, and returns it. */
  private Result rowOf(String region) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (true) {
      try (Table table = suite.connection.getTable(NAME); ResultScanner rows = table.getScanner(new Scan())) {
        for (Result row : rows) {
          byte[] of = row.getValue(b("info"), b("region_name"));
          if (of != null && Bytes.toString(of).equals(region)) {
            return row;
          }
        }
      }
      Expect.that(System.nanoTime() < end, "the call is in hbase:slowlog within 60 s");
      Thread.sleep(200);
    }
  }
}
