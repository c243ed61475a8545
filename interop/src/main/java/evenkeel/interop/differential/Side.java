package evenkeel.interop.differential;

import evenkeel.interop.Clients;
import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.ipc.HBaseRpcController;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.RequestConverter;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hbase.thirdparty.com.google.protobuf.ServiceException;

/** One of the two servers, and its table. */
final class Side implements AutoCloseable {
  /** A server that has not finished a compaction by then is stuck. */
  private static final long COMPACTION_S = 60;
  /** The clock is read again after this time. */
  private static final long TICK_NS = 100_000;

  final String name;
  final Configuration conf;
  final Connection connection;
  final Admin admin;
  Table table;
  private Domain domain;
  /** When the last operation whose cells got the server's time had ended, in milliseconds. */
  private long timedMs;

  Side(String name, Properties settings) throws IOException {
    this.name = name;
    conf = Clients.configuration("zk", settings);
    conf.setInt(HConstants.HBASE_CLIENT_RETRIES_NUMBER, 4);
    conf.setInt(HConstants.HBASE_CLIENT_SCANNER_TIMEOUT_PERIOD, 10_000);
    connection = ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
  }

  void create(TableDescriptor descriptor, Domain of) throws IOException {
    domain = of;
    admin.createTable(descriptor, Domain.SPLITS);
    table = connection.getTable(descriptor.getTableName());
  }

  /** Waits for a time that no cell has. */
  void tick() {
    while (System.currentTimeMillis() <= timedMs) {
      LockSupport.parkNanos(TICK_NS);
    }
  }

  /** Notes that an operation whose cells got the server's time has ended. */
  void timed() {
    timedMs = System.currentTimeMillis();
  }

  void drop() throws IOException {
    drop(table.getName());
    table.close();
    table = null;
  }

  void drop(TableName name) throws IOException {
    if (admin.isTableEnabled(name)) {
      admin.disableTable(name);
    }
    admin.deleteTable(name);
  }

  TableName name() {
    return table.getName();
  }

  /** The table's default replicas, in order of their keys. */
  List<RegionInfo> regions() throws IOException {
    return admin.getRegions(name()).stream().filter(region -> region.getReplicaId() == RegionInfo.DEFAULT_REPLICA_ID)
        .sorted((one, two) -> Bytes.compareTo(one.getStartKey(), two.getStartKey())).toList();
  }

  /** What clients see of the table's regions and attributes, without its name. */
  String shape() throws IOException {
    StringBuilder out = new StringBuilder();
    regions().forEach(region -> out.append('[').append(Bytes.toStringBinary(region.getStartKey())).append(' ')
        .append(Bytes.toStringBinary(region.getEndKey())).append(']'));
    return out.append(' ').append(attributes(admin.getDescriptor(name()))).toString();
  }

  /** The attributes and settings of a table and of its families, sorted by name. */
  static String attributes(TableDescriptor table) {
    TreeMap<String, String> all = new TreeMap<>();
    table.getValues().forEach((key, value) -> all.put(text(key), text(value)));
    for (ColumnFamilyDescriptor family : table.getColumnFamilies()) {
      String name = family.getNameAsString() + ".";
      family.getValues().forEach((key, value) -> all.put(name + text(key), text(value)));
      family.getConfiguration().forEach((key, value) -> all.put(name + key, value));
    }
    return all.toString();
  }

  private static String text(Bytes bytes) {
    return Bytes.toString(bytes.get(), bytes.getOffset(), bytes.getLength());
  }

  /**
   * Requests a major compaction of every store and waits for its end.
   *
   * A stock server does not select a store whose compaction is running, so the request is repeated until every store of
   * an exact table has one file.
   */
  void majorCompact() throws Exception {
    TableDescriptor descriptor = admin.getDescriptor(name());
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(COMPACTION_S);
    do {
      admin.majorCompact(name());
      if (!descriptor.isCompactionEnabled()) {
        return;
      }
      awaitCompaction();
      if (System.nanoTime() > end) {
        throw new IOException(name + " has " + mostFiles() + " files in a region after a major compaction");
      }
    } while (!domain.steady && mostFiles() > descriptor.getColumnFamilyCount());
  }

  /** Waits until no compaction runs. */
  void awaitCompaction() throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(COMPACTION_S);
    while (admin.getCompactionState(name()) != CompactionState.NONE) {
      if (System.nanoTime() > end) {
        throw new IOException(name + " does not finish a compaction");
      }
      Thread.sleep(20);
    }
  }

  /** Returns the number of files of the region that has the most. */
  private int mostFiles() throws IOException {
    TreeSet<byte[]> regions = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    regions().forEach(region -> regions.add(region.getRegionName()));
    int most = 0;
    for (var server : admin.getRegionServers()) {
      for (var region : admin.getRegionMetrics(server, name())) {
        if (regions.contains(region.getRegionName())) {
          most = Math.max(most, region.getStoreFileCount());
        }
      }
    }
    return most;
  }

  /** Sends an Increment or an Append twice with the same nonce, as a client that got no answer to the first call does. */
  String twice(Mutation mutation, long nonce) throws IOException {
    return once(mutation, nonce) + " and again " + once(mutation, nonce);
  }

  private String once(Mutation mutation, long nonce) throws IOException {
    ClusterConnection cluster = (ClusterConnection) connection;
    HRegionLocation location;
    try (RegionLocator locator = connection.getRegionLocator(name())) {
      location = locator.getRegionLocation(mutation.getRow(), true);
    }
    byte[] region = location.getRegion().getRegionName();
    // No server keeps nonces of a group from one table to the next.
    long group = name().hashCode();
    ClientProtos.MutateRequest request = mutation instanceof Increment increment
        ? RequestConverter.buildMutateRequest(region, increment, group, nonce)
        : RequestConverter.buildMutateRequest(region, (Append) mutation, group, nonce);
    HBaseRpcController controller = cluster.getRpcControllerFactory().newController();
    try {
      ClientProtos.MutateResponse response = cluster.getClient(location.getServerName()).mutate(controller, request);
      return response.hasResult() ? Show.row(ProtobufUtil.toResult(response.getResult(), controller.cellScanner())) : "-";
    } catch (ServiceException e) {
      throw ProtobufUtil.handleRemoteException(e);
    }
  }

  /** Returns the cells that ordinary reads see, a line for each row. */
  String cells() throws IOException {
    return String.join("\n", Rows.scan(table, new Scan().readAllVersions()));
  }

  /** Returns the raw cells of the table, a line for each row. */
  String raw() throws IOException {
    StringBuilder out = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(new Scan().setRaw(true).readAllVersions())) {
      for (Result row : scanner) {
        out.append(Show.ranked(row)).append('\n');
      }
    }
    return out.toString();
  }

  @Override
  public void close() throws IOException {
    if (table != null) {
      drop();
    }
    connection.close();
  }
}
