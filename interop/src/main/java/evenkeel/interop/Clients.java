package evenkeel.interop;

import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;

/** Client configurations: the same server reached through each of HBase's three connection registries. */
public final class Clients {
  private static final String REGISTRY = "org.apache.hadoop.hbase.client.";

  private Clients() {
  }

  /**
   * A configuration for one registry.
   *
   * @param registry {@code zk}, {@code rpc} (through {@code hbase.client.bootstrap.servers}) or {@code master}
   *     (through {@code hbase.masters})
   * @param settings keys that override the ones set here
   */
  public static Configuration configuration(String registry, Properties settings) {
    Configuration conf = HBaseConfiguration.create();
    switch (registry) {
      case "zk" -> conf.set("hbase.client.registry.impl", REGISTRY + "ZKConnectionRegistry");
      case "rpc" -> conf.set("hbase.client.registry.impl", REGISTRY + "RpcConnectionRegistry");
      case "master" -> conf.set("hbase.client.registry.impl", REGISTRY + "MasterRegistry");
      default -> throw new IllegalArgumentException("no registry " + registry);
    }
    // Short enough that a server that never answers fails a check and not the whole run.
    conf.setInt(HConstants.HBASE_CLIENT_RETRIES_NUMBER, 10);
    // DDL calls poll their procedure at multiples of this pause; the default of 100 ms would be most of their time.
    conf.setInt(HConstants.HBASE_CLIENT_PAUSE, 20);
    conf.setInt(HConstants.HBASE_CLIENT_OPERATION_TIMEOUT, 40_000);
    conf.setInt(HConstants.HBASE_RPC_TIMEOUT_KEY, 20_000);
    conf.setInt(HConstants.HBASE_CLIENT_META_OPERATION_TIMEOUT, 20_000);
    conf.setInt("hbase.client.sync.wait.timeout.msec", 60_000);
    conf.setInt("zookeeper.recovery.retry", 3);
    settings.forEach((key, value) -> conf.set((String) key, (String) value));
    return conf;
  }
}
