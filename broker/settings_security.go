package broker

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const maxMillis = int64(math.MaxInt64 / time.Millisecond)

// listenerSetting is a setting that each listener may have of its own.
type listenerSetting struct {
	doc, value string // value: the default
	kind       kmsg.ConfigType
	check      func(string) error
}

// listenerSettings by name; a listener's own are listener.name.<name in small letters>.<setting>.
var listenerSettings = map[string]listenerSetting{
	"connections.max.reauth.ms": {"How long a login holds before the client has to renew it; 0: for ever.", "0",
		kmsg.ConfigTypeLong, func(v string) error {
			_, err := parseBetween(v, 0, maxMillis)
			return err
		}},
	"sasl.enabled.mechanisms": {"Mechanisms of login on listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
		auth.ScramSHA256 + "," + auth.ScramSHA512, kmsg.ConfigTypeList, func(v string) error {
			return allOf(splitList(v), auth.Mechanisms)
		}},
	"ssl.client.auth": {"Whether clients show a certificate: none, requested or required.", "none",
		kmsg.ConfigTypeString, func(v string) error {
			return allOf([]string{v}, []string{"none", "requested",
				"required"})
		}},
	"ssl.enabled.protocols": {"Versions of TLS: TLSv1.2, TLSv1.3.", "TLSv1.2,TLSv1.3",
		kmsg.ConfigTypeList, func(v string) error { return allOf(splitList(v), []string{"TLSv1.2", "TLSv1.3"}) }},
	"ssl.keystore.location": {"PEM file with the private key and the certificates of this node; it is read again when " +
		"it has changed.", "", kmsg.ConfigTypeString, nil},
	"ssl.keystore.type": {"Form of the file in ssl.keystore.location: PEM.", "PEM", kmsg.ConfigTypeString, onlyPEM},
	"ssl.principal.mapping.rules": {"How a client certificate's distinguished name becomes a user's name: DEFAULT, or " +
		"RULE:pattern/replacement/[LU].", "DEFAULT", kmsg.ConfigTypeString, func(v string) error {
		_, err := auth.ParseNameRules(v)
		return err
	}},
	"ssl.truststore.location": {"PEM file with the certificates of those who sign clients' certificates; it is read " +
		"again when it has changed.", "", kmsg.ConfigTypeString, nil},
	"ssl.truststore.type": {"Form of the file in ssl.truststore.location: PEM.", "PEM", kmsg.ConfigTypeString, onlyPEM},
}

func onlyPEM(v string) error {
	if v != "PEM" {
		return fmt.Errorf("only PEM is read; make one with: openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem")
	}
	return nil
}

func allOf(words, known []string) error {
	for _, w := range words {
		if !slices.Contains(known, w) {
			return fmt.Errorf("%q is none of %s", w, strings.Join(known, ", "))
		}
	}
	if len(words) == 0 {
		return fmt.Errorf("empty")
	}
	return nil
}

// securitySettings are the rows of the table of settings about who may come in and what they may do.
func securitySettings() []Setting {
	all := []Setting{
		boolean("allow.everyone.if.no.acl.found", "With an authorizer: everybody may do what no rule is about.",
			func(c *Config) *bool { return &c.Security.Open }),
		{Name: "authorizer.class.name", Type: kmsg.ConfigTypeString,
			Doc: "Access control by rules (sekali acl): acl, or Kafka's class name; empty: everybody may do everything.",
			get: func(c *Config) string { return c.Security.Authorizer },
			set: func(c *Config, v string) error {
				if v = strings.TrimSpace(v); v != "" && !slices.Contains(authorizers, v) {
					return fmt.Errorf("there is one authorizer, by the name of acl or %s", authorizers[1])
				}
				c.Security.Authorizer = v
				return nil
			}},
		millis("connection.failed.authentication.delay.ms", "How long a failed login waits for its answer.",
			func(c *Config) *time.Duration { return &c.Security.FailDelay }),
		{Name: "listener.security.protocol.map", Type: kmsg.ConfigTypeList,
			Doc: "Protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; without one, that of its name.",
			get: getProtocols, set: setProtocols},
		integer("sasl.server.max.receive.size", "The largest request before login.",
			1<<10, 1<<30, func(c *Config) *int { return &c.Limits.BeforeLogin }),
		{Name: "super.users", Type: kmsg.ConfigTypeString,
			Doc: "Principals that may do everything, whatever the rules say, as User:NAME;User:NAME.",
			get: func(c *Config) string { return c.Security.Supers },
			set: func(c *Config, v string) error {
				if _, err := auth.ParseSupers(v); err != nil {
					return err
				}
				c.Security.Supers = v
				return nil
			}},
	}
	for name := range listenerSettings {
		all = append(all, listenerScoped(name, name,
			func(c *Config) map[string]string { return c.Security.Set },
			func(c *Config, m map[string]string) { c.Security.Set = m }))
	}
	return all
}

// listenerScoped is a setting of listenerSettings under a name. It is kept in the map that get gives; put takes another
// one in its place, since a Config is a value: what it shares with others stays as it is.
func listenerScoped(
	name, base string, get func(*Config) map[string]string, put func(*Config, map[string]string),
) Setting {
	row := listenerSettings[base]
	return Setting{Name: name, Type: row.kind, Doc: row.doc,
		get: func(c *Config) string {
			if v, ok := get(c)[base]; ok {
				return v
			}
			return row.value
		},
		set: func(c *Config, v string) error {
			v = strings.TrimSpace(v)
			if row.check != nil {
				if err := row.check(v); err != nil {
					return err
				}
			}
			put(c, with(get(c), base, v))
			return nil
		}}
}

// with is a copy of m that has v under k.
func with[V any](m map[string]V, k string, v V) map[string]V {
	next := make(map[string]V, len(m)+1)
	maps.Copy(next, m)
	next[k] = v
	return next
}

const listenerPrefix = "listener.name."

// listenersOwn finds the setting of one listener by its name.
func listenersOwn(name string) (Setting, bool) {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	listener, base, dot := strings.Cut(rest, ".")
	if _, known := listenerSettings[base]; !ok || !dot || !known || listener == "" {
		return Setting{}, false
	}
	return listenerScoped(name, base,
		func(c *Config) map[string]string { return c.Security.ByListener[listener] },
		func(c *Config, m map[string]string) {
			c.Security.ByListener = with(c.Security.ByListener, listener, m)
		}), true
}

// IsSetting reports whether there is a server-wide setting of that name that is not a default of the topic settings.
func IsSetting(name string) bool {
	_, ok := settingNamed(name)
	return ok
}

func getProtocols(c *Config) string {
	var all []string
	for l, p := range c.Security.Protocols {
		all = append(all, l+":"+p)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func setProtocols(c *Config, v string) error {
	next := map[string]string{}
	for part := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		listener, protocol, ok := strings.Cut(strings.TrimSpace(part), ":")
		protocol = strings.ToUpper(protocol)
		if !ok || listener == "" || !slices.Contains(protocols, protocol) {
			return fmt.Errorf("%q is not LISTENER:PROTOCOL with a protocol of %s", part, strings.Join(protocols, ", "))
		}
		next[listener] = protocol
	}
	c.Security.Protocols = next
	return nil
}
