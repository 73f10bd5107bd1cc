package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// daemon is `sekali serve` run inside the test.
type daemon struct {
	addr, ready string
	code        chan int
	log         *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startDaemon(t *testing.T, words ...string) *daemon {
	t.Helper()
	out, w := io.Pipe()
	d := &daemon{code: make(chan int, 1), log: &lockedBuffer{}}
	go func() {
		d.code <- run(append([]string{"serve"}, words...), streams{in: strings.NewReader(""), out: w, err: d.log})
		w.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, d.log)
	}
	d.ready = line
	d.addr = regexp.MustCompile(`[0-9.]+:[0-9]+`).FindString(line)
	go io.Copy(io.Discard, out)
	return d
}

// stop sends the process SIGTERM, which the daemon of this test catches.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-d.code; code != exitOK {
		t.Fatalf("stopped with status %d\n%s", code, d.log)
	}
}

// TestServeProduceConsume is a newcomer's first minute: serve, create, produce, consume, describe, stop, and everything
// is there after a second start; a second instance on the directory is refused meanwhile.
func TestServeProduceConsume(t *testing.T) {
	dir := t.TempDir()
	words := []string{"--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	d := startDaemon(t, words...)
	at := func(words ...string) []string { return append(words, "--bootstrap", d.addr) }
	must := func(input string, words ...string) string {
		t.Helper()
		code, out, errs := command(input, at(words...)...)
		if code != exitOK {
			t.Fatalf("%v: status %d: %s", words, code, errs)
		}
		return out
	}
	must("", "topic", "create", "orders", "--partitions", "3", "--set", "retention.ms=60000")
	must("a=1\nb=2\na=3\n", "produce", "orders", "--key-separator", "=", "-z", "zstd", "-H", "trace=x")
	out := must("", "consume", "orders", "--exit-at-end", "--keys", "--headers")
	for _, want := range []string{"a\ttrace=x\t1\n", "b\ttrace=x\t2\n", "a\ttrace=x\t3\n"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("consume gave %q, want %q once", out, want)
		}
	}
	if strings.Index(out, "\t1\n") > strings.Index(out, "\t3\n") {
		t.Errorf("records of one key out of order: %q", out)
	}
	code, _, errs := command("", append([]string{"serve"}, words...)...)
	if code != exitFailed || !strings.Contains(errs, dir) {
		t.Errorf("a second instance: status %d, said %q", code, errs)
	}
	must("", "topic", "alter", "orders", "--partitions", "4", "--unset", "retention.ms", "--set", "segment.ms=5000")
	checkDescribed(t, must("", "topic", "describe", "orders", "--json"), 3, 4)
	d.stop(t)

	d = startDaemon(t, words...)
	if n := strings.Count(must("", "consume", "orders", "-e"), "\n"); n != 3 {
		t.Errorf("%d records after a restart, want 3", n)
	}
	must("", "produce", "orders", "-p", "1")
	for acks, says := range map[string]string{"all": "acknowledged", "1": "acknowledged", "0": "sent"} {
		code, _, errs := command("x\ny\n", at("produce", "acks-"+acks, "--acks", acks)...)
		if code != exitOK || !strings.Contains(errs, "2 records, 2 bytes "+says) {
			t.Errorf("acks %s: status %d, said %q", acks, code, errs)
		}
		n := 0
		for try := 0; n != 2 && (try == 0 || acks == "0" && try < 1000); try++ { // nobody says when acks 0 is stored
			n = strings.Count(must("", "consume", "acks-"+acks, "-e"), "\n")
		}
		if n != 2 {
			t.Errorf("acks %s: %d records are stored, want 2", acks, n)
		}
	}
	if out := must("", "topic", "delete", "orders"); out != "deleted orders\n" {
		t.Errorf("delete said %q", out)
	}
	if code, _, errs := command("", at("consume", "orders", "-e")...); code != exitFailed || errs == "" {
		t.Errorf("consume of a deleted topic: status %d, said %q", code, errs)
	}
	d.stop(t)
}

func checkDescribed(t *testing.T, text string, records int64, partitions int) {
	t.Helper()
	var all []describedTopic
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		t.Fatalf("describe --json: %v %s", err, text)
	}
	var high int64
	for _, p := range all[0].Partitions {
		high += p.HighWatermark
	}
	set := all[0].Settings
	if len(all[0].Partitions) != partitions || high != records || len(set) != 1 || set["segment.ms"] != "5000" {
		t.Errorf("described as %+v", all[0])
	}
}

// TestAdminPort: the port that the log names answers health and metrics.
func TestAdminPort(t *testing.T) {
	d := startDaemon(t, "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	defer d.stop(t)
	// A request through the client port comes after the line was written.
	if code, _, errs := command("", "topic", "list", "--bootstrap", d.addr); code != exitOK {
		t.Fatal(errs)
	}
	addr := regexp.MustCompile(`admin=(127\.0\.0\.1:[0-9]+)`).FindStringSubmatch(d.log.String())
	if addr == nil {
		t.Fatalf("no line tells the admin address:\n%s%s", d.ready, d.log)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "", "/metrics": "sekali_"} {
		answer, err := http.Get("http://" + addr[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %.80s", path, answer.Status, body)
		}
	}
}
