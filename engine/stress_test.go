package engine

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	stressFor  = flag.Duration("stress", time.Second, "how long TestStress runs")
	stressSeed = flag.Uint64("stress-seed", 0, "what TestStress begins with; 0: the time")
)

// outcomes of a transaction, as its client was told.
const (
	outUnknown = iota
	outCommit
	outAbort
)

// stressTxn is what a client knows of one of its transactions.
type stressTxn struct {
	outcome int
	acked   map[uint64]int // record -> partition
	tried   map[uint64]int
}

// stresser is clients that write transactions while flushes fail.
type stresser struct {
	w    *world
	tps  []coord.TP
	mu   sync.Mutex
	txns map[uint64]*stressTxn // by client<<32 | n
	log  map[uint64][]string
}

func (s *stresser) note(key uint64, f string, a ...any) {
	s.mu.Lock()
	s.log[key] = append(s.log[key], fmt.Sprintf(f, a...))
	s.mu.Unlock()
}

func retriable(code *kerr.Error) bool {
	switch code {
	case kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable:
		return true
	}
	return false
}

func (s *stresser) initID(id string) coord.InitOut {
	for {
		ch := make(chan inited, 1)
		s.w.e.Txns().Init(coord.InitIn{TxnID: id, TimeoutMs: 600_000, PID: -1, Epoch: -1},
			func(out coord.InitOut, code *kerr.Error) { ch <- inited{out, code} })
		a := <-ch
		if a.code == nil {
			return a.out
		}
		if !retriable(a.code) {
			panic(a.code)
		}
		time.Sleep(time.Millisecond)
	}
}

// send appends one record; false: give the transaction up.
func (s *stresser) send(key uint64, id string, p coord.InitOut, part int, seq int32, rec uint64, tries int) bool {
	tp := s.tps[part]
	for range tries {
		l, err := s.w.s.Partition(store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition})
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		b := batch.Builder{BaseTime: 1_700_000_000_000}
		b.Add(batch.Record{Value: binary.BigEndian.AppendUint64(nil, rec)})
		v := b.Done(batch.AttrTransactional, p.PID, p.Epoch, seq)
		checked, err := v.Validate(batch.Limits{Deep: true})
		if err != nil {
			panic(err)
		}
		told := make(chan *kerr.Error, 1)
		x := &Batch{Log: l, TP: tp, In: plog.AppendIn{Batch: v, Checked: checked, Origin: plog.Client, Version: 12}}
		s.w.e.AppendTxn(coord.Part{TxnID: id, PID: p.PID, Epoch: p.Epoch}, true, []*Batch{x},
			func(c *kerr.Error) { told <- c })
		if x.Code != nil {
			if !retriable(x.Code) {
				s.note(key, "send %x to %d: %v", rec, part, x.Code)
				return false
			}
			time.Sleep(time.Millisecond)
			continue
		}
		ok := x.Err == nil
		var why error = x.Err
		if x.Registering {
			if c := <-told; c != nil {
				ok, why = false, c
			}
		}
		if r, is := x.Err.(*plog.RejectError); is {
			s.note(key, "send %x to %d: rejected %v", rec, part, r)
			return false
		}
		if ok {
			ch := make(chan error, 1)
			l.AfterDurable(x.Out.Until, &plog.Waiter{Fn: func(err error) { ch <- err }})
			if why = <-ch; why == nil {
				s.note(key, "sent %x to %d at %d dup %v reg %v", rec, part, x.Out.Base, x.Out.Duplicate, x.Registering)
				return true
			}
		}
		s.note(key, "send %x to %d again: %v (base %d reg %v)", rec, part, why, x.Out.Base, x.Registering)
		time.Sleep(time.Millisecond)
	}
	return false
}

// client writes transactions one after the other until the time is over.
func (s *stresser) client(c int, r *rand.Rand, until time.Time) {
	id := fmt.Sprint("client-", c)
	p := s.initID(id)
	for n := 0; time.Now().Before(until); n++ {
		key := uint64(c)<<32 | uint64(n)
		t := &stressTxn{acked: map[uint64]int{}, tried: map[uint64]int{}}
		s.mu.Lock()
		s.txns[key] = t
		s.mu.Unlock()
		s.note(key, "begin (%d,%d)", p.PID, p.Epoch)
		seqs := map[int]int32{}
		good := true
		for i := range 1 + r.IntN(4) {
			part := r.IntN(len(s.tps))
			rec := key<<8 | uint64(i)
			t.tried[rec] = part
			if good = s.send(key, id, p, part, seqs[part], rec, 60+r.IntN(100)); !good {
				break
			}
			seqs[part]++
			t.acked[rec] = part
		}
		commit := good && r.IntN(4) > 0
		if r.IntN(12) == 0 { // a new instance
			t.outcome = outAbort
			p = s.initID(id)
			s.note(key, "fenced by (%d,%d)", p.PID, p.Epoch)
			continue
		}
		for {
			ch := make(chan inited, 1)
			s.w.e.Txns().End(coord.EndIn{TxnID: id, PID: p.PID, Epoch: p.Epoch, TV: 2, Commit: commit},
				func(out coord.InitOut, code *kerr.Error) { ch <- inited{out, code} })
			a := <-ch
			if a.code == nil {
				p = a.out
				t.outcome = outAbort
				if commit {
					t.outcome = outCommit
				}
				s.note(key, "ended %v: (%d,%d)", commit, p.PID, p.Epoch)
				break
			}
			s.note(key, "end %v: %v", commit, a.code)
			if !retriable(a.code) {
				p = s.initID(id)
				s.note(key, "init (%d,%d)", p.PID, p.Epoch)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestStress: five clients write transactions over four partitions while flushes of journals and partitions fail at
// random and logs are opened anew. In the end nothing is open, and of each transaction everything that was acknowledged
// is there once if its commit was answered, nothing if its abort was, and all or nothing if neither.
func TestStress(t *testing.T) {
	seed := *stressSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Log("seed", seed)
	fs := vfs.NewMem()
	w := start(t, fs, func(c *Config) { c.TxnPartitions = 2 })
	w.ensure()
	s := &stresser{w: w, tps: w.topic("a", 4), txns: map[uint64]*stressTxn{}, log: map[uint64][]string{}}
	until := time.Now().Add(*stressFor)
	var clients, beside sync.WaitGroup
	stop := make(chan struct{})
	loop := func(d time.Duration, fn func()) {
		beside.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(d):
					fn()
				}
			}
		})
	}
	txn := w.s.Catalog().ByName[TxnTopic].ID
	all := []store.TP{}
	for i := range s.tps {
		all = append(all, store.TP{Topic: "a", ID: s.tps[i].ID, Partition: int32(i)})
	}
	for i := range 2 {
		all = append(all, store.TP{Topic: TxnTopic, ID: txn, Partition: int32(i)})
	}
	fr := rand.New(rand.NewPCG(seed, 99))
	faults := time.Duration(15+fr.IntN(40)) * time.Millisecond
	loop(faults, func() {
		if time.Now().After(until) {
			return
		}
		for range 1 + fr.IntN(2) {
			tp := all[fr.IntN(len(all))]
			remove := fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, tp.Topic, tp.Partition), 1+fr.IntN(2),
				syscall.EIO)
			time.AfterFunc(faults, remove)
		}
	})
	rr := rand.New(rand.NewPCG(seed, 98))
	loop(2*time.Millisecond, func() {
		for _, tp := range all {
			if rr.IntN(4) > 0 {
				continue
			}
			if l, err := w.s.Partition(tp); err != nil || l.Err() != nil {
				_ = w.s.Reopen(tp)
			}
		}
	})
	loop(5*time.Millisecond, func() {
		for len(w.again) > 0 {
			if err := w.e.Reopened(<-w.again); err != nil {
				w.again <- store.TP{Topic: TxnTopic, ID: txn, Partition: 0}
				w.again <- store.TP{Topic: TxnTopic, ID: txn, Partition: 1}
				break
			}
		}
		w.clk.Advance(100 * time.Millisecond)
		w.e.Tick()
	})
	for c := range 5 {
		clients.Go(func() { s.client(c, rand.New(rand.NewPCG(seed, uint64(c))), until) })
	}
	clients.Wait()
	settled := false
	for range 3000 {
		settled = true
		for _, tp := range all[:len(s.tps)] {
			l, err := w.s.Partition(tp)
			if err != nil || l.Err() != nil {
				settled = false
				continue
			}
			at := l.Offsets()
			settled = settled && at.Stable == at.End
		}
		if settled {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	beside.Wait()
	if !settled {
		for _, tp := range all[:len(s.tps)] {
			l, err := w.s.Partition(tp)
			if err == nil {
				t.Errorf("partition %d: %+v", tp.Partition, l.Offsets())
				l.OpenTxns(func(pid int64, epoch int16, first int64) bool {
					t.Log("open", pid, epoch,
						first)
					return true
				})
			} else {
				t.Error(err)
			}
		}
	}
	s.check(t)
}

// check reads what read_committed readers see and holds it against what the clients were told.
func (s *stresser) check(t *testing.T) {
	seen := map[uint64]int{}
	for _, tp := range s.tps {
		var f plog.Fetch
		l := s.w.log(tp)
		active := map[int64]bool{}
		for from := int64(0); from < l.Offsets().Stable; {
			if err := l.Read(plog.ReadIn{From: from, BytesMax: 1 << 20, Committed: true, Copy: true, AtLeast1: true},
				&f); err != nil {
				t.Fatal(err)
			}
			ab := f.Aborted
			for _, part := range f.Parts {
				for len(part) > 0 {
					v, rest, err := batch.Next(part)
					if err != nil {
						t.Fatal(err)
					}
					part, from = rest, v.LastOffset()+1
					pid, _ := v.Producer()
					for len(ab) > 0 && ab[0].First <= v.LastOffset() {
						active[ab[0].PID] = true
						ab = ab[1:]
					}
					if v.Attrs().Control() {
						delete(active, pid)
						continue
					}
					if active[pid] {
						continue
					}
					_ = v.Records(func(r batch.Record) error { seen[binary.BigEndian.Uint64(r.Value)]++; return nil })
				}
			}
		}
		f.Release()
	}
	count := [3]int{}
	bad := 0
	for key, x := range s.txns {
		count[x.outcome]++
		n, twice := 0, false
		for rec := range x.tried {
			if seen[rec] > 0 {
				n++
			}
			twice = twice || seen[rec] > 1
		}
		wrong := ""
		switch {
		case twice:
			wrong = "doubled"
		case x.outcome == outCommit && n != len(x.acked):
			wrong = fmt.Sprintf("committed, %d of %d there", n, len(x.acked))
		case x.outcome == outAbort && n > 0:
			wrong = fmt.Sprintf("aborted, %d there", n)
		case x.outcome == outUnknown && n != 0 && n != len(x.acked):
			wrong = fmt.Sprintf("unknown, %d of %d there", n, len(x.acked))
		}
		if wrong != "" {
			if bad++; bad < 6 {
				t.Errorf("txn %x: %s\n%v", key, wrong, s.log[key])
				for d := uint64(1); d < 3; d++ {
					t.Logf("next: %v", s.log[key+d])
				}
			}
		}
	}
	t.Logf("unknown %d, committed %d, aborted %d; %d wrong", count[0], count[1], count[2], bad)
}
