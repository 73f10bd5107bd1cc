package coord

import (
	"regexp"
	"slices"
	"sync"

	"sekali/internal/match"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Describe tells about one transactional id. Codes: TRANSACTIONAL_ID_NOT_FOUND for an id that is unknown or expires
// just now, INVALID_REQUEST for an empty one, and those of a shard that does not serve. Before Recover nothing exists.
func (c *Coordinator) Describe(txnID string, done func(Info, *kerr.Error)) {
	if txnID != "" && len(c.all()) == 0 && !c.closed.Load() {
		done(Info{}, kerr.TransactionalIDNotFound)
		return
	}
	c.to(txnID, func(s *shard) {
		e := s.entries[txnID]
		if e == nil || !e.visible() {
			done(Info{}, kerr.TransactionalIDNotFound)
			return
		}
		done(e.info(), nil)
	}, func(code *kerr.Error) { done(Info{}, code) })
}

// visible: an id that is going away, or whose first record is not in the log, is not there.
func (e *entry) visible() bool { return e.t.pending != Dead && e.t.epoch != -1 }

// info describes an entry.
func (e *entry) info() Info {
	in := Info{
		TxnID: e.id, State: e.t.state, PID: e.t.pid, Epoch: e.t.epoch, TimeoutMs: e.t.timeoutMs, StartedMs: e.t.startMs,
		TPs: e.t.tps, // never changed in place
	}
	if e.comp != nil {
		in.TPs = make([]TP, 0, len(e.comp.waiting))
		for tp := range e.comp.waiting {
			in.TPs = append(in.TPs, tp)
		}
		slices.SortFunc(in.TPs, compareTPs)
	}
	return in
}

// List tells about all transactional ids that f selects, in no promised order. Codes: INVALID_REGULAR_EXPRESSION for a
// bad pattern; COORDINATOR_LOAD_IN_PROGRESS while any shard is loading, and the code of one that does not serve: a list
// with a part missing would be taken for the whole. Before Recover the list is empty.
func (c *Coordinator) List(f Filter, done func([]Info, *kerr.Error)) {
	var pattern *regexp.Regexp
	if f.Pattern != "" {
		var err error
		if pattern, err = match.Whole(f.Pattern); err != nil {
			done(nil, kerr.InvalidRegularExpression)
			return
		}
	}
	shards := c.all()
	if c.closed.Load() {
		done(nil, kerr.CoordinatorNotAvailable)
		return
	}
	g := &gathering{left: len(shards) + 1, done: done}
	now := c.clk.Wall()
	for _, s := range shards {
		ok := s.post(func() {
			if code := s.refusal(); code != nil {
				g.add(nil, code)
				return
			}
			g.add(s.list(&f, pattern, now), nil)
		})
		if !ok {
			g.add(nil, kerr.CoordinatorNotAvailable)
		}
	}
	g.add(nil, nil)
}

// gathering is a list in the making; every shard adds to it once.
type gathering struct {
	mu    sync.Mutex
	left  int
	infos []Info
	code  *kerr.Error
	done  func([]Info, *kerr.Error)
}

func (g *gathering) add(infos []Info, code *kerr.Error) {
	g.mu.Lock()
	g.infos = append(g.infos, infos...)
	if g.code == nil || code == kerr.CoordinatorLoadInProgress {
		g.code = code
	}
	g.left--
	last := g.left == 0
	infos, code = g.infos, g.code
	g.mu.Unlock()
	switch {
	case !last:
	case code != nil:
		g.done(nil, code)
	default:
		g.done(infos, nil)
	}
}

// list is a shard's part, in the order of the ids' last records.
func (s *shard) list(f *Filter, pattern *regexp.Regexp, now int64) (infos []Info) {
	for e := s.rw.head; e != nil; e = e.link.next {
		if e.visible() && f.selects(e, pattern, now) {
			infos = append(infos, e.info())
		}
	}
	return infos
}

// selects applies the filters as Kafka does: the duration counts from the start that an id had last, so that an id
// without one has lasted for ever.
func (f *Filter) selects(e *entry, pattern *regexp.Regexp, now int64) bool {
	switch {
	case len(f.PIDs) > 0 && !slices.Contains(f.PIDs, e.t.pid):
	case f.States != nil && !slices.Contains(f.States, e.t.state):
	case f.LongerMs >= 0 && now-e.t.startMs <= f.LongerMs:
	case pattern != nil && !pattern.MatchString(e.id):
	default:
		return true
	}
	return false
}
