package sekali.compat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Properties;

/** How the program comes in: the JSON file that the variable COMPAT_LOGIN names. Without it, as it is. */
final class Login {
    private Login() {}

    /** Adds to the settings of a client what it needs. The files are PEM. */
    static void into(Properties config) throws IOException {
        String file = System.getenv("COMPAT_LOGIN");
        if (file == null) {
            return;
        }
        JsonNode login = new ObjectMapper().readTree(Path.of(file).toFile());
        String mechanism = login.get("mechanism").asText();
        config.put("security.protocol", login.get("protocol").asText());
        if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            config.put("sasl.mechanism", mechanism);
            config.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username="
                    + quoted(login.get("user").asText()) + " password=" + quoted(login.get("password").asText()) + ";");
        }
        file(config, "ssl.truststore", login.get("ca").asText());
        file(config, "ssl.keystore", login.get("keyStore").asText());
    }

    private static void file(Properties config, String store, String path) {
        if (!path.isEmpty()) {
            config.put(store + ".type", "PEM");
            config.put(store + ".location", path);
        }
    }

    private static String quoted(String s) {
        return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
