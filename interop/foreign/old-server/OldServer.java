import org.apache.hadoop.hbase.master.HMaster;

/** HBase 0.98 or 1.x on a newer JVM: 0.98 accepts versions of the form {@code 1.x} only, and has no other objection. */
public final class OldServer {
  private OldServer() {
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("java.version", "1.8.0");
    HMaster.main(args);
  }
}
