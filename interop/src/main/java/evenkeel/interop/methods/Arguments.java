package evenkeel.interop.methods;

import static evenkeel.interop.Rows.b;

import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HRegionInfo;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BalanceRequest;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactType;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.LogQueryFilter;
import org.apache.hadoop.hbase.client.MasterSwitchType;
import org.apache.hadoop.hbase.client.NormalizeTableFilterParams;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ServerType;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.SnapshotType;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableState;
import org.apache.hadoop.hbase.filter.CompareFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.master.RegionState;
import org.apache.hadoop.hbase.quotas.QuotaFilter;
import org.apache.hadoop.hbase.quotas.QuotaSettings;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.ThrottleType;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.security.access.GetUserPermissionsRequest;
import org.apache.hadoop.hbase.security.access.Permission;
import org.apache.hadoop.hbase.security.access.UserPermission;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.HBaseProtos;

/** Arguments for a method, by the types of its parameters and by its name. */
final class Arguments {
  /** A server that is not there. */
  private static final ServerName DEAD = ServerName.valueOf("localhost", 1, 1);
  private static final byte[] ROW = b("k");

  private final Fixture fixture;
  private final String name;
  private int bytes;
  private int strings;
  private int tables;

  private Arguments(Fixture fixture, Method method) {
    this.fixture = fixture;
    this.name = method.getName();
  }

  /** Returns the arguments, or null if a type is unknown. */
  static Object[] of(Fixture fixture, Method method) throws Exception {
    Arguments arguments = new Arguments(fixture, method);
    Class<?>[] types = method.getParameterTypes();
    Type[] generic = method.getGenericParameterTypes();
    Object[] values = new Object[types.length];
    for (int i = 0; i < types.length; i++) {
      values[i] = arguments.value(method, types[i], generic[i].getTypeName());
      if (values[i] == null) {
        return null;
      }
    }
    return values;
  }

  private Object value(Method method, Class<?> type, String generic) throws Exception {
    if (type == byte[].class) {
      return bytes(method, bytes++);
    } else if (type == String.class) {
      return string(strings++);
    } else if (type == boolean.class) {
      // Without system tables, force or ACLs; switches stay on.
      return name.contains("Switch") || name.startsWith("set") || name.startsWith("enable");
    } else if (type == int.class) {
      return name.equals("createTable") ? 4 : 10;
    } else if (type == long.class) {
      return 1L;
    } else if (type == TableName.class) {
      boolean isNew = name.startsWith("cloneSnapshot") || name.equals("cloneTableSchema") && tables++ == 1;
      return isNew ? Fixture.NEW_TABLE : Fixture.TABLE;
    } else if (type == List.class || type == Set.class || type == Map.class) {
      return collection(generic);
    } else if (type.isEnum()) {
      return constant(type);
    }
    Object ofCluster = ofCluster(type);
    return ofCluster != null ? ofCluster : ofRows(type);
  }

  private byte[] bytes(Method method, int index) throws Exception {
    boolean isOfTable = method.getDeclaringClass().getSimpleName().endsWith("Table");
    if (isOfTable) {
      List<byte[]> inOrder =
          name.equals("getScanner") ? List.of(b("f"), b("q")) : List.of(ROW, b("f"), b("q"), b("v"));
      return inOrder.get(index);
    } else if (name.startsWith("mergeRegions")) {
      return fixture.region(index).getEncodedNameAsBytes();
    } else if (name.toLowerCase().contains("snapshot")) {
      return b(name.equals("snapshot") ? Fixture.NEW_SNAPSHOT : Fixture.SNAPSHOT);
    } else if (name.equals("createTable")) {
      return index == 0 ? b("b") : b("y");
    } else if (name.equals("getAlterStatus")) {
      return Fixture.TABLE.getName();
    } else if (name.equals("listTableDescriptorsByNamespace")) {
      return b(Fixture.NAMESPACE);
    } else if (name.equals("split")) {
      return b("m");
    } else if (method.getParameterTypes()[0] == TableName.class) {
      return b("g");
    } else if (name.equals("move")) {
      return index == 0 ? fixture.region(0).getEncodedNameAsBytes() : b(fixture.server().getServerName());
    } else if (index == 0) {
      return fixture.region(0).getRegionName();
    }
    return name.startsWith("splitRegion") ? b("m") : b("f");
  }

  private String string(int index) throws Exception {
    if (name.startsWith("cloneSnapshot") && index == 1) {
      return "DEFAULT";
    } else if (name.contains("Snapshot") && !name.startsWith("snapshot")) {
      boolean isPattern = name.startsWith("list") || name.endsWith("s");
      return isPattern ? "walk.*" : Fixture.SNAPSHOT;
    } else if (name.startsWith("snapshot")) {
      return Fixture.NEW_SNAPSHOT;
    } else if (name.contains("Namespace") || name.equals("getCurrentSpaceQuotaSnapshot")) {
      return Fixture.NAMESPACE;
    } else if (name.startsWith("closeRegion")) {
      String region = name.endsWith("EncodedRegionName") ? fixture.region(0).getEncodedName()
          : fixture.region(0).getRegionNameAsString();
      return index == 0 && bytes == 0 ? region : fixture.server().getServerName();
    } else if (name.contains("Procedure")) {
      return index == 0 ? "flush-table-proc" : Fixture.TABLE.getNameAsString();
    } else if (name.contains("FileTracker")) {
      return "DEFAULT";
    } else if (name.equals("getLogEntries")) {
      return "SLOW_LOG";
    } else if (name.contains("Peer")) {
      return "1";
    }
    return "walk.*";
  }

  private Object collection(String generic) throws Exception {
    String of = generic.replaceAll("[\\w.]+\\.", "").replace("HBaseProtos$", "").replace("RegionState$", "");
    return switch (of) {
      case "List<byte[]>" -> name.startsWith("merge")
          ? List.of(fixture.region(0).getEncodedNameAsBytes(), fixture.region(1).getEncodedNameAsBytes())
          : name.startsWith("flush") ? List.of(b("f"), b("g")) : List.of();
      case "List<TableName>" -> List.of(Fixture.TABLE);
      case "List<String>" -> name.endsWith("ssigns") ? List.of(fixture.region(0).getEncodedName())
          : name.equals("getTableDescriptors") ? List.of(Fixture.TABLE.getNameAsString()) : List.of();
      case "List<Long>" -> List.of(999_999L);
      case "List<ServerName>" -> name.startsWith("decommission") ? List.of()
          : method(of) ? List.of(ProtobufUtil.toServerName(DEAD)) : List.of(DEAD);
      case "Set<ServerName>" -> Set.of(fixture.server());
      case "Set<String>" -> Set.of("long", "short");
      case "List<Permission>" -> List.of(Permission.newBuilder().withActions(Permission.Action.READ).build());
      case "Map<String, String>", "Map<String, Object>" -> new HashMap<>();
      case "Map<TableName, List<String>>" -> Map.of(Fixture.TABLE, List.of("f"));
      case "Map<String, State>" -> Map.of(fixture.region(0).getEncodedName(), RegionState.State.OPEN);
      case "List<Get>" -> List.of(new Get(ROW), new Get(b("absent")));
      case "List<Put>" -> modifiable(put());
      case "List<Delete>" -> modifiable(delete());
      case "List<? extends Row>" -> List.of(new Get(ROW), put());
      case "List<CheckAndMutate>" -> List.of(check());
      default -> null;
    };
  }

  /** Only {@code Hbck.scheduleServerCrashProcedure} has the protobuf class. */
  private boolean method(String of) {
    return name.equals("scheduleServerCrashProcedure") && of.equals("List<ServerName>");
  }

  private static <T> List<T> modifiable(T value) {
    return new java.util.ArrayList<>(List.of(value));
  }

  private static Object constant(Class<?> type) {
    if (type == SnapshotType.class) {
      return SnapshotType.FLUSH;
    } else if (type == CompareOperator.class) {
      return CompareOperator.EQUAL;
    } else if (type == CompareFilter.CompareOp.class) {
      return CompareFilter.CompareOp.EQUAL;
    } else if (type == TimeUnit.class) {
      return TimeUnit.MILLISECONDS;
    } else if (type == ServerType.class) {
      return ServerType.REGION_SERVER;
    } else if (type == CompactType.class || type == MasterSwitchType.class || type == Durability.class) {
      return type.getEnumConstants()[0];
    }
    return null;
  }

  private Object ofCluster(Class<?> type) throws Exception {
    if (type == TableDescriptor.class) {
      return name.startsWith("create") ? Fixture.descriptor(Fixture.NEW_TABLE).build()
          : Fixture.descriptor(Fixture.TABLE).setValue("walk", "x").build();
    } else if (type == ColumnFamilyDescriptor.class) {
      return name.startsWith("add") ? ColumnFamilyDescriptorBuilder.of("h")
          : ColumnFamilyDescriptorBuilder.newBuilder(b("g")).setMaxVersions(2).build();
    } else if (type == NamespaceDescriptor.class) {
      String namespace = name.startsWith("create") ? Fixture.NEW_NAMESPACE : Fixture.NAMESPACE;
      return NamespaceDescriptor.create(namespace).addConfiguration("walk", "x").build();
    } else if (type == SnapshotDescription.class) {
      boolean isNew = !name.startsWith("is");
      return new SnapshotDescription(isNew ? Fixture.NEW_SNAPSHOT : Fixture.SNAPSHOT, Fixture.TABLE);
    } else if (type == ServerName.class) {
      return fixture.server();
    } else if (type == HRegionInfo.class) {
      return new HRegionInfo(fixture.region(0));
    } else if (type == Pattern.class) {
      return Pattern.compile("walk.*");
    } else if (type == byte[][].class) {
      return name.startsWith("merge")
          ? new byte[][] {fixture.region(0).getEncodedNameAsBytes(), fixture.region(1).getEncodedNameAsBytes()}
          : new byte[][] {b("m")};
    } else if (type == MasterSwitchType[].class) {
      return new MasterSwitchType[] {MasterSwitchType.SPLIT};
    } else if (type == EnumSet.class) {
      return EnumSet.allOf(ClusterMetrics.Option.class);
    } else if (type == BalanceRequest.class) {
      return BalanceRequest.defaultInstance();
    } else if (type == NormalizeTableFilterParams.class) {
      return new NormalizeTableFilterParams.Builder().tableNames(List.of(Fixture.TABLE)).build();
    } else if (type == TableState.class) {
      return new TableState(Fixture.TABLE, TableState.State.ENABLED);
    } else if (type == LogQueryFilter.class) {
      return new LogQueryFilter();
    }
    return ofOtherParts(type);
  }

  private static Object ofOtherParts(Class<?> type) {
    if (type == QuotaSettings.class) {
      return QuotaSettingsFactory.throttleTable(Fixture.TABLE, ThrottleType.REQUEST_NUMBER, 1000, TimeUnit.SECONDS);
    } else if (type == QuotaFilter.class) {
      return new QuotaFilter();
    } else if (type == ReplicationPeerConfig.class) {
      return ReplicationPeerConfig.newBuilder().setClusterKey("localhost:1:/walk").build();
    } else if (type == UserPermission.class) {
      return new UserPermission("walk", Permission.newBuilder(Fixture.TABLE).withActions(Permission.Action.READ).build());
    } else if (type == GetUserPermissionsRequest.class) {
      return GetUserPermissionsRequest.newBuilder(Fixture.TABLE).build();
    }
    return null;
  }

  private Object ofRows(Class<?> type) throws Exception {
    if (type == Get.class) {
      return new Get(ROW);
    } else if (type == Put.class) {
      return put();
    } else if (type == Delete.class) {
      return delete();
    } else if (type == Append.class) {
      return new Append(ROW).addColumn(b("f"), b("s"), b("x"));
    } else if (type == Increment.class) {
      return new Increment(ROW).addColumn(b("f"), b("c"), 1);
    } else if (type == Scan.class) {
      return new Scan();
    } else if (type == Filter.class) {
      return new PrefixFilter(b("k"));
    } else if (type == RowMutations.class) {
      return RowMutations.of(List.of(put(), delete()));
    } else if (type == CheckAndMutate.class) {
      return check();
    } else if (type == Object[].class) {
      return new Object[2];
    }
    return null;
  }

  private static Put put() {
    return new Put(ROW).addColumn(b("f"), b("p"), b("v"));
  }

  private static Delete delete() {
    return new Delete(ROW).addColumns(b("f"), b("x"));
  }

  private static CheckAndMutate check() {
    return CheckAndMutate.newBuilder(ROW).ifNotExists(b("f"), b("x")).build(put());
  }
}
