package plog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/pidmap"
)

// TestEverythingAtOnce runs appenders, gatherers, transactions, readers of both isolation levels, a syncer,
// housekeeping with retention, DeleteBefore, describe calls and changes of settings together, for the race detector
// and the invariants: every acknowledged batch lies at its offset, what a reader sees is dense, frozen and below its
// limit.
func TestEverythingAtOnce(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) { everythingAtOnce(t, written) })
	}
}

func everythingAtOnce(t *testing.T, written bool) {
	var dirty atomic.Int64
	r := newRig(t, func(o *Options) {
		o.Written, o.Config.SegmentBytes, o.Config.RetainBytes = written, 4<<10, 20<<10
		o.Dirty = func() { dirty.Add(1) }
		o.Pids.ExpireAfter = 0 // the clock runs as fast as the housekeeper
	})
	c := &crowd{t: t, r: r, acked: map[int64]string{}}
	const batches = 60
	var writers, others sync.WaitGroup
	for pid := range int64(3) {
		writers.Go(func() { c.produce(pid, batches) })
	}
	writers.Go(func() { c.gather(10, batches/3) })
	writers.Go(func() { c.transact(20, batches/3) })
	stop := make(chan struct{})
	loop := func(fn func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					fn(i)
				}
			}
		})
	}
	var round Round
	loop(func(int) {
		r.log.BeginSync(&round)
		r.log.EndSync(&round, errors.Join(round.StartWrite(), round.Datasync()))
	})
	loop(func(int) { c.read(false, true) })
	loop(func(int) { c.read(true, false) })
	loop(func(i int) {
		r.clk.Advance(time.Second)
		r.log.Tick(r.clk.Wall())
		if i%50 == 0 {
			cfg := r.o.Config
			cfg.SegmentBytes = int64(2+i/50%3) << 10
			r.log.Configure(cfg)
		}
	})
	loop(func(i int) {
		o := r.log.Offsets()
		if o.Start > o.Stable || o.Stable > o.High || o.High > o.End {
			t.Errorf("I1: %+v", o)
		}
		r.log.Producers(func(pidmap.Producer) bool { return true })
		if _, _, err := r.log.OffsetForTime(testWall); err != nil {
			t.Error(err)
		}
		r.log.EpochEnd(1)
		if i%200 == 0 {
			if err := r.log.DeleteBefore(o.Start); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	r.sync()
	c.verify()
	if dirty.Load() == 0 {
		t.Error("nobody was told of dirty data")
	}
	r.restart()
	c.verify()
}

// crowd is what the writers of a concurrent test were told.
type crowd struct {
	t     *testing.T
	r     *rig
	mu    sync.Mutex
	acked map[int64]string // offset: value
}

// durable waits for an answer at acks=all.
func (c *crowd) durable(end int64) {
	done := make(chan error, 1)
	c.r.log.AfterDurable(end, &Waiter{Fn: func(err error) { done <- err }})
	if err := <-done; err != nil {
		c.t.Error(err)
	}
}

func (c *crowd) note(base int64, vals ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range vals {
		if old, ok := c.acked[base+int64(i)]; ok && old != v {
			c.t.Errorf("I6: offset %d given to %q and %q", base+int64(i), old, v)
		}
		c.acked[base+int64(i)] = v
	}
}

// produce appends batches of one producer with up to five in flight, and sends every third one twice.
func (c *crowd) produce(pid int64, n int) {
	for i := range n {
		seq := int32(2 * i)
		out, err := c.r.log.Append(in(numbered(pid, 0, seq, 2)))
		if err != nil {
			c.t.Errorf("producer %d, sequence %d: %v", pid, seq, err)
			return
		}
		if i%3 == 0 {
			again, err := c.r.log.Append(in(numbered(pid, 0, seq, 2)))
			if err != nil || !again.Duplicate || again.Base != out.Base {
				c.t.Errorf("producer %d, sequence %d again: %+v, %v", pid, seq, again, err)
			}
			c.durable(again.Until)
		}
		if i%5 == 4 {
			c.durable(out.Until)
		}
		c.note(out.Base, fmt.Sprintf("p%d/0/%d", pid, seq), fmt.Sprintf("p%d/0/%d", pid, seq+1))
	}
}

func (c *crowd) gather(pid int64, n int) {
	for i := range n {
		ins, outs := make([]AppendIn, 3), make([]AppendOut, 3)
		for k := range ins {
			ins[k] = in(numbered(pid+int64(k), 0, int32(2*i), 2))
		}
		if err := c.r.log.AppendAll(ins, outs); err != nil {
			c.t.Error(err)
			return
		}
		for k, out := range outs {
			if out.Err != nil {
				c.t.Errorf("gathered: %v", out.Err)
				return
			}
			c.note(out.Base, fmt.Sprintf("p%d/0/%d", pid+int64(k), 2*i), fmt.Sprintf("p%d/0/%d", pid+int64(k), 2*i+1))
		}
		c.durable(outs[len(outs)-1].Until)
	}
}

func (c *crowd) transact(pid int64, n int) {
	for i := range n {
		val := fmt.Sprintf("t%d", i)
		ask := in(values(pid, 0, int32(i), batch.AttrTransactional, val))
		_, err := c.r.log.Append(ask)
		var rej *RejectError
		if !errors.As(err, &rej) || rej.Decision.Verdict != pidmap.TxnUnverified {
			c.t.Errorf("transaction %d: %v", i, err)
			return
		}
		ask.Guard = rej.Decision.Guard
		out, err := c.r.log.Append(ask)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.note(out.Base, val)
		mk, err := c.r.log.AppendMarker(batch.Marker{PID: pid, CoordEpoch: 1, Commit: i%2 == 0, Time: testWall}, false)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.durable(mk.Until)
		if o := c.r.log.Offsets(); o.Stable < mk.Until {
			c.t.Errorf("I11: stable %d after the marker at %d is durable", o.Stable, mk.Base)
		}
	}
}

// read reads all there is once and parks at the end.
func (c *crowd) read(committed, copied bool) {
	var f Fetch
	from := c.r.log.Offsets().Start
	for {
		err := c.r.log.Read(ReadIn{From: from, BytesMax: 2000, Committed: committed, AtLeast1: true, Copy: copied}, &f)
		if errors.Is(err, ErrRange) {
			from = c.r.log.Offsets().Start
			continue
		}
		if err != nil {
			c.t.Error(err)
			return
		}
		limit := f.High
		if committed {
			limit = f.Stable
		}
		next, err := c.walk(&f, from, limit)
		if err != nil {
			c.t.Error(err)
		}
		f.Release()
		if next == from {
			break
		}
		from = next
	}
	c.r.log.AfterReadable(from-1, committed, &Waiter{Fn: func(error) {}})
}

func (c *crowd) walk(f *Fetch, from, limit int64) (int64, error) {
	for _, part := range f.Parts {
		for len(part) > 0 {
			v, rest, err := batch.Next(part)
			if err == nil {
				_, err = v.Validate(batch.Limits{Deep: true, Stored: true})
			}
			if err != nil {
				return from, err
			}
			if v.BaseOffset() > from || v.LastOffset() < from || v.LastOffset() >= limit {
				return from, fmt.Errorf("batch %d..%d from %d, limit %d", v.BaseOffset(), v.LastOffset(), from, limit)
			}
			from, part = v.LastOffset()+1, rest
		}
	}
	return from, nil
}

// verify compares what is left in the log with what was acknowledged.
func (c *crowd) verify() {
	c.t.Helper()
	var want []string
	start := c.r.log.Offsets().Start
	for offset, val := range c.acked {
		if offset >= start {
			want = append(want, fmt.Sprintf("%d=%s", offset, val))
		}
	}
	got := slices.DeleteFunc(c.r.stored(), func(s string) bool {
		var offset int64
		fmt.Sscanf(s, "%d=", &offset)
		return s == fmt.Sprintf("%d=%s", offset, markerValue)
	})
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.t.Fatalf("%d records stored, %d acknowledged\n%v\n%v", len(got), len(want), got, want)
	}
}
