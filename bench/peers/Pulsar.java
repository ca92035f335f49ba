// The Java client at a pipeline's work: all messages of a topic, looking at no more than the payload.
//
//     java Pulsar.java URL TOPIC MESSAGES
//
// Acknowledges cumulatively now and then, and prints one JSON line: CPU from the first message on by message. The first
// tenth of the messages is for the compiler, and not counted.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TopicMessageId;

public class Pulsar {
    static final int ACK_EVERY = 10_000;

    public static void main(String[] given) throws Exception {
        int messages = Integer.parseInt(given[2]);
        int warm = messages / 10;
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long size = 0, began = 0, used = 0;
        Map<String, MessageId> last = new HashMap<>();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(given[0]).build();
                Consumer<byte[]> consumer = client.newConsumer()
                        .topic(given[1])
                        .subscriptionName("java")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .receiverQueueSize(10_000)
                        .maxTotalReceiverQueueSizeAcrossPartitions(100_000)
                        .subscribe()) {
            for (int number = 1; number <= messages; number++) {
                Message<byte[]> message = consumer.receive();
                size += message.size();
                if (number % ACK_EVERY == 0 || number % 1000 == 1) {
                    last.put(message.getTopicName(), message.getMessageId());
                }
                if (number % ACK_EVERY == 0) {
                    for (Map.Entry<String, MessageId> each : last.entrySet()) {
                        consumer.acknowledgeCumulativeAsync(TopicMessageId.create(each.getKey(), each.getValue()));
                    }
                    last.clear();
                }
                if (number == warm) {
                    began = System.nanoTime();
                    used = system.getProcessCpuTime();
                }
            }
            long took = system.getProcessCpuTime() - used, wall = System.nanoTime() - began;
            int rows = messages - warm;
            System.out.printf(
                    java.util.Locale.ROOT,
                    "{\"rows\": %d, \"cpu_us_per_row\": %f, \"rows_per_s\": %d, \"bytes\": %d}%n",
                    rows, took / 1e3 / rows, rows * 1_000_000_000L / wall, size);
        }
        System.exit(0); // threads of the client would keep the machine for a while
    }
}
