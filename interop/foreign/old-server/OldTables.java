import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HColumnDescriptor;
import org.apache.hadoop.hbase.HRegionInfo;
import org.apache.hadoop.hbase.HTableDescriptor;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.HBaseAdmin;
import org.apache.hadoop.hbase.client.HTable;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Tables of a server of HBase 0.98 or 1.x, by its own client: {@code OldTables COMMAND key=value...}.
 *
 * <p>{@code fill} makes them, {@code log} adds edits that stay in the log, {@code compact} compacts all tables,
 * {@code shutdown} stops the cluster. {@code cells} prints states, regions and cells as lines that are the same on every
 * server; each row is also read by a Get of the row and by one of each column.
 */
public final class OldTables {
  private static final long TIME = 1_500_000_000_000L;
  private static final String NAMESPACE = "old";
  private static final DataBlockEncoding[] ENCODINGS = {DataBlockEncoding.NONE, DataBlockEncoding.PREFIX,
    DataBlockEncoding.DIFF, DataBlockEncoding.FAST_DIFF};
  private static final BloomType[] BLOOMS = {BloomType.ROW, BloomType.ROWCOL, BloomType.NONE, BloomType.ROW};
  private static final int WAIT_TRIES = 600;

  private final Configuration conf;
  private final HBaseAdmin admin;

  private OldTables(Configuration conf) throws IOException {
    this.conf = conf;
    this.admin = new HBaseAdmin(conf);
  }

  public static void main(String[] args) throws Exception {
    // 0.98 accepts versions of this form only.
    System.setProperty("java.version", "1.8.0");
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.client.retries.number", 15);
    conf.setInt("hbase.client.pause", 100);
    for (String arg : Arrays.asList(args).subList(1, args.length)) {
      String[] pair = arg.split("=", 2);
      conf.set(pair[0], pair[1]);
    }
    OldTables tables = new OldTables(conf);
    if (args[0].equals("fill")) {
      tables.fill();
    } else if (args[0].equals("log")) {
      tables.log();
    } else if (args[0].equals("compact")) {
      tables.compact();
    } else if (args[0].equals("cells")) {
      tables.cells(System.out);
    } else if (args[0].equals("shutdown")) {
      tables.admin.shutdown();
    } else {
      throw new IllegalArgumentException(args[0]);
    }
    System.out.println("ok");
    System.exit(0);
  }

  private void fill() throws Exception {
    admin.createNamespace(NamespaceDescriptor.create(NAMESPACE).addConfiguration("color", "green").build());
    encoded("plain", Compression.Algorithm.NONE);
    encoded("gz", Compression.Algorithm.GZ);
    versions();
    split();
    merged();
    cloned();
    disabled();
    admin.createTable(table("empty", "f"));
  }

  /** A family for each encoding: two files, then rows in the log. */
  private void encoded(String name, Compression.Algorithm compression) throws Exception {
    HTableDescriptor made = new HTableDescriptor(TableName.valueOf(NAMESPACE, name));
    for (int i = 0; i < ENCODINGS.length; i++) {
      made.addFamily(new HColumnDescriptor(ENCODINGS[i].name().toLowerCase()).setDataBlockEncoding(ENCODINGS[i])
        .setCompressionType(compression).setBloomFilterType(BLOOMS[i]).setBlocksize(2048).setMaxVersions(3));
    }
    admin.createTable(made, new byte[][] {Bytes.toBytes("m")});
    for (String prefix : new String[] {"a", "n"}) {
      write(made.getTableName(), prefix, 150);
    }
    flush(made.getTableName());
    write(made.getTableName(), "b", 100);
    flush(made.getTableName());
    write(made.getTableName(), "c", 20);
  }

  /** Every kind of delete, in files and in the log. */
  private void versions() throws Exception {
    TableName name = TableName.valueOf("old_versions");
    HTableDescriptor made = new HTableDescriptor(name);
    made.addFamily(new HColumnDescriptor("v").setMaxVersions(5));
    made.addFamily(new HColumnDescriptor("k").setMaxVersions(3).setKeepDeletedCells(true));
    admin.createTable(made);
    HTable table = new HTable(conf, name);
    for (int version = 1; version <= 7; version++) {
      table.put(versionPuts(version));
    }
    flush(name);
    table.delete(deletes(0));
    flush(name);
    table.delete(deletes(20));
    table.close();
  }

  private static List<Put> versionPuts(int version) {
    List<Put> puts = new ArrayList<Put>();
    for (int row = 0; row < 40; row++) {
      Put put = new Put(Bytes.toBytes(String.format("r%02d", row)));
      for (String family : new String[] {"v", "k"}) {
        put.add(Bytes.toBytes(family), Bytes.toBytes("q"), TIME + version, Bytes.toBytes(family + version));
        put.add(Bytes.toBytes(family), Bytes.toBytes("r"), TIME + version, Bytes.toBytes(family + -version));
      }
      puts.add(put);
    }
    return puts;
  }

  private static List<Delete> deletes(int from) {
    List<Delete> deletes = new ArrayList<Delete>();
    for (int row = from; row < from + 20; row++) {
      Delete delete = new Delete(Bytes.toBytes(String.format("r%02d", row)));
      for (String family : new String[] {"v", "k"}) {
        byte[] name = Bytes.toBytes(family);
        switch (row % 4) {
          case 0:
            delete.deleteColumn(name, Bytes.toBytes("q"), TIME + 6);
            break;
          case 1:
            delete.deleteColumns(name, Bytes.toBytes("q"), TIME + 5);
            break;
          case 2:
            delete.deleteFamily(name, TIME + 4);
            break;
          default:
            delete.deleteFamilyVersion(name, TIME + 7);
        }
      }
      deletes.add(delete);
    }
    return deletes;
  }

  /** Daughters with references, since the table is not compacted. */
  private void split() throws Exception {
    HTableDescriptor made = table("split", "f");
    made.setCompactionEnabled(false);
    admin.createTable(made);
    write(made.getTableName(), "s", 200);
    flush(made.getTableName());
    byte[] region = regions(made.getTableName()).get(0).getRegionName();
    admin.split(region, Bytes.toBytes("s00100"));
    waitForRegions(made.getTableName(), 2);
    write(made.getTableName(), "s00050", 10);
    write(made.getTableName(), "t", 30);
  }

  private void merged() throws Exception {
    HTableDescriptor made = table("merged", "f");
    made.setCompactionEnabled(false);
    admin.createTable(made, new byte[][] {Bytes.toBytes("f"), Bytes.toBytes("k")});
    for (String prefix : new String[] {"a", "g", "l"}) {
      write(made.getTableName(), prefix, 50);
    }
    flush(made.getTableName());
    List<HRegionInfo> regions = regions(made.getTableName());
    admin.mergeRegions(regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes(), false);
    waitForRegions(made.getTableName(), 2);
    write(made.getTableName(), "h", 10);
  }

  /** A clone of a snapshot: its store files are links. */
  private void cloned() throws Exception {
    admin.snapshot("old_snapshot", TableName.valueOf(NAMESPACE, "plain"));
    admin.cloneSnapshot("old_snapshot", NAMESPACE + ":clone");
  }

  private void disabled() throws Exception {
    HTableDescriptor made = table("disabled", "f");
    admin.createTable(made, new byte[][] {Bytes.toBytes("g")});
    write(made.getTableName(), "d", 30);
    write(made.getTableName(), "h", 30);
    admin.disableTable(made.getTableName());
  }

  /** A row in each region of each enabled table. */
  private void log() throws IOException {
    for (HTableDescriptor descriptor : admin.listTables()) {
      TableName name = descriptor.getTableName();
      if (!admin.isTableEnabled(name)) {
        continue;
      }
      HTable table = new HTable(conf, name);
      for (HRegionInfo region : regions(name)) {
        byte[] row = Bytes.add(region.getStartKey(), Bytes.toBytes("!log"));
        Put put = new Put(row);
        for (HColumnDescriptor family : descriptor.getColumnFamilies()) {
          put.add(family.getName(), Bytes.toBytes("log"), TIME, row);
        }
        table.put(put);
      }
      table.close();
    }
  }

  private void compact() throws Exception {
    for (HTableDescriptor descriptor : admin.listTables()) {
      if (admin.isTableEnabled(descriptor.getTableName())) {
        admin.majorCompact(descriptor.getTableName().getNameAsString());
      }
    }
  }

  private static HTableDescriptor table(String name, String family) {
    HTableDescriptor made = new HTableDescriptor(TableName.valueOf(NAMESPACE, name));
    made.addFamily(new HColumnDescriptor(family).setMaxVersions(3));
    return made;
  }

  private void flush(TableName name) throws Exception {
    admin.flush(name.getNameAsString());
  }

  private List<HRegionInfo> regions(TableName name) throws IOException {
    return admin.getTableRegions(name);
  }

  private void waitForRegions(TableName name, int count) throws Exception {
    for (int tries = 0; tries < WAIT_TRIES; tries++) {
      if (regions(name).size() == count) {
        return;
      }
      Thread.sleep(100);
    }
    throw new IllegalStateException(name + " has " + regions(name).size() + " regions");
  }

  /** Writes {@code count} rows with this prefix, with a few columns in every family. */
  private void write(TableName name, String prefix, int count) throws IOException {
    Random random = new Random(prefix.hashCode());
    HTable table = new HTable(conf, name);
    List<Put> puts = new ArrayList<Put>();
    for (int i = 0; i < count; i++) {
      Put put = new Put(Bytes.toBytes(String.format("%s%05d", prefix, i)));
      for (HColumnDescriptor family : table.getTableDescriptor().getColumnFamilies()) {
        for (int column = 0; column <= i % 3; column++) {
          byte[] value = new byte[random.nextInt(60)];
          random.nextBytes(value);
          put.add(family.getName(), Bytes.toBytes("q" + column), TIME + random.nextInt(1000), value);
        }
      }
      puts.add(put);
    }
    table.put(puts);
    table.close();
  }

  /** Disabled tables are enabled while they are read. */
  private void cells(PrintStream out) throws Exception {
    for (NamespaceDescriptor namespace : admin.listNamespaceDescriptors()) {
      out.println("namespace " + namespace);
    }
    for (HTableDescriptor descriptor : admin.listTables()) {
      TableName name = descriptor.getTableName();
      boolean disabled = admin.isTableDisabled(name);
      out.println("state " + name + (disabled ? " disabled" : " enabled"));
      if (disabled) {
        admin.enableTable(name);
      }
      for (HRegionInfo region : regions(name)) {
        out.println("region " + name + " " + Bytes.toStringBinary(region.getStartKey()) + " to "
          + Bytes.toStringBinary(region.getEndKey()));
      }
      cellsOf(name, out);
      if (disabled) {
        admin.disableTable(name);
      }
    }
  }

  private void cellsOf(TableName name, PrintStream out) throws IOException {
    HTable table = new HTable(conf, name);
    Scan scan = new Scan();
    scan.setMaxVersions();
    scan.setCaching(50);
    ResultScanner scanner = table.getScanner(scan);
    for (Result row : scanner) {
      List<String> lines = lines(row);
      for (String line : lines) {
        out.println("cell " + name + " " + line);
      }
      Get get = new Get(row.getRow());
      get.setMaxVersions();
      same(lines, lines(table.get(get)));
      for (Cell cell : row.rawCells()) {
        Get column = new Get(row.getRow());
        column.addColumn(CellUtil.cloneFamily(cell), CellUtil.cloneQualifier(cell));
        column.setMaxVersions();
        if (!lines(table.get(column)).contains(line(cell))) {
          throw new IllegalStateException("a Get misses " + line(cell));
        }
      }
    }
    scanner.close();
    table.close();
  }

  private static List<String> lines(Result row) {
    List<String> lines = new ArrayList<String>();
    if (row.rawCells() != null) {
      for (Cell cell : row.rawCells()) {
        lines.add(line(cell));
      }
    }
    return lines;
  }

  private static String line(Cell cell) {
    return Bytes.toStringBinary(CellUtil.cloneRow(cell)) + " " + Bytes.toStringBinary(CellUtil.cloneFamily(cell)) + ":"
      + Bytes.toStringBinary(CellUtil.cloneQualifier(cell)) + " " + cell.getTimestamp() + " " + cell.getTypeByte() + " "
      + Bytes.toStringBinary(CellUtil.cloneValue(cell));
  }

  private static void same(Object want, Object got) {
    if (!want.equals(got)) {
      throw new IllegalStateException("want " + want + ", got " + got);
    }
  }
}
