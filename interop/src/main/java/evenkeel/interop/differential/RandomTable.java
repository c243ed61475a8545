package evenkeel.interop.differential;

import static evenkeel.interop.Rows.b;

import java.util.Random;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.MemoryCompactionPolicy;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;

/**
 * Random attributes of a table and its families.
 *
 * Excluded: BZIP2, LZO, LZMA and BROTLI, which a stock server has only with native libraries or further jars;
 * ENCRYPTION, which Evenkeel refuses; ERASURE_CODING_POLICY, which needs HDFS; DURABILITY SKIP_WAL of a table, which in
 * stock HBase leaves cells without sequence ids, so that of two Puts with one timestamp the earlier one may win.
 */
final class RandomTable {
  private static final String REGIONSERVER = "org.apache.hadoop.hbase.regionserver.";
  private static final Compression.Algorithm[] COMPRESSIONS = {Compression.Algorithm.NONE, Compression.Algorithm.GZ,
      Compression.Algorithm.SNAPPY, Compression.Algorithm.LZ4, Compression.Algorithm.ZSTD};
  private static final int[] VERSIONS = {1, 1, 2, 3, 3, 5, Integer.MAX_VALUE};
  private static final int[] BLOCK_BYTES = {1024, 1024, 4096, 65_536};
  private static final String[] STORAGE_POLICIES = {"HOT", "COLD", "WARM", "ALL_SSD", "ONE_SSD"};
  private static final String[] FLUSH_POLICIES = {"FlushAllStoresPolicy", "FlushAllLargeStoresPolicy", "FlushNonSloppyStoresFirstPolicy"};
  /** Those of a table whose regions stay below every limit. */
  private static final String[] SPLIT_POLICIES = {"DisabledRegionSplitPolicy", "ConstantSizeRegionSplitPolicy",
      "IncreasingToUpperBoundRegionSplitPolicy", "SteppingSplitPolicy", "KeyPrefixRegionSplitPolicy",
      "DelimitedKeyPrefixRegionSplitPolicy", "BusyRegionSplitPolicy"};
  private static final String[] ENGINES = {"DefaultStoreEngine", "DateTieredStoreEngine", "StripeStoreEngine"};
  /** Over NEW_VERSION_BEHAVIOR, a stock server's reads of single columns may loop forever. */
  private static final boolean NEW_VERSIONS_LOOP = true;
  private static final String FILES = "hbase.hstore.blockingStoreFiles";
  private static final String COMPACTION_MIN = "hbase.hstore.compaction.min";

  private final Random random;
  private final Domain domain;

  RandomTable(Random random, Domain domain) {
    this.random = random;
    this.domain = domain;
  }

  private boolean chance(int oneIn) {
    return random.nextInt(oneIn) == 0;
  }

  private <T> T pick(T[] values) {
    return values[random.nextInt(values.length)];
  }

  private int pick(int[] values) {
    return values[random.nextInt(values.length)];
  }

  /** Draws a table, and records its families in the domain. */
  TableDescriptor table(TableName name) {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
    for (int i = random.nextInt(Domain.NAMES.length); i >= 0; i--) {
      table.setColumnFamily(family(Domain.NAMES[i]));
    }
    table.setRegionReplication(domain.replicas);
    if (chance(3)) {
      table.setValue("hbase.store.file-tracker.impl", chance(4) ? "DEFAULT" : "FILE");
    }
    attributes(table);
    TableDescriptor made = table.build();
    record(made);
    return made;
  }

  /** Records the families of this descriptor. */
  void record(TableDescriptor table) {
    domain.families.clear();
    domain.eternal.clear();
    domain.newVersions.clear();
    domain.mob = false;
    domain.stripes = false;
    for (ColumnFamilyDescriptor family : table.getColumnFamilies()) {
      domain.families.add(family.getNameAsString());
      if (family.isNewVersionBehavior()) {
        domain.newVersions.add(family.getNameAsString());
      }
      domain.mob |= family.isMobEnabled();
      String engine = family.getConfigurationValue("hbase.hstore.engine.class");
      domain.stripes |= engine != null && engine.endsWith("StripeStoreEngine");
      if (family.getTimeToLive() == HConstants.FOREVER) {
        domain.eternal.add(family.getNameAsString());
      }
    }
  }

  /** Draws every attribute of the table, except the number of replicas and the store file tracker. */
  void attributes(TableDescriptorBuilder table) {
    table.setRegionMemStoreReplication(chance(2));
    Durability durability = pick(Durability.values());
    table.setDurability(durability == Durability.SKIP_WAL ? Durability.USE_DEFAULT : durability);
    table.setPriority(random.nextInt(3) * 100);
    table.setCompactionEnabled(!chance(6)).setSplitEnabled(!chance(6)).setMergeEnabled(!chance(6));
    table.setNormalizationEnabled(chance(4)).setNormalizerTargetRegionCount(chance(2) ? 3 : -1)
        .setNormalizerTargetRegionSize(chance(2) ? 100 : -1);
    table.setFlushPolicyClassName(REGIONSERVER + pick(FLUSH_POLICIES));
    table.setMaxFileSize((10L << 30) + random.nextInt(9));
    if (domain.steady) {
      table.setMemStoreFlushSize(1 << 20).setRegionSplitPolicyClassName(REGIONSERVER + SPLIT_POLICIES[random.nextInt(2)]);
      table.setValue("hbase.memstore.inmemoryflush.threshold.factor", "0.02");
    } else {
      table.setMemStoreFlushSize(chance(2) ? 8 << 20 : 128 << 20).setRegionSplitPolicyClassName(REGIONSERVER + pick(SPLIT_POLICIES));
      table.setValue("KeyPrefixRegionSplitPolicy.prefix_length", chance(2) ? "1" : "2");
      table.setValue("DelimitedKeyPrefixRegionSplitPolicy.delimiter", "x");
    }
    table.setValue("hbase.server.keyvalue.maxsize", chance(4) ? "1500" : "10485760");
    table.setOwnerString(chance(2) ? "someone" : "nobody");
  }

  /** Draws a family. */
  ColumnFamilyDescriptor family(String name) {
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(b(name));
    versions(family);
    storage(family);
    configuration(family);
    mob(family, false);
    return family.build();
  }

  /**
   * Draws the attributes of an existing family again.
   *
   * MOB files stay enabled: a stock server without them returns references in the place of values. NEW_VERSION_BEHAVIOR
   * stays, because a family that has it must have no markers of the family. In a steady table,
   * what is visible stays the same: of versions that become visible, a compaction may have removed some.
   */
  ColumnFamilyDescriptor again(ColumnFamilyDescriptor old) {
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(old);
    if (!domain.steady) {
      versions(family);
      family.setNewVersionBehavior(old.isNewVersionBehavior());
    }
    storage(family);
    if (old.isMobEnabled() || !domain.steady) {
      mob(family, old.isMobEnabled());
    }
    return family.build();
  }

  private void versions(ColumnFamilyDescriptorBuilder family) {
    int versions = pick(VERSIONS);
    // Each explicit time is past this TTL, and no time of the server is.
    boolean ttl = chance(4);
    family.setMinVersions(0).setMaxVersions(versions);
    family.setTimeToLive(ttl ? 1_000_000 : HConstants.FOREVER);
    family.setMinVersions(ttl || chance(8) ? Math.min(versions, random.nextInt(3)) : 0);
    family.setKeepDeletedCells(chance(2) ? KeepDeletedCells.FALSE : pick(KeepDeletedCells.values()));
    family.setNewVersionBehavior(!NEW_VERSIONS_LOOP && chance(6));
  }

  private void storage(ColumnFamilyDescriptorBuilder family) {
    BloomType bloom = pick(BloomType.values());
    family.setBloomFilterType(bloom);
    if (bloom == BloomType.ROWPREFIX_FIXED_LENGTH) {
      family.setConfiguration("RowPrefixBloomFilter.prefix_length", chance(2) ? "1" : "2");
    }
    family.setDataBlockEncoding(pick(DataBlockEncoding.values()));
    family.setCompressionType(pick(COMPRESSIONS)).setCompactionCompressionType(pick(COMPRESSIONS));
    family.setBlocksize(pick(BLOCK_BYTES)).setCompressTags(chance(2));
    family.setBlockCacheEnabled(!chance(4)).setInMemory(chance(4)).setPrefetchBlocksOnOpen(chance(4));
    family.setCacheDataOnWrite(chance(3)).setCacheIndexesOnWrite(chance(3)).setCacheBloomsOnWrite(chance(3));
    family.setEvictBlocksOnClose(chance(3));
    family.setInMemoryCompaction(pick(MemoryCompactionPolicy.values()));
    family.setStoragePolicy(pick(STORAGE_POLICIES)).setScope(random.nextInt(2)).setDFSReplication((short) random.nextInt(3));
    family.setConfiguration("hbase.hstore.checksum.algorithm", chance(2) ? "CRC32" : "CRC32C");
    family.setConfiguration("hbase.hstore.bytes.per.checksum", chance(2) ? "512" : "16384");
  }

  private void configuration(ColumnFamilyDescriptorBuilder family) {
    // Of an exact table, only operations request compactions: the time of one would be visible.
    family.setConfiguration(COMPACTION_MIN, domain.steady ? "" + (2 + random.nextInt(2)) : "1000");
    family.setConfiguration(FILES, "1000");
    // A stock server's scanner that has read four blocks opens its files again, and forgets that a filter ended the scan.
    family.setConfiguration("hbase.storescanner.pread.max.bytes", "1000000000");
    family.setConfiguration("hbase.hstore.compaction.ratio", chance(2) ? "1.2" : "5.0");
  }

  private void mob(ColumnFamilyDescriptorBuilder family, boolean had) {
    if (had || chance(6)) {
      family.setMobEnabled(true).setMobThreshold(chance(2) ? 1 : 1000);
    } else if (domain.steady && family.build().getConfigurationValue("hbase.hstore.engine.class") == null) {
      // In stock HBase, a compaction of stripes may drop a delete marker and keep the cells that it covers.
      boolean keeps = family.build().getKeepDeletedCells() != KeepDeletedCells.FALSE;
      family.setConfiguration("hbase.hstore.engine.class", REGIONSERVER + ENGINES[random.nextInt(keeps ? 2 : 3)]);
    }
  }
}
