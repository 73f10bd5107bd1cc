package sim

import (
	"errors"
	"slices"
	"sync"
	"syscall"

	"sekali/batch"
	"sekali/fuzz/model"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/plog"
)

// answers collects what the waiters of a process were told, for the driver to look at once all is at rest.
type answers struct {
	mu   sync.Mutex
	list []answer
}

// answer is what one waiter of acks=all was told.
type answer struct {
	w    *wait
	err  error
	dead bool // the process had died: nobody heard it
}

// wait is one acks=all answer that is waited for.
type wait struct {
	plog.Waiter
	p     *part
	m     *model.Partition // of the partition then: the topic may have been made anew
	s     *sent
	base  int64
	until int64
	lose  bool // the answer gets lost on its way
}

func (a *answers) put(x answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, x)
}

func (a *answers) take() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	return list
}

// deliver gives batches to the log of a partition, one or many with one call, as a broker does, and compares each
// answer with the model's. lose: the answers get lost.
func (w *world) deliver(p *part, all []*sent, lose bool) {
	l := w.log(p)
	if l == nil || len(all) == 0 {
		return
	}
	in, out := make([]plog.AppendIn, len(all)), make([]plog.AppendOut, len(all))
	for i, s := range all {
		v := batch.View(slices.Clone(s.Bytes))
		checked, err := v.Validate(batch.Limits{Deep: true, AllowZstd: true})
		if err != nil {
			w.fail("a client's batch is refused: %v", err)
		}
		in[i] = plog.AppendIn{Batch: v, Checked: checked, Version: 9}
	}
	if len(all) == 1 {
		out[0], out[0].Err = l.Append(in[0])
	} else {
		_ = l.AppendAll(in, out) // each batch has its own error
	}
	for i, s := range all {
		w.judge(p, l, s, &out[i], lose)
	}
}

// judge compares one answer of a log with what the model wants.
func (w *world) judge(p *part, l *plog.Log, s *sent, out *plog.AppendOut, lose bool) {
	now := w.now()
	want, other := p.m.Decide(&s.Request, now)
	if out.Err != nil && w.stored(p, l, s, out, want, other) {
		return
	}
	got := verdictOf(out)
	if got != want.Verdict && other != nil {
		want = *other
	}
	old := want.Verdict == model.Old && (got == model.Duplicate || got == model.Old)
	if got != want.Verdict && !old {
		w.fail("partition %d: %s: answered as %v (%+v), must be %v", p.n, s, got, *out, want.Verdict)
	}
	if out.Start != p.m.Start {
		w.fail("partition %d: %s: log start %d told, it is %d", p.n, s, out.Start, p.m.Start)
	}
	switch got {
	case model.Append:
		w.accepted(p, l, s, out, &want)
	case model.Duplicate:
		w.again(p, s, out, &want)
	case model.Old:
		w.unfound(p, s, out, &want)
	default:
		w.stats.Refused++
		return
	}
	x := &wait{p: p, m: p.m, s: s, base: out.Base, until: out.Until, lose: lose}
	n := w.node
	x.Fn = func(err error) { w.answers.put(answer{x, err, n.dead()}) }
	l.AfterDurable(out.Until, &x.Waiter)
}

// stored handles the error of a batch that is not a decision but a fault of the disk; false: it is a decision.
func (w *world) stored(
	p *part, l *plog.Log, s *sent, out *plog.AppendOut, want model.Answer, other *model.Answer,
) bool {
	var reject *plog.RejectError
	err := out.Err
	if errors.As(err, &reject) {
		return false
	}
	dead := w.node.dead()
	switch {
	case dead || offline(err):
		if !dead && !w.faulty && !w.limited {
			w.fail("partition %d: %s: offline without a fault: %v", p.n, s, err)
		}
		// A partition that has never held a record takes first sequence 0 only; one that a failed batch before this one
		// may have written to takes any.
		first := want.Verdict == model.OutOfOrder && p.m.End() == 0 && len(p.maybe) > 0
		if want.Verdict == model.Append || other != nil || first {
			p.maybe = append(p.maybe, candidate{s: s, leader: l.Epoch(), wall: w.node.clk.Wall(), now: w.now()})
		}
	case vfs.IsNoSpace(err) && w.limited, errors.Is(err, syscall.EIO) && w.faulty:
		w.stats.Full++
		p.m.Refuse(&s.Request, w.now())
	case errors.Is(err, plog.ErrTooLarge) && int64(len(s.Bytes)) > w.setup.SegmentBytes:
	default:
		w.fail("partition %d: %s: %v", p.n, s, err)
	}
	return true
}

func verdictOf(out *plog.AppendOut) model.Verdict {
	var reject *plog.RejectError
	switch {
	case out.Duplicate:
		return model.Duplicate
	case out.Err == nil:
		return model.Append
	case errors.As(out.Err, &reject):
		switch reject.Decision.Verdict {
		case pidmap.DuplicateOld:
			return model.Old
		case pidmap.OutOfOrder:
			return model.OutOfOrder
		case pidmap.Fenced:
			return model.Fenced
		}
	}
	return 255
}

// accepted checks the answer of a batch that was stored, and stores it in the model.
func (w *world) accepted(p *part, l *plog.Log, s *sent, out *plog.AppendOut, want *model.Answer) {
	time := int64(-1)
	if w.setup.AppendTime {
		time = w.node.clk.Wall()
	}
	b := p.m.Append(&s.Request, l.Epoch(), w.node.clk.Wall(), w.now())
	if out.Base != b.Base || out.Last != b.Last || out.Until != b.Last+1 || out.Time != time ||
		out.Unproven != want.Unproven {
		w.fail("partition %d: %s: answered %+v, stored at %d..%d", p.n, s, *out, b.Base, b.Last)
	}
	w.stats.Stored++
}

// again checks the answer of a duplicate: the place of the original (D4).
func (w *world) again(p *part, s *sent, out *plog.AppendOut, want *model.Answer) {
	b := want.At
	if want.Verdict == model.Old {
		b = p.m.Original(&s.Request, out.Base)
	}
	if b == nil {
		w.fail("partition %d: %s: called a duplicate at %d, no batch has its numbers", p.n, s, out.Base)
	}
	time := int64(-1)
	if w.setup.AppendTime {
		time = b.Time
	}
	if out.Base != b.Base || out.Last != b.Last || out.Until != want.Until || out.Time != time {
		w.fail("partition %d: %s: duplicate answered %+v, the original is at %d..%d, until %d, time %d", p.n, s, *out,
			b.Base, b.Last, want.Until, time)
	}
	if want.Verdict == model.Old {
		w.stats.Old++
		return
	}
	w.stats.Duplicates++
	same := string(s.Bytes[61:]) == string(b.Bytes[61:])
	if same && out.Mismatch && !b.Rewritten {
		w.fail("partition %d: %s: an honest repetition counts as one with other content", p.n, s)
	}
}

// unfound checks error 46: the original lies beyond what the log must look through, or nowhere under these borders.
func (w *world) unfound(p *part, s *sent, out *plog.AppendOut, want *model.Answer) {
	w.stats.Old++
	if out.Base != -1 || out.Until != want.Until {
		w.fail("partition %d: %s: old duplicate answered %+v, must wait for %d", p.n, s, *out, want.Until)
	}
	if want.At == nil || w.node.dead() {
		return
	}
	bases := w.bases(p)
	i := len(bases) - 1
	for i > 0 && bases[i] > want.Before {
		i--
	}
	if i >= 0 && want.At.Base >= bases[max(i-1, 0)] {
		w.fail("partition %d: %s: the original at %d was not found, segments %v", p.n, s, want.At.Base, bases)
	}
}

// take looks at what the waiters were told since the last time.
func (w *world) take() {
	for _, a := range w.answers.take() {
		x := a.w
		if a.dead || x.m != x.p.m {
			continue
		}
		if a.err != nil {
			if !w.faulty && !w.limited {
				w.fail("partition %d: %s: the answer is %v", x.p.n, x.s, a.err)
			}
			continue
		}
		w.stats.Acked++
		if !w.setup.Written {
			x.p.m.Sure = max(x.p.m.Sure, x.until)
		}
		if !x.lose {
			x.s.stream.answered(x.s)
		}
	}
}
