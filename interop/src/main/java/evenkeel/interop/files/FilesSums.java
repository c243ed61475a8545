package evenkeel.interop.files;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.io.IOUtils;

/**
 * The checksums that Hadoop's local file system stores beside files ({@code .NAME.crc}). {@code write DIR} rewrites
 * every file below a directory through that file system with checksums enabled, as Hadoop's tools copy files; {@code
 * check DIR} reads every file through it, which fails if a checksum does not match its file. Both print the number of
 * files, and the number of files with checksums.
 */
public final class FilesSums {
  private FilesSums() {
  }

  public static void main(String[] args) throws Exception {
    LocalFileSystem fs = FileSystem.getLocal(new Configuration());
    fs.setVerifyChecksum(true);
    fs.setWriteChecksum(true);
    boolean writes = args[0].equals("write");
    int withSums = 0;
    List<Path> files = files(Path.of(args[1]));
    for (Path file : files) {
      org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(file.toUri());
      byte[] bytes = Files.readAllBytes(file);
      if (writes) {
        try (FSDataOutputStream out = fs.create(path, true)) {
          out.write(bytes);
        }
      }
      try (var in = fs.open(path)) {
        IOUtils.readFully(in, new byte[bytes.length], 0, bytes.length);
      }
      withSums += fs.getRaw().exists(fs.getChecksumFile(path)) ? 1 : 0;
    }
    System.out.println(files.size() + " files, " + withSums + " with checksums");
  }

  private static List<Path> files(Path dir) throws IOException {
    try (Stream<Path> all = Files.walk(dir)) {
      return all.filter(Files::isRegularFile).filter(file -> !file.getFileName().toString().endsWith(".crc")).toList();
    }
  }
}
