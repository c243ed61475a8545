import org.apache.hadoop.hbase.KeyValue;

/** Sequence ids of cells in HBase 1.x. */
final class SequenceIds {
  private SequenceIds() {
  }

  static void set(KeyValue cell, long id) {
    cell.setSequenceId(id);
  }
}
