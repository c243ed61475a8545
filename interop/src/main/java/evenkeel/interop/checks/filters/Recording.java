package evenkeel.interop.checks.filters;

import evenkeel.interop.checks.Expect;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Answers of the stock server, stored in {@code src/main/resources/expected/NAME.txt}.
 *
 * A file is a list of paragraphs: the name of a case on a separate line, then its lines, each indented by two spaces.
 * With {@code -Devenkeel.record=FOLDER} the answers of this run are written to FOLDER/NAME.txt instead of being
 * compared; use it only against a stock server.
 */
final class Recording {
  private static final Path RECORD = System.getProperty("evenkeel.record") == null ? null : Path.of(System.getProperty("evenkeel.record"));
  private final String name;
  private final Map<String, List<String>> answers;

  private Recording(String name, Map<String, List<String>> answers) {
    this.name = name;
    this.answers = answers;
  }

  static Recording open(String name) throws IOException {
    return new Recording(name, RECORD == null ? read(name) : new LinkedHashMap<>());
  }

  private static Map<String, List<String>> read(String name) throws IOException {
    Map<String, List<String>> answers = new LinkedHashMap<>();
    try (InputStream file = Recording.class.getResourceAsStream("/expected/" + name + ".txt")) {
      if (file == null) {
        throw new IOException("no recording expected/" + name + ".txt");
      }
      List<String> lines = null;
      BufferedReader reader = new BufferedReader(new InputStreamReader(file, StandardCharsets.UTF_8));
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        if (line.startsWith("  ") && lines != null) {
          lines.add(line.substring(2));
        } else if (!line.isEmpty()) {
          lines = new ArrayList<>();
          answers.put(line, lines);
        }
      }
    }
    return answers;
  }

  /** Compares the lines of one case with the stock server's, or records them. */
  void compare(String name, List<String> got) {
    if (RECORD != null) {
      answers.put(name, got);
      return;
    }
    List<String> want = answers.get(name);
    Expect.that(want != null, "the case is recorded");
    Expect.same(want.size(), got.size());
    for (int i = 0; i < want.size(); i++) {
      Expect.same(want.get(i), got.get(i));
    }
  }

  /** Writes the file when recording. */
  void save() throws IOException {
    if (RECORD == null) {
      return;
    }
    StringBuilder out = new StringBuilder();
    answers.forEach((name, lines) -> {
      out.append(name).append('\n');
      lines.forEach(line -> out.append("  ").append(line).append('\n'));
    });
    Files.createDirectories(RECORD);
    Files.writeString(RECORD.resolve(name + ".txt"), out);
  }
}
