import com.stumbleupon.async.Deferred;
import java.util.ArrayList;
import java.util.List;
import org.hbase.async.AtomicIncrementRequest;
import org.hbase.async.Config;
import org.hbase.async.DeleteRequest;
import org.hbase.async.GetRequest;
import org.hbase.async.HBaseClient;
import org.hbase.async.KeyValue;
import org.hbase.async.PutRequest;
import org.hbase.async.Scanner;

/**
 * asynchbase, the client of OpenTSDB: writes, reads and scans that need several calls, each of which must carry the scanner's id.
 * Arguments are the ZooKeeper quorum ({@code host:port}) and a table with a family {@code f}; prints {@code ok} at the end.
 */
public final class AsyncHBaseClient {
  private static final int ROWS = 500;

  private AsyncHBaseClient() {
  }

  public static void main(String[] args) throws Exception {
    Config config = new Config();
    config.overrideConfig("hbase.zookeeper.quorum", args[0]);
    HBaseClient client = new HBaseClient(config);
    try {
      run(client, args[1]);
      System.out.println("ok");
    } finally {
      client.shutdown().join(20_000);
    }
    System.exit(0);
  }

  private static void run(HBaseClient client, String table) throws Exception {
    client.ensureTableFamilyExists(table, "f").join(30_000);
    List<Deferred<Object>> puts = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      puts.add(client.put(new PutRequest(table, row(i), "f", "q", "v" + i)));
    }
    Deferred.group(puts).join(60_000);
    client.flush().join(30_000);
    same("v42", new String(client.get(new GetRequest(table, row(42))).join(30_000).get(0).value()));
    byte[] counter = "n".getBytes();
    same(3L, client.atomicIncrement(new AtomicIncrementRequest(table.getBytes(), "i".getBytes(), "f".getBytes(), counter, 3))
        .join(30_000));
    client.delete(new DeleteRequest(table.getBytes(), "i".getBytes())).join(30_000);
    same(ROWS, count(client, table, 50, ROWS));
    same(ROWS, count(client, table, 1000, ROWS));
    // A scanner that is closed before its end.
    same(20, count(client, table, 10, 20));
  }

  private static String row(int i) {
    return String.format("r%04d", i);
  }

  private static int count(HBaseClient client, String table, int rowsOfCall, int most) throws Exception {
    Scanner scanner = client.newScanner(table);
    scanner.setMaxNumRows(rowsOfCall);
    int rows = 0;
    ArrayList<ArrayList<KeyValue>> page;
    while (rows < most && (page = scanner.nextRows().join(30_000)) != null) {
      for (ArrayList<KeyValue> row : page) {
        same(row(rows++), new String(row.get(0).key()));
      }
    }
    scanner.close().join(30_000);
    return rows;
  }

  private static void same(Object want, Object got) {
    if (!want.equals(got)) {
      throw new IllegalStateException("want " + want + ", got " + got);
    }
  }
}
