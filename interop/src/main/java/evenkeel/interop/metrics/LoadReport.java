package evenkeel.interop.metrics;

import evenkeel.interop.Clients;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.UserMetrics;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Prints what the only server of a cluster reports of itself and of a table's regions, a line each: {@code LoadReport
 * TABLE -Dkey=value...}. The shell's {@code status 'detailed'}, {@code list_regions} and the balancer use these reports.
 */
public final class LoadReport {
  private LoadReport() {}

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    for (String arg : args) {
      if (arg.startsWith("-D")) {
        String[] pair = arg.substring(2).split("=", 2);
        settings.setProperty(pair[0], pair[1]);
      }
    }
    TableName table = TableName.valueOf(args[0]);
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("zk", settings));
        Admin admin = connection.getAdmin()) {
      var servers = admin.getClusterMetrics().getLiveServerMetrics();
      if (servers.size() != 1) {
        throw new IllegalStateException(servers.size() + " servers");
      }
      server(servers.values().iterator().next());
      int number = 0;
      for (RegionInfo region : admin.getRegions(table)) {
        String prefix = "region" + number++;
        region(prefix, servers.values().iterator().next().getRegionMetrics().get(region.getRegionName()));
        // The same from the RegionServer itself.
        for (RegionMetrics load : admin.getRegionMetrics(servers.keySet().iterator().next(), table)) {
          if (Bytes.equals(load.getRegionName(), region.getRegionName())) {
            region(prefix + "-direct", load);
            // A stock master does not pass these on.
            print(prefix + ".blocksAreLocal", load.getBlocksLocalWeight() == load.getBlocksTotalWeight());
            print(prefix + ".hasBlocks", load.getBlocksTotalWeight() > 0);
          }
        }
      }
    }
  }

  private static void print(String name, Object value) {
    System.out.println(name + "=" + value);
  }

  private static void server(ServerMetrics load) {
    print("server.version", load.getVersion());
    print("server.hasInfoPort", load.getInfoServerPort() > 0);
    print("server.usesHeap", load.getUsedHeapSize().getLongValue() > 0);
    print("server.heapIsBounded", load.getMaxHeapSize().getLongValue() >= load.getUsedHeapSize().getLongValue());
    print("server.hasRequests", load.getRequestCount() > 500);
    print("server.replicationSources", load.getReplicationLoadSourceList().size());
    print("server.hasReplicationSink", load.getReplicationLoadSink() != null);
    print("server.coprocessors", new TreeSet<>(load.getCoprocessorNames()));
    print("server.regionCachedInfo", load.getRegionCachedInfo());
    TreeSet<String> users = new TreeSet<>();
    for (UserMetrics user : load.getUserMetrics().values()) {
      for (UserMetrics.ClientMetrics client : user.getClientMetrics().values()) {
        boolean counts = client.getReadRequestsCount() > 0 && client.getWriteRequestsCount() > 0;
        users.add(counts + ", filtered " + (client.getFilteredReadRequestsCount() > 0));
      }
    }
    print("server.users", users);
  }

  private static void region(String prefix, RegionMetrics load) {
    print(prefix + ".name", Bytes.toStringBinary(load.getRegionName()).replaceAll(",[0-9]+\\.[0-9a-f]{32}\\.", ""));
    print(prefix + ".stores", load.getStoreCount());
    print(prefix + ".storeFiles", load.getStoreFileCount());
    print(prefix + ".storeRefCount", load.getStoreRefCount());
    print(prefix + ".compactedFilesRefCount", load.getMaxCompactedStoreFileRefCount());
    print(prefix + ".storeFileMb", load.getStoreFileSize().get(Size.Unit.MEGABYTE));
    print(prefix + ".uncompressedMb", load.getUncompressedStoreFileSize().get(Size.Unit.MEGABYTE));
    print(prefix + ".regionMb", load.getRegionSizeMB().get(Size.Unit.MEGABYTE));
    print(prefix + ".memStoreMb", load.getMemStoreSize().get(Size.Unit.MEGABYTE));
    print(prefix + ".storeFileIndexKb", load.getStoreFileIndexSize().get(Size.Unit.KILOBYTE));
    print(prefix + ".rootIndexKb", load.getStoreFileRootLevelIndexSize().get(Size.Unit.KILOBYTE));
    print(prefix + ".allIndexesKb", load.getStoreFileUncompressedDataIndexSize().get(Size.Unit.KILOBYTE));
    print(prefix + ".hasBloomFilter", load.getBloomFilterSize().getLongValue() > 0);
    print(prefix + ".reads", load.getReadRequestCount());
    print(prefix + ".filteredReads", load.getFilteredReadRequestCount());
    print(prefix + ".writes", load.getWriteRequestCount());
    print(prefix + ".compacting", load.getCompactingCellCount());
    print(prefix + ".compacted", load.getCompactedCellCount());
    print(prefix + ".hasSequenceId", load.getCompletedSequenceId() > 0);
    print(prefix + ".storesWithSequenceIds", load.getStoreSequenceId().size());
    print(prefix + ".hadMajorCompaction", load.getLastMajorCompactionTimestamp() > 0);
    print(prefix + ".locality", load.getDataLocality());
    print(prefix + ".localityForSsd", load.getDataLocalityForSsd());
    print(prefix + ".compactionState", load.getCompactionState());
    print(prefix + ".cachedRatio", load.getCurrentRegionCachedRatio());
  }
}
