package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.io.IOException;
import java.nio.file.Files;
import java.util.Random;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.CellComparator;
import org.apache.hadoop.hbase.ExtendedCellBuilderFactory;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.tool.BulkLoadHFilesTool;
import org.apache.hadoop.hbase.util.Bytes;

/** Random store files, one for each of some families, which BulkLoadHFilesTool splits where regions end and loads. */
final class BulkFiles {
  private static final Cell.Type[] DELETES = {Cell.Type.Delete, Cell.Type.DeleteColumn};

  private final Random random;
  private final Domain domain;

  BulkFiles(long seed, Domain domain) {
    this.random = new Random(seed);
    this.domain = domain;
  }

  /** Writes the files and loads them into the table of this side. */
  void load(Side side) throws IOException {
    Configuration conf = new Configuration(side.conf);
    Path folder = new Path(Files.createTempDirectory("differential").toUri());
    FileSystem fs = folder.getFileSystem(conf);
    try {
      side.tick();
      long now = System.currentTimeMillis();
      for (String family : domain.families) {
        if (family.equals(domain.families.get(0)) || random.nextBoolean()) {
          write(conf, fs, new Path(new Path(folder, family), "file"), family, now);
        }
      }
      new BulkLoadHFilesTool(conf).bulkLoad(side.name(), folder);
      side.timed();
    } finally {
      fs.delete(folder, true);
    }
  }

  private void write(Configuration conf, FileSystem fs, Path path, String family, long now) throws IOException {
    TreeSet<Cell> cells = new TreeSet<>(CellComparator.getInstance());
    for (int i = 1 + random.nextInt(20); i >= 0; i--) {
      cells.add(cell(family, now));
    }
    HFile.Writer writer = HFile.getWriterFactory(conf, CacheConfig.DISABLED).withPath(fs, path)
        .withFileContext(new HFileContextBuilder().withColumnFamily(b(family)).build()).create();
    for (Cell cell : cells) {
      writer.append(cell);
    }
    writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(now));
    writer.close();
  }

  private Cell cell(String family, long now) {
    boolean delete = !domain.steady && random.nextInt(5) == 0;
    byte[] row = domain.row(random);
    byte[] qualifier = domain.qualifier(random);
    long time = domain.steady ? now : domain.time(random);
    byte[] value = domain.value(random);
    return ExtendedCellBuilderFactory.create(CellBuilderType.DEEP_COPY).setRow(row).setFamily(b(family)).setQualifier(qualifier)
        .setTimestamp(time).setType(delete ? DELETES[random.nextInt(2)] : Cell.Type.Put)
        .setValue(delete ? new byte[0] : value).build();
  }
}
