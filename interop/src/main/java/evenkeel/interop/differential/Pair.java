package evenkeel.interop.differential;

import evenkeel.interop.checks.Expect;
import java.io.IOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The two servers, which do the same at the same time. */
final class Pair implements AutoCloseable {
  /** What a server does; returns everything that a client sees of it. */
  interface Step {
    String run(Side side) throws Exception;
  }

  /** The servers' answers to one step differ. */
  static final class Difference extends Exception {
    final String operation;
    final String want;
    final String got;

    Difference(String operation, String want, String got) {
      super(operation);
      this.operation = operation;
      this.want = want;
      this.got = got;
    }
  }

  final Side one;
  final Side two;
  private final ExecutorService second = Executors.newSingleThreadExecutor();

  Pair(Side one, Side two) {
    this.one = one;
    this.two = two;
  }

  /** Returns the answers of A and of B. */
  String[] both(Step first, Step other) throws Exception {
    Future<String> got = second.submit(() -> other.run(two));
    try {
      String want = first.run(one);
      return new String[] {want, got.get()};
    } finally {
      got.get();
    }
  }

  /** Lets both do the same; an exception is an answer. */
  void same(String operation, Step step) throws Exception {
    Throwable[] failures = new Throwable[2];
    String[] answers = both(side -> answer(step, side, failures, 0), side -> answer(step, side, failures, 1));
    if (!answers[0].equals(answers[1])) {
      for (Throwable failure : failures) {
        if (failure != null) {
          failure.printStackTrace();
        }
      }
      throw new Difference(operation, answers[0], answers[1]);
    }
  }

  private static String answer(Step step, Side side, Throwable[] failures, int index) throws Exception {
    try {
      return step.run(side);
    } catch (RuntimeException | IOException | ExecutionException e) {
      failures[index] = e;
      return "! " + Expect.root(e).getClass().getName();
    }
  }

  @Override
  public void close() throws IOException {
    second.shutdown();
    try (one; two) {
      // Both are closed, whatever happens to the first.
    }
  }
}
