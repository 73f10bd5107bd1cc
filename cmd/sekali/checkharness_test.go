package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"sekali/batch"
	"sekali/broker"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
	"sekali/store"
)

const (
	homeDir  = "/data"
	homeWall = 1_700_000_000_000
)

// home is one start of a store on a file system, with everything a daemon would hold.
type home struct {
	fs     vfs.FS
	clk    *clock.Sim
	s      *store.Store
	kv     meta.MetadataStore
	meta   io.Closer
	lock   io.Closer
	shared *plog.Shared
	seqs   map[string]int32 // next sequence by partition and producer
	wall   int64
}

// openHome starts on a directory; what was opened before an error is let go of.
func openHome(fs vfs.FS, edit ...func(*store.Config)) (h *home, err error) {
	h = &home{fs: fs, clk: clock.NewSim(homeWall), seqs: map[string]int32{}, wall: homeWall}
	c := store.Config{Dir: homeDir, FS: fs, Clock: h.clk, Topic: broker.Defaults().Store.Topic,
		ProducerExpire: 24 * time.Hour}
	for _, fn := range edit {
		fn(&c)
	}
	defer func() {
		if err != nil {
			h.letGo()
		}
	}()
	if h.lock, err = store.Lock(c); err != nil {
		return h, err
	}
	var m meta.MetadataStore
	if m, h.meta, err = meta.Open(homeDir, fs, h.clk); err != nil {
		return h, err
	}
	if c.Epoch, err = store.RaiseEpoch(context.Background(), c, m); err != nil {
		return h, err
	}
	if h.shared, err = plog.NewShared(1<<20, 16, buf.New(16<<20)); err != nil {
		return h, err
	}
	c.Meta, c.Shared, h.kv = m, h.shared, m
	h.s, err = store.Open(c)
	return h, err
}

func mustOpenHome(t testing.TB, fs vfs.FS, edit ...func(*store.Config)) *home {
	t.Helper()
	h, err := openHome(fs, edit...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *home) letGo() {
	if h.shared != nil {
		h.shared.Close()
	}
	for _, c := range []io.Closer{h.meta, h.lock} {
		if c != nil {
			_ = c.Close()
		}
	}
}

// close stops in order.
func (h *home) close() error {
	err := h.s.Close(context.Background())
	h.letGo()
	return err
}

func (h *home) mustClose(t testing.TB) {
	t.Helper()
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
}

// abandon lets a dead process go: its files fail, and so does its stop.
func (h *home) abandon() { _ = h.close() }

// tick lets seconds pass, one housekeeping each.
func (h *home) tick(seconds int) {
	for range seconds {
		h.clk.Advance(time.Second)
		h.s.Tick()
	}
}

func (h *home) create(name string, partitions int32, set map[string]string) error {
	c, err := store.ParseTopic(set, h.s.Defaults())
	if err != nil {
		return err
	}
	_, err = h.s.CreateTopics(store.NewTopic{Name: name, Partitions: partitions, Config: c})
	return err
}

func (h *home) log(name string, n int32) (*plog.Log, error) {
	return h.s.Partition(store.TP{Topic: name, Partition: n})
}

// put appends one batch of n records of a producer and waits until it is durable. pid -1 is a plain one.
func (h *home) put(name string, n int32, pid int64, epoch int16, attrs batch.Attrs, values ...string) (base int64,
	err error) {
	l, err := h.log(name, n)
	if err != nil {
		return -1, err
	}
	key := fmt.Sprintf("%s-%d/%d/%d", name, n, pid, epoch)
	seq := h.seqs[key]
	if pid < 0 {
		epoch, seq = -1, -1
	}
	h.wall += 7
	b := batch.Builder{BaseTime: h.wall}
	for i, v := range values {
		b.Add(batch.Record{TimeDelta: int64(i % 3), Key: []byte(fmt.Sprint("k", i)), Value: []byte(v),
			Headers: []batch.Header{{Key: "h", Value: nil}}})
	}
	v := b.Done(attrs, pid, epoch, seq)
	checked, err := v.Validate(batch.Limits{Deep: true, AllowZstd: true})
	if err != nil {
		return -1, err
	}
	in := plog.AppendIn{Batch: v, Checked: checked, Version: 9}
	out, err := l.Append(in)
	var rejected *plog.RejectError
	if errors.As(err, &rejected) && rejected.Decision.Guard != 0 {
		in.Guard = rejected.Decision.Guard
		out, err = l.Append(in)
	}
	if err != nil {
		return -1, err
	}
	h.seqs[key] = batch.SeqAdd(seq, int32(len(values)))
	return out.Base, h.wait(l, out.Until)
}

func (h *home) wait(l *plog.Log, until int64) error {
	done := make(chan error, 1)
	l.AfterDurable(until, &plog.Waiter{Fn: func(err error) { done <- err }})
	return <-done
}

// end writes the marker of a transaction.
func (h *home) end(name string, n int32, pid int64, epoch int16, commit bool) error {
	l, err := h.log(name, n)
	if err != nil {
		return err
	}
	h.wall += 7
	out, err := l.AppendMarker(batch.Marker{PID: pid, Epoch: epoch, CoordEpoch: 3, Commit: commit, Time: h.wall}, false)
	if err != nil {
		return err
	}
	return h.wait(l, out.Until)
}

// Topics of a furnished home.
const (
	topicOrders = "orders" // two partitions, several segments, all codecs, idempotent and plain producers
	topicTxn    = "bank"   // transactions, committed and aborted, in several segments
	topicStamp  = "stamps" // LogAppendTime
	topicTrim   = "trim"   // its head was deleted by DeleteRecords and by retention
	topicEmpty  = "empty"  // never written
)

var pad = strings.Repeat("0123456789abcdef", 16)

// furnish fills a directory with all that logs can hold. It stops at the first error, as a process that dies does.
func (h *home) furnish() error {
	small := func(extra ...string) map[string]string {
		set := map[string]string{"internal.segment.bytes": "4096", "index.interval.bytes": "400", "retention.ms": "-1"}
		for i := 0; i+1 < len(extra); i += 2 {
			set[extra[i]] = extra[i+1]
		}
		return set
	}
	for _, topic := range []struct {
		name  string
		parts int32
		set   map[string]string
	}{
		{topicOrders, 2, small()}, {topicTxn, 1, small()}, {topicStamp, 1, small("message.timestamp.type", "LogAppendTime")},
		{topicTrim, 1, small("retention.bytes", "14000", "cleanup.policy", "delete")}, {topicEmpty, 1, nil},
		{"gone", 1, nil},
	} {
		if err := h.create(topic.name, topic.parts, topic.set); err != nil {
			return err
		}
	}
	for _, part := range []func() error{h.fillOrders, h.fillTxn, h.fillStamps, h.fillTrim} {
		if err := part(); err != nil {
			return err
		}
		h.tick(2)
	}
	if _, err := h.put("gone", 0, 1, 0, 0, "x"); err != nil {
		return err
	}
	t, ok := h.s.Catalog().ByName["gone"]
	if !ok {
		return errors.New("no topic to delete")
	}
	return h.s.DeleteTopic(t.ID, nil)
}

// values makes n values of some size.
func values(tag string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(tag, "/", i, " ", pad[:(i*37)%len(pad)]))
	}
	return out
}

func (h *home) fillOrders() error {
	for i := range 140 {
		codec := batch.Attrs(i % 5)
		pid := int64(i%4) - 1
		if _, err := h.put(topicOrders, int32(i%2), pid, int16(max(0, i/100)), codec, values(fmt.Sprint("o", i),
			1+i%7)...); err != nil {
			return err
		}
		if i == 60 {
			h.tick(70) // a snapshot and a recovery point in the middle
		}
	}
	return nil
}

func (h *home) fillTxn() error {
	for i := range 40 {
		pid := int64(100 + i%3)
		if _, err := h.put(topicTxn, 0, pid, 0, batch.AttrTransactional|batch.Attrs(i%5), values(fmt.Sprint("t", i),
			3)...); err != nil {
			return err
		}
		if _, err := h.put(topicTxn, 0, 200, 0, 0, values(fmt.Sprint("p", i), 2)...); err != nil {
			return err
		}
		if i%3 == 2 { // three transactions overlap
			for k := range int64(3) {
				if i == 38 && k == 1 {
					continue // stays open
				}
				if err := h.end(topicTxn, 0, 100+k, 0, (int(k)+i)%4 == 0); err != nil {
					return err
				}
			}
		}
		if i == 20 {
			h.tick(70)
		}
	}
	return nil
}

func (h *home) fillStamps() error {
	for i := range 60 {
		h.clk.Advance(5 * time.Millisecond)
		if _, err := h.put(topicStamp, 0, 7, 0, batch.Attrs(i%5), values(fmt.Sprint("s", i), 4)...); err != nil {
			return err
		}
	}
	return nil
}

func (h *home) fillTrim() error {
	for i := range 160 {
		if _, err := h.put(topicTrim, 0, int64(i%5), 0, 0, values(fmt.Sprint("r", i), 4)...); err != nil {
			return err
		}
		if i%40 == 39 {
			h.tick(70)
		}
	}
	l, err := h.log(topicTrim, 0)
	if err != nil {
		return err
	}
	return l.DeleteBefore(l.Offsets().End - 60)
}

// checkHome runs the check on a directory in memory.
func checkHome(t testing.TB, fs vfs.FS, only ...string) *checkReport {
	t.Helper()
	k := checker{fs: fs, dir: homeDir, conf: broker.Defaults(), only: only}
	rep, err := k.check()
	if err != nil {
		t.Fatalf("check could not run: %v", err)
	}
	return rep
}

// said is the report as a user reads it.
func said(rep *checkReport) string {
	var b strings.Builder
	_ = rep.print(&b)
	return b.String()
}

// all lists the findings about the directory and all partitions.
func all(rep *checkReport) []finding {
	out := slices.Clone(rep.Findings)
	for _, p := range rep.Partitions {
		out = append(out, p.Findings...)
	}
	return out
}

// damages lists the findings that are damage.
func damages(rep *checkReport) []finding {
	return slices.DeleteFunc(all(rep), func(f finding) bool { return f.Level != levelDamage })
}

// files lists the files below a directory with their content.
func files(t testing.TB, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fs.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			full := path.Join(dir, name)
			st, err := fs.Stat(full)
			if err != nil {
				t.Fatal(err)
			}
			if st.IsDir {
				walk(full)
				continue
			}
			b, err := vfs.ReadFile(fs, full)
			if err != nil {
				t.Fatal(err)
			}
			all[full] = b
		}
	}
	walk(dir)
	return all
}

// sum is a digest of names and contents.
func sum(all map[string][]byte) [32]byte {
	h := sha256.New()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(h, "%s %d\n", name, len(all[name]))
		h.Write(all[name])
	}
	return [32]byte(h.Sum(nil))
}

// laidOut is a new disk with the given files.
func laidOut(t testing.TB, all map[string][]byte, dirs ...string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	for _, dir := range dirs {
		if err := m.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range all {
		if err := m.MkdirAll(path.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	if err := m.SyncAll("/"); err != nil {
		t.Fatal(err)
	}
	return m
}
