import org.apache.hadoop.hbase.KeyValue;

/** Sequence ids of cells in HBase 0.98. */
final class SequenceIds {
  private SequenceIds() {
  }

  static void set(KeyValue cell, long id) {
    cell.setMvccVersion(id);
  }
}
