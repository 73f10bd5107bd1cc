package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sekali/batch"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "/data"

var errDead = errors.New("the process is dead")

// node is one start of a store on a file system, with everything a broker would hold.
type node struct {
	fs     vfs.FS
	clk    *clock.Sim
	s      *Store
	m      meta.MetadataStore
	metaC  io.Closer
	lock   io.Closer
	shared *plog.Shared

	mu      sync.Mutex
	notices []Notice
}

// start opens the directory as a broker does; edit may change the configuration. What was opened before an error is
// let go of.
func start(fs vfs.FS, edit func(*Config)) (n *node, err error) { return startIn(fs, dataDir, edit) }

func startIn(fs vfs.FS, dir string, edit func(*Config)) (n *node, err error) {
	n = &node{fs: fs, clk: clock.NewSim(1_700_000_000_000)}
	c := Config{Dir: dir, FS: fs, Clock: n.clk, Notice: n.note, Events: nil}
	if edit != nil {
		edit(&c)
	}
	defer func() {
		if err != nil {
			n.letGo()
		}
	}()
	if n.lock, err = Lock(c); err != nil {
		return n, err
	}
	if n.m, n.metaC, err = meta.Open(dir, fs, n.clk); err != nil {
		return n, err
	}
	if c.Epoch, err = RaiseEpoch(context.Background(), c, n.m); err != nil {
		return n, err
	}
	if n.shared, err = plog.NewShared(1<<20, 16, buf.New(16<<20)); err != nil {
		return n, err
	}
	c.Meta, c.Shared = n.m, n.shared
	n.s, err = Open(c)
	return n, err
}

func (n *node) note(x Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notices = append(n.notices, x)
}

// told counts the notices of a kind.
func (n *node) told(kind NoticeKind) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.notices {
		if x.Kind == kind {
			count++
		}
	}
	return count
}

// letGo closes what is beside the store.
func (n *node) letGo() {
	if n.shared != nil {
		n.shared.Close()
	}
	if n.metaC != nil {
		_ = n.metaC.Close()
	}
	if n.lock != nil {
		_ = n.lock.Close()
	}
}

// close stops in order; the error is that of the store.
func (n *node) close() error {
	err := n.s.Close(context.Background())
	n.letGo()
	return err
}

func mustStart(t testing.TB, fs vfs.FS, edit func(*Config)) *node {
	t.Helper()
	n, err := start(fs, edit)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustClose(t testing.TB, n *node) {
	t.Helper()
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
}

// noted waits until the syncer has noted what its rounds made durable: a waiter fires a moment before that. It gives up
// on logs whose rounds cannot end.
func (n *node) noted() {
	for range 10_000 {
		behind := false
		n.s.parts(func(p *part) {
			l := p.log.Load()
			behind = behind || l != nil && l.Err() == nil && !n.s.c.Written && p.durable.Load() < l.Offsets().High
		})
		if !behind {
			return
		}
		runtime.Gosched()
	}
}

// tick lets seconds pass, one at a time.
func (n *node) tick(seconds int) {
	n.noted()
	for range seconds {
		n.clk.Advance(time.Second)
		n.s.Tick()
	}
}

func (n *node) create(t testing.TB, name string, partitions int32, set map[string]string) *Topic {
	t.Helper()
	c, err := ParseTopic(set, n.s.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	topics, err := n.s.CreateTopics(NewTopic{Name: name, Partitions: partitions, Config: c})
	if err != nil {
		t.Fatal(err)
	}
	return topics[0]
}

// oneBatch is a plain batch of records with the given values, or an idempotent one if pid >= 0.
func oneBatch(pid int64, seq int32, values ...string) batch.View {
	var b batch.Builder
	b.BaseTime = 1_700_000_000_000
	for _, v := range values {
		b.Add(batch.Record{Value: []byte(v)})
	}
	epoch := int16(0)
	if pid < 0 {
		epoch, seq = -1, -1
	}
	return b.Done(0, pid, epoch, seq)
}

// put appends one batch and returns its base offset.
func put(l *plog.Log, v batch.View) (plog.AppendOut, error) {
	checked, err := v.Validate(batch.Limits{Deep: true})
	if err != nil {
		return plog.AppendOut{}, err
	}
	return l.Append(plog.AppendIn{Batch: v, Checked: checked, Version: 9})
}

// putDurable appends and waits as acks=all does.
func putDurable(l *plog.Log, v batch.View) (plog.AppendOut, error) {
	out, err := put(l, v)
	if err != nil {
		return out, err
	}
	done := make(chan error, 1)
	l.AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { done <- err }})
	return out, <-done
}

// readAll reads a partition from its start up to the high watermark; an error ends the list with its text.
func readAll(l *plog.Log) (out []string) {
	at := l.Offsets()
	for from := at.Start; from < at.High; {
		var f plog.Fetch
		if err := l.Read(plog.ReadIn{From: from, BytesMax: 1 << 20, AtLeast1: true}, &f); err != nil {
			return append(out, err.Error())
		}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err == nil {
					err = v.Records(func(r batch.Record) error { out = append(out, string(r.Value)); return nil })
				}
				if err != nil {
					f.Release()
					return append(out, err.Error())
				}
				from, part = v.LastOffset()+1, rest
			}
		}
		f.Release()
	}
	return out
}

func log(t testing.TB, n *node, topic string, partition int32) *plog.Log {
	t.Helper()
	l, err := n.s.Partition(TP{Topic: topic, Partition: partition})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLife creates, writes, stops, starts: ids, settings, records, producer state and the clean file survive, the
// epoch rises.
func TestLife(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	topic := n.create(t, "orders", 3, map[string]string{"retention.ms": "1000"})
	for p := range int32(3) {
		for i := range 5 {
			out, err := putDurable(log(t, n, "orders", p), oneBatch(7, int32(i), fmt.Sprint(p, i)))
			if err != nil || out.Base != int64(i) {
				t.Fatalf("partition %d: %+v, %v", p, out, err)
			}
		}
	}
	cluster, dir, epoch := n.s.ClusterID(), n.s.DirectoryID(), n.s.Epoch()
	mustClose(t, n)
	if ok, err := vfs.Exists(m, dataDir+"/"+CleanFile); err != nil || !ok {
		t.Fatalf("clean-shutdown file: %v, %v", ok, err)
	}
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if ok, err := vfs.Exists(m, dataDir+"/"+CleanFile); err != nil || ok {
		t.Fatalf("clean-shutdown file while open: %v, %v", ok, err)
	}
	if !n.s.Recovery().Clean || n.s.Recovery().Logs != 3 || n.s.Recovery().Offline != 0 {
		t.Fatalf("%+v", n.s.Recovery())
	}
	again := n.s.Catalog().ByName["orders"]
	if again.ID != topic.ID || again.Config.Set["retention.ms"] != "1000" || again.Config.RetainMs != 1000 ||
		n.s.Catalog().ByID[topic.ID] != again {
		t.Fatalf("%+v", again)
	}
	if n.s.ClusterID() != cluster || n.s.DirectoryID() != dir || n.s.NodeID() != 1 || len(cluster) != 22 {
		t.Fatalf("identity %s, %s; it was %s, %s", n.s.ClusterID(), n.s.DirectoryID(), cluster, dir)
	}
	if epoch != 1 || n.s.Epoch() != 2 {
		t.Fatalf("epochs %d, %d", epoch, n.s.Epoch())
	}
	for p := range int32(3) {
		l := log(t, n, "orders", p)
		want := []string{fmt.Sprint(p, 0), fmt.Sprint(p, 1), fmt.Sprint(p, 2), fmt.Sprint(p, 3), fmt.Sprint(p, 4)}
		if got := readAll(l); !slices.Equal(got, want) {
			t.Fatalf("partition %d: %v", p, got)
		}
		out, err := putDurable(l, oneBatch(7, 3, fmt.Sprint(p, 3)))
		if err != nil || !out.Duplicate || out.Base != 3 {
			t.Fatalf("a retry: %+v, %v", out, err)
		}
	}
}
