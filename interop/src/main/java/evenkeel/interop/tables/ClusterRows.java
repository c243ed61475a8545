package evenkeel.interop.tables;

import evenkeel.interop.Clients;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Hbck;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A table of a cluster whose regions move and whose servers die: {@code create NAME}, {@code put NAME FROM TO}, {@code
 * flush NAME}, {@code digest NAME}, {@code watch NAME FILE}, {@code expire SERVER}, several in sequence, separated by
 * {@code +}. The digest is a line with the number of cells and a checksum of all cells, timestamps included. {@code
 * watch} prints digests until the file exists. {@code expire} makes the master declare a server dead, as HBCK2 does.
 */
public final class ClusterRows {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final int REGIONS = 4;
  private static final int BATCH = 100;

  private ClusterRows() {}

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    List<List<String>> commands = new ArrayList<>(List.of(new ArrayList<>()));
    for (String arg : args) {
      if (arg.startsWith("-D")) {
        String[] pair = arg.substring(2).split("=", 2);
        settings.setProperty(pair[0], pair[1]);
      } else if (arg.equals("+")) {
        commands.add(new ArrayList<>());
      } else {
        commands.get(commands.size() - 1).add(arg);
      }
    }
    settings.setProperty("hbase.client.retries.number", "60");
    settings.setProperty("hbase.client.operation.timeout", "180000");
    settings.setProperty("hbase.client.meta.operation.timeout", "180000");
    settings.setProperty("hbase.rpc.timeout", "10000");
    settings.setProperty("hbase.client.scanner.timeout.period", "10000");
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("zk", settings))) {
      for (List<String> command : commands) {
        run(connection, command);
      }
    }
  }

  private static void run(Connection connection, List<String> command) throws Exception {
    if (command.get(0).equals("expire")) {
      try (Hbck hbck = connection.getHbck()) {
        hbck.scheduleServerCrashProcedures(List.of(ServerName.valueOf(command.get(1))));
      }
      return;
    }
    TableName name = TableName.valueOf(command.get(1));
    try (Admin admin = connection.getAdmin();
        Table table = connection.getTable(name)) {
      switch (command.get(0)) {
        case "create" -> create(admin, name);
        case "put" -> put(table, Integer.parseInt(command.get(2)), Integer.parseInt(command.get(3)));
        case "flush" -> admin.flush(name);
        case "digest" -> System.out.println("DIGEST " + digest(table));
        case "watch" -> {
          do {
            System.out.println("DIGEST " + digest(table));
          } while (!Files.exists(Path.of(command.get(2))));
        }
        default -> throw new IllegalArgumentException(command.get(0));
      }
    }
  }

  private static void create(Admin admin, TableName name) throws Exception {
    byte[][] splits = new byte[REGIONS - 1][];
    for (int i = 1; i < REGIONS; i++) {
      splits[i - 1] = Bytes.toBytes("row-" + i);
    }
    var family = ColumnFamilyDescriptorBuilder.newBuilder(FAMILY).setMaxVersions(3).build();
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family).build(), splits);
  }

  /** Rows are spread over all regions by their last digit. */
  private static byte[] row(int number) {
    return Bytes.toBytes("row-" + (number % REGIONS) + "-" + String.format("%06d", number));
  }

  private static void put(Table table, int from, int to) throws Exception {
    List<Put> batch = new ArrayList<>();
    for (int i = from; i < to; i++) {
      batch.add(new Put(row(i)).addColumn(FAMILY, Bytes.toBytes("q"), Bytes.toBytes("value " + i)));
      if (batch.size() == BATCH || i == to - 1) {
        table.put(batch);
        batch.clear();
      }
    }
    for (int i = from; i < from + REGIONS && i < to; i++) {
      table.increment(new Increment(row(i)).addColumn(FAMILY, Bytes.toBytes("n"), i + 1));
    }
  }

  private static String digest(Table table) throws Exception {
    CRC32 crc = new CRC32();
    int cells = 0;
    try (ResultScanner scanner = table.getScanner(new Scan().readAllVersions().setCaching(500))) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) {
          cells++;
          crc.update(CellUtil.getCellKeyAsString(cell).getBytes());
          crc.update(CellUtil.cloneValue(cell));
        }
      }
    }
    return cells + " cells, " + Long.toHexString(crc.getValue());
  }
}
