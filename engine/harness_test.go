package engine

import (
	"context"
	"io"
	"testing"
	"time"

	"sekali/batch"
	"sekali/coord"
	"sekali/group"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "/data"

// world is one start of an engine over a store, on a file system of the test.
type world struct {
	t      *testing.T
	fs     vfs.FS
	clk    *clock.Sim
	e      *Engine
	s      *store.Store
	meta   meta.MetadataStore
	metaC  io.Closer
	lock   io.Closer
	shared *plog.Shared
	faults []string
	again  chan store.TP // partitions that were opened anew
}

// start opens the directory and loads the engine; edit may change the configuration.
func start(t *testing.T, fs vfs.FS, edit func(*Config), storeEdits ...func(*store.Config)) *world {
	t.Helper()
	w := &world{t: t, fs: fs, clk: clock.NewSim(1_700_000_000_000), again: make(chan store.TP, 100)}
	c := store.Config{Dir: dataDir, FS: fs, Clock: w.clk, HoldTxns: true, Notice: func(n store.Notice) {
		if n.Kind == store.NoticeReopened {
			w.again <- n.TP
		}
	}}
	for _, fn := range storeEdits {
		fn(&c)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.lock, err = store.Lock(c)
	must(err)
	w.meta, w.metaC, err = meta.Open(dataDir, fs, w.clk)
	must(err)
	c.Epoch, err = store.RaiseEpoch(context.Background(), c, w.meta)
	must(err)
	w.shared, err = plog.NewShared(1<<20, 16, buf.New(16<<20))
	must(err)
	c.Meta, c.Shared = w.meta, w.shared
	w.s, err = store.Open(c)
	must(err)
	ec := Config{Store: w.s, Meta: w.meta, FS: fs, Clock: w.clk, TxnPartitions: 2, OffsetsPartitions: 2, RetryFor: -1,
		Txns:   coord.Config{TimeoutMaxMs: 900_000, IDExpireMs: 1 << 40, TV: 2},
		Groups: group.Defaults(),
		Fault:  func(what string, err error) { w.faults = append(w.faults, what+": "+err.Error()) },
	}
	if edit != nil {
		edit(&ec)
	}
	w.e = New(ec)
	must(w.e.Load(t.Context()))
	t.Cleanup(w.stop)
	return w
}

// stop lets go of everything; after a crash of the file system its errors mean nothing.
func (w *world) stop() {
	if w.e == nil {
		return
	}
	w.e.Close()
	w.e = nil
	_ = w.s.Close(context.Background())
	w.shared.Close()
	_ = w.metaC.Close()
	_ = w.lock.Close()
}

// topic makes a topic and returns its partitions.
func (w *world) topic(name string, partitions int32) []coord.TP {
	w.t.Helper()
	ts, err := w.s.CreateTopics(store.NewTopic{Name: name, Partitions: partitions})
	if err != nil {
		w.t.Fatal(err)
	}
	tps := make([]coord.TP, partitions)
	for i := range tps {
		tps[i] = coord.TP{Topic: name, ID: ts[0].ID, Partition: int32(i)}
	}
	return tps
}

func (w *world) ensure() {
	w.t.Helper()
	if err := w.e.Ensure(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) log(tp coord.TP) *plog.Log {
	w.t.Helper()
	l, err := w.s.Partition(store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// soon waits, on the machine's clock, for what another goroutine does.
func soon[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("never: " + what)
		panic("unreachable")
	}
}

// eventually polls, on the machine's clock, for what other goroutines do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 4000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// init gives a transactional id its producer.
func (w *world) init(id string) coord.InitOut {
	w.t.Helper()
	out, code := w.tryInit(id)
	if code != nil {
		w.t.Fatalf("init %q: %v", id, code)
	}
	return out
}

type inited struct {
	out  coord.InitOut
	code *kerr.Error
}

func (w *world) tryInit(id string) (coord.InitOut, *kerr.Error) {
	w.t.Helper()
	ch := make(chan inited, 1)
	w.e.Txns().Init(coord.InitIn{TxnID: id, TimeoutMs: 60_000, PID: -1, Epoch: -1},
		func(out coord.InitOut, code *kerr.Error) { ch <- inited{out, code} })
	a := soon(w.t, "an answer to InitProducerId", ch)
	return a.out, a.code
}

// end ends a transaction under transaction version 2.
func (w *world) end(id string, p coord.InitOut, commit bool) (coord.InitOut, *kerr.Error) {
	w.t.Helper()
	ch := make(chan inited, 1)
	w.e.Txns().End(coord.EndIn{TxnID: id, PID: p.PID, Epoch: p.Epoch, TV: 2, Commit: commit},
		func(out coord.InitOut, code *kerr.Error) { ch <- inited{out, code} })
	a := soon(w.t, "an answer to EndTxn", ch)
	return a.out, a.code
}

// records makes a transactional batch of n records.
func records(p coord.InitOut, seq int32, n int) batch.View {
	b := batch.Builder{BaseTime: 1_700_000_000_000}
	for range n {
		b.Add(batch.Record{Value: []byte("v")})
	}
	return b.Done(batch.AttrTransactional, p.PID, p.Epoch, seq)
}

// append appends one batch of one record to each partition, as Produce 12 (add) or 11 does.
func (w *world) append(id string, p coord.InitOut, seq int32, add bool, durable func(*kerr.Error),
	tps ...coord.TP) []*Batch {
	w.t.Helper()
	bs := make([]*Batch, len(tps))
	version := int16(11)
	if add {
		version = 12
	}
	for i, tp := range tps {
		v := records(p, seq, 1)
		checked, err := v.Validate(batch.Limits{Deep: true})
		if err != nil {
			w.t.Fatal(err)
		}
		bs[i] = &Batch{Log: w.log(tp), TP: tp,
			In: plog.AppendIn{Batch: v, Checked: checked, Origin: plog.Client, Version: version}}
	}
	w.e.AppendTxn(coord.Part{TxnID: id, PID: p.PID, Epoch: p.Epoch}, add, bs, durable)
	return bs
}

// flushed waits until everything in a log is durable.
func (w *world) flushed(tp coord.TP) {
	w.t.Helper()
	l := w.log(tp)
	ch := make(chan error, 1)
	l.AfterDurable(l.Offsets().End, &plog.Waiter{Fn: func(err error) { ch <- err }})
	if err := soon(w.t, "a flush", ch); err != nil {
		w.t.Fatal(err)
	}
}
