package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs the binary's words with the given input and returns what it printed.
func command(input string, words ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(words, streams{in: strings.NewReader(input), out: &o, err: &e})
	return code, o.String(), e.String()
}

func TestHelpAndUsage(t *testing.T) {
	code, out, _ := command("")
	if code != exitOK || !strings.Contains(out, "serve") || !strings.Contains(out, "consume") {
		t.Errorf("no words: %d %s", code, out)
	}
	if code, out, _ = command("", "serve", "--help"); code != exitOK || !strings.Contains(out, "--durability") {
		t.Errorf("serve --help: %d %s", code, out)
	}
	if code, _, errs := command("", "serve", "--no-such"); code != exitUsage || !strings.Contains(errs, "no-such") {
		t.Errorf("an unknown flag: %d %s", code, errs)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := command("", "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(out), &b); code != exitOK || err != nil || b.Version == "" || b.Go == "" {
		t.Errorf("version --json: %d %s %v", code, out, err)
	}
}

// TestServeRefusals: errors at start go to standard error with status 1 and name what to change.
func TestServeRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("num.partitions=0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words []string
		says  string
	}{
		{[]string{"--config", file}, "num.partitions"},
		{[]string{"--config", file + ".none"}, "no such file"},
		{[]string{"--set", "nonsense"}, "is not NAME=VALUE"},
		{[]string{"--set", "nonsense=1"}, "unknown setting nonsense"},
		{[]string{"--durability", "maybe"}, "not written or fsync"},
		{[]string{"--data", filepath.Join(file, "below-a-file")}, "not a directory"},
	} {
		code, out, errs := command("", append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "none"}, c.words...)...)
		if code != exitFailed || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%v: status %d, said %q, want %q", c.words, code, errs, c.says)
		}
	}
}

// TestBootstrapAddress: an address that is none is refused with what is wrong about it.
func TestBootstrapAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"foo:bar": `"bar" is no port`, "foo:70000": `"70000" is no port`, "foo:0": `"0" is no port`, ":9092": "names no host",
		"foo:": `"" is no port`, "a:b:c": "is not HOST:PORT", "[::1": "is not HOST:PORT",
	} {
		if code, _, errs := command("", "topic", "list", "-b", addr); code != exitFailed || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, said %q, want %q", addr, code, errs, want)
		}
	}
	for _, addr := range []string{"foo", "foo:9092", "127.0.0.1:1", "[::1]:9092"} {
		if err := checkAddress(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestCell: names that clients made do not move a terminal or break a table.
func TestCell(t *testing.T) {
	for in, want := range map[string]string{
		"orders": "orders", "pesanan-é": "pesanan-é", "a\nb\tc": `"a\nb\tc"`, "\x1b[31mred": `"\x1b[31mred"`,
		"bad\xff": `"bad\xff"`, strings.Repeat("x", 300): strings.Repeat("x", 256) + "…",
	} {
		if got := cell(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// TestWordsThatAreNone: what cannot be meant is refused before anything is asked.
func TestWordsThatAreNone(t *testing.T) {
	for want, words := range map[string][]string{
		"is not UTF-8":  {"group", "delete", "dup\xff"},
		"--state Bogus": {"txn", "list", "--state", "Bogus"},
		"--type bogus":  {"group", "list", "--type", "bogus"},
		"--by-duration": {"group", "reset-offsets", "g", "--all-topics", "--by-duration=-1h"},
	} {
		if code, _, errs := command("", words...); code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, said %q", words, code, errs)
		}
	}
	for _, state := range []string{"ongoing", "Ongoing"} {
		if words := []string{state}; oneOf("--state", words, "Ongoing") != nil || words[0] != "Ongoing" {
			t.Errorf("%s became %v", state, words)
		}
	}
}

// TestNobodyListens: a client command says that nobody answers and what would help, within its time.
func TestNobodyListens(t *testing.T) {
	code, _, errs := command("", "topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "200ms")
	if code != exitFailed || !strings.Contains(errs, "sekali serve") {
		t.Errorf("status %d, said %q", code, errs)
	}
}
