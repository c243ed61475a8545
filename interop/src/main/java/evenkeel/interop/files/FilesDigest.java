package evenkeel.interop.files;

import java.io.IOException;
import java.io.PrintStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The content of a server as comparable lines: namespaces, descriptors, states, regions, and for every way to read a
 * table the number of cells and a hash of them. Disabled tables are enabled while they are read.
 */
final class FilesDigest {
  private final Connection connection;
  private final Admin admin;
  private final PrintStream out;

  FilesDigest(Connection connection, PrintStream out) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
    this.out = out;
  }

  void all() throws Exception {
    List<String> namespaces = new ArrayList<>();
    for (NamespaceDescriptor namespace : admin.listNamespaceDescriptors()) {
      namespaces.add("namespace " + namespace);
    }
    Collections.sort(namespaces);
    namespaces.forEach(out::println);
    List<TableDescriptor> tables = new ArrayList<>(admin.listTableDescriptors());
    tables.sort(Comparator.comparing(table -> table.getTableName().getNameAsString()));
    for (TableDescriptor table : tables) {
      boolean disabled = admin.isTableDisabled(table.getTableName());
      out.println(table.getTableName() + (disabled ? " disabled " : " enabled ") + table);
      if (disabled) {
        admin.enableTable(table.getTableName());
      }
      table(table.getTableName());
      if (disabled) {
        admin.disableTable(table.getTableName());
      }
    }
  }

  private void table(TableName name) throws Exception {
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      List<String> regions = new ArrayList<>();
      for (HRegionLocation location : locator.getAllRegionLocations()) {
        regions.add(location.getRegion().getRegionNameAsString());
      }
      Collections.sort(regions);
      regions.forEach(region -> out.println(name + " region " + region));
    }
    try (Table table = connection.getTable(name)) {
      Result first = scan(table, "rows", new Scan());
      Result last = scan(table, "reversed", new Scan().setReversed(true));
      scan(table, "versions", new Scan().readAllVersions());
      scan(table, "raw", new Scan().setRaw(true).readAllVersions());
      gets(table, first, last);
    }
  }

  /** Prints count and hash; returns the first row. */
  private Result scan(Table table, String what, Scan scan) throws Exception {
    MessageDigest hash = MessageDigest.getInstance("SHA-256");
    long cells = 0;
    Result first = null;
    try (ResultScanner scanner = table.getScanner(scan.setCaching(500))) {
      for (Result row = scanner.next(); row != null; row = scanner.next()) {
        first = first == null ? row : first;
        for (Cell cell : row.rawCells()) {
          add(hash, cell);
          cells++;
        }
      }
    }
    print(table, what, cells, hash);
    return first;
  }

  /** Reads the same rows by single Gets, which use the bloom filters. */
  private void gets(Table table, Result first, Result last) throws Exception {
    MessageDigest hash = MessageDigest.getInstance("SHA-256");
    long cells = 0;
    for (Result row : Arrays.asList(first, last)) {
      if (row == null) {
        continue;
      }
      for (Cell cell : row.rawCells()) {
        Result got = table.get(new Get(row.getRow()).addColumn(CellUtil.cloneFamily(cell), CellUtil.cloneQualifier(cell)));
        for (Cell read : got.rawCells()) {
          add(hash, read);
          cells++;
        }
      }
    }
    print(table, "gets", cells, hash);
  }

  private void print(Table table, String what, long cells, MessageDigest hash) {
    out.println(table.getName() + " " + what + " " + cells + " cells " + HexFormat.of().formatHex(hash.digest(), 0, 8));
  }

  private static void add(MessageDigest hash, Cell cell) {
    byte[][] parts = {CellUtil.cloneRow(cell), CellUtil.cloneFamily(cell), CellUtil.cloneQualifier(cell),
      Bytes.toBytes(cell.getTimestamp()), {cell.getTypeByte()}, CellUtil.cloneValue(cell)};
    for (byte[] part : parts) {
      hash.update(Bytes.toBytes(part.length));
      hash.update(part);
    }
  }
}
