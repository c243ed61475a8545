package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.util.Bytes;

/** hbase:meta byte by byte, because programs other than the Java client read it. */
final class MetaChecks {
  private final Suite suite;

  MetaChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("region-rows", this::regionRows);
    suite.check("region-names", this::regionNames);
    suite.check("table-state", this::tableState);
    suite.check("locate-reversed", this::locateReversed);
    suite.check("order-of-start-keys-with-commas", this::commas);
    suite.check("dropped-table", this::droppedTable);
    suite.check("split-parent", this::splitParent);
    suite.check("meta-descriptor", this::metaDescriptor);
    suite.check("meta-region", this::metaRegion);
    suite.check("namespaces", this::namespaces);
  }

  private Table meta() throws IOException {
    return suite.connection.getTable(TableName.META_TABLE_NAME);
  }

  /** Returns the rows of hbase:meta that belong to a table, by region name. */
  private List<Result> rowsOf(TableName table) throws IOException {
    Scan scan = new Scan().withStartRow(b(table + ",,")).withStopRow(b(table + "-")).addFamily(b("info"));
    try (Table meta = meta(); ResultScanner scanner = meta.getScanner(scan)) {
      return List.of(scanner.next(1000));
    }
  }

  private static Map<String, byte[]> columns(Result row) {
    Map<String, byte[]> columns = new TreeMap<>();
    for (Cell cell : row.rawCells()) {
      columns.put(Bytes.toString(CellUtil.cloneQualifier(cell)), CellUtil.cloneValue(cell));
    }
    return columns;
  }

  private void regionRows() throws Exception {
    try (Table table = suite.presplit("m")) {
      List<Result> rows = rowsOf(table.getName());
      Expect.same(2, rows.size());
      for (Result row : rows) {
        Map<String, byte[]> columns = columns(row);
        Expect.that(columns.keySet().containsAll(List.of("regioninfo", "seqnumDuringOpen", "server", "serverstartcode", "state")),
            "columns, got " + columns.keySet());
        Expect.same("PBUF", Bytes.toString(columns.get("regioninfo"), 0, 4));
        RegionInfo region = RegionInfo.parseFrom(columns.get("regioninfo"));
        Expect.that(Arrays.equals(row.getRow(), region.getRegionName()), "the row key is the region name");
        Expect.same("OPEN", Bytes.toString(columns.get("state")));
        Expect.same(8, columns.get("serverstartcode").length);
        Expect.same(8, columns.get("seqnumDuringOpen").length);
        Expect.that(Bytes.toLong(columns.get("seqnumDuringOpen")) > 0, "an open sequence number");
        var location = suite.connection.getRegionLocator(table.getName()).getRegionLocation(region.getStartKey(), true);
        Expect.same(location.getServerName().getAddress().toString(), Bytes.toString(columns.get("server")));
        Expect.same(location.getServerName().getStartcode(), Bytes.toLong(columns.get("serverstartcode")));
      }
    }
  }

  private void regionNames() throws Exception {
    try (Table table = suite.presplit("m")) {
      for (Result row : rowsOf(table.getName())) {
        String name = Bytes.toString(row.getRow());
        RegionInfo region = RegionInfo.parseFrom(columns(row).get("regioninfo"));
        String plain = table.getName() + "," + Bytes.toString(region.getStartKey()) + "," + region.getRegionId();
        StringBuilder md5 = new StringBuilder();
        for (byte value : MessageDigest.getInstance("MD5").digest(b(plain))) {
          md5.append(String.format("%02x", value));
        }
        Expect.same(plain + "." + md5 + ".", name);
        Expect.same(md5.toString(), region.getEncodedName());
        Expect.that(Math.abs(region.getRegionId() - System.currentTimeMillis()) < 600_000, "the region id is its birth time");
      }
    }
  }

  private void tableState() throws Exception {
    try (Table table = suite.table("f"); Table meta = meta()) {
      Get get = new Get(table.getName().getName()).addColumn(b("table"), b("state"));
      Expect.same("\\x08\\x00", Show.text(meta.get(get).value()));
      suite.admin.disableTable(table.getName());
      Expect.same("\\x08\\x01", Show.text(meta.get(get).value()));
      suite.admin.enableTable(table.getName());
      Expect.same("\\x08\\x00", Show.text(meta.get(get).value()));
    }
  }

  private void locateReversed() throws Exception {
    try (Table table = suite.presplit("d", "m"); Table meta = meta()) {
      for (String[] one : new String[][] {{"a", ""}, {"d", "d"}, {"e", "d"}, {"m", "m"}, {"zz", "m"}}) {
        Scan locate = new Scan().withStartRow(b(table.getName() + "," + one[0] + ",99999999999999"))
            .withStopRow(b(table.getName() + ",,"), true).addFamily(b("info")).setReversed(true).setCaching(1).setLimit(1)
            .setReadType(Scan.ReadType.PREAD);
        try (ResultScanner scanner = meta.getScanner(locate)) {
          RegionInfo region = RegionInfo.parseFrom(columns(scanner.next()).get("regioninfo"));
          Expect.same(one[1], Bytes.toString(region.getStartKey()));
          Expect.that(scanner.next() == null, "the limit is one row");
        }
      }
    }
  }

  private void commas() throws Exception {
    try (Table table = suite.presplit("a", "a,", "a,b", "a!", "a-")) {
      List<String> starts = rowsOf(table.getName()).stream()
          .map(row -> Bytes.toString(RegionInfo.parseFromOrNull(columns(row).get("regioninfo")).getStartKey())).toList();
      Expect.same(List.of("", "a", "a!", "a,", "a,b", "a-"), starts);
      for (String row : new String[] {"a", "a!", "a,", "a,a", "a,b", "a,c", "a-", "b", "A"}) {
        table.put(Rows.put(row, "f:q", 1, row));
        Expect.same(row + "{f:q@1=" + row + "}", Rows.read(table, row));
      }
    }
  }

  private void droppedTable() throws Exception {
    try (Table table = suite.table("f"); Table meta = meta()) {
      suite.admin.disableTable(table.getName());
      suite.admin.deleteTable(table.getName());
      Expect.same(0, rowsOf(table.getName()).size());
      Expect.that(meta.get(new Get(table.getName().getName())).isEmpty(), "no state row");
    }
  }

  private void splitParent() throws Exception {
    try (Table table = suite.table("f")) {
      table.put(Rows.put("a", "f:q", 1, "v"));
      table.put(Rows.put("z", "f:q", 1, "v"));
      byte[] parent = suite.admin.getRegions(table.getName()).get(0).getRegionName();
      suite.admin.splitRegionAsync(parent, b("m")).get(60, java.util.concurrent.TimeUnit.SECONDS);
      Result row;
      try (Table meta = meta()) {
        row = meta.get(new Get(parent));
      }
      Map<String, byte[]> columns = columns(row);
      RegionInfo region = RegionInfo.parseFrom(columns.get("regioninfo"));
      Expect.that(region.isSplit() && region.isOffline(), "the parent is split and offline");
      Expect.same("m", Bytes.toString(RegionInfo.parseFrom(columns.get("splitA")).getEndKey()));
      Expect.same("m", Bytes.toString(RegionInfo.parseFrom(columns.get("splitB")).getStartKey()));
      Expect.same("CLOSED", Bytes.toString(columns.get("state")));
    }
  }

  private void metaDescriptor() throws Exception {
    TableDescriptor meta = suite.admin.getDescriptor(TableName.META_TABLE_NAME);
    Expect.same("[info, rep_barrier, table]",
        meta.getColumnFamilyNames().stream().map(Bytes::toString).toList().toString());
    Expect.that(meta.isMetaTable(), "it says that it is meta");
    Expect.that(meta.hasCoprocessor("org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint"), "it has the endpoint");
    Expect.same(3, meta.getColumnFamily(HConstants.CATALOG_FAMILY).getMaxVersions());
  }

  private void metaRegion() throws Exception {
    try (var locator = suite.connection.getRegionLocator(TableName.META_TABLE_NAME)) {
      var locations = locator.getAllRegionLocations();
      Expect.same(1, locations.size());
      Expect.same("hbase:meta,,1.1588230740", locations.get(0).getRegion().getRegionNameAsString());
      Expect.that(suite.admin.getRegions(locations.get(0).getServerName()).contains(locations.get(0).getRegion()),
          "its server has it online");
    }
  }

  private void namespaces() throws Exception {
    try (Table table = suite.connection.getTable(TableName.valueOf("hbase:namespace"));
        ResultScanner scanner = table.getScanner(new Scan())) {
      Expect.lines(Show.keys(scanner).stream().filter(key -> key.equals("default") || key.equals("hbase")).toList(), "default",
          "hbase");
      byte[] value = table.get(new Get(b("default"))).getValue(b("info"), b("d"));
      Expect.same("\\x0A\\x07default", Show.text(value));
    }
  }
}
