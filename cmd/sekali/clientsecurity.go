package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// commandSettings are what a file for --command-config may hold, by the names of Kafka's clients. The value says what
// else there is of it, for the refusal of what is not understood.
var commandSettings = map[string]bool{
	"security.protocol": true, "sasl.mechanism": true, "sasl.jaas.config": true, "ssl.truststore.location": true,
	"ssl.truststore.type": true, "ssl.keystore.location": true, "ssl.keystore.type": true,
	"ssl.endpoint.identification.algorithm": true,
}

// securityOpts are what a client needs to come in, from a file in the form of Kafka's client properties.
func securityOpts(path string) ([]kgo.Opt, error) {
	if path == "" {
		return nil, nil
	}
	f, err := fileLayer(path)
	if err != nil {
		return nil, err
	}
	for name := range f.values {
		if !commandSettings[name] && (strings.HasPrefix(name, "sasl.") || strings.HasPrefix(name, "ssl.")) {
			return nil, fmt.Errorf("%s: %s is not understood here", path, name)
		}
	}
	var opts []kgo.Opt
	protocol := f.values["security.protocol"]
	switch protocol {
	case "", "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL":
	default:
		return nil, fmt.Errorf("%s: security.protocol=%s is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", path,
			protocol)
	}
	if strings.HasSuffix(protocol, "SSL") {
		c, err := clientTLS(f.values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	if strings.HasPrefix(protocol, "SASL") {
		m, err := clientSASL(f.values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

func clientTLS(set map[string]string) (*tls.Config, error) {
	c := &tls.Config{}
	for _, name := range []string{"ssl.truststore.type", "ssl.keystore.type"} {
		if v := set[name]; v != "" && v != "PEM" {
			return nil, fmt.Errorf("%s=%s: only PEM is read", name, v)
		}
	}
	if algorithm, set := set["ssl.endpoint.identification.algorithm"]; set && algorithm == "" {
		// As Kafka's clients: the name of the host is not looked at, the certificate is.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
			for _, cert := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if file := set["ssl.truststore.location"]; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ssl.truststore.location: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ssl.truststore.location: no certificate in PEM form in %s", file)
		}
	}
	if file := set["ssl.keystore.location"]; file != "" {
		pair, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.location: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

var jaasOption = regexp.MustCompile(`(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"`)

// clientSASL reads name and password out of sasl.jaas.config, which Kafka's clients have them in.
func clientSASL(set map[string]string) (sasl.Mechanism, error) {
	found := map[string]string{}
	for _, m := range jaasOption.FindAllStringSubmatch(set["sasl.jaas.config"], -1) {
		found[m[1]] = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2])
	}
	name, password := found["username"], found["password"]
	if name == "" || password == "" {
		return nil, fmt.Errorf(`sasl.jaas.config holds no username="..." and password="..."`)
	}
	switch m := set["sasl.mechanism"]; m {
	case auth.Plain:
		return plain.Auth{User: name, Pass: password}.AsMechanism(), nil
	case auth.ScramSHA256:
		return scram.Auth{User: name, Pass: password}.AsSha256Mechanism(), nil
	case auth.ScramSHA512:
		return scram.Auth{User: name, Pass: password}.AsSha512Mechanism(), nil
	default:
		return nil, fmt.Errorf("sasl.mechanism=%s is none of %s", m, strings.Join(auth.Mechanisms, ", "))
	}
}
