package evenkeel.interop.checks.filters;

import static evenkeel.interop.Rows.b;
import static org.apache.hadoop.hbase.CompareOperator.EQUAL;
import static org.apache.hadoop.hbase.CompareOperator.GREATER;
import static org.apache.hadoop.hbase.CompareOperator.GREATER_OR_EQUAL;
import static org.apache.hadoop.hbase.CompareOperator.LESS;
import static org.apache.hadoop.hbase.CompareOperator.NOT_EQUAL;
import static org.apache.hadoop.hbase.CompareOperator.NO_OP;
import static org.apache.hadoop.hbase.filter.FilterList.Operator.MUST_PASS_ALL;
import static org.apache.hadoop.hbase.filter.FilterList.Operator.MUST_PASS_ONE;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.filter.BigDecimalComparator;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.BinaryComponentComparator;
import org.apache.hadoop.hbase.filter.BinaryPrefixComparator;
import org.apache.hadoop.hbase.filter.BitComparator;
import org.apache.hadoop.hbase.filter.ByteArrayComparable;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.ColumnValueFilter;
import org.apache.hadoop.hbase.filter.DependentColumnFilter;
import org.apache.hadoop.hbase.filter.FamilyFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FirstKeyValueMatchingQualifiersFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.LongComparator;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.NullComparator;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.ParseFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.RandomRowFilter;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueExcludeFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SkipFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.filter.TimestampsFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/**
 * Every filter and every comparator of org.apache.hadoop.hbase.filter, by name, over the table of {@link FilterChecks}.
 *
 * Each case creates a new filter on every call: filters have state, and FuzzyRowFilter modifies its argument arrays.
 */
final class FilterCases {
  /** Creates the filter of one case. */
  interface Maker {
    Filter make() throws Exception;
  }

  /**
   * Excluded from reversed scans: the first two make a stock 2.6.4 server loop forever; with the others its seek hints
   * skip rows that match.
   */
  static final Set<String> NEVER_REVERSED =
      Set.of("fuzzy-literal", "one-of-fuzzy", "ranges-open-end", "one-row-or-column", "one-of-hints");

  private final Map<String, Maker> cases = new LinkedHashMap<>();

  private FilterCases() {
    rows();
    columns();
    values();
    comparators();
    wrappers();
    lists();
    parsed();
  }

  static Map<String, Maker> all() {
    return new FilterCases().cases;
  }

  private static BinaryComparator is(String value) {
    return new BinaryComparator(b(value));
  }

  private static ByteArrayComparable number(long value) {
    return new LongComparator(value);
  }

  private void rows() {
    for (CompareOperator op : CompareOperator.values()) {
      cases.put("row-" + op, () -> new RowFilter(op, is("r3")));
    }
    cases.put("prefix", () -> new PrefixFilter(b("r")));
    cases.put("prefix-one", () -> new PrefixFilter(b("r4")));
    cases.put("prefix-none", () -> new PrefixFilter(b("q")));
    cases.put("inclusive-stop", () -> new InclusiveStopFilter(b("r3")));
    cases.put("page-2", () -> new PageFilter(2));
    cases.put("random-never", () -> new RandomRowFilter(-1f));
    cases.put("random-always", () -> new RandomRowFilter(2f));
    cases.put("fuzzy-one", () -> new FuzzyRowFilter(List.of(fuzzy("??-20??", 1, 1, 0, 0, 0, 1, 1))));
    cases.put("fuzzy-two", () -> new FuzzyRowFilter(List.of(fuzzy("?1", 1, 0), fuzzy("r?", 0, 1))));
    cases.put("fuzzy-literal", () -> new FuzzyRowFilter(List.of(fuzzy("r5", 0, 0))));
    cases.put("ranges", () -> new MultiRowRangeFilter(ranges(range("r1", true, "r3", false), range("r5", false, "r6", true))));
    cases.put("ranges-overlap", () -> new MultiRowRangeFilter(ranges(range("r2", true, "r5", true), range("r4", true, "r7", true))));
    cases.put("ranges-open-end", () -> new MultiRowRangeFilter(ranges(range("", true, "r1", true), range("r7", true, "", false))));
    cases.put("ranges-prefixes", () -> new MultiRowRangeFilter(new byte[][] {b("r2"), b("s")}));
  }

  private static Pair<byte[], byte[]> fuzzy(String row, int... mask) {
    byte[] bytes = new byte[mask.length];
    for (int i = 0; i < mask.length; i++) {
      bytes[i] = (byte) mask[i];
    }
    return new Pair<>(b(row), bytes);
  }

  /** Returns a list that the filter may sort. */
  private static List<MultiRowRangeFilter.RowRange> ranges(MultiRowRangeFilter.RowRange... ranges) {
    return new ArrayList<>(List.of(ranges));
  }

  private static MultiRowRangeFilter.RowRange range(String start, boolean startIn, String stop, boolean stopIn) {
    return new MultiRowRangeFilter.RowRange(b(start), startIn, b(stop), stopIn);
  }

  private void columns() {
    for (CompareOperator op : CompareOperator.values()) {
      cases.put("family-" + op, () -> new FamilyFilter(op, is("f")));
      cases.put("qualifier-" + op, () -> new QualifierFilter(op, is("b")));
    }
    cases.put("column-prefix", () -> new ColumnPrefixFilter(b("a")));
    cases.put("column-prefix-none", () -> new ColumnPrefixFilter(b("zz")));
    cases.put("column-prefixes", () -> new MultipleColumnPrefixFilter(new byte[][] {b("prefix"), b("ab")}));
    cases.put("column-range", () -> new ColumnRangeFilter(b("a"), false, b("b"), true));
    cases.put("column-range-from", () -> new ColumnRangeFilter(b("b"), true, null, false));
    cases.put("column-range-to", () -> new ColumnRangeFilter(null, false, b("b"), false));
    cases.put("column-count", () -> new ColumnCountGetFilter(2));
    cases.put("column-page", () -> new ColumnPaginationFilter(2, 1));
    cases.put("column-page-from", () -> new ColumnPaginationFilter(2, b("b")));
    cases.put("first-key", FirstKeyOnlyFilter::new);
    cases.put("key-only", () -> new KeyOnlyFilter());
    cases.put("key-only-lengths", () -> new KeyOnlyFilter(true));
    Set<byte[]> qualifiers = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    qualifiers.add(b("ab"));
    qualifiers.add(b("b"));
    cases.put("first-key-matching", () -> newFirstKeyMatching(qualifiers));
    cases.put("timestamps", () -> new TimestampsFilter(List.of(1L, 13L, 20L)));
    cases.put("timestamps-hint", () -> new TimestampsFilter(List.of(1L, 13L, 20L), true));
    cases.put("timestamps-none", () -> new TimestampsFilter(List.of()));
    cases.put("dependent", () -> new DependentColumnFilter(b("f"), b("a")));
    cases.put("dependent-drop", () -> new DependentColumnFilter(b("f"), b("a"), true));
    cases.put("dependent-value", () -> new DependentColumnFilter(b("f"), b("a"), false, GREATER, is("v3")));
    cases.put("dependent-missing", () -> new DependentColumnFilter(b("f"), b("nothing")));
  }

  @SuppressWarnings("deprecation")
  private static Filter newFirstKeyMatching(Set<byte[]> qualifiers) {
    return new FirstKeyValueMatchingQualifiersFilter(qualifiers);
  }

  private void values() {
    for (CompareOperator op : CompareOperator.values()) {
      cases.put("value-" + op, () -> new ValueFilter(op, is("even")));
      if (op != NO_OP) { // stock HBase answers with a bare IOException, which the client retries until it gives up
        cases.put("single-" + op, () -> new SingleColumnValueFilter(b("f"), b("a"), op, b("v3")));
      }
      cases.put("column-value-" + op, () -> new ColumnValueFilter(b("f"), b("a"), op, b("v3")));
    }
    cases.put("single-missing-passes", () -> new SingleColumnValueFilter(b("f"), b("ab"), EQUAL, b("even")));
    cases.put("single-missing-fails", () -> strict(new SingleColumnValueFilter(b("f"), b("ab"), EQUAL, b("even"))));
    cases.put("single-any-version", () -> {
      SingleColumnValueFilter filter = strict(new SingleColumnValueFilter(b("f"), b("a"), EQUAL, b("old3")));
      filter.setLatestVersionOnly(false);
      return filter;
    });
    cases.put("single-latest-version", () -> strict(new SingleColumnValueFilter(b("f"), b("a"), EQUAL, b("old3"))));
    cases.put("single-exclude", () -> strict(new SingleColumnValueExcludeFilter(b("f"), b("a"), GREATER, b("v5"))));
    cases.put("single-long", () -> new SingleColumnValueFilter(b("f"), b("b"), GREATER_OR_EQUAL, number(100)));
    cases.put("single-substring", () -> new SingleColumnValueFilter(b("f"), b("a"), EQUAL, new SubstringComparator("V6")));
    cases.put("single-regex", () -> new SingleColumnValueFilter(b("f"), b("a"), NOT_EQUAL, new RegexStringComparator("v[2-5]")));
  }

  private static <F extends SingleColumnValueFilter> F strict(F filter) {
    filter.setFilterIfMissing(true);
    return filter;
  }

  private void comparators() {
    ByteArrayComparable[] all = {is("v4"), new BinaryPrefixComparator(b("v")), number(-100),
        new BitComparator(Bytes.toBytes(100L), BitComparator.BitwiseOp.AND),
        new BitComparator(Bytes.toBytes(100L), BitComparator.BitwiseOp.OR),
        new BitComparator(Bytes.toBytes(100L), BitComparator.BitwiseOp.XOR), new NullComparator(),
        new RegexStringComparator("^v[0-3]$"), new RegexStringComparator("PREFIX", Pattern.CASE_INSENSITIVE),
        new RegexStringComparator("fix[67]$", RegexStringComparator.EngineType.JONI), new SubstringComparator("VEN"),
        new BinaryComponentComparator(b("e"), 1)};
    String[] names = {"binary", "binary-prefix", "long", "bit-and", "bit-or", "bit-xor", "null", "regex", "regex-flags",
        "regex-joni", "substring", "component"};
    for (int i = 0; i < all.length; i++) {
      ByteArrayComparable comparator = all[i];
      String column = names[i].startsWith("long") || names[i].startsWith("bit-") ? "b" : "a";
      for (CompareOperator op : new CompareOperator[] {EQUAL, NOT_EQUAL, LESS}) {
        if (column.equals("b")) {
          cases.put("cmp-" + names[i] + "-" + op, () -> new ColumnValueFilter(b("f"), b("b"), op, comparator));
        } else {
          cases.put("cmp-" + names[i] + "-" + op, () -> new ValueFilter(op, comparator));
        }
      }
    }
    for (CompareOperator op : CompareOperator.values()) {
      cases.put("cmp-decimal-" + op,
          () -> new ColumnValueFilter(b("g"), b("c"), op, new BigDecimalComparator(new BigDecimal("3.5"))));
    }
    cases.put("row-regex", () -> new RowFilter(EQUAL, new RegexStringComparator("[sr][0-2]")));
    cases.put("row-substring", () -> new RowFilter(EQUAL, new SubstringComparator("-20")));
    cases.put("row-component", () -> new RowFilter(EQUAL, new BinaryComponentComparator(b("2"), 1)));
    cases.put("qualifier-binary-prefix", () -> new QualifierFilter(EQUAL, new BinaryPrefixComparator(b("a"))));
  }

  private void wrappers() {
    cases.put("skip", () -> new SkipFilter(new ValueFilter(NOT_EQUAL, is("even"))));
    cases.put("while-match", () -> new WhileMatchFilter(new RowFilter(NOT_EQUAL, is("r5"))));
    cases.put("while-match-value", () -> new WhileMatchFilter(new ValueFilter(NOT_EQUAL, is("v2"))));
    cases.put("unknown-class", UnknownFilter::new);
  }

  private void lists() {
    cases.put("all-row-and-column", () -> new FilterList(MUST_PASS_ALL, new PrefixFilter(b("r")), new ColumnPrefixFilter(b("a"))));
    cases.put("one-row-or-column", () -> new FilterList(MUST_PASS_ONE, new RowFilter(EQUAL, is("r2")), new ColumnPrefixFilter(b("b"))));
    cases.put("all-of-hints", () -> new FilterList(MUST_PASS_ALL, new ColumnRangeFilter(b("a"), true, b("b"), true),
        new MultipleColumnPrefixFilter(new byte[][] {b("ab"), b("b")})));
    cases.put("one-of-hints", () -> new FilterList(MUST_PASS_ONE, new ColumnPrefixFilter(b("ab")), new ColumnPrefixFilter(b("prefix")),
        new ColumnRangeFilter(b("c"), true, b("d"), true)));
    cases.put("one-of-fuzzy", () -> new FilterList(MUST_PASS_ONE, new FuzzyRowFilter(List.of(fuzzy("?1", 1, 0))),
        new PrefixFilter(b("r6"))));
    cases.put("nested", () -> new FilterList(MUST_PASS_ALL, new FilterList(MUST_PASS_ONE,
        new SingleColumnValueFilter(b("f"), b("a"), EQUAL, b("v1")), new SingleColumnValueFilter(b("f"), b("a"), EQUAL, b("v6"))),
        new FamilyFilter(EQUAL, is("f"))));
    cases.put("one-of-alls", () -> new FilterList(MUST_PASS_ONE,
        new FilterList(MUST_PASS_ALL, new RowFilter(LESS, is("r2")), new QualifierFilter(EQUAL, is("a"))),
        new FilterList(MUST_PASS_ALL, new RowFilter(GREATER, is("r6")), new QualifierFilter(EQUAL, is("b")))));
    cases.put("all-with-page", () -> new FilterList(MUST_PASS_ALL, new RowFilter(GREATER, is("r1")), new PageFilter(2)));
    cases.put("page-then-row", () -> new FilterList(MUST_PASS_ALL, new PageFilter(2), new RowFilter(GREATER, is("r1"))));
    cases.put("one-with-page", () -> new FilterList(MUST_PASS_ONE, new PageFilter(1), new RowFilter(EQUAL, is("r3"))));
    cases.put("first-key-and-key-only", () -> new FilterList(new FirstKeyOnlyFilter(), new KeyOnlyFilter()));
    cases.put("skip-in-list", () -> new FilterList(MUST_PASS_ALL, new SkipFilter(new ValueFilter(NOT_EQUAL, is("even"))),
        new ColumnPrefixFilter(b("b"))));
    cases.put("column-page-in-one", () -> new FilterList(MUST_PASS_ONE, new ColumnPaginationFilter(1, 0), new ColumnPaginationFilter(1, 2)));
    cases.put("empty-all", () -> new FilterList(MUST_PASS_ALL));
    cases.put("empty-one", () -> new FilterList(MUST_PASS_ONE));
    cases.put("timestamps-and-values", () -> new FilterList(MUST_PASS_ALL, new TimestampsFilter(List.of(1L, 12L)),
        new ValueFilter(GREATER, is("old2"))));
    cases.put("one-with-singles", () -> new FilterList(MUST_PASS_ONE, strict(new SingleColumnValueFilter(b("f"), b("ab"), EQUAL, b("even"))),
        new SingleColumnValueFilter(b("f"), b("b"), EQUAL, number(-300))));
  }

  private void parsed() {
    String[] texts = {"PrefixFilter ('r') AND ValueFilter (=, 'substring:v')", "KeyOnlyFilter() AND FirstKeyOnlyFilter()",
        "(RowFilter (>=, 'binary:r6') AND QualifierFilter (=, 'regexstring:^a')) OR (TimestampsFilter (1, 12))",
        "SKIP ValueFilter (!=, 'binary:even')", "WHILE RowFilter (<, 'binary:r3')",
        "SingleColumnValueFilter ('f', 'a', =, 'binary:v2', true, true)", "ColumnPaginationFilter (1, 1)",
        "DependentColumnFilter ('f', 'a', false, =, 'binary:v1')", "ColumnRangeFilter ('a', true, 'b', false)",
        "MultipleColumnPrefixFilter ('a', 'p')", "InclusiveStopFilter ('r1') AND PageFilter (9)", "FamilyFilter (=, 'binaryprefix:g')"};
    for (String text : texts) {
      cases.put("parsed " + text, () -> new ParseFilter().parseFilterString(text));
    }
  }
}
