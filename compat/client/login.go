package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	kafkago "github.com/segmentio/kafka-go"
	kafkagosasl "github.com/segmentio/kafka-go/sasl"
	kafkagoplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkagoscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// LoginFile is the variable that names the file with the Login; without it a client comes in as it is.
const LoginFile = "COMPAT_LOGIN"

// The names that Kafka has for the mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// Login is how a client comes in, for the programs of all languages. What is empty is not used. Files are PEM.
type Login struct {
	Protocol  string `json:"protocol"`  // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Mechanism string `json:"mechanism"` // of SASL
	User      string `json:"user"`
	Password  string `json:"password"`
	CA        string `json:"ca"`       // certificate of whom the client trusts
	KeyStore  string `json:"keyStore"` // the client's private key, its certificate and those that lead to the CA
}

const dialLimit = 10 * time.Second

// readLogin reads the file that the environment names.
func readLogin() (l Login, err error) {
	path := os.Getenv(LoginFile)
	if path == "" {
		return Login{Protocol: "PLAINTEXT"}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(text, &l)
}

func (l *Login) usesTLS() bool  { return strings.HasSuffix(l.Protocol, "SSL") }
func (l *Login) usesSASL() bool { return strings.HasPrefix(l.Protocol, "SASL") }

// tls is the configuration of a Go program's TLS.
func (l *Login) tls() (*tls.Config, error) {
	ca, err := os.ReadFile(l.CA)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	if !c.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", l.CA)
	}
	if l.KeyStore != "" {
		pair, err := tls.LoadX509KeyPair(l.KeyStore, l.KeyStore)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// franz are the options of franz-go.
func (l *Login) franz() (opts []kgo.Opt, err error) {
	if l.usesTLS() {
		c, err := l.tls()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	if !l.usesSASL() {
		return opts, nil
	}
	switch l.Mechanism {
	case Plain:
		opts = append(opts, kgo.SASL(plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()))
	case ScramSHA256:
		opts = append(opts, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()))
	case ScramSHA512:
		opts = append(opts, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()))
	}
	return opts, nil
}

// sarama sets what sarama needs.
func (l *Login) sarama(c *sarama.Config) (err error) {
	if l.usesTLS() {
		c.Net.TLS.Enable = true
		if c.Net.TLS.Config, err = l.tls(); err != nil {
			return err
		}
	}
	if l.usesSASL() {
		s := &c.Net.SASL
		s.Enable, s.User, s.Password, s.Mechanism = true, l.User, l.Password, sarama.SASLMechanism(l.Mechanism)
		s.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			if l.Mechanism == ScramSHA256 {
				return &conversation{hash: xdg.SHA256}
			}
			return &conversation{hash: xdg.SHA512}
		}
	}
	return nil
}

// conversation is the SCRAM that sarama leaves to the application, as in sarama's examples.
type conversation struct {
	*xdg.ClientConversation
	hash xdg.HashGeneratorFcn
}

// Begin starts a conversation.
func (c *conversation) Begin(user, password, authzID string) error {
	cl, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = cl.NewConversation()
	}
	return err
}

// kafkaGo gives kafka-go's TLS and mechanism, each nil where there is none.
func (l *Login) kafkaGo() (c *tls.Config, m kafkagosasl.Mechanism, err error) {
	if l.usesTLS() {
		if c, err = l.tls(); err != nil {
			return nil, nil, err
		}
	}
	if !l.usesSASL() {
		return c, nil, nil
	}
	switch l.Mechanism {
	case Plain:
		m = kafkagoplain.Mechanism{Username: l.User, Password: l.Password}
	case ScramSHA256:
		m, err = kafkagoscram.Mechanism(kafkagoscram.SHA256, l.User, l.Password)
	case ScramSHA512:
		m, err = kafkagoscram.Mechanism(kafkagoscram.SHA512, l.User, l.Password)
	}
	return c, m, err
}

// kafkaGoWriting is what kafka-go's Writer connects with.
func (l *Login) kafkaGoWriting() (*kafkago.Transport, error) {
	c, m, err := l.kafkaGo()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, address)
	}
	return &kafkago.Transport{Dial: dial, TLS: c, SASL: m}, err
}

// kafkaGoReading is what kafka-go's Reader connects with.
func (l *Login) kafkaGoReading() (*kafkago.Dialer, error) {
	c, m, err := l.kafkaGo()
	return &kafkago.Dialer{Timeout: dialLimit, DualStack: true, TLS: c, SASLMechanism: m}, err
}

// librdkafka adds what librdkafka needs, by its names.
func (l *Login) librdkafka(c kafka.ConfigMap) *kafka.ConfigMap {
	c["security.protocol"] = strings.ToLower(l.Protocol)
	for name, value := range map[string]string{"sasl.mechanism": l.Mechanism, "sasl.username": l.User,
		"sasl.password": l.Password, "ssl.ca.location": l.CA, "ssl.certificate.location": l.KeyStore,
		"ssl.key.location": l.KeyStore} {
		if value != "" {
			c[name] = value
		}
	}
	return &c
}
