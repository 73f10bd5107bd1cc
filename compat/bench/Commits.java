import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions of one record of 100 bytes, one after the other, through one producer for each broker, and
 * takes turns between the brokers: Commits ROUNDS SECONDS NAME=HOST:PORT NAME=HOST:PORT. Prints a
 * line for every turn, the medians, and the rate of the first broker in multiples of the second's: the median of the
 * ratios of neighbouring turns, the least and the greatest.
 */
public class Commits {
    private static final byte[] VALUE = new byte[100];

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        double seconds = Double.parseDouble(args[1]);
        List<String> names = new ArrayList<>();
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (String broker : Arrays.copyOfRange(args, 2, args.length)) {
            String[] nameAndAddress = broker.split("=", 2);
            names.add(nameAndAddress[0]);
            producers.add(open(nameAndAddress[1]));
        }
        for (int i = 0; i < producers.size(); i++) { // code and connections warm up
            commit(names.get(i), producers.get(i), 2 * seconds);
        }
        double[][] rates = new double[producers.size()][rounds];
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < producers.size(); i++) {
                int at = round % 2 == 0 ? i : producers.size() - 1 - i;
                rates[at][round] = commit(names.get(at), producers.get(at), seconds);
                System.out.printf("round %d: %s %.0f commits/s%n", round + 1, names.get(at), rates[at][round]);
            }
        }
        producers.forEach(KafkaProducer::close);
        double[] ratios = new double[rounds];
        for (int round = 0; round < rounds; round++) {
            ratios[round] = rates[0][round] / rates[1][round];
        }
        for (int i = 0; i < names.size(); i++) {
            Arrays.sort(rates[i]);
            System.out.printf("%s: %.0f commits/s (%.0f to %.0f)%n", names.get(i), rates[i][rounds / 2], rates[i][0],
                    rates[i][rounds - 1]);
        }
        Arrays.sort(ratios);
        System.out.printf("ratio: %.2f (%.2f to %.2f)%n", ratios[rounds / 2], ratios[0], ratios[rounds - 1]);
    }

    private static KafkaProducer<byte[], byte[]> open(String address) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic("commits", 1, (short) 1))).all().get();
        }
        KafkaProducer<byte[], byte[]> p = new KafkaProducer<>(
                Map.of("bootstrap.servers", address, "transactional.id", "commits", "linger.ms", 0),
                new ByteArraySerializer(), new ByteArraySerializer());
        p.initTransactions();
        return p;
    }

    /** Commits for so long and returns how many a second. */
    private static double commit(String name, KafkaProducer<byte[], byte[]> p, double seconds) {
        long began = System.nanoTime();
        long ends = began + (long) (seconds * 1e9);
        int n = 0;
        long now = began;
        for (; now < ends; now = System.nanoTime()) {
            try {
                p.beginTransaction();
                // The wait is for this client, not for a broker: without it, it now and then sends EndTxn and no Produce
                // before, when answers come fast.
                p.send(new ProducerRecord<>("commits", 0, null, VALUE)).get();
                p.commitTransaction();
            } catch (Exception e) {
                throw new IllegalStateException(name + ", transaction " + n, e);
            }
            n++;
        }
        return n / ((now - began) / 1e9);
    }
}
