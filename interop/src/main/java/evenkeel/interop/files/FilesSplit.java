package evenkeel.interop.files;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALSplitter;

/**
 * Stock's log split to store files: {@code FilesSplit ROOT LOG...} writes {@code recovered.hfiles} from every log, as a
 * server with {@code hbase.wal.split.to.hfile} does, and prints their paths. The logs are kept.
 */
public final class FilesSplit {
  private FilesSplit() {
  }

  public static void main(String[] args) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("fs.defaultFS", "file:///");
    conf.set("hbase.rootdir", "file://" + args[0]);
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    conf.setBoolean(WALSplitter.WAL_SPLIT_TO_HFILE, true);
    Path root = new Path("file://" + args[0]);
    FileSystem fs = root.getFileSystem(conf);
    // As in a server, because store files contain checksums.
    fs.setWriteChecksum(false);
    WALFactory factory = new WALFactory(conf, "files-split");
    try {
      for (int i = 1; i < args.length; i++) {
        Path log = new Path("file://" + args[i]);
        boolean done = WALSplitter.splitLogFile(root, fs.getFileStatus(log), fs, conf, null, null, null, factory, null);
        if (!done) {
          throw new IOException(log + " was not split");
        }
      }
    } finally {
      factory.close();
    }
    print(fs, new Path(root, "data"));
  }

  private static void print(FileSystem fs, Path folder) throws IOException {
    for (var file : fs.listStatus(folder)) {
      if (file.isDirectory()) {
        print(fs, file.getPath());
      } else if (file.getPath().toString().contains("/recovered.hfiles/")) {
        System.out.println(file.getPath().toUri().getPath());
      }
    }
  }
}
