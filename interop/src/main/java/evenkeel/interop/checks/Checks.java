package evenkeel.interop.checks;

import evenkeel.interop.Clients;
import evenkeel.interop.checks.filters.FilterChecks;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;

/**
 * Runs named groups of compatibility checks against a live server.
 *
 * <pre>java evenkeel.interop.checks.Checks [--registry zk|rpc|master] [--only TEXT]
 *     [-Dkey=value ...] GROUP...</pre>
 *
 * Prints one line per check, {@code ok NAME} or {@code FAILED NAME: why}, then a closing line {@code N passed, M
 * failed}. The exit code is 0 if at least one check ran and none failed, 1 otherwise, 2 for wrong arguments. {@code
 * --only} selects the checks whose name contains TEXT. Each check creates tables with unique names, which are dropped
 * at the end of its group.
 */
public final class Checks {
  private static final Map<String, Group> GROUPS = new LinkedHashMap<>();

  static {
    GROUPS.put("core", suite -> {
      new MutationChecks(suite).all();
      new GetChecks(suite).all();
      new VersionChecks(suite).all();
      new AtomicChecks(suite).all();
      new BatchChecks(suite).all();
      new ScanChecks(suite).all();
      new LimitChecks(suite).all();
    });
    GROUPS.put("filters", suite -> {
      new FilterChecks(suite).all();
    });
    GROUPS.put("admin", suite -> {
      new TableAdminChecks(suite).all();
      new NamespaceChecks(suite).all();
      new RegionAdminChecks(suite).all();
    });
    GROUPS.put("meta", suite -> new MetaChecks(suite).all());
    GROUPS.put("meta-replicas", suite -> new MetaReplicaChecks(suite).all());
    GROUPS.put("meta-replica-memstores", suite -> new MetaReplicaChecks(suite).memstores());
    GROUPS.put("meta-replicas-kept", suite -> new MetaReplicaChecks(suite).kept());
    GROUPS.put("codecs", suite -> new CodecChecks(suite).all());
    GROUPS.put("async", suite -> new AsyncChecks(suite).all());
    GROUPS.put("endpoints", suite -> new EndpointChecks(suite).all());
    GROUPS.put("quotas", suite -> new QuotaChecks(suite).all());
    GROUPS.put("replicas", suite -> new ReplicaChecks(suite).all());
    GROUPS.put("replica-memstores", suite -> new ReplicaChecks(suite).memstores());
    GROUPS.put("slow-log-table", suite -> new SlowLogTableChecks(suite).all());
    GROUPS.put("space-quotas", suite -> new SpaceQuotaChecks(suite).all());
    GROUPS.put("snapshots", suite -> new SnapshotChecks(suite).all());
  }

  /** A set of checks on one subject. */
  interface Group {
    void run(Suite suite) throws Exception;
  }

  private Checks() {
  }

  public static void main(String[] args) throws Exception {
    List<String> groups = new ArrayList<>();
    Properties settings = new Properties();
    String registry = "zk";
    String only = "";
    for (int i = 0; i < args.length; i++) {
      if (args[i].equals("--registry")) {
        registry = args[++i];
      } else if (args[i].equals("--only")) {
        only = args[++i];
      } else if (args[i].startsWith("-D")) {
        int eq = args[i].indexOf('=');
        settings.setProperty(args[i].substring(2, eq), args[i].substring(eq + 1));
      } else if (GROUPS.containsKey(args[i])) {
        groups.add(args[i]);
      } else {
        System.err.println("unknown argument " + args[i] + "; groups: " + GROUPS.keySet());
        System.exit(2);
      }
    }
    System.exit(run(Clients.configuration(registry, settings), groups, only) ? 0 : 1);
  }

  private static boolean run(Configuration conf, List<String> groups, String only) throws Exception {
    int passed = 0;
    int failed = 0;
    for (String group : groups) {
      try (Suite suite = new Suite(group, only, conf)) {
        GROUPS.get(group).run(suite);
        passed += suite.passed();
        failed += suite.failed();
      } catch (Throwable t) {
        System.out.println("FAILED " + group + ": " + t);
        t.printStackTrace();
        failed++;
      }
    }
    System.out.println(passed + " passed, " + failed + " failed");
    return failed == 0 && passed > 0;
  }
}
