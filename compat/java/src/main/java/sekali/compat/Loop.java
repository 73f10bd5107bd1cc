package sekali.compat;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The read-process-write loop of kafka-clients, one step at a time: {@code loop BOOTSTRAP IN OUT GROUP ID INSTANCE
 * PROTOCOL}. README.md says which lines it prints and which answers it takes.
 */
final class Loop {
    private static final String STOP = "stop";
    private static final Duration POLL = Duration.ofMillis(100);

    private final String in;
    private final String out;
    private final Properties consuming = new Properties();
    private final Properties producing = new Properties();
    private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();

    private Loop(String[] args) {
        in = args[2];
        out = args[3];
        producing.put("bootstrap.servers", args[1]);
        producing.put("transactional.id", args[5]);
        producing.put("reconnect.backoff.max.ms", "200");
        consuming.put("bootstrap.servers", args[1]);
        consuming.put("group.id", args[4]);
        consuming.put("isolation.level", "read_committed");
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("max.poll.records", "10");
        consuming.put("fetch.max.wait.ms", "100");
        consuming.put("reconnect.backoff.max.ms", "200");
        if (!args[6].isEmpty()) {
            consuming.put("group.instance.id", args[6]);
        }
        if (args[7].equals("consumer")) {
            consuming.put("group.protocol", "consumer");
        } else {
            consuming.put("session.timeout.ms", "1500");
            consuming.put("heartbeat.interval.ms", "300");
        }
    }

    /** Runs until it is told to stop; the status is 3 if another instance has taken over. */
    static void main(String[] args) throws Exception {
        Loop loop = new Loop(args);
        Thread reader = new Thread(loop::listen);
        reader.setDaemon(true);
        reader.start();
        for (boolean again = true; again; ) {
            try {
                loop.live();
                again = false;
            } catch (KafkaException e) {
                if (fenced(e) || e instanceof InvalidProducerEpochException) {
                    System.out.println("fenced " + e);
                    System.exit(3);
                }
                System.out.println("again " + e);
            }
        }
    }

    /** Another instance has taken over. */
    private static boolean fenced(KafkaException e) {
        return e instanceof ProducerFencedException || e instanceof FencedInstanceIdException;
    }

    private void listen() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = lines.readLine()) != null; ) {
                answers.add(line);
            }
        } catch (IOException e) {
            System.out.println("no more answers: " + e);
        }
        answers.add(STOP);
    }

    /** Says which step is done and waits for the answer. */
    private String step(String name) throws InterruptedException {
        System.out.println(name);
        String answer = answers.take();
        if (answer.equals(STOP)) {
            answers.add(STOP); // for the loop itself
        }
        return answer;
    }

    private void live() throws InterruptedException {
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(in));
            producer.initTransactions();
            step("ready");
            while (!STOP.equals(answers.peek())) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                step("polled");
                producer.beginTransaction();
                try {
                    transaction(producer, consumer, records);
                } catch (KafkaException e) {
                    if (fenced(e)) {
                        throw e;
                    }
                    System.out.println("retry " + e);
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        }
    }

    private void transaction(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records)
            throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        boolean commit = true;
        int sent = 0;
        for (ConsumerRecord<String, String> r : records) {
            String value = r.value().toUpperCase(Locale.ROOT);
            producer.send(new ProducerRecord<>(out, r.partition(), r.key(), value));
            offsets.put(new TopicPartition(in, r.partition()), new OffsetAndMetadata(r.offset() + 1));
            if (++sent == 1) {
                producer.flush();
                commit = step("first").equals("go");
            }
            if (!commit) {
                break;
            }
        }
        if (commit) {
            producer.flush();
            commit = step("sent").equals("go");
        }
        if (commit) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            commit = step("offsets").equals("go");
        }
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
            rewind(consumer);
        }
        step(commit ? "committed" : "aborted");
    }

    /** Goes back to where the last committed transaction ended. */
    private void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition p : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(p);
            if (at == null) {
                consumer.seekToBeginning(List.of(p));
            } else {
                consumer.seek(p, at);
            }
        }
    }
}
