package evenkeel.interop.checks;

import static evenkeel.interop.Rows.b;
import static evenkeel.interop.Rows.delete;
import static evenkeel.interop.Rows.get;
import static evenkeel.interop.Rows.put;
import static evenkeel.interop.Rows.read;
import static evenkeel.interop.Rows.readAll;

import evenkeel.interop.Rows;
import evenkeel.interop.Show;
import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableNotEnabledException;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Puts and the four kinds of delete, one row at a time; sizes; errors. */
final class MutationChecks {
  private final Suite suite;

  MutationChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("put-get", this::putGet);
    suite.check("server-timestamps", this::serverTimestamps);
    suite.check("delete-one-version", this::deleteOneVersion);
    suite.check("delete-all-versions", this::deleteAllVersions);
    suite.check("delete-family", this::deleteFamily);
    suite.check("delete-family-version", this::deleteFamilyVersion);
    suite.check("delete-row", this::deleteRow);
    suite.check("delete-masks-later-put", this::deleteMasksLaterPut);
    suite.check("durability", this::durability);
    suite.check("sizes", this::sizes);
    suite.check("too-big-value", this::tooBigValue);
    suite.check("wide-row", this::wideRow);
    suite.check("wrong-family", this::wrongFamily);
    suite.check("missing-table", this::missingTable);
    suite.check("disabled-table", this::disabledTable);
    suite.check("read-only-table", this::readOnlyTable);
    suite.check("buffered-mutator", this::bufferedMutator);
    suite.check("presplit", this::presplit);
    suite.check("after-flush", this::afterFlush);
  }

  private void putGet() throws IOException {
    try (Table table = suite.table("f", "g")) {
      Put row = put("r", "f:b", 5, "2");
      for (String column : new String[] {"f:a", "g:", "f:", "g:z"}) {
        Rows.add(row, column, 5, column.equals("g:z") ? "" : column);
      }
      table.put(row);
      Expect.same("r{f:@5=f: f:a@5=f:a f:b@5=2 g:@5=g: g:z@5=}", read(table, "r"));
      Expect.same("-", read(table, "none"));
      Expect.same("r{g:@5=g: g:z@5=}", Show.row(table.get(get("r").addFamily(b("g")))));
      Expect.same("r{f:@5=f: f:b@5=2}", Show.row(table.get(get("r").addColumn(b("f"), b("b")).addColumn(b("f"), b("")))));
      table.put(put("r", "f:b", 5, "again"));
      Expect.same("r{f:b@5=again}", Show.row(table.get(get("r").addColumn(b("f"), b("b")))));
      table.put(put("r", "f:b", 4, "older"));
      Expect.same("r{f:b@5=again}", Show.row(table.get(get("r").addColumn(b("f"), b("b")))));
    }
  }

  private void serverTimestamps() throws IOException {
    try (Table table = suite.versioned()) {
      long before = System.currentTimeMillis();
      table.put(put("r", "f:q", "v"));
      long first = table.get(get("r")).rawCells()[0].getTimestamp();
      Expect.between(before - 2000, System.currentTimeMillis() + 2000, first, "server time");
      table.put(put("r", "f:q", "w"));
      long second = table.get(get("r")).rawCells()[0].getTimestamp();
      Expect.that(second >= first, "time goes forward");
      Expect.same("r{f:q@now=w}", read(table, "r"));
    }
  }

  private static void fill(Table table, String row) throws IOException {
    for (int ts = 1; ts <= 4; ts++) {
      table.put(Rows.add(put(row, "f:a", ts, "a" + ts), "f:b", ts, "b" + ts));
    }
  }

  private void deleteOneVersion() throws IOException {
    try (Table table = suite.versioned()) {
      fill(table, "r");
      table.delete(delete("r").addColumn(b("f"), b("a"), 3));
      Expect.same("r{f:a@4=a4 f:a@2=a2 f:a@1=a1 f:b@4=b4 f:b@3=b3 f:b@2=b2 f:b@1=b1}", readAll(table, "r"));
      table.delete(delete("r").addColumn(b("f"), b("a")));
      Expect.same("r{f:a@2=a2 f:a@1=a1 f:b@4=b4 f:b@3=b3 f:b@2=b2 f:b@1=b1}", readAll(table, "r"));
      table.delete(delete("r").addColumn(b("f"), b("b")));
      table.delete(delete("r").addColumn(b("f"), b("b")));
      Expect.same("r{f:a@2=a2 f:b@2=b2}", read(table, "r"));
      table.delete(delete("none").addColumn(b("f"), b("a")));
      Expect.same("-", read(table, "none"));
      Expect.same("r{f:a@4!Delete f:a@4=a4 f:a@3!Delete f:a@3=a3 f:a@2=a2 f:a@1=a1 f:b@4!Delete f:b@4=b4 f:b@3!Delete"
          + " f:b@3=b3 f:b@2=b2 f:b@1=b1}", Rows.scan(table, new Scan().withStartRow(b("r")).setRaw(true).readAllVersions())
          .get(0));
    }
  }

  private void deleteAllVersions() throws IOException {
    try (Table table = suite.versioned()) {
      fill(table, "r");
      table.delete(delete("r").addColumns(b("f"), b("a"), 2));
      Expect.same("r{f:a@4=a4 f:a@3=a3 f:b@4=b4 f:b@3=b3 f:b@2=b2 f:b@1=b1}", readAll(table, "r"));
      table.delete(delete("r").addColumns(b("f"), b("b")));
      Expect.same("r{f:a@4=a4 f:a@3=a3}", readAll(table, "r"));
    }
  }

  private void deleteFamily() throws IOException {
    try (Table table = suite.table("f", "g")) {
      table.put(Rows.add(put("r", "f:a", 3, "x"), "g:a", 3, "y"));
      table.put(Rows.add(put("r", "f:b", 7, "x"), "g:b", 7, "y"));
      table.delete(delete("r").addFamily(b("f"), 5));
      Expect.same("r{f:b@7=x g:a@3=y g:b@7=y}", read(table, "r"));
      table.delete(delete("r").addFamily(b("g")));
      Expect.same("r{f:b@7=x}", read(table, "r"));
    }
  }

  private void deleteFamilyVersion() throws IOException {
    try (Table table = suite.versioned()) {
      fill(table, "r");
      table.delete(delete("r").addFamilyVersion(b("f"), 3));
      Expect.same("r{f:a@4=a4 f:a@2=a2 f:a@1=a1 f:b@4=b4 f:b@2=b2 f:b@1=b1}", readAll(table, "r"));
      table.delete(delete("r").addFamilyVersion(b("f"), 9));
      Expect.same("r{f:a@4=a4 f:b@4=b4}", read(table, "r"));
    }
  }

  private void deleteRow() throws IOException {
    try (Table table = suite.table("f", "g")) {
      table.put(Rows.add(put("r", "f:a", 3, "x"), "g:a", 9, "y"));
      table.put(put("s", "f:a", 3, "x"));
      table.delete(new Delete(b("r"), 5));
      Expect.same("r{g:a@9=y}", read(table, "r"));
      table.delete(delete("r"));
      Expect.same("-", read(table, "r"));
      Expect.same("s{f:a@3=x}", read(table, "s"));
      Expect.lines(Rows.scan(table, new Scan().setRaw(true).readAllVersions()),
          "r{f:@now!DeleteFamily f:@5!DeleteFamily f:a@3=x g:@now!DeleteFamily g:@5!DeleteFamily g:a@9=y}",
          "s{f:a@3=x}");
    }
  }

  private void deleteMasksLaterPut() throws IOException {
    try (Table table = suite.versioned()) {
      table.delete(delete("r").addColumns(b("f"), b("a"), 5));
      table.put(put("r", "f:a", 5, "same"));
      table.put(put("r", "f:a", 4, "older"));
      Expect.same("-", readAll(table, "r"));
      table.put(put("r", "f:a", 6, "newer"));
      Expect.same("r{f:a@6=newer}", readAll(table, "r"));
    }
  }

  private void durability() throws IOException {
    try (Table table = suite.table("f")) {
      for (Durability durability : Durability.values()) {
        table.put(put("r" + durability, "f:q", 1, "v").setDurability(durability));
        Expect.same("r" + durability + "{f:q@1=v}", read(table, "r" + durability));
      }
    }
  }

  private void sizes() throws IOException {
    try (Table table = suite.table("f")) {
      byte[] row = new byte[32767];
      Arrays.fill(row, (byte) 0xfe);
      byte[] qualifier = new byte[20_000];
      byte[] value = new byte[5 << 20];
      new Random(7).nextBytes(value);
      // The client locates a region by a meta key longer than the row, which would be too long for the longest row:
      // this Get fills its location cache.
      table.get(get("r"));
      table.put(new Put(row).addColumn(b("f"), qualifier, value));
      byte[] got = table.get(new org.apache.hadoop.hbase.client.Get(row)).getValue(b("f"), qualifier);
      Expect.that(Arrays.equals(value, got), "5 MiB come back as they went");
      byte[] binary = {0, (byte) 0xff, 1, (byte) 0x80};
      table.put(new Put(binary).addColumn(b("f"), binary, binary));
      Expect.that(Arrays.equals(binary, table.get(new org.apache.hadoop.hbase.client.Get(binary)).getValue(b("f"), binary)),
          "bytes 0, 255, 1, 128");
      Expect.same(2, Rows.keys(table, new Scan()).size());
    }
  }

  private void tooBigValue() throws IOException {
    Configuration unchecked = new Configuration(suite.conf);
    unchecked.setInt("hbase.client.keyvalue.maxsize", 0);
    try (Table named = suite.table("f"); Connection connection = ConnectionFactory.createConnection(unchecked);
        Table table = connection.getTable(named.getName())) {
      byte[] tooBig = new byte[(10 << 20) + 1];
      Expect.fails(DoNotRetryIOException.class, () -> table.put(new Put(b("r")).addColumn(b("f"), b("q"), tooBig)));
      Expect.same("-", read(table, "r"));
      byte[] fits = new byte[(10 << 20) - 64];
      table.put(new Put(b("r")).addColumn(b("f"), b("q"), fits));
      Expect.same(fits.length, table.get(get("r")).rawCells()[0].getValueLength());
    }
  }

  private void wideRow() throws IOException {
    try (Table table = suite.table("f")) {
      Put row = new Put(b("r"));
      for (int i = 0; i < 5000; i++) {
        row.addColumn(b("f"), Bytes.toBytes(i), 1, Bytes.toBytes(-i));
      }
      table.put(row);
      var cells = table.get(get("r")).rawCells();
      Expect.same(5000, cells.length);
      for (int i = 0; i < 5000; i++) {
        Expect.same(-i, Bytes.toInt(cells[i].getValueArray(), cells[i].getValueOffset()));
      }
    }
  }

  private void wrongFamily() throws IOException {
    try (Table table = suite.table("f")) {
      Class<NoSuchColumnFamilyException> wrong = NoSuchColumnFamilyException.class;
      Expect.fails(wrong, () -> table.put(put("r", "x:q", "v")));
      Expect.fails(wrong, () -> table.put(Rows.add(put("r", "f:q", "v"), "x:q", "v")));
      Expect.same("-", read(table, "r"));
      Expect.fails(wrong, () -> table.get(get("r").addFamily(b("x"))));
      Expect.fails(wrong, () -> table.delete(delete("r").addFamily(b("x"))));
      Expect.fails(wrong, () -> Rows.scan(table, new Scan().addFamily(b("x"))));
      Expect.fails(wrong, () -> table.increment(new org.apache.hadoop.hbase.client.Increment(b("r")).addColumn(b("x"), b("q"), 1)));
      Expect.fails(wrong, () -> table.append(new org.apache.hadoop.hbase.client.Append(b("r")).addColumn(b("x"), b("q"), b("v"))));
    }
  }

  private void missingTable() throws IOException {
    try (Table table = suite.connection.getTable(suite.name())) {
      Class<TableNotFoundException> missing = TableNotFoundException.class;
      Expect.fails(missing, () -> table.put(put("r", "f:q", "v")));
      Expect.fails(missing, () -> table.get(get("r")));
      Expect.fails(missing, () -> table.delete(delete("r")));
      Expect.fails(missing, () -> Rows.scan(table, new Scan()));
      Expect.fails(missing, table::getDescriptor);
    }
  }

  private void disabledTable() throws IOException {
    try (Table table = suite.table("f")) {
      table.put(put("r", "f:q", 1, "v"));
      suite.admin.disableTable(table.getName());
      Expect.fails(TableNotEnabledException.class, () -> table.get(get("r")));
      Expect.fails(TableNotEnabledException.class, () -> table.put(put("r", "f:q", "v")));
      suite.admin.enableTable(table.getName());
      Expect.same("r{f:q@1=v}", read(table, "r"));
    }
  }

  private void readOnlyTable() throws IOException {
    TableDescriptorBuilder readOnly = TableDescriptorBuilder.newBuilder(suite.name())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setReadOnly(true);
    try (Table table = suite.create(readOnly)) {
      Expect.fails(DoNotRetryIOException.class, () -> table.put(put("r", "f:q", "v")));
      Expect.same("-", read(table, "r"));
    }
  }

  private void bufferedMutator() throws IOException {
    try (Table table = suite.presplit("row03", "row06")) {
      try (BufferedMutator mutator = suite.connection.getBufferedMutator(table.getName())) {
        for (int i = 0; i < 1000; i++) {
          mutator.mutate(put(String.format("row%02d-%03d", i % 10, i), "f:q", 1, "v" + i));
        }
        mutator.mutate(delete("row00-000"));
      }
      Expect.same(999, Rows.keys(table, new Scan()).size());
    }
  }

  private void presplit() throws IOException {
    try (Table table = suite.presplit("b", "d"); var locator = suite.connection.getRegionLocator(table.getName())) {
      Expect.same(3, locator.getAllRegionLocations().size());
      Expect.same("b", Bytes.toString(locator.getRegionLocation(b("c")).getRegion().getStartKey()));
      Expect.same("d", Bytes.toString(locator.getRegionLocation(b("d"), true).getRegion().getStartKey()));
      Expect.same("", Bytes.toString(locator.getRegionLocation(b("a"), true).getRegion().getStartKey()));
      Expect.same("[, b, d]", Arrays.stream(locator.getStartKeys()).map(Bytes::toString).toList().toString());
      for (String row : new String[] {"a", "b", "c", "d", "e", "azzz"}) {
        table.put(put(row, "f:q", 1, row));
        Expect.same(row + "{f:q@1=" + row + "}", read(table, row));
      }
      Expect.lines(Rows.keys(table, new Scan()), "a", "azzz", "b", "c", "d", "e");
    }
  }

  private void afterFlush() throws IOException {
    try (Table table = suite.versioned()) {
      fill(table, "r");
      suite.admin.flush(table.getName());
      Expect.same("r{f:a@4=a4 f:b@4=b4}", read(table, "r"));
      table.put(put("r", "f:a", 5, "a5"));
      table.delete(delete("r").addColumn(b("f"), b("b"), 4));
      Expect.same("r{f:a@5=a5 f:b@3=b3}", read(table, "r"));
      suite.admin.flush(table.getName());
      Expect.same("r{f:a@5=a5 f:a@4=a4 f:a@3=a3 f:a@2=a2 f:a@1=a1 f:b@3=b3 f:b@2=b2 f:b@1=b1}", readAll(table, "r"));
    }
  }
}
