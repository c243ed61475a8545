package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotDisabledException;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.SnapshotType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.snapshot.RestoreSnapshotException;
import org.apache.hadoop.hbase.snapshot.SnapshotCreationException;
import org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException;
import org.apache.hadoop.hbase.snapshot.SnapshotExistsException;
import org.apache.hadoop.hbase.snapshot.UnknownSnapshotException;
import org.apache.hadoop.hbase.util.Bytes;

/** Snapshot operations of the Admin: take, list, clone, restore and delete; and the switches of the cleaners. */
final class SnapshotChecks {
  private final Suite suite;

  SnapshotChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("clone", this::cloneEnabled);
    suite.check("skip-flush", this::skipFlush);
    suite.check("disabled", this::disabled);
    suite.check("restore", this::restore);
    suite.check("outlives-its-table", this::outlivesItsTable);
    suite.check("clone-of-a-clone", this::cloneOfAClone);
    suite.check("split", this::split);
    suite.check("patterns", this::patterns);
    suite.check("properties", this::properties);
    suite.check("finished", this::finished);
    suite.check("procedure", this::procedure);
    suite.check("errors", this::errors);
    suite.check("switches", this::switches);
  }

  private Table filled(int rows, String... splits) throws IOException {
    Table table = suite.presplit(splits);
    fill(table, 0, rows);
    return table;
  }

  private static void fill(Table table, int from, int to) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (int i = from; i < to; i++) {
      puts.add(put(String.format("r%04d", i), "f:q", 1, "v" + i));
    }
    table.put(puts);
  }

  private String snapshot(Table table) throws IOException {
    String name = suite.word("snap");
    suite.admin.snapshot(name, table.getName());
    return name;
  }

  private SnapshotDescription find(String name) throws IOException {
    List<SnapshotDescription> found = suite.admin.listSnapshots(Pattern.compile(Pattern.quote(name)));
    Expect.same(1, found.size());
    return found.get(0);
  }

  private int rows(TableName name) throws IOException {
    try (Table table = suite.connection.getTable(name)) {
      return Rows.keys(table, new Scan()).size();
    }
  }

  private List<String> starts(TableName name) throws IOException {
    List<String> starts = new ArrayList<>();
    for (RegionInfo region : suite.admin.getRegions(name)) {
      starts.add(Bytes.toStringBinary(region.getStartKey()));
    }
    starts.sort(null);
    return starts;
  }

  private void drop(TableName name) throws IOException {
    suite.admin.disableTable(name);
    suite.admin.deleteTable(name);
  }

  private TableName cloned(String snapshot) throws IOException {
    TableName name = suite.name();
    suite.admin.cloneSnapshot(snapshot, name);
    return name;
  }

  private void cloneEnabled() throws Exception {
    try (Table table = filled(100, "r0050")) {
      suite.admin.flush(table.getName());
      fill(table, 100, 120);
      long before = System.currentTimeMillis();
      String name = snapshot(table);
      SnapshotDescription found = find(name);
      Expect.same(name, found.getName());
      Expect.same(table.getName(), found.getTableName());
      Expect.same(SnapshotType.FLUSH, found.getType());
      Expect.same(2, found.getVersion());
      Expect.between(before - 60_000, before + 60_000, found.getCreationTime(), "creation time");
      fill(table, 120, 130);
      TableName clone = cloned(name);
      Expect.that(suite.admin.isTableEnabled(clone) && suite.admin.isTableAvailable(clone), "served");
      Expect.same(120, rows(clone));
      Expect.same(starts(table.getName()), starts(clone));
      Expect.same(suite.admin.getDescriptor(table.getName()).getColumnFamily(b("f")),
          suite.admin.getDescriptor(clone).getColumnFamily(b("f")));
      try (Table other = suite.connection.getTable(clone)) {
        other.put(put("only-here", "f:q", 1, "v"));
        other.delete(new Delete(b("r0000")));
      }
      Expect.same(120, rows(clone));
      Expect.same(130, rows(table.getName()));
      suite.admin.deleteSnapshot(name);
      suite.admin.majorCompact(clone);
      Expect.same(120, rows(clone));
    }
  }

  private void skipFlush() throws Exception {
    try (Table table = filled(10)) {
      suite.admin.flush(table.getName());
      fill(table, 10, 20);
      String name = suite.word("snap");
      suite.admin.snapshot(name, table.getName(), SnapshotType.SKIPFLUSH);
      Expect.same(SnapshotType.SKIPFLUSH, find(name).getType());
      Expect.same(10, rows(cloned(name)));
      suite.admin.deleteSnapshot(name);
    }
  }

  private void disabled() throws Exception {
    try (Table table = filled(30, "r0010", "r0020")) {
      suite.admin.disableTable(table.getName());
      String name = snapshot(table);
      Expect.same(SnapshotType.DISABLED, find(name).getType());
      TableName clone = cloned(name);
      Expect.same(30, rows(clone));
      Expect.that(suite.admin.isTableDisabled(table.getName()), "as it was");
      suite.admin.deleteSnapshot(name);
    }
  }

  private void restore() throws Exception {
    try (Table table = filled(40, "r0020")) {
      TableName name = table.getName();
      String snapshot = snapshot(table);
      table.delete(new Delete(b("r0001")));
      fill(table, 40, 60);
      suite.admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of("g"));
      suite.admin.flush(name);
      suite.admin.majorCompact(name);
      Expect.fails(TableNotDisabledException.class, () -> suite.admin.restoreSnapshot(snapshot));
      for (int round = 0; round < 2; round++) {
        suite.admin.disableTable(name);
        suite.admin.restoreSnapshot(snapshot, round == 0);
        Expect.that(suite.admin.isTableDisabled(name), "stays disabled");
        suite.admin.enableTable(name);
        Expect.same(40, rows(name));
        Expect.same(1, suite.admin.getDescriptor(name).getColumnFamilyCount());
        Expect.same(starts(name), List.of("", "r0020"));
        fill(table, 40, 50);
        Expect.same(50, rows(name));
        suite.admin.flush(name);
      }
      Expect.same(0, suite.admin.listSnapshots(Pattern.compile("hbase-failsafe-" + snapshot + ".*")).size());
      suite.admin.deleteSnapshot(snapshot);
      Expect.same(50, rows(name));
    }
  }

  private void outlivesItsTable() throws Exception {
    try (Table table = filled(25)) {
      TableName name = table.getName();
      String snapshot = snapshot(table);
      drop(name);
      suite.admin.runCleanerChore();
      // A table that does not exist is restored by cloning.
      suite.admin.restoreSnapshot(snapshot);
      Expect.same(25, rows(name));
      suite.admin.deleteSnapshot(snapshot);
      suite.admin.runCleanerChore();
      Expect.same(25, rows(name));
    }
  }

  private void cloneOfAClone() throws Exception {
    try (Table table = filled(25)) {
      String first = snapshot(table);
      TableName clone = cloned(first);
      try (Table other = suite.connection.getTable(clone)) {
        fill(other, 25, 30);
        String second = snapshot(other);
        TableName third = cloned(second);
        suite.admin.deleteSnapshot(first);
        suite.admin.deleteSnapshot(second);
        drop(clone);
        drop(table.getName());
        suite.admin.runCleanerChore();
        Expect.same(30, rows(third));
      }
    }
  }

  private void split() throws Exception {
    try (Table table = filled(50)) {
      TableName name = table.getName();
      suite.admin.flush(name);
      byte[] region = suite.admin.getRegions(name).get(0).getRegionName();
      suite.admin.splitRegionAsync(region, b("r0025")).get(60, TimeUnit.SECONDS);
      String snapshot = snapshot(table);
      TableName clone = cloned(snapshot);
      Expect.same(50, rows(clone));
      Expect.same(List.of("", "r0025"), starts(clone));
      suite.admin.deleteSnapshot(snapshot);
    }
  }

  private List<String> names(List<SnapshotDescription> snapshots) {
    Map<String, String> sorted = new TreeMap<>();
    snapshots.forEach(snapshot -> sorted.put(snapshot.getName(), ""));
    return List.copyOf(sorted.keySet());
  }

  private void patterns() throws Exception {
    try (Table one = filled(1); Table two = filled(1)) {
      String prefix = suite.word("many");
      for (String suffix : List.of("a1", "a2", "b1")) {
        suite.admin.snapshot(prefix + suffix, one.getName());
      }
      suite.admin.snapshot(prefix + "c1", two.getName());
      Pattern all = Pattern.compile(prefix + ".*");
      Expect.same(4, suite.admin.listSnapshots(all).size());
      Expect.same(List.of(prefix + "a1", prefix + "a2"),
          names(suite.admin.listSnapshots(Pattern.compile(prefix + "a.*"))));
      Pattern ofTwo = Pattern.compile(Pattern.quote(two.getName().getNameAsString()));
      Expect.same(List.of(prefix + "c1"), names(suite.admin.listTableSnapshots(ofTwo, all)));
      suite.admin.deleteSnapshots(Pattern.compile(prefix + "a.*"));
      Expect.same(List.of(prefix + "b1", prefix + "c1"), names(suite.admin.listSnapshots(all)));
      suite.admin.deleteTableSnapshots(ofTwo, all);
      Expect.same(List.of(prefix + "b1"), names(suite.admin.listSnapshots(all)));
      suite.admin.deleteSnapshot(prefix + "b1");
      Expect.same(0, suite.admin.listSnapshots(all).size());
    }
  }

  private void properties() throws Exception {
    try (Table table = filled(1)) {
      String name = suite.word("snap");
      suite.admin.snapshot(name, table.getName(), SnapshotType.FLUSH, Map.of("TTL", 100_000L, "MAX_FILESIZE", 300_000_000L));
      SnapshotDescription found = find(name);
      Expect.same(100_000L, found.getTtl());
      Expect.same(300_000_000L, found.getMaxFileSize());
      Expect.same(300_000_000L, suite.admin.getDescriptor(cloned(name)).getMaxFileSize());
      suite.admin.deleteSnapshot(name);
    }
  }

  private void finished() throws Exception {
    try (Table table = filled(1)) {
      SnapshotDescription wanted = new SnapshotDescription(suite.word("snap"), table.getName());
      suite.admin.snapshotAsync(wanted).get(60, TimeUnit.SECONDS);
      Expect.that(suite.admin.isSnapshotFinished(wanted), "finished");
      suite.admin.deleteSnapshot(wanted.getName());
      Expect.fails(UnknownSnapshotException.class, () -> suite.admin.isSnapshotFinished(wanted));
    }
  }

  private void procedure() throws Exception {
    try (Table table = filled(7)) {
      String name = suite.word("snap");
      Map<String, String> properties = Map.of("table", table.getName().getNameAsString());
      suite.admin.execProcedure("online-snapshot", name, properties);
      Expect.that(suite.admin.isProcedureFinished("online-snapshot", name, properties), "finished");
      Expect.same(7, rows(cloned(name)));
      suite.admin.deleteSnapshot(name);
    }
  }

  private void errors() throws Exception {
    try (Table table = filled(1)) {
      String name = snapshot(table);
      Expect.fails(SnapshotExistsException.class, () -> suite.admin.snapshot(name, table.getName()));
      Expect.fails(TableExistsException.class, () -> suite.admin.cloneSnapshot(name, table.getName()));
      suite.admin.deleteSnapshot(name);
      Expect.fails(SnapshotDoesNotExistException.class, () -> suite.admin.deleteSnapshot(name));
      Expect.fails(RestoreSnapshotException.class, () -> suite.admin.restoreSnapshot(name));
      Expect.fails(SnapshotDoesNotExistException.class, () -> suite.admin.cloneSnapshot(name, suite.name()));
      TableName nowhere = suite.name();
      Expect.fails(SnapshotCreationException.class, () -> suite.admin.snapshot(name, nowhere));
      Expect.fails(IllegalArgumentException.class, () -> suite.admin.snapshot("no/name", table.getName()));
      Expect.fails(IllegalArgumentException.class, () -> suite.admin.snapshot(name, TableName.META_TABLE_NAME));
    }
  }

  private void switches() throws Exception {
    boolean cleanup = suite.admin.isSnapshotCleanupEnabled();
    Expect.same(cleanup, suite.admin.snapshotCleanupSwitch(false, true));
    Expect.that(!suite.admin.isSnapshotCleanupEnabled(), "off");
    Expect.that(!suite.admin.snapshotCleanupSwitch(cleanup, false), "was off");
    boolean cleaner = suite.admin.isCleanerChoreEnabled();
    Expect.same(cleaner, suite.admin.cleanerChoreSwitch(false));
    Expect.that(!suite.admin.isCleanerChoreEnabled(), "off");
    suite.admin.runCleanerChore();
    Expect.that(!suite.admin.cleanerChoreSwitch(cleaner), "was off");
  }
}
