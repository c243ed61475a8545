package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;
import static evenkeel.interop.Rows.readAll;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/** The versions of a cell that a read returns: VERSIONS, MIN_VERSIONS, TTL, KEEP_DELETED_CELLS, NEW_VERSION_BEHAVIOR. */
final class VersionChecks {
  private final Suite suite;

  VersionChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("max-versions", this::maxVersions);
    suite.check("family-ttl", this::familyTtl);
    suite.check("min-versions", this::minVersions);
    suite.check("cell-ttl", this::cellTtl);
    suite.check("keep-deleted-cells", this::keepDeletedCells);
    suite.check("keep-deleted-cells-ttl", this::keepDeletedCellsTtl);
    suite.check("new-version-behavior", this::newVersionBehavior);
    suite.check("major-compaction-purges", this::majorCompactionPurges);
  }

  private static ColumnFamilyDescriptorBuilder family() {
    return ColumnFamilyDescriptorBuilder.newBuilder(b("f"));
  }

  private void maxVersions() throws IOException {
    try (Table table = suite.table(family().setMaxVersions(2).build())) {
      for (int ts = 1; ts <= 5; ts++) {
        table.put(put("r", "f:q", ts, "v" + ts));
      }
      Expect.same("r{f:q@5=v5 f:q@4=v4}", readAll(table, "r"));
      suite.admin.flush(table.getName());
      Expect.same("r{f:q@5=v5 f:q@4=v4}", readAll(table, "r"));
      table.put(put("r", "f:q", 3, "late"));
      Expect.same("r{f:q@5=v5 f:q@4=v4}", readAll(table, "r"));
    }
  }

  private void familyTtl() throws Exception {
    try (Table table = suite.table(family().setTimeToLive(2).setMaxVersions(3).build())) {
      long now = System.currentTimeMillis();
      table.put(put("old", "f:q", now - 3000, "v"));
      table.put(put("new", "f:q", now + 60_000, "v"));
      table.put(put("soon", "f:q", "v"));
      Expect.same("-", read(table, "old"));
      Expect.same("new{f:q@now=v}", read(table, "new"));
      Expect.same("soon{f:q@now=v}", read(table, "soon"));
      Thread.sleep(2500);
      Expect.lines(Rows.keys(table, new Scan()), "new");
    }
  }

  private void minVersions() throws IOException {
    try (Table table = suite.table(family().setTimeToLive(5).setMinVersions(2).setMaxVersions(5).build())) {
      for (int ts = 1; ts <= 4; ts++) {
        table.put(put("r", "f:q", ts, "v" + ts));
      }
      Expect.same("r{f:q@4=v4 f:q@3=v3}", readAll(table, "r"));
      table.put(put("r", "f:q", "fresh"));
      Expect.same("r{f:q@now=fresh f:q@4=v4}", readAll(table, "r"));
    }
  }

  private void cellTtl() throws Exception {
    try (Table table = suite.versioned()) {
      table.put(put("r", "f:stays", "v"));
      table.put(put("r", "f:goes", "v").setTTL(700));
      table.increment(new Increment(b("r")).addColumn(b("f"), b("count"), 3).setTTL(700));
      Expect.same("r{f:count@now=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x03 f:goes@now=v f:stays@now=v}", read(table, "r"));
      Thread.sleep(1000);
      Expect.same("r{f:stays@now=v}", read(table, "r"));
    }
  }

  private void keepDeletedCells() throws IOException {
    try (Table table = suite.table(family().setMaxVersions(5).setKeepDeletedCells(KeepDeletedCells.TRUE).build())) {
      for (int ts = 1; ts <= 3; ts++) {
        table.put(put("r", "f:q", ts, "v" + ts));
      }
      table.delete(delete("r").addColumns(b("f"), b("q"), 4));
      Expect.same("-", readAll(table, "r"));
      Expect.same("r{f:q@3=v3 f:q@2=v2 f:q@1=v1}", Show.row(table.get(get("r").setTimeRange(0, 4).readAllVersions())));
      Expect.same("-", Show.row(table.get(get("r").setTimeRange(0, 5).readAllVersions())));
      suite.admin.flush(table.getName());
      Expect.same("r{f:q@3=v3 f:q@2=v2 f:q@1=v1}", Show.row(table.get(get("r").setTimeRange(0, 4).readAllVersions())));
      Expect.lines(Rows.scan(table, new Scan().setRaw(true).readAllVersions()),
          "r{f:q@4!DeleteColumn f:q@3=v3 f:q@2=v2 f:q@1=v1}");
    }
  }

  private void keepDeletedCellsTtl() throws IOException {
    try (Table table = suite.table(
        family().setTimeToLive(3600).setMaxVersions(5).setKeepDeletedCells(KeepDeletedCells.TTL).build())) {
      long now = System.currentTimeMillis();
      table.put(put("r", "f:q", now - 2000, "v"));
      table.delete(delete("r").addColumns(b("f"), b("q"), now - 1000));
      Expect.same("-", readAll(table, "r"));
      Expect.same("r{f:q@now=v}", Show.row(table.get(get("r").setTimeRange(0, now - 1000))));
    }
  }

  private void newVersionBehavior() throws IOException {
    try (Table table = suite.table(family().setMaxVersions(3).setNewVersionBehavior(true).build())) {
      table.delete(delete("r").addColumns(b("f"), b("q"), 5));
      table.put(put("r", "f:q", 4, "later"));
      Expect.same("r{f:q@4=later}", readAll(table, "r"));
      table.delete(delete("r").addColumns(b("f"), b("q"), 5));
      Expect.same("-", readAll(table, "r"));
    }
  }

  private void majorCompactionPurges() throws Exception {
    try (Table table = suite.table(family().setMaxVersions(2).build())) {
      for (int ts = 1; ts <= 4; ts++) {
        table.put(put("r", "f:q", ts, "v" + ts));
        table.put(put("gone", "f:q", ts, "v" + ts));
      }
      table.delete(delete("gone"));
      suite.admin.flush(table.getName());
      suite.admin.majorCompact(table.getName());
      Scan raw = new Scan().setRaw(true).readAllVersions();
      long until = System.nanoTime() + 30_000_000_000L;
      while (Rows.scan(table, raw).size() > 1 && System.nanoTime() < until) {
        Thread.sleep(100);
      }
      Expect.lines(Rows.scan(table, raw), "r{f:q@4=v4 f:q@3=v3}");
      while (suite.admin.getCompactionState(table.getName()) != CompactionState.NONE && System.nanoTime() < until) {
        Thread.sleep(100);
      }
      table.put(put("gone", "f:q", 1, "back"));
      Expect.same("gone{f:q@1=back}", read(table, "gone"));
    }
  }
}
