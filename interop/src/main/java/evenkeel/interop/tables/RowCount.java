package evenkeel.interop.tables;

import evenkeel.interop.Clients;
import java.util.Properties;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;

/** Prints the number of rows of a table: {@code RowCount TABLE}, in the cluster of hbase-site.xml. */
public final class RowCount {
  private RowCount() {
  }

  public static void main(String[] args) throws Exception {
    long rows = 0;
    try (Connection connection = ConnectionFactory.createConnection(Clients.configuration("zk", new Properties()));
        Table table = connection.getTable(TableName.valueOf(args[0]));
        ResultScanner scanner = table.getScanner(new Scan().setFilter(new FirstKeyOnlyFilter()).setCaching(1000))) {
      for (Result row = scanner.next(); row != null; row = scanner.next()) {
        rows++;
      }
    }
    System.out.println(rows);
  }
}
