package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sekali/batch"
	"sekali/internal/clock"
	"sekali/pidmap"
	"sekali/plog"
	"sekali/store"
)

// partition is one partition of an internal topic as a coordinator's journal. It belongs to the log it first found: one
// that went offline and was opened anew may have lost its end, so the shard has to be loaded again, with a partition of
// its own (Engine.Reopened).
//
// Appends come from one shard, one after the other; everything else may overlap with them.
type partition struct {
	st  *store.Store
	clk clock.Clock
	tp  store.TP

	bound    atomic.Pointer[plog.Log]
	unloaded atomic.Bool // the last replay failed

	mu     sync.Mutex
	queue  []*waiting // appended and not told, in the order of their offsets
	firing bool       // somebody tells the head of queue
}

// waiting is one batch whose flush is waited for.
type waiting struct {
	waiter plog.Waiter
	told   bool // the log has said what became of it
	err    error
	done   func(error)
}

// errTooLarge: a batch is larger than the settings of the internal topic or the log allow.
var errTooLarge = errors.New("engine: batch larger than the internal topic takes")

// log is the partition's log, or why it does not serve.
func (p *partition) log() (*plog.Log, error) {
	l, err := p.st.Partition(p.tp)
	if err != nil {
		return nil, err
	}
	if !p.bound.CompareAndSwap(nil, l) && p.bound.Load() != l {
		return nil, errReopened
	}
	return l, l.Err()
}

// errReopened: the log is another one than the shard was loaded from.
var errReopened = fmt.Errorf("%w: opened anew, the journal is to be loaded again", plog.ErrOffline)

// encode makes the batch of an append: one time for all its records.
func (p *partition) encode(n int, record func(i int) (key, value []byte), pid int64, epoch int16) batch.View {
	b := batch.Builder{BaseTime: p.clk.Wall()}
	for i := range n {
		key, value := record(i)
		b.Add(batch.Record{Key: key, Value: value})
	}
	attrs := batch.Attrs(0)
	if pid >= 0 {
		attrs = batch.AttrTransactional
	}
	return b.Done(attrs, pid, epoch, -1)
}

// append writes v. written is called before append returns, with the base offset or the refusal; done, only if it was
// written, once it is durable or never will be. The done of two batches run in the order of their offsets, never at
// the same time. lazy: nobody waits for done.
func (p *partition) append(
	v batch.View, guard uint64, lazy bool, written func(base int64, err error), done func(error),
) {
	l, err := p.log()
	if err != nil {
		written(-1, err)
		return
	}
	if t := p.st.Catalog().ByID[p.tp.ID]; t != nil && len(v) > t.Config.BatchBytesMax {
		written(-1, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, len(v), t.Config.BatchBytesMax))
		return
	}
	out, err := l.Append(plog.AppendIn{
		Batch: v, Checked: batch.Checked{MaxTime: v.MaxTime()}, Origin: plog.Coordinator, Guard: guard, Lazy: lazy})
	if err != nil {
		written(-1, err)
		return
	}
	w := &waiting{done: done}
	w.waiter.Fn = func(err error) { p.tell(w, err) }
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	written(out.Base, nil)
	l.AfterDurable(out.Until, &w.waiter)
}

// tell notes what became of one batch and calls the done of all at the head of the queue that are decided. A flush
// and an append whose batch it covered may both tell at the same time: the order of offsets is made here.
func (p *partition) tell(w *waiting, err error) {
	p.mu.Lock()
	w.told, w.err = true, err
	if p.firing {
		p.mu.Unlock()
		return
	}
	p.firing = true
	for len(p.queue) > 0 && p.queue[0].told {
		head := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		head.done(head.err)
		p.mu.Lock()
	}
	p.firing = false
	p.mu.Unlock()
}

// replay calls fn for every batch that holds an offset from from on, up to the end there is when it is called. The
// bytes are read, not mapped: a cold or damaged page is then an error and no fault. fn's view is its own.
func (p *partition) replay(from int64, fn func(v batch.View) error) (err error) {
	defer func() { p.unloaded.Store(err != nil) }()
	l, err := p.log()
	if err != nil {
		return err
	}
	at := l.Offsets()
	from = max(from, at.Start)
	var f plog.Fetch
	defer f.Release()
	for from < at.High {
		if err := l.Read(plog.ReadIn{From: from, BytesMax: replayBytes, AtLeast1: true, Copy: true}, &f); err != nil {
			return fmt.Errorf("engine: replay of %s at offset %d: %w", p.tp, from, err)
		}
		before := from
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err == nil {
					_, err = v.Validate(batch.Limits{})
				}
				if err == nil {
					err = fn(v)
				}
				if err != nil {
					return fmt.Errorf("engine: replay of %s at offset %d: %w", p.tp, from, err)
				}
				from, part = v.LastOffset()+1, rest
			}
		}
		if from == before {
			break // what is left was removed by compaction
		}
	}
	return nil
}

// start and end are the first offset kept and the one after the last record; 0 and 0 of a log that does not serve.
func (p *partition) start() int64 { return p.offsets().Start }
func (p *partition) end() int64   { return p.offsets().End }

func (p *partition) offsets() plog.Offsets {
	l, err := p.log()
	if err != nil {
		return plog.Offsets{}
	}
	return l.Offsets()
}

// drop raises the log start, durably. What stands for the records below it lies above, with durability=written perhaps
// not on the disk yet: a power cut must not take both.
func (p *partition) drop(offset int64) error {
	if err := p.flush(); err != nil {
		return err
	}
	l, err := p.log()
	if err != nil {
		return err
	}
	return l.DeleteBefore(offset)
}

// trouble sorts the errors of a log into the few kinds that journals tell apart.
type trouble uint8

const (
	passing  trouble = iota // try again: no room, or anything not known
	tooLarge                // never fits
	closed                  // the log was closed
	storage                 // the log is offline
	fenced                  // a newer epoch of the producer is known
	unproven                // the transaction is not open here and the guard, if any, is void
)

func troubleOf(err error) trouble {
	if r, ok := errors.AsType[*plog.RejectError](err); ok {
		switch r.Decision.Verdict {
		case pidmap.Fenced:
			return fenced
		case pidmap.TxnUnverified, pidmap.TxnOpen:
			return unproven
		}
		return passing
	}
	_, offline := errors.AsType[*store.OfflineError](err)
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, plog.ErrTooLarge):
		return tooLarge
	case errors.Is(err, plog.ErrClosed), errors.Is(err, plog.ErrDeleted), errors.Is(err, store.ErrClosed):
		return closed
	case offline, errors.Is(err, plog.ErrOffline):
		return storage
	}
	return passing
}
