package sekali.compat;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams counts words with exactly_once_v2: {@code words BOOTSTRAP IN OUT APPLICATION DIR}. It prints its states
 * and ends in order with the end of its input.
 */
final class Words {
    private Words() {}

    static void main(String[] args) throws IOException {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[1]);
        config.put("application.id", args[4]);
        config.put("state.dir", args[5]);
        config.put("processing.guarantee", StreamsConfig.EXACTLY_ONCE_V2);
        config.put("num.stream.threads", "2");
        config.put("commit.interval.ms", "100");
        config.put("default.key.serde", Serdes.String().getClass());
        config.put("default.value.serde", Serdes.String().getClass());
        config.put("session.timeout.ms", "1500");
        config.put("heartbeat.interval.ms", "300");
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("reconnect.backoff.max.ms", "200");
        config.put("statestore.cache.max.bytes", "0"); // each count is written, none is left out

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues(String::valueOf)
                .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(e -> {
            System.out.println("again " + e);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() >= 0) {}
        System.exit(streams.close(Duration.ofSeconds(30)) ? 0 : 1);
    }
}
