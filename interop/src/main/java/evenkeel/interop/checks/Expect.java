package evenkeel.interop.checks;

import java.io.UncheckedIOException;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.hadoop.hbase.client.RetriesExhaustedException;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.ipc.RemoteException;

/** The assertions of checks; a wrong value throws {@link Mismatch} with both values in its message. */
public final class Expect {
  /** The server answered, and the answer is wrong. */
  static final class Mismatch extends RuntimeException {
    Mismatch(String message) {
      super(message);
    }
  }

  private Expect() {
  }

  public static void same(Object want, Object got) {
    if (!Objects.equals(want, got)) {
      throw new Mismatch("want " + want + ", got " + got);
    }
  }

  /** The lines, in order. */
  static void lines(List<String> got, String... want) {
    same(List.of(want), got);
  }

  public static void that(boolean holds, String what) {
    if (!holds) {
      throw new Mismatch("not so: " + what);
    }
  }

  public static void between(long low, long high, long got, String what) {
    that(low <= got && got <= high, what + " " + got + " is in " + low + ".." + high);
  }

  /** The call must fail with a server error of exactly this class. */
  public static Throwable fails(Class<? extends Throwable> want, Suite.Body call) {
    return fails(want.getName(), call);
  }

  static Throwable fails(String want, Suite.Body call) {
    try {
      call.run();
    } catch (Throwable t) {
      Throwable root = root(t);
      if (!root.getClass().getName().equals(want)) {
        Mismatch wrong = new Mismatch("want " + want + ", got " + line(root));
        wrong.addSuppressed(t);
        throw wrong;
      }
      return root;
    }
    throw new Mismatch("want " + want + ", got no error");
  }

  /** Returns the class and the start of the message. */
  private static String line(Throwable t) {
    String text = t.toString().lines().findFirst().orElse("");
    return text.length() > 300 ? text.substring(0, 300) + "..." : text;
  }

  /** Unwraps the error from the exceptions of futures, batches, retries and remote calls. */
  public static Throwable root(Throwable t) {
    if (t instanceof RetriesExhaustedWithDetailsException many && many.getNumExceptions() > 0) {
      return root(many.getCause(0));
    }
    if (t instanceof RemoteException remote) {
      Throwable inner = remote.unwrapRemoteException();
      return inner == remote ? remote : root(inner);
    }
    boolean wrapper = t instanceof ExecutionException || t instanceof CompletionException || t instanceof UncheckedIOException
        || t.getClass() == RetriesExhaustedException.class;
    return wrapper && t.getCause() != null ? root(t.getCause()) : t;
  }
}
