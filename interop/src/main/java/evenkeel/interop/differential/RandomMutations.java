package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.security.access.Permission;
import org.apache.hadoop.hbase.security.visibility.CellVisibility;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Random mutations of one row, with random attributes.
 *
 * Two kinds are not made in a steady table. Deletes of one version make an older version visible, unless a compaction
 * has removed it. Of two cells of a column with one timestamp in one call, either may be visible in stock HBase, if an
 * in-memory flush comes between them.
 */
final class RandomMutations {
  private final Random random;
  private final Domain domain;
  /** The columns of the cells of the current call. */
  private final Set<String> columns = new HashSet<>();
  private boolean several;

  RandomMutations(Random random, Domain domain) {
    this.random = random;
    this.domain = domain;
  }

  private boolean chance(int oneIn) {
    return random.nextInt(oneIn) == 0;
  }

  private void begin() {
    if (!several) {
      columns.clear();
    }
  }

  /** Returns true unless the call has a cell of this column and must not get another one. */
  private boolean isFree(byte[] family, byte[] qualifier) {
    return columns.add(Bytes.toString(family) + ":" + Bytes.toString(qualifier)) || !domain.steady;
  }

  Put put(byte[] row) {
    begin();
    Put put = new Put(row);
    for (int i = random.nextInt(4); i >= 0; i--) {
      byte[] family = chance(300) ? b("nope") : domain.family(random);
      byte[] qualifier = domain.qualifier(random);
      byte[] value;
      if (chance(12)) {
        qualifier = chance(2) ? Domain.LONGS : Domain.DECIMALS;
        value = qualifier == Domain.LONGS ? domain.longValue(random) : domain.decimal(random);
      } else {
        value = domain.value(random);
      }
      if (!isFree(family, qualifier)) {
        continue;
      }
      if (domain.steady || chance(8)) {
        put.addColumn(family, qualifier, value);
      } else {
        put.addColumn(family, qualifier, domain.time(random), value);
      }
    }
    if (chance(20)) {
      put.setTTL(10_000_000L);
    }
    attributes(put);
    return put;
  }

  /** Attributes without an effect on the answers of servers without coprocessors of security. */
  private void attributes(Mutation mutation) {
    if (chance(4)) {
      mutation.setDurability(Durability.values()[random.nextInt(Durability.values().length)]);
    }
    if (chance(20)) {
      mutation.setCellVisibility(new CellVisibility("secret|topsecret"));
    }
    if (chance(20)) {
      mutation.setACL("someone", new Permission(Permission.Action.READ));
    }
    if (chance(20)) {
      mutation.setAttribute("of.the.client", b("value"));
      mutation.setPriority(HConstants.HIGH_QOS);
    }
  }

  Delete delete(byte[] row) {
    Delete delete = domain.steady ? steadyDelete(row) : exactDelete(row);
    attributes(delete);
    return delete;
  }

  private Delete steadyDelete(byte[] row) {
    Delete delete = new Delete(row);
    if (chance(12) && domain.newVersions.isEmpty()) {
      return delete;
    }
    for (int i = random.nextInt(2); i >= 0; i--) {
      byte[] family = domain.family(random);
      if (chance(5) && hasMarkers(family)) {
        delete.addFamily(family);
      } else {
        delete.addColumns(family, domain.qualifier(random));
      }
    }
    return delete;
  }

  /** Whether the family may have markers that delete all its columns. */
  private boolean hasMarkers(byte[] family) {
    return !domain.newVersions.contains(Bytes.toString(family));
  }

  private Delete exactDelete(byte[] row) {
    Delete delete = new Delete(row);
    if (chance(12) && domain.newVersions.isEmpty()) {
      return chance(2) ? delete : new Delete(row, domain.time(random));
    }
    for (int i = random.nextInt(2); i >= 0; i--) {
      byte[] family = domain.family(random);
      byte[] qualifier = chance(20) ? Domain.LONGS : domain.qualifier(random);
      int time = domain.time(random);
      switch (random.nextInt(hasMarkers(family) ? 9 : 7)) {
        case 0 -> delete.addColumn(family, qualifier);
        case 1, 2, 3 -> delete.addColumn(family, qualifier, time);
        case 4 -> delete.addColumns(family, qualifier);
        case 5 -> delete.addColumns(family, qualifier, time);
        case 6 -> delete.addColumns(family, qualifier, time / 2 + 1);
        case 7 -> delete.addFamily(family, time);
        default -> delete.addFamilyVersion(family, time);
      }
    }
    return delete;
  }

  Increment increment(byte[] row) throws IOException {
    begin();
    Increment increment = new Increment(row);
    add(increment, b("n"), random.nextInt(9) - 4);
    if (chance(20)) {
      add(increment, domain.qualifier(random), 1);
    }
    if (chance(10)) {
      add(increment, Domain.LONGS, 2);
    }
    if (chance(20)) {
      increment.setTTL(10_000_000L);
    }
    if (chance(15) && !domain.steady) {
      increment.setTimeRange(1, 1 + domain.time(random));
    }
    attributes(increment);
    return increment;
  }

  private void add(Increment increment, byte[] qualifier, long by) {
    byte[] family = domain.family(random);
    if (isFree(family, qualifier)) {
      increment.addColumn(family, qualifier, by);
    }
  }

  Append append(byte[] row) {
    begin();
    Append append = new Append(row);
    add(append, b("c"), b("+" + random.nextInt(10)));
    if (chance(10)) {
      add(append, domain.qualifier(random), b("-"));
    }
    if (chance(20)) {
      append.setTTL(10_000_000L);
    }
    if (chance(15) && !domain.steady) {
      append.setTimeRange(1, 1 + domain.time(random));
    }
    attributes(append);
    return append;
  }

  private void add(Append append, byte[] qualifier, byte[] value) {
    byte[] family = domain.family(random);
    if (isFree(family, qualifier)) {
      append.addColumn(family, qualifier, value);
    }
  }

  Mutation any(byte[] row) throws IOException {
    return switch (random.nextInt(8)) {
      case 0 -> increment(row);
      case 1 -> append(row);
      case 2, 3, 4 -> delete(row);
      default -> put(row);
    };
  }

  RowMutations several(byte[] row) throws IOException {
    RowMutations mutations = new RowMutations(row);
    begin();
    several = true;
    for (int i = random.nextInt(3); i >= 0; i--) {
      Mutation mutation = chance(6) ? any(row) : chance(2) ? put(row) : delete(row);
      if (mutation instanceof Delete || !mutation.isEmpty()) {
        mutations.add(mutation);
      }
    }
    several = false;
    return mutations;
  }

  /** Whether the server sets the timestamp of a cell, or looks for the newest one. */
  static boolean takesTime(Row action) {
    if (action instanceof Get) {
      return false;
    }
    if (action instanceof RowMutations several) {
      return several.getMutations().stream().anyMatch(RandomMutations::takesTime);
    }
    if (action instanceof CheckAndMutate check) {
      return takesTime(check.getAction());
    }
    Mutation mutation = (Mutation) action;
    if (mutation instanceof Increment || mutation instanceof Append || mutation.isEmpty()) {
      return true;
    }
    for (List<Cell> cells : mutation.getFamilyCellMap().values()) {
      for (Cell cell : cells) {
        if (cell.getTimestamp() == HConstants.LATEST_TIMESTAMP) {
          return true;
        }
      }
    }
    return false;
  }
}
