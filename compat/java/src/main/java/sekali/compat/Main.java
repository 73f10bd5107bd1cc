package sekali.compat;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client, kafka-clients, with its idempotent producer and a consumer that assigns itself. Arguments:
 * {@code produce BOOTSTRAP TOPIC CODEC IN OUT PACE} ({@code plain}: not idempotent), {@code consume BOOTSTRAP TOPIC ENDS OUT}, {@code loop}
 * or {@code words}.
 */
public final class Main {
    /** One header; value null is null. */
    record HeaderLine(String k, byte[] v) {}

    /** One record to write or as read: partition, offset, ms, key, value, headers. */
    record RecordLine(int p, long o, long t, byte[] k, byte[] v, List<HeaderLine> h) {}

    /** The answer for the record of line i: its offset, or an error. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record AckLine(int i, long o, String e) {}

    private static final int PACE_EVERY = 10;
    private static final int PACE_AHEAD = 100; // records that may wait for their acknowledgement
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {}

    public static void main(String[] args) throws Exception {
        if (args.length == 7 && (args[0].equals("produce") || args[0].equals("plain"))) {
            boolean idempotent = args[0].equals("produce");
            produce(args[1], args[2], args[3], idempotent, Path.of(args[4]), Path.of(args[5]), Integer.parseInt(args[6]));
        } else if (args.length == 5 && args[0].equals("consume")) {
            consume(args[1], args[2], args[3], Path.of(args[4]));
        } else if (args.length == 8 && args[0].equals("loop")) {
            Loop.main(args);
        } else if (args.length == 6 && args[0].equals("words")) {
            Words.main(args);
        } else {
            throw new IllegalArgumentException("no such job: " + String.join(" ", args));
        }
    }

    private static void produce(
            String bootstrap, String topic, String codec, boolean idempotent, Path in, Path out, int pace)
            throws Exception {
        List<RecordLine> records = new ArrayList<>();
        for (String line : Files.readAllLines(in)) {
            records.add(JSON.readValue(line, RecordLine.class));
        }
        AtomicInteger answered = new AtomicInteger();
        Properties config = new Properties();
        Login.into(config);
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "compat");
        config.put("enable.idempotence", "" + idempotent);
        config.put("compression.type", codec);
        config.put("linger.ms", pace > 0 ? "5" : "2000");
        config.put("batch.size", "1000000");
        config.put("buffer.memory", "67108864");
        config.put("delivery.timeout.ms", "60000");
        config.put("reconnect.backoff.max.ms", "500");
        try (OutputStream acks = Files.newOutputStream(out);
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < records.size(); n++) {
                RecordLine r = records.get(n);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, r.p(), r.t(), r.k(), r.v());
                if (r.h() != null) {
                    r.h().forEach(h -> record.headers().add(h.k(), h.v()));
                }
                int i = n;
                producer.send(record, (meta, error) -> {
                    put(acks, error == null ? new AckLine(i, meta.offset(), null) : new AckLine(i, -1, "" + error));
                    answered.incrementAndGet();
                });
                if (pace > 0 && n % PACE_EVERY == PACE_EVERY - 1) {
                    do {
                        Thread.sleep(pace);
                    } while (n - answered.get() >= PACE_AHEAD);
                }
            }
            producer.flush();
        }
    }

    private static void consume(String bootstrap, String topic, String ends, Path out) throws IOException {
        long[] end = Arrays.stream(ends.split(",")).mapToLong(Long::parseLong).toArray();
        long left = Arrays.stream(end).sum();
        Properties config = new Properties();
        Login.into(config);
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "compat");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.put("fetch.max.wait.ms", "200");
        try (OutputStream read = Files.newOutputStream(out);
                KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all =
                    IntStream.range(0, end.length).mapToObj(p -> new TopicPartition(topic, p)).toList();
            consumer.assign(all);
            all.forEach(p -> consumer.seek(p, 0));
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    List<HeaderLine> headers = new ArrayList<>();
                    for (Header h : r.headers()) {
                        headers.add(new HeaderLine(h.key(), h.value()));
                    }
                    put(read, new RecordLine(r.partition(), r.offset(), r.timestamp(), r.key(), r.value(), headers));
                    left--;
                }
            }
        }
    }

    /** Writes one line at once, so that others see acknowledgements arrive. */
    private static synchronized void put(OutputStream out, Object line) {
        try {
            out.write((JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
