package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsersAndRules: from a directory without users to one in which somebody may do what they were given, and no more,
// by the commands of the README.
func TestUsersAndRules(t *testing.T) {
	dir := t.TempDir()
	if code, out, errs := command("rootpw\n", "user", "set", "root", "--data", dir); code != exitOK ||
		!strings.Contains(out, "set the password of root") {
		t.Fatalf("the first user: status %d, %q, %q", code, out, errs)
	}
	words := []string{"--data", dir, "--admin", "none"}
	for _, s := range []string{"listeners=SASL_PLAINTEXT://127.0.0.1:0", "authorizer.class.name=acl",
		"super.users=User:root",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "offsets.topic.num.partitions=2",
		"transaction.state.log.num.partitions=2"} {
		words = append(words, "--set", s)
	}
	d := startDaemon(t, words...)
	t.Cleanup(func() { d.stop(t) })
	conf := func(user, password, mechanism string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), user+".properties")
		text := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=" + mechanism +
			"\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + user +
			"\" password=\"" + password + "\";\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	as := func(file, stdin string, words ...string) (int, string, string) {
		return command(stdin, append(words, "--bootstrap", d.addr, "--command-config", file, "--timeout", "5s")...)
	}
	root := conf("root", "rootpw", "SCRAM-SHA-512")
	must := func(file, stdin string, words ...string) string {
		t.Helper()
		code, out, errs := as(file, stdin, words...)
		if code != exitOK {
			t.Fatalf("%v: status %d: %s", words, code, errs)
		}
		return out
	}
	refused := func(says, file, stdin string, words ...string) {
		t.Helper()
		if code, out, errs := as(file, stdin, words...); code == exitOK || !strings.Contains(errs, says) {
			t.Errorf("%v: status %d, printed %q, said %q, want %q", words, code, out, errs, says)
		}
	}
	must(root, "pencil\n", "user", "set", "alice")
	if out := must(root, "", "user", "list"); !strings.Contains(out,
		"alice  SCRAM-SHA-256 (4096), SCRAM-SHA-512 (4096)") {
		t.Errorf("users: %q", out)
	}
	must(root, "", "topic", "create", "orders")
	alice := conf("alice", "pencil", "PLAIN")
	refused("TOPIC_AUTHORIZATION_FAILED", alice, "one\n", "produce", "orders")
	refused("no Kafka protocol", conf("alice", "pencils", "SCRAM-SHA-256"), "", "topic", "list")
	refused("CLUSTER_AUTHORIZATION_FAILED", alice, "", "acl", "list")
	out := must(root, "", "acl", "add", "--principal", "User:alice", "--producer", "--consumer", "--topic", "ord",
		"--prefixed")
	if strings.Count(out, "User:alice") != 4 {
		t.Errorf("rules added: %q", out)
	}
	must(root, "", "acl", "add", "--principal", "User:alice", "--operation", "read", "--group", "*")
	must(alice, "one\n", "produce", "orders")
	if out := must(alice, "", "consume", "orders", "--from", "start", "--count", "1"); out != "one\n" {
		t.Errorf("consumed %q", out)
	}
	must(root, "", "acl", "add", "--principal", "User:alice", "--operation", "all", "--topic", "orders", "--deny")
	refused("TOPIC_AUTHORIZATION_FAILED", alice, "two\n", "produce", "orders")
	refused("which rules", root, "", "acl", "delete")
	must(root, "", "acl", "delete", "--principal", "User:alice", "--topic", "orders")
	refused("TOPIC_AUTHORIZATION_FAILED", alice, "two\n", "produce", "orders")
	must(root, "", "acl", "delete", "--principal", "User:alice", "--topic", "orders", "--execute")
	must(alice, "two\n", "produce", "orders")
	refused("cannot be done", root, "", "acl", "add", "--principal", "User:a", "--operation", "write", "--group", "g")
	refused("no such operation", root, "", "acl", "add", "--principal", "User:a", "--operation", "dance", "--group",
		"g")
	refused("TYPE:NAME", root, "", "acl", "add", "--principal", "a", "--operation", "read", "--group", "g")
	refused("rules about what", root, "", "acl", "add", "--principal", "User:a", "--operation", "read")
	must(root, "", "user", "delete", "alice")
	refused("no such user", root, "", "user", "delete", "alice")
	refused("no Kafka protocol", alice, "", "topic", "list")
	if code, _, errs := command("x\n", "user", "set", "z", "--data", dir); code == exitOK || !strings.Contains(errs,
		"in use") {
		t.Errorf("a directory in use: status %d, %q", code, errs)
	}
}

// TestNoAccessControl: rules where there are none in force say what would help.
func TestNoAccessControl(t *testing.T) {
	x := withDaemon(t)
	x.refused("authorizer.class.name=acl", "acl", "list")
	x.refused("authorizer.class.name=acl", "acl", "add", "--principal", "User:a", "--operation", "read", "--topic", "t")
}

// TestCommandConfig: what a file for --command-config cannot mean is refused.
func TestCommandConfig(t *testing.T) {
	for text, want := range map[string]string{
		"security.protocol=TLS": "none of", "security.protocol=SASL_SSL": "username",
		"security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.jaas.config=x username=\"a\" password=\"b\"": "GSSAPI",

		"security.protocol=SSL\nssl.truststore.location=/nowhere": "nowhere",
		"security.protocol=SSL\nssl.truststore.type=JKS":          "only PEM",
		"security.protocol=SSL\nssl.cipher.suites=X":              "not understood",
	} {
		file := filepath.Join(t.TempDir(), "c.properties")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := securityOpts(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
