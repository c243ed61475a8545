package evenkeel.interop.tables;

import evenkeel.interop.Clients;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.ExtendedCellBuilderFactory;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.ImmutableBytesWritable;
import org.apache.hadoop.hbase.mapreduce.HFileOutputFormat2;
import org.apache.hadoop.hbase.tool.BulkLoadHFilesTool;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;

/**
 * A table whose cells are added in phases, some written and some bulk loaded, and the expected content after each
 * phase: {@code BulkLoadTable COMMAND [PHASE] [DIR] -Dkey=value...}.
 *
 * <p>Loads use HFileOutputFormat2 and BulkLoadHFilesTool: one file per family, over all regions, which the tool must
 * split. Among cells of equal timestamp the one of the later phase must win, regardless of how either was added. A
 * delete of an earlier phase hides loaded cells.
 */
public final class BulkLoadTable {
  private static final TableName NAME = TableName.valueOf("bulk");
  private static final int ROWS = 300;
  private static final int VERSIONS = 3;
  private static final byte[] A = Bytes.toBytes("a");
  private static final byte[] B = Bytes.toBytes("b");
  /** Phases that are loaded; the others are written. */
  private static final List<Integer> LOADED = List.of(2, 4, 5);

  private final Connection connection;
  private final Configuration conf;

  private BulkLoadTable(Connection connection, Configuration conf) {
    this.connection = connection;
    this.conf = conf;
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    List<String> words = new ArrayList<>();
    for (String arg : args) {
      if (arg.startsWith("-D")) {
        String[] pair = arg.substring(2).split("=", 2);
        settings.setProperty(pair[0], pair[1]);
      } else {
        words.add(arg);
      }
    }
    settings.setProperty("hbase.client.retries.number", "30");
    settings.setProperty("hbase.client.operation.timeout", "120000");
    settings.setProperty("hbase.client.meta.operation.timeout", "120000");
    Configuration conf = Clients.configuration("zk", settings);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      BulkLoadTable table = new BulkLoadTable(connection, conf);
      for (String word : words) {
        String[] parts = word.split("=", 3);
        switch (parts[0]) {
          case "create" -> table.create();
          case "write" -> table.write(Integer.parseInt(parts[1]));
          case "load" -> table.load(Integer.parseInt(parts[1]), new Path(parts[2]));
          case "flush" -> connection.getAdmin().flush(NAME);
          case "compact" -> table.compact();
          case "check" -> table.check(Integer.parseInt(parts[1]));
          default -> throw new IllegalArgumentException(word);
        }
        System.out.println("done " + word);
      }
    }
  }

  private void create() throws IOException {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(NAME);
    for (byte[] family : List.of(A, B)) {
      // A compaction between phases would drop delete markers and thereby change which cells are hidden.
      table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family)
          .setMaxVersions(family == A ? VERSIONS : 1)
          .setConfiguration("hbase.hstore.compaction.min", "100").build());
    }
    byte[][] splits = {Bytes.toBytes("r0080"), Bytes.toBytes("r0150"), Bytes.toBytes("r0220")};
    connection.getAdmin().createTable(table.build(), splits);
  }

  /** Returns the cells that one phase adds, sorted. */
  private static TreeSet<Cell> phase(int phase) {
    TreeSet<Cell> cells = new TreeSet<>(org.apache.hadoop.hbase.CellComparator.getInstance());
    for (int i = 0; i < ROWS; i++) {
      String row = String.format("r%04d", i);
      // No phase after 2 writes what phase 1 deletes: whether the delete hides such cells depends on compactions.
      boolean again = i % 5 != 0;
      switch (phase) {
        case 0 -> {
          put(cells, row, A, "q", 100, phase);
          put(cells, row, B, "q", 100, phase);
          if (i % 7 == 0) {
            put(cells, row, B, "d", 240, phase);
          }
        }
        case 1 -> {
          if (i % 3 == 0) {
            put(cells, row, A, "q", 200, phase);
          }
          if (i % 5 == 0) {
            cells.add(cell(row, A, "", 150, Cell.Type.DeleteFamily, ""));
          }
        }
        case 2 -> {
          if (i % 2 == 0) {
            put(cells, row, A, "q", 100, phase);
            put(cells, row, A, "r", 120, phase);
            put(cells, row, B, "q", 300, phase);
          }
          if (i % 7 == 0) {
            cells.add(cell(row, B, "d", 250, Cell.Type.DeleteColumn, ""));
          }
        }
        case 3 -> {
          if (i % 4 == 0 && again) {
            put(cells, row, A, "q", 100, phase);
            put(cells, row, B, "q", 300, phase);
          }
        }
        case 4 -> {
          put(cells, "s" + row, B, "new", 7, phase);
          if (i % 8 == 0 && again) {
            put(cells, row, A, "q", 100, phase);
          }
        }
        case 5 -> {
          if (i % 16 == 0 && again) {
            put(cells, row, A, "q", 100, phase);
            put(cells, row, A, "q", 110, phase);
          }
        }
        default -> throw new IllegalArgumentException("no phase " + phase);
      }
    }
    return cells;
  }

  private static void put(TreeSet<Cell> cells, String row, byte[] family, String qualifier, long time, int phase) {
    cells.add(cell(row, family, qualifier, time, Cell.Type.Put, "phase " + phase + " of " + row));
  }

  private static Cell cell(String row, byte[] family, String qualifier, long time, Cell.Type type, String value) {
    return ExtendedCellBuilderFactory.create(CellBuilderType.DEEP_COPY).setRow(Bytes.toBytes(row)).setFamily(family)
        .setQualifier(Bytes.toBytes(qualifier)).setTimestamp(time).setType(type).setValue(Bytes.toBytes(value)).build();
  }

  private void write(int phase) throws IOException {
    if (LOADED.contains(phase)) {
      throw new IllegalArgumentException("phase " + phase + " is one to load");
    }
    try (Table table = connection.getTable(NAME)) {
      List<Put> puts = new ArrayList<>();
      for (Cell cell : phase(phase)) {
        if (cell.getType() == Cell.Type.Put) {
          puts.add(new Put(CellUtil.cloneRow(cell)).add(cell));
        } else {
          table.delete(new Delete(CellUtil.cloneRow(cell)).add(cell));
        }
      }
      table.put(puts);
    }
  }

  private void load(int phase, Path folder) throws Exception {
    Path files = new Path(folder, "phase" + phase);
    writeFiles(phase, files);
    Configuration own = HBaseConfiguration.create(conf);
    int loaded = new BulkLoadHFilesTool(own).bulkLoad(NAME, files).size();
    System.out.println("the tool loaded " + loaded + " files of phase " + phase);
    if (loaded <= 2) {
      throw new AssertionError("the tool had nothing to split: " + loaded + " files");
    }
  }

  private void writeFiles(int phase, Path files) throws Exception {
    Configuration own = new Configuration(conf);
    own.setBoolean(HFileOutputFormat2.LOCALITY_SENSITIVE_CONF_KEY, false);
    Job job = Job.getInstance(own);
    try (Table table = connection.getTable(NAME)) {
      HFileOutputFormat2.configureIncrementalLoadMap(job, table.getDescriptor());
    }
    FileOutputFormat.setOutputPath(job, files);
    TaskAttemptContext context =
        new TaskAttemptContextImpl(job.getConfiguration(), TaskAttemptID.forName("attempt_1_0001_m_000000_0"));
    HFileOutputFormat2 format = new HFileOutputFormat2();
    OutputCommitter committer = format.getOutputCommitter(context);
    committer.setupJob(context);
    committer.setupTask(context);
    RecordWriter<ImmutableBytesWritable, Cell> writer = format.getRecordWriter(context);
    for (Cell cell : phase(phase)) {
      writer.write(new ImmutableBytesWritable(CellUtil.cloneRow(cell)), cell);
    }
    writer.close(context);
    committer.commitTask(context);
    committer.commitJob(context);
  }

  private void compact() throws Exception {
    Admin admin = connection.getAdmin();
    admin.majorCompact(NAME);
    long deadline = System.currentTimeMillis() + 90_000;
    while (mostFiles(admin) > 2) {
      if (System.currentTimeMillis() > deadline) {
        throw new AssertionError("a major compaction does not end: " + mostFiles(admin) + " files in a region");
      }
      Thread.sleep(100);
    }
  }

  private static int mostFiles(Admin admin) throws IOException {
    int most = 0;
    for (ServerName server : admin.getRegionServers()) {
      for (RegionMetrics region : admin.getRegionMetrics(server, NAME)) {
        most = Math.max(most, region.getStoreFileCount());
      }
    }
    return most;
  }

  /** Returns the expected content after all phases up to {@code last}: one line per cell. */
  private static List<String> expected(int last) {
    List<Cell> deletes = new ArrayList<>();
    Map<String, TreeMap<Long, String>> columns = new TreeMap<>();
    for (int phase = 0; phase <= last; phase++) {
      for (Cell cell : phase(phase)) {
        if (cell.getType() == Cell.Type.Put) {
          String value = Bytes.toString(CellUtil.cloneValue(cell));
          columns.computeIfAbsent(column(cell), any -> new TreeMap<>((x, y) -> Long.compare(y, x)))
              .put(cell.getTimestamp(), value);
        } else {
          deletes.add(cell);
        }
      }
    }
    for (Cell delete : deletes) {
      String prefix = column(delete);
      columns.forEach((column, versions) -> {
        boolean hit = delete.getType() == Cell.Type.DeleteFamily ? column.startsWith(prefix) : column.equals(prefix);
        if (hit) {
          versions.keySet().removeIf(time -> time <= delete.getTimestamp());
        }
      });
    }
    List<String> lines = new ArrayList<>();
    columns.forEach((column, versions) -> versions.entrySet().stream()
        .limit(column.contains("/a:") ? VERSIONS : 1)
        .forEach(version -> lines.add(column + "@" + version.getKey() + "=" + version.getValue())));
    return lines;
  }

  private static String column(Cell cell) {
    return Bytes.toString(CellUtil.cloneRow(cell)) + "/" + Bytes.toString(CellUtil.cloneFamily(cell)) + ":"
        + Bytes.toString(CellUtil.cloneQualifier(cell));
  }

  private static void add(List<String> lines, Result result) {
    for (Cell cell : result.rawCells()) {
      lines.add(column(cell) + "@" + cell.getTimestamp() + "=" + Bytes.toString(CellUtil.cloneValue(cell)));
    }
  }

  private void check(int last) throws IOException {
    List<String> scanned = new ArrayList<>();
    List<String> got = new ArrayList<>();
    try (Table table = connection.getTable(NAME)) {
      List<Get> gets = new ArrayList<>();
      try (ResultScanner scanner = table.getScanner(new Scan().readVersions(VERSIONS))) {
        for (Result result : scanner) {
          add(scanned, result);
          gets.add(new Get(result.getRow()).readVersions(VERSIONS));
        }
      }
      for (Result result : table.get(gets)) {
        add(got, result);
      }
    }
    compare("scanned", expected(last), scanned);
    compare("got", expected(last), got);
    System.out.println(scanned.size() + " cells after phase " + last);
  }

  private static void compare(String what, List<String> expected, List<String> read) {
    List<String> missing = new ArrayList<>(expected);
    missing.removeAll(read);
    List<String> extra = new ArrayList<>(read);
    extra.removeAll(expected);
    if (!expected.equals(read)) {
      throw new AssertionError(what + ": " + missing.size() + " cells missing " + missing.stream().limit(10).toList() + ", "
          + extra.size() + " that should not be there " + extra.stream().limit(10).toList());
    }
  }
}
