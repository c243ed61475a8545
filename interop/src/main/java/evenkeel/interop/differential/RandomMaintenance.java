package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Random requests of an administrator, which both servers finish before the next operation.
 *
 * After each one, the regions and the attributes of the tables must agree. Before and after a split or a merge, every
 * store is compacted to one file: the compaction that a server starts by itself then has no other files to choose from.
 */
final class RandomMaintenance {
  private static final int MOST_REGIONS = 6;
  /** How often each request is drawn, in percent. */
  private static final Object[][] REQUESTS = {{"flush", 42}, {"flush family", 6}, {"flush region", 4}, {"major compact", 12},
      {"major compact family", 3}, {"compact", 2}, {"reopen", 3}, {"reassign", 2}, {"split", 5}, {"merge", 4}, {"alter family", 4},
      {"alter table", 2}, {"add or delete family", 2}, {"read only", 1}, {"snapshot", 1}, {"restore", 1}, {"clone", 1},
      {"truncate", 1}, {"bulk load", 4}};

  private final Pair pair;
  private final Domain domain;
  private boolean hasSnapshot;

  RandomMaintenance(Pair pair, Domain domain) {
    this.pair = pair;
    this.domain = domain;
  }

  /** Does what this seed draws. */
  void step(long seed) throws Exception {
    writable();
    String request = draw(new Random(seed));
    boolean done = apply(request, new Random(seed + 1));
    if (done && !request.contains("flush")) {
      pair.same("the attributes after: " + request, Side::shape);
    }
    new RandomTable(null, domain).record(pair.one.admin.getDescriptor(pair.one.name()));
  }

  private static String draw(Random random) {
    int at = random.nextInt(100);
    for (Object[] request : REQUESTS) {
      at -= (int) request[1];
      if (at < 0) {
        return (String) request[0];
      }
    }
    throw new IllegalStateException("the requests are not 100 percent");
  }

  private boolean apply(String request, Random random) throws Exception {
    long seed = random.nextLong();
    switch (request) {
      case "flush" -> pair.same(request, this::flush);
      case "flush family" -> pair.same(request, side -> {
        byte[] family = domain.family(new Random(seed));
        for (RegionInfo region : side.regions()) {
          side.admin.flushRegion(region.getRegionName(), family);
        }
        return "done";
      });
      case "flush region" -> pair.same(request, side -> {
        side.admin.flushRegion(region(side, seed).getRegionName());
        return "done";
      });
      case "major compact" -> pair.same(request, RandomMaintenance::majorCompact);
      case "major compact family" -> pair.same(request, side -> {
        side.admin.majorCompact(side.name(), domain.family(new Random(seed)));
        side.awaitCompaction();
        return "done";
      });
      case "compact" -> {
        // The files of an exact table are too few for a minor compaction.
        if (!domain.steady) {
          return false;
        }
        pair.same(request, side -> {
          side.admin.compact(side.name());
          side.awaitCompaction();
          return "done";
        });
      }
      case "reopen" -> reopen();
      case "reassign" -> pair.same(request, side -> {
        byte[] name = region(side, seed).getRegionName();
        side.admin.unassign(name, false);
        side.admin.assign(name);
        return "done";
      });
      case "split" -> {
        return split(random);
      }
      case "merge" -> {
        return merge(seed);
      }
      case "alter family", "alter table", "add or delete family", "read only" -> alter(request, seed);
      case "snapshot" -> snapshot();
      case "restore" -> {
        return restore();
      }
      case "clone" -> copy();
      case "truncate" -> truncate(random.nextBoolean());
      case "bulk load" -> pair.same(request, side -> {
        new BulkFiles(seed, domain).load(side);
        return "done";
      });
      default -> throw new IllegalArgumentException(request);
    }
    return true;
  }

  private static RegionInfo region(Side side, long seed) throws IOException {
    List<RegionInfo> regions = side.regions();
    return regions.get(new Random(seed).nextInt(regions.size()));
  }

  /**
   * Flushes the table; a steady one region by region: a stock server's procedure of a table may never end if it meets a
   * flush that the server began.
   */
  private String flush(Side side) throws IOException {
    if (!domain.steady) {
      side.admin.flush(side.name());
      return "done";
    }
    for (RegionInfo region : side.regions()) {
      side.admin.flushRegion(region.getRegionName());
    }
    return "done";
  }

  private static String majorCompact(Side side) throws Exception {
    side.majorCompact();
    return "done";
  }

  /** Closes and opens every region of both tables. */
  void reopen() throws Exception {
    pair.same("disable and enable", side -> {
      side.admin.disableTable(side.name());
      side.admin.enableTable(side.name());
      return "done";
    });
  }

  /**
   * Splits or merges regions. A stock server refuses that for a while after an earlier split or merge, until its chores
   * have removed the parents. If A refuses it, B is not asked.
   */
  private boolean change(String request, Pair.Step step) throws Exception {
    if (!domain.steady) {
      if (!pair.one.admin.getDescriptor(pair.one.name()).isCompactionEnabled()) {
        return false;
      }
      pair.same("the flush before: " + request, this::flush);
      pair.same("the compaction before: " + request, RandomMaintenance::majorCompact);
    }
    try {
      step.run(pair.one);
    } catch (RuntimeException | IOException | ExecutionException e) {
      return false;
    }
    String got = "done";
    try {
      step.run(pair.two);
    } catch (RuntimeException | IOException | ExecutionException e) {
      e.printStackTrace();
      got = "! " + e;
    }
    if (!got.equals("done")) {
      throw new Pair.Difference(request, "done", got);
    }
    // The server has requested compactions of the files that refer to the parents, and may not have begun them.
    Thread.sleep(200);
    pair.same("the compaction after: " + request, side -> {
      side.awaitCompaction();
      return majorCompact(side);
    });
    return true;
  }

  private boolean split(Random random) throws Exception {
    byte[] at = domain.row(random);
    if (pair.one.regions().size() >= MOST_REGIONS) {
      return false;
    }
    if (!pair.one.admin.getDescriptor(pair.one.name()).isSplitEnabled()) {
      pair.same("split a table with SPLIT_ENABLED false", side -> split(side, at));
      return true;
    }
    return change("split at " + new String(at), side -> split(side, at));
  }

  private static String split(Side side, byte[] at) throws Exception {
    for (RegionInfo region : side.regions()) {
      if (region.containsRow(at)) {
        side.admin.splitRegionAsync(region.getRegionName(), at).get();
      }
    }
    return "done";
  }

  private boolean merge(long seed) throws Exception {
    int regions = pair.one.regions().size();
    if (regions < 2) {
      return false;
    }
    int first = new Random(seed).nextInt(regions - 1);
    if (!pair.one.admin.getDescriptor(pair.one.name()).isMergeEnabled()) {
      pair.same("merge regions of a table with MERGE_ENABLED false", side -> merge(side, first));
      return true;
    }
    return change("merge region " + first + " and the next", side -> merge(side, first));
  }

  private static String merge(Side side, int first) throws Exception {
    List<RegionInfo> regions = side.regions();
    byte[][] names = {regions.get(first).getEncodedNameAsBytes(), regions.get(first + 1).getEncodedNameAsBytes()};
    side.admin.mergeRegionsAsync(names, false).get();
    return "done";
  }

  private void alter(String request, long seed) throws Exception {
    if (domain.replicas > 1) {
      // A stock server opens a secondary replica again before or after the default replica has flushed its cells to close.
      pair.same("the flush before: " + request, this::flush);
    }
    pair.same(request, side -> {
      TableDescriptor old = side.admin.getDescriptor(side.name());
      Random random = new Random(seed);
      RandomTable draws = new RandomTable(random, domain);
      String family = domain.families.get(random.nextInt(domain.families.size()));
      switch (request) {
        case "alter family" -> side.admin.modifyColumnFamily(side.name(), draws.again(old.getColumnFamily(b(family))));
        case "alter table" -> {
          TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(old);
          draws.attributes(table);
          side.admin.modifyTable(table.build());
        }
        case "read only" -> side.admin.modifyTable(TableDescriptorBuilder.newBuilder(old).setReadOnly(true).build());
        default -> {
          if (old.getColumnFamilyCount() > 1 && random.nextBoolean()) {
            side.admin.deleteColumnFamily(side.name(), b(family));
            return "deleted";
          }
          for (String name : Domain.NAMES) {
            if (!old.hasColumnFamily(b(name))) {
              side.admin.addColumnFamily(side.name(), draws.family(name));
              return "added";
            }
          }
        }
      }
      return "done";
    });
  }

  /** A table that the last request made read-only takes writes again. */
  private void writable() throws Exception {
    if (!pair.one.admin.getDescriptor(pair.one.name()).isReadOnly()) {
      return;
    }
    pair.same("no longer read only", side -> {
      TableDescriptor old = side.admin.getDescriptor(side.name());
      side.admin.modifyTable(TableDescriptorBuilder.newBuilder(old).setReadOnly(false).build());
      return "done";
    });
  }

  private static String saved(Side side) {
    return "saved_" + side.name().getNameAsString();
  }

  private void snapshot() throws Exception {
    deleteSnapshot();
    pair.same("snapshot", side -> {
      side.admin.snapshot(saved(side), side.name());
      return "done";
    });
    hasSnapshot = true;
  }

  /** Deletes the snapshot, if there is one. */
  void deleteSnapshot() throws Exception {
    if (hasSnapshot) {
      pair.same("delete a snapshot", side -> {
        side.admin.deleteSnapshot(saved(side));
        return "done";
      });
    }
    hasSnapshot = false;
  }

  /**
   * Restores the snapshot. A stock master restores the files of a table with a list of them, but not the list
   * (RestoreSnapshotHelper.restoreRegion takes the tracker from its own configuration), and then the table cannot be opened.
   */
  private boolean restore() throws Exception {
    TableDescriptor table = pair.one.admin.getDescriptor(pair.one.name());
    if (!hasSnapshot || "FILE".equals(table.getValue("hbase.store.file-tracker.impl"))) {
      return false;
    }
    pair.same("restore", side -> {
      side.admin.disableTable(side.name());
      side.admin.restoreSnapshot(saved(side), false);
      side.admin.enableTable(side.name());
      return "done";
    });
    return true;
  }

  private void copy() throws Exception {
    pair.same("clone", side -> {
      String snapshot = "cloned_" + side.name().getNameAsString();
      TableName name = TableName.valueOf(snapshot);
      side.admin.snapshot(snapshot, side.name());
      side.admin.cloneSnapshot(snapshot, name);
      try (Table table = side.connection.getTable(name)) {
        return String.join("\n", Rows.scan(table, new Scan().readAllVersions()));
      } finally {
        side.drop(name);
        side.admin.deleteSnapshot(snapshot);
      }
    });
  }

  private void truncate(boolean preserveSplits) throws Exception {
    pair.same("truncate", side -> {
      side.admin.disableTable(side.name());
      side.admin.truncateTable(side.name(), preserveSplits);
      return "done";
    });
  }
}
