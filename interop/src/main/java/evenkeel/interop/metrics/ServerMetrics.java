package evenkeel.interop.metrics;

import com.sun.tools.attach.VirtualMachine;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.management.Attribute;
import javax.management.InstanceNotFoundException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints metrics of a region server in another JVM of this machine, one {@code name=value} per line: {@code
 * ServerMetrics PID NAME...}. It reads them from the JVM directly, without the info server.
 */
public final class ServerMetrics {
  private static final long WAIT_SECONDS = 20;

  private ServerMetrics() {
  }

  public static void main(String[] args) throws Exception {
    VirtualMachine server = VirtualMachine.attach(args[0]);
    String address = server.startLocalManagementAgent();
    server.detach();
    ObjectName bean = new ObjectName("Hadoop:service=HBase,name=RegionServer,sub=Server");
    String[] names = Arrays.copyOfRange(args, 1, args.length);
    try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
      MBeanServerConnection beans = connector.getMBeanServerConnection();
      for (Attribute attribute : attributes(beans, bean, names)) {
        System.out.println(attribute.getName() + "=" + attribute.getValue());
      }
    }
  }

  /** HBase removes its beans for a moment some seconds after regions were opened or closed; their counters continue. */
  private static List<Attribute> attributes(MBeanServerConnection beans, ObjectName bean, String[] names) throws Exception {
    long start = System.nanoTime();
    while (true) {
      try {
        return beans.getAttributes(bean, names).asList();
      } catch (InstanceNotFoundException e) {
        if (TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start) > WAIT_SECONDS) {
          throw e;
        }
        Thread.sleep(50);
      }
    }
  }
}
