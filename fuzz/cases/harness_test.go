package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sekali/internal/rawclient"
	"sekali/internal/vfs"

	"go.uber.org/goleak"
)

// full is the size of the run: the numbers of the cases on a real disk, or a small copy in memory. soak, which is full
// too, is for what takes longer than the cases as a whole may.
var (
	soak = os.Getenv("SEKALI_SIZE") == "soak"
	full = os.Getenv("SEKALI_SIZE") == "full" || soak
)

// size picks a number by the size of the run.
func size[T any](small, large T) T {
	if full {
		return large
	}
	return small
}

func TestMain(m *testing.M) {
	if full {
		if err := fullSizePossible(); err != nil {
			fmt.Fprintln(os.Stderr, "the full size cannot run:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// options say what a case needs of its broker.
type options struct {
	settings  map[string]string // server settings
	realTime  bool              // the small size too runs by the clock of the machine
	disk      int64             // bytes of a disk of its own that leave can fill; 0: not needed
	advertise string            // address told to clients; empty: where they came in
	counters  bool              // allocs is asked for
}

// engine is a broker and its data directory: in this process over a simulated disk, or a process of its own. One
// goroutine uses it, except that address, log, heap and now may be called by any.
type engine interface {
	start() error // on the data directory as it is
	stop() error  // in order
	kill()        // SIGKILL or its like: what was written is there, what was in memory is gone
	alive() error // nil while it runs
	address() string
	files() vfs.FS // of the data directory, also while the broker is down
	dir() string   // the data directory
	replace()      // an empty data directory in place of the present one
	log() string   // lines since the last start
	now() int64    // wall milliseconds of the broker
	pass(d time.Duration)
	leave(bytes int64) error // makes the disk of options.disk have so many bytes free; negative: as many as there can be
	freeze(on bool) error    // whether that disk has no room for another file
	heap() int64             // bytes of private memory in use
	allocs() uint64          // bytes allocated since the start
	cpu() time.Duration      // processor time used
}

// node is the broker of one case.
type node struct {
	engine
	t    *testing.T
	step time.Duration // between two looks at something that is waited for
	up   bool
	c    *rawclient.Client // for whoever needs no connection of his own
}

// launch starts a broker on an empty data directory; it is stopped in order when the test ends.
func launch(t *testing.T, o options) *node {
	t.Helper()
	n := &node{t: t, step: time.Second}
	if full || o.realTime {
		n.step = 20 * time.Millisecond
	}
	if full {
		n.engine = newProcess(t, o)
	} else {
		n.engine = newInMemory(t, o)
	}
	t.Cleanup(func() {
		if n.up {
			n.stop()
		}
		if t.Failed() {
			t.Logf("end of the broker's log:\n%s", tail(n.log(), 40))
		}
	})
	n.start()
	return n
}

func (n *node) start() {
	n.t.Helper()
	if err := n.engine.start(); err != nil {
		n.t.Fatalf("start: %v\n%s", err, tail(n.log(), 40))
	}
	n.up = true
}

// down ends the connections of the case.
func (n *node) down() {
	n.t.Helper()
	if err := n.alive(); err != nil {
		n.t.Errorf("the broker died by itself: %v", err)
	}
	n.up = false
	if n.c != nil {
		n.c.Close()
		n.c = nil
	}
}

// stop ends the broker in order and leaves it down.
func (n *node) stop() {
	n.t.Helper()
	n.down()
	if err := n.engine.stop(); err != nil {
		n.t.Errorf("stop: %v", err)
	}
}

// kill ends the broker by SIGKILL and leaves it down.
func (n *node) kill() {
	n.t.Helper()
	n.down()
	n.engine.kill()
}

// STOP and KILL of the cases: down and up again.
func (n *node) restart(how string) {
	n.t.Helper()
	if how == "STOP" {
		n.stop()
	} else {
		n.kill()
	}
	n.start()
}

// until lets time pass until cond holds, at most a minute of it.
func (n *node) until(what string, cond func() bool) {
	n.t.Helper()
	for begin := time.Now(); time.Since(begin) < 60*time.Second; {
		if cond() {
			return
		}
		n.pass(n.step)
	}
	n.t.Fatalf("%s: not within a minute", what)
}

// logged waits until the broker's log holds all the words in one line.
func (n *node) logged(words ...string) {
	n.t.Helper()
	n.until(fmt.Sprintf("a log line with %q", words), func() bool {
		for line := range strings.Lines(n.log()) {
			has := true
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			if has {
				return true
			}
		}
		return false
	})
}

// dial opens a connection of its own; it is closed when the test ends.
func (n *node) dial() *rawclient.Client {
	n.t.Helper()
	c, err := rawclient.Dial(n.address())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// conn is the connection for whoever needs none of his own.
func (n *node) conn() *rawclient.Client {
	n.t.Helper()
	if n.c == nil {
		n.c = n.dial()
	}
	return n.c
}

// image is the content of a data directory: files by their path below it; directories bear a slash at the end.
type image map[string][]byte

// save reads the data directory.
func (n *node) save() image {
	n.t.Helper()
	m := image{}
	n.walk("", m)
	return m
}

func (n *node) walk(rel string, m image) {
	names, err := n.files().ReadDir(path.Join(n.dir(), rel))
	n.must(err)
	for _, name := range names {
		p := path.Join(rel, name)
		info, err := n.files().Stat(path.Join(n.dir(), p))
		n.must(err)
		if info.IsDir {
			m[p+"/"] = nil
			n.walk(p, m)
			continue
		}
		m[p] = n.readFile(p)
	}
}

// restore makes the data directory what an image says; the broker is down.
func (n *node) restore(m image) {
	n.t.Helper()
	n.replace()
	for p, data := range m {
		if strings.HasSuffix(p, "/") {
			n.must(n.files().MkdirAll(path.Join(n.dir(), p), 0o755))
		} else {
			n.writeFile(p, data)
		}
	}
}

// readFile and the like take paths below the data directory.
func (n *node) readFile(p string) []byte {
	n.t.Helper()
	b, err := vfs.ReadFile(n.files(), path.Join(n.dir(), p))
	n.must(err)
	return b
}

func (n *node) exists(p string) bool {
	n.t.Helper()
	_, err := n.files().Stat(path.Join(n.dir(), p))
	if !errors.Is(err, fs.ErrNotExist) {
		n.must(err)
	}
	return err == nil
}

// writeFile writes without a flush, as a process does that is killed a moment later.
func (n *node) writeFile(p string, data []byte) {
	n.t.Helper()
	name := path.Join(n.dir(), p)
	n.must(n.files().MkdirAll(path.Dir(name), 0o755))
	f, err := n.files().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	n.must(err)
	_, err = f.WriteAt(data, 0)
	n.must(errors.Join(err, f.Close()))
}

func (n *node) remove(p string) {
	n.t.Helper()
	n.must(n.files().Remove(path.Join(n.dir(), p)))
}

// list names the files below a folder of the data directory that end in suffix, in order.
func (n *node) list(folder, suffix string) (out []string) {
	n.t.Helper()
	names, err := n.files().ReadDir(path.Join(n.dir(), folder))
	n.must(err)
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			out = append(out, path.Join(folder, name))
		}
	}
	return out
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// lines is a log that is written and read at the same time.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write takes one line or more.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all of it.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func tail(s string, n int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// peak runs fn and returns by how much the broker's memory rose meanwhile, at most.
func (n *node) peak(fn func()) int64 {
	if !full {
		runtime.GC()
	}
	before, most := n.heap(), int64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most = max(most, n.heap()-before)
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	fn()
	close(done)
	<-ended
	return most
}
