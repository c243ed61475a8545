package evenkeel.interop.files;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;

/**
 * Writes store files with the stock writer: {@code FilesWrite <settings> <cells dir> <out dir>}, one file for each
 * setting, named after it.
 */
public final class FilesWrite {
  private FilesWrite() {
  }

  public static void main(String[] args) throws Exception {
    Path cells = Path.of(args[1]);
    Path out = Path.of(args[2]);
    Files.createDirectories(out);
    for (FilesSetting setting : FilesSetting.readAll(Path.of(args[0]))) {
      write(setting, cells.resolve(setting.text("cells")), out.resolve(setting.name));
    }
  }

  private static void write(FilesSetting setting, Path cells, Path file) throws Exception {
    Configuration conf = setting.configuration();
    FileSystem fs = FileSystem.getLocal(conf).getRaw();
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(file.toUri());
    StoreFileWriter writer = new StoreFileWriter.Builder(conf, fs).withFilePath(path).withBloomType(setting.bloom())
      .withMaxKeyCount(1_000_000).withFileContext(setting.context()).build();
    for (KeyValue cell : FilesCellText.read(cells)) {
      writer.append(cell);
    }
    writer.appendMetadata(77, false, Collections.emptySet());
    writer.close();
  }
}
