package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
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
 * Filters over the same few rows, columns and values that {@link RandomOperation} writes, so that they often match.
 *
 * Excluded, because a stock 2.6.4 server does not answer them: a reversed FuzzyRowFilter (loops forever) and NO_OP in a
 * SingleColumnValueFilter (an IOException, retried until the client gives up). A PrefixFilter that is longer than a row
 * reads what follows the row in its array, and may fail at the end of the array, in a batch with all actions of the call.
 * So only Scans have one.
 *
 * LongComparator, BigDecimalComparator and BinaryComponentComparator fail on short values, or compare whatever bytes
 * follow them in the buffer. So they are for columns of values that are long enough.
 */
final class RandomFilters {
  private static final CompareOperator[] OPS = {CompareOperator.LESS, CompareOperator.LESS_OR_EQUAL, CompareOperator.EQUAL,
      CompareOperator.NOT_EQUAL, CompareOperator.GREATER_OR_EQUAL, CompareOperator.GREATER};
  private final Random random;
  private final Domain domain;
  private final boolean reversed;
  /**
   * Filters that seek may give no hint where to. FuzzyRowFilter past its last row gives none, nor do SkipFilter and
   * WhileMatchFilter. In an AND list, a stock server compares the hints of all members, and runs into a NullPointerException.
   */
  private boolean mayLackHint = true;
  /**
   * ColumnCountGetFilter is for Gets. In a Scan, the first cell of a family behind the last column of a row ends that family
   * for all later rows, and a deleted cell does, too. When a compaction removes deleted cells is not the same on both sides
   * of a steady table.
   */
  private final boolean mayCountColumns;
  private final boolean longPrefixes;

  private RandomFilters(Random random, Domain domain, boolean reversed, boolean mayCountColumns, boolean longPrefixes) {
    this.random = random;
    this.domain = domain;
    this.reversed = reversed;
    this.mayCountColumns = mayCountColumns;
    this.longPrefixes = longPrefixes;
  }

  /** Filters of a Get or of a check. */
  static RandomFilters ofRow(Random random, Domain domain) {
    return new RandomFilters(random, domain, false, true, false);
  }

  /** Filters of a Scan. */
  static RandomFilters ofScan(Random random, Domain domain, boolean reversed) {
    return new RandomFilters(random, domain, reversed, !domain.steady, true);
  }

  /** Returns a filter, or a list of filters with at most this nesting depth. */
  Filter next(int depth) {
    if (depth > 0 && random.nextInt(4) == 0) {
      return list(depth - 1);
    }
    if (depth > 0 && mayLackHint && random.nextInt(10) == 0) {
      Filter inner = next(0);
      // SkipFilter does not show the row to a MultiRowRangeFilter, which then fails: in a batch, with all actions of the call.
      boolean skips = random.nextBoolean() && !(inner instanceof MultiRowRangeFilter);
      // With a WhileMatchFilter of it, a stock server's scan of columns from the first row may end before that row.
      return skips ? new SkipFilter(inner) : inner instanceof RowFilter ? inner : new WhileMatchFilter(inner);
    }
    return switch (random.nextInt(3)) {
      case 0 -> ofRows();
      case 1 -> ofColumns();
      default -> domain.mob ? ofColumns() : ofValues();
    };
  }

  private Filter list(int depth) {
    List<Filter> filters = new ArrayList<>();
    // In a reversed scan, an OR list of column filters skips rows that match.
    boolean all = reversed || random.nextBoolean();
    boolean outside = mayLackHint;
    int last = random.nextInt(3);
    mayLackHint &= !all || last == 0;
    for (int i = last; i >= 0; i--) {
      filters.add(next(depth));
    }
    mayLackHint = outside;
    return new FilterList(all ? FilterList.Operator.MUST_PASS_ALL : FilterList.Operator.MUST_PASS_ONE, filters);
  }

  private CompareOperator op() {
    return OPS[random.nextInt(OPS.length)];
  }

  private Filter ofRows() {
    return switch (random.nextInt(9)) {
      case 0 -> new RowFilter(op(), text(domain.row(random)));
      case 1 -> new PrefixFilter(random.nextBoolean() ? b("r") : prefix());
      case 2 -> new InclusiveStopFilter(domain.row(random));
      case 3 -> new PageFilter(1 + random.nextInt(5));
      case 4 -> new RandomRowFilter(random.nextBoolean() ? -1f : 2f);
      case 5 -> reversed || !mayLackHint ? new RowFilter(op(), text(domain.row(random))) : fuzzy();
      case 6 -> ranges();
      case 7 -> firstMatching();
      default -> new FirstKeyOnlyFilter();
    };
  }

  @SuppressWarnings("deprecation")
  private Filter firstMatching() {
    TreeSet<byte[]> qualifiers = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    qualifiers.add(domain.qualifier(random));
    qualifiers.add(domain.qualifier(random));
    return new FirstKeyValueMatchingQualifiersFilter(qualifiers);
  }

  private Filter fuzzy() {
    List<Pair<byte[], byte[]>> keys = new ArrayList<>();
    for (int i = random.nextInt(2); i >= 0; i--) {
      keys.add(new Pair<>(domain.row(random), new byte[] {0, (byte) random.nextInt(2), 1}));
    }
    return new FuzzyRowFilter(keys);
  }

  private Filter ranges() {
    if (random.nextInt(4) == 0) {
      return new MultiRowRangeFilter(new byte[][] {domain.row(random), domain.row(random)});
    }
    List<MultiRowRangeFilter.RowRange> ranges = new ArrayList<>();
    for (int i = random.nextInt(3); i >= 0; i--) {
      byte[] one = domain.row(random);
      byte[] two = domain.row(random);
      boolean ordered = Bytes.compareTo(one, two) < 0;
      ranges.add(new MultiRowRangeFilter.RowRange(ordered ? one : two, true, ordered ? two : one, true));
    }
    return new MultiRowRangeFilter(ranges);
  }

  /** A row, or what all rows are at least as long as. */
  private byte[] prefix() {
    byte[] row = domain.row(random);
    return longPrefixes ? row : Arrays.copyOf(row, Math.min(row.length, Domain.ROW_BYTES_MIN));
  }

  private Filter ofColumns() {
    return switch (random.nextInt(domain.mob ? 11 : 12)) {
      case 0 -> new FamilyFilter(op(), new BinaryComparator(domain.family(random)));
      case 1 -> new QualifierFilter(op(), text(domain.qualifier(random)));
      case 2 -> new ColumnPrefixFilter(domain.qualifier(random));
      case 3 -> new MultipleColumnPrefixFilter(new byte[][] {domain.qualifier(random), domain.qualifier(random)});
      case 4 -> new ColumnRangeFilter(domain.qualifier(random), random.nextBoolean(), domain.qualifier(random), random.nextBoolean());
      case 5 -> mayCountColumns ? new ColumnCountGetFilter(1 + random.nextInt(4)) : new ColumnPrefixFilter(domain.qualifier(random));
      case 6 -> new ColumnPaginationFilter(1 + random.nextInt(3), random.nextInt(3));
      case 7 -> new ColumnPaginationFilter(1 + random.nextInt(3), domain.qualifier(random));
      case 8 -> new KeyOnlyFilter(random.nextBoolean() && !domain.mob);
      case 9 -> new TimestampsFilter(List.of((long) domain.time(random), (long) domain.time(random)), random.nextBoolean());
      case 10 -> new DependentColumnFilter(domain.family(random), domain.qualifier(random), random.nextBoolean());
      default -> new DependentColumnFilter(domain.family(random), domain.qualifier(random), random.nextBoolean(), op(),
          text(domain.value(random)));
    };
  }

  /** Compares the values of a column that has only values of one kind. */
  private Filter ofNumbers() {
    byte[] family = domain.family(random);
    byte[] column = random.nextBoolean() ? Domain.LONGS : Domain.DECIMALS;
    ByteArrayComparable than = column == Domain.DECIMALS ? new BigDecimalComparator(BigDecimal.valueOf(random.nextInt(900) - 450L, 2))
        : random.nextInt(3) == 0 ? new BinaryComponentComparator(domain.longValue(random), 0)
        : new LongComparator(random.nextInt(9) - 4L);
    if (random.nextBoolean()) {
      return new ColumnValueFilter(family, column, op(), than);
    }
    SingleColumnValueFilter filter = new SingleColumnValueFilter(family, column, op(), than);
    filter.setFilterIfMissing(random.nextBoolean());
    filter.setLatestVersionOnly(random.nextBoolean());
    return filter;
  }

  private Filter ofValues() {
    if (random.nextInt(5) == 0) {
      return ofNumbers();
    }
    if (random.nextInt(3) == 0) {
      return new ValueFilter(op(), text(domain.value(random)));
    }
    if (random.nextInt(3) == 0) {
      return new ColumnValueFilter(domain.family(random), domain.qualifier(random), op(), text(domain.value(random)));
    }
    boolean exclude = random.nextInt(3) == 0;
    byte[] family = domain.family(random);
    byte[] qualifier = domain.qualifier(random);
    SingleColumnValueFilter filter = exclude
        ? new SingleColumnValueExcludeFilter(family, qualifier, op(), text(domain.value(random)))
        : new SingleColumnValueFilter(family, qualifier, op(), text(domain.value(random)));
    filter.setFilterIfMissing(random.nextBoolean());
    filter.setLatestVersionOnly(random.nextBoolean());
    return filter;
  }

  private ByteArrayComparable text(byte[] value) {
    byte[] two = value.length >= 2 ? new byte[] {value[0], value[1]} : value;
    return switch (random.nextInt(9)) {
      case 0 -> new BinaryPrefixComparator(value.length == 0 ? value : new byte[] {value[0]});
      case 1 -> new SubstringComparator(new String(two, java.nio.charset.StandardCharsets.ISO_8859_1).replaceAll("[^a-z0-9]", "v"));
      case 2 -> new RegexStringComparator("[" + (char) ('a' + random.nextInt(4)) + "v][0-4]");
      case 3 -> new BitComparator(two, BitComparator.BitwiseOp.values()[random.nextInt(3)]);
      case 4 -> new NullComparator();
      default -> new BinaryComparator(value);
    };
  }
}
