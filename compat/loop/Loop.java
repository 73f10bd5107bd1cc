import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads payments, writes them processed, each exactly once: java -cp 'lib/*' Loop.java HOST:PORT. */
public class Loop {
    public static void main(String[] args) {
        Map<String, Object> producing = Map.of(
                "bootstrap.servers", args[0],
                "transactional.id", "processor-0"); // the same after a restart: it fences what was before
        Map<String, Object> consuming = Map.of(
                "bootstrap.servers", args[0],
                "group.id", "processors",
                "group.instance.id", "processor-0", // a restart takes over at once
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("payments"));
            producer.initTransactions();
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                try {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> r : records) {
                        producer.send(new ProducerRecord<>("processed", r.partition(), r.key(), r.value().toUpperCase()));
                        offsets.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (ProducerFencedException e) {
                    throw e; // another instance has taken over
                } catch (KafkaException e) {
                    producer.abortTransaction();
                    var committed = consumer.committed(consumer.assignment());
                    for (TopicPartition p : consumer.assignment()) { // read the same records again
                        OffsetAndMetadata at = committed.get(p);
                        consumer.seek(p, at == null ? new OffsetAndMetadata(0) : at);
                    }
                }
            }
        }
    }
}
