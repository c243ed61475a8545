package evenkeel.interop.methods;

import evenkeel.interop.Clients;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.Hbck;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.ipc.RemoteException;

/**
 * Calls every method of Table, AsyncTable, Admin, AsyncAdmin and Hbck once, and prints a line for each: the method, and
 * its outcome.
 *
 * <pre>java evenkeel.interop.methods.MethodWalk -Dkey=value ...</pre>
 *
 * An outcome is a coarse form of the result ({@code void}, {@code true}, {@code 0}, {@code some}, a class), or the class
 * of the exception's cause. The test {@code methods} compares the lines of two servers. Calls of coprocessors have checks
 * of their own.
 */
public final class MethodWalk {
  /** Methods that would end the server or the connection, or leave a region that cannot be closed. */
  private static final Set<String> NOT_CALLED =
      Set.of("abort", "close", "offline", "shutdown", "stopMaster", "stopRegionServer");
  private static final int SECONDS_MAX = 120;

  private MethodWalk() {
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    for (String setting : args) {
      int eq = setting.indexOf('=');
      settings.setProperty(setting.substring(2, eq), setting.substring(eq + 1));
    }
    try (Fixture fixture = new Fixture(Clients.configuration("zk", settings))) {
      fixture.resetSwitches();
      for (Class<?> type : List.of(Table.class, AsyncTable.class, Admin.class, AsyncAdmin.class, Hbck.class)) {
        for (Method method : methods(type)) {
          String name = type.getSimpleName() + "." + signature(method);
          System.out.println("method " + name + ": " + outcome(fixture, type, method));
        }
      }
      fixture.resetSwitches();
    }
    System.out.println("done");
    System.exit(0);
  }

  private static List<Method> methods(Class<?> type) {
    return Arrays.stream(type.getMethods()).filter(method -> !Modifier.isStatic(method.getModifiers()))
        .sorted(Comparator.comparing(MethodWalk::signature)).toList();
  }

  private static String signature(Method method) {
    return method.getName() + Arrays.stream(method.getParameterTypes()).map(Class::getSimpleName)
        .collect(Collectors.joining(", ", "(", ")"));
  }

  private static String outcome(Fixture fixture, Class<?> type, Method method) throws Exception {
    if (NOT_CALLED.contains(method.getName())) {
      return "not called";
    }
    fixture.prepare(method.getName());
    Object[] arguments = Arguments.of(fixture, method);
    if (arguments == null) {
      return "not called: coprocessors and consumers";
    }
    try (Table table = fixture.connection.getTable(Fixture.TABLE); Hbck hbck = fixture.connection.getHbck()) {
      Object receiver = type == Table.class ? table
          : type == AsyncTable.class ? fixture.async.getTable(Fixture.TABLE)
          : type == Admin.class ? fixture.admin : type == AsyncAdmin.class ? fixture.async.getAdmin() : hbck;
      return shape(method.invoke(receiver, arguments), method);
    } catch (InvocationTargetException | ExecutionException failed) {
      return "fails with " + root(failed).getClass().getName();
    } catch (TimeoutException late) {
      return "no outcome in " + SECONDS_MAX + " s";
    } finally {
      if (method.getName().matches("(?i).*(switch|enabled|running|janitor).*")) {
        fixture.resetSwitches();
      }
    }
  }

  private static String shape(Object value, Method method) throws Exception {
    if (method.getReturnType() == void.class) {
      return "void";
    } else if (value == null) {
      return "null";
    } else if (value instanceof Future<?> future) {
      return shapeOf(future.get(SECONDS_MAX, TimeUnit.SECONDS));
    } else if (value instanceof List<?> list && !list.isEmpty() && list.get(0) instanceof Future<?>) {
      StringBuilder shapes = new StringBuilder();
      for (Object future : list) {
        shapes.append(shapes.isEmpty() ? "" : ", ").append(shapeOf(((Future<?>) future).get(SECONDS_MAX, TimeUnit.SECONDS)));
      }
      return shapes.toString();
    } else if (value instanceof ResultScanner scanner) {
      try (scanner) {
        return scanner.next(100).length + " rows";
      }
    }
    return shapeOf(value);
  }

  private static String shapeOf(Object value) {
    if (value == null) {
      return "null";
    } else if (value instanceof Boolean) {
      return value.toString();
    } else if (value instanceof Number number) {
      return number.doubleValue() == 0 ? "0" : "a number";
    } else if (value instanceof Optional<?> optional) {
      return optional.isPresent() ? "present" : "absent";
    } else if (value instanceof boolean[] flags) {
      return Arrays.toString(flags);
    } else if (value.getClass().isArray()) {
      return Array.getLength(value) == 0 ? "empty" : "some";
    } else if (value instanceof Collection<?> collection) {
      return collection.isEmpty() ? "empty" : "some";
    } else if (value instanceof Map<?, ?> map) {
      return map.isEmpty() ? "empty" : "some";
    } else if (value instanceof Enum<?>) {
      return value.toString();
    }
    return value.getClass().getSimpleName();
  }

  /** The last cause, with the server's exception in place of its wrapper. */
  private static Throwable root(Throwable thrown) {
    Throwable cause = thrown;
    while (cause.getCause() != null && !(cause instanceof RemoteException)) {
      cause = cause.getCause();
    }
    return cause instanceof RemoteException remote ? remote.unwrapRemoteException() : cause;
  }
}
