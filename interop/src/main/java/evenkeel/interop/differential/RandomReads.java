package evenkeel.interop.differential;

import java.io.IOException;
import java.util.Random;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.Query;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.security.visibility.Authorizations;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Random Gets and Scans.
 *
 * Of a steady table, reads of time ranges and raw reads are excluded: they see versions beyond VERSIONS, as long as no
 * compaction has removed them.
 */
final class RandomReads {
  private final Random random;
  private final Domain domain;

  RandomReads(Random random, Domain domain) {
    this.random = random;
    this.domain = domain;
  }

  private boolean chance(int oneIn) {
    return random.nextInt(oneIn) == 0;
  }

  /** A Get of a secondary replica, which shows what had been flushed when it was opened. */
  Get ofReplica(byte[] row) throws IOException {
    Get get = new Get(row).setConsistency(Consistency.TIMELINE).setReplicaId(1);
    if (chance(3)) {
      get.addFamily(domain.family(random));
    }
    return chance(2) ? get.readVersions(1 + random.nextInt(3)) : get;
  }

  /** As {@link #ofReplica}, a Scan. */
  Scan scanOfReplica() {
    Scan scan = new Scan().setConsistency(Consistency.TIMELINE).setReplicaId(1);
    range(scan);
    if (chance(3)) {
      scan.addFamily(domain.family(random));
    }
    scan.setCaching(1 + random.nextInt(8));
    return chance(2) ? scan.readVersions(1 + random.nextInt(3)) : scan;
  }

  Get get(byte[] row) throws IOException {
    Get get = new Get(row);
    if (chance(3)) {
      get.addFamily(domain.family(random));
    }
    if (chance(3)) {
      get.addColumn(domain.family(random), domain.qualifier(random));
    }
    if (chance(10)) {
      get.addColumn(domain.family(random), domain.qualifier(random));
    }
    if (chance(2)) {
      get.readVersions(1 + random.nextInt(6));
    }
    if (!domain.steady) {
      times(get);
    }
    if (chance(10)) {
      get.setMaxResultsPerColumnFamily(1 + random.nextInt(3)).setRowOffsetPerColumnFamily(random.nextInt(3));
    }
    if (chance(4)) {
      get.setFilter(RandomFilters.ofRow(random, domain).next(2));
    }
    if (chance(20)) {
      get.setCheckExistenceOnly(true);
    }
    if (chance(4)) {
      get.setCacheBlocks(false);
    }
    // A strong Get goes to the default replica, whatever replica it names.
    if (chance(20) && domain.replicas > 1) {
      get.setConsistency(Consistency.STRONG).setReplicaId(1);
    }
    attributes(get);
    return get;
  }

  private void times(Get get) throws IOException {
    if (chance(5)) {
      int from = domain.time(random);
      get.setTimeRange(from, from + domain.time(random));
    }
    if (chance(12)) {
      get.setTimestamp(domain.time(random));
    }
    if (chance(12)) {
      get.setColumnFamilyTimeRange(domain.family(random), 1, 1 + domain.time(random));
    }
  }

  /** Attributes without an effect on the answers of servers without coprocessors of security. */
  private void attributes(Query query) {
    if (chance(10)) {
      query.setIsolationLevel(IsolationLevel.READ_UNCOMMITTED);
    }
    if (chance(20)) {
      query.setAuthorizations(new Authorizations("secret"));
    }
    if (chance(20)) {
      query.setAttribute("of.the.client", Bytes.toBytes("value"));
    }
    // HBase's client fails on a cursor without the metrics that a Scan asked for.
    query.setQueryMetricsEnabled(query instanceof Get && chance(20));
  }

  Scan scan() throws IOException {
    Scan scan = new Scan();
    if (chance(4) && !domain.stripes) {
      scan.setReversed(true).setLoadColumnFamiliesOnDemand(false);
    } else if (chance(4)) {
      scan.setLoadColumnFamiliesOnDemand(chance(2));
    }
    range(scan);
    if (chance(3)) {
      scan.addFamily(domain.family(random));
    }
    if (chance(4)) {
      scan.addColumn(domain.family(random), domain.qualifier(random));
    }
    if (chance(2)) {
      scan.readVersions(1 + random.nextInt(6));
    }
    if (!domain.steady) {
      times(scan);
    }
    if (chance(3)) {
      scan.setFilter(RandomFilters.ofScan(random, domain, scan.isReversed()).next(2));
    }
    limits(scan);
    parts(scan);
    attributes(scan);
    return scan;
  }

  private void range(Scan scan) {
    byte[] one = domain.row(random);
    byte[] two = domain.row(random);
    boolean forward = (Bytes.compareTo(one, two) < 0) != scan.isReversed();
    if (chance(20) && !scan.isReversed()) {
      scan.setStartStopRowForPrefixScan(one);
      return;
    }
    if (chance(2)) {
      scan.withStartRow(forward ? one : two, !chance(4));
    }
    if (chance(2)) {
      scan.withStopRow(forward ? two : one, chance(3));
    }
  }

  private void times(Scan scan) throws IOException {
    if (chance(5)) {
      int from = domain.time(random);
      scan.setTimeRange(from, from + domain.time(random));
    } else if (chance(15)) {
      scan.setTimestamp(domain.time(random));
    }
    if (chance(15)) {
      scan.setColumnFamilyTimeRange(domain.family(random), 1, 1 + domain.time(random));
    }
  }

  private void limits(Scan scan) {
    scan.setCaching(1 + random.nextInt(8));
    if (chance(6)) {
      scan.setLimit(1 + random.nextInt(6));
    }
    if (chance(20)) {
      scan.setOneRowLimit();
    }
    if (chance(6)) {
      scan.setMaxResultsPerColumnFamily(1 + random.nextInt(4)).setRowOffsetPerColumnFamily(random.nextInt(2));
    }
    if (chance(5)) {
      scan.setMaxResultSize(200 + random.nextInt(4000));
    }
  }

  private void parts(Scan scan) {
    // Parts of a row count towards the limit. Cells that a compaction would remove make further parts, and so do values in
    // MOB files, which a stock server does not count towards the size of a reply.
    boolean mayCut = !(domain.steady || domain.mob) || scan.getLimit() < 0;
    if (chance(8) && !scan.hasFilter() && mayCut) {
      scan.setBatch(1 + random.nextInt(4));
    }
    if (chance(10) && mayCut) {
      scan.setAllowPartialResults(true);
    }
    // A raw scan with a time range makes a stock 2.6.4 server loop forever.
    boolean allTimes = scan.getTimeRange().isAllTime() && scan.getColumnFamilyTimeRange().isEmpty();
    if (chance(12) && !domain.steady && !scan.hasFilter() && allTimes) {
      scan.setRaw(true).readAllVersions();
    }
    if (chance(6)) {
      scan.setReadType(Scan.ReadType.values()[random.nextInt(3)]);
    }
    if (chance(4)) {
      scan.setCacheBlocks(false);
    }
    if (chance(15)) {
      scan.setNeedCursorResult(true);
    }
    // HBase's client makes a cursor of a part of a row, and fails on it if it prefetches.
    if (chance(15) && scan.getBatch() <= 0 && !scan.isNeedCursorResult()) {
      scan.setAsyncPrefetch(true);
    }
    if (chance(15)) {
      scan.setScanMetricsEnabled(true);
    }
  }
}
