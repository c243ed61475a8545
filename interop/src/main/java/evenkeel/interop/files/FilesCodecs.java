package evenkeel.interop.files;

import com.github.luben.zstd.ZstdInputStream;
import com.github.luben.zstd.ZstdOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.CompressionOutputStream;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;
import org.apache.hadoop.io.compress.bzip2.BZip2DummyCompressor;
import org.apache.hadoop.io.compress.bzip2.BZip2DummyDecompressor;

/**
 * The two codecs for which stock HBase needs Hadoop's native library, here without it.
 *
 * <p>BZIP2: Hadoop's pure Java streams need no compressor object, so the codec returns a dummy. HBase calls the dummy's
 * {@code finished}, which throws UnsupportedOperationException. {@link Bzip2} is Hadoop's codec with unchanged streams
 * and with dummies that answer.
 *
 * <p>ZSTD as Hadoop's ZStandardCodec writes it, one plain frame without its size: that codec has only a native form.
 * {@link ZstdStreams} writes and reads such frames with zstd-jni's streams, which wrap the same C functions.
 */
public final class FilesCodecs {
  private FilesCodecs() {
  }

  private static class IdleCompressor extends BZip2DummyCompressor {
    @Override
    public boolean finished() {
      return false;
    }

    @Override
    public void end() {
      // It holds nothing.
    }
  }

  private static class IdleDecompressor extends BZip2DummyDecompressor {
    @Override
    public boolean finished() {
      return false;
    }

    @Override
    public void end() {
      // It holds nothing.
    }
  }

  /** Hadoop's bzip2, with dummies that do not throw. */
  public static class Bzip2 extends BZip2Codec {
    @Override
    public Class<? extends Compressor> getCompressorType() {
      return IdleCompressor.class;
    }

    @Override
    public Compressor createCompressor() {
      return new IdleCompressor();
    }

    @Override
    public Class<? extends Decompressor> getDecompressorType() {
      return IdleDecompressor.class;
    }

    @Override
    public Decompressor createDecompressor() {
      return new IdleDecompressor();
    }
  }

  /** Plain Zstandard frames, one for each block. */
  public static final class ZstdStreams extends Bzip2 {
    @Override
    public CompressionOutputStream createOutputStream(OutputStream out) {
      return new Frames(out);
    }

    @Override
    public CompressionOutputStream createOutputStream(OutputStream out, Compressor compressor) {
      return new Frames(out);
    }

    @Override
    public CompressionInputStream createInputStream(InputStream in) throws IOException {
      return new Unframed(in);
    }

    @Override
    public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
      return new Unframed(in);
    }
  }

  private static final class Frames extends CompressionOutputStream {
    private final ByteArrayOutputStream body = new ByteArrayOutputStream();

    Frames(OutputStream out) {
      super(out);
    }

    @Override
    public void write(int b) {
      body.write(b);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) {
      body.write(bytes, offset, length);
    }

    @Override
    public void finish() throws IOException {
      try (ZstdOutputStream frame = new ZstdOutputStream(new Unclosed(out))) {
        body.writeTo(frame);
      }
      body.reset();
    }

    @Override
    public void resetState() {
      body.reset();
    }
  }

  /** Its close flushes the underlying stream and does not close it. */
  private static final class Unclosed extends FilterOutputStream {
    Unclosed(OutputStream out) {
      super(out);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      out.write(bytes, offset, length);
    }

    @Override
    public void close() throws IOException {
      out.flush();
    }
  }

  private static final class Unframed extends CompressionInputStream {
    private final ZstdInputStream frames;

    Unframed(InputStream in) throws IOException {
      super(in);
      frames = new ZstdInputStream(in);
    }

    @Override
    public int read() throws IOException {
      return frames.read();
    }

    @Override
    public int read(byte[] bytes, int offset, int length) throws IOException {
      return frames.read(bytes, offset, length);
    }

    @Override
    public void resetState() {
      // Each block has a separate stream.
    }
  }
}
