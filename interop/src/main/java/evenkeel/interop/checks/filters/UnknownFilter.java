package evenkeel.interop.checks.filters;

import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.filter.FilterBase;

/** A custom filter of a user, on the client's class path but not on a server's. */
public final class UnknownFilter extends FilterBase {
  @Override
  public ReturnCode filterCell(Cell cell) {
    return ReturnCode.INCLUDE;
  }

  @Override
  public byte[] toByteArray() {
    return new byte[0];
  }
}
