package evenkeel.interop.checks;

import static evenkeel.interop.Rows.put;

import evenkeel.interop.Rows;
import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceExistException;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.constraint.ConstraintException;

/** Namespaces: life cycle, properties, tables in them, errors. */
final class NamespaceChecks {
  private final Suite suite;

  NamespaceChecks(Suite suite) {
    this.suite = suite;
  }

  void all() {
    suite.check("namespace-life", this::life);
    suite.check("namespace-tables", this::tables);
    suite.check("namespace-errors", this::errors);
    suite.check("namespace-system", this::system);
  }

  private void life() throws IOException {
    String name = suite.word("ns");
    suite.admin.createNamespace(NamespaceDescriptor.create(name).addConfiguration("k", "v").build());
    Expect.same("v", suite.admin.getNamespaceDescriptor(name).getConfigurationValue("k"));
    Expect.that(Arrays.asList(suite.admin.listNamespaces()).contains(name), "it is listed");
    suite.admin.modifyNamespace(NamespaceDescriptor.create(name).addConfiguration("k", "w").addConfiguration("l", "x").build());
    Expect.same("{k=w, l=x}", new java.util.TreeMap<>(suite.admin.getNamespaceDescriptor(name).getConfiguration()).toString());
    suite.admin.deleteNamespace(name);
    Expect.that(!Arrays.asList(suite.admin.listNamespaces()).contains(name), "it is gone");
    Expect.fails(NamespaceNotFoundException.class, () -> suite.admin.getNamespaceDescriptor(name));
  }

  private void tables() throws IOException {
    String name = suite.word("ns");
    suite.admin.createNamespace(NamespaceDescriptor.create(name).build());
    TableName tableName = TableName.valueOf(name, "t");
    suite.admin.createTable(
        TableDescriptorBuilder.newBuilder(tableName).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    try (Table table = suite.connection.getTable(tableName)) {
      table.put(put("r", "f:q", 1, "v"));
      Expect.lines(Rows.scan(table, new Scan()), "r{f:q@1=v}");
    }
    Expect.same("[" + tableName + "]", Arrays.toString(suite.admin.listTableNamesByNamespace(name)));
    Expect.same(1, suite.admin.listTableDescriptorsByNamespace(name.getBytes()).size());
    Expect.fails(ConstraintException.class, () -> suite.admin.deleteNamespace(name));
    suite.admin.disableTable(tableName);
    suite.admin.deleteTable(tableName);
    suite.admin.deleteNamespace(name);
  }

  private void errors() throws IOException {
    String name = suite.word("ns");
    Expect.fails(NamespaceNotFoundException.class, () -> suite.admin.deleteNamespace(name));
    Expect.fails(NamespaceNotFoundException.class,
        () -> suite.admin.modifyNamespace(NamespaceDescriptor.create(name).build()));
    Expect.fails(NamespaceNotFoundException.class, () -> suite.admin.listTableNamesByNamespace(name));
    suite.admin.createNamespace(NamespaceDescriptor.create(name).build());
    Expect.fails(NamespaceExistException.class, () -> suite.admin.createNamespace(NamespaceDescriptor.create(name).build()));
    suite.admin.deleteNamespace(name);
  }

  private void system() throws IOException {
    Expect.that(Arrays.asList(suite.admin.listNamespaces()).containsAll(Arrays.asList("default", "hbase")),
        "default and hbase are there");
    Expect.fails(ConstraintException.class, () -> suite.admin.deleteNamespace("hbase"));
    Expect.fails(ConstraintException.class, () -> suite.admin.deleteNamespace("default"));
  }
}
