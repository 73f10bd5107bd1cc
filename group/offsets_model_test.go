package group

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"sekali/batch"
)

// event is what a request of a client, or a marker, has put into the journal at offset at. Rewrites are no events: they
// must not change what is seen.
type event struct {
	at     int64
	kind   byte // 'c' plain commit, 't' staged, 'm' marker, 'd' tombstone of a key, 'g' tombstone of a group
	group  string
	p      int32
	pid    int64
	commit bool
	value  int64
}

// offsetModel is the specification as a list: what a group holds is worked out anew from all events.
type offsetModel struct{ events []event }

// holds gives the committed offset (-1: none) and whether an open transaction has staged one, after the events below
// limit.
func (m *offsetModel) holds(group string, p int32, limit int64) (value int64, unstable bool) {
	value = -1
	for i, e := range m.events {
		if e.at >= limit || e.group != group || e.p != p || e.kind != 'c' && e.kind != 't' {
			continue
		}
		gone, decided, commit := false, e.kind == 'c', e.kind == 'c'
		for _, l := range m.events[i+1:] {
			if l.at >= limit {
				break
			}
			if l.group == group && (l.kind == 'g' || l.kind == 'd' && l.p == p) {
				gone = true
			}
			if l.kind == 'm' && l.pid == e.pid && !decided {
				decided, commit = true, l.commit
			}
		}
		if gone {
			continue
		}
		if !decided {
			unstable = true
		} else if commit {
			value = e.value // events are in order: the last one holds
		}
	}
	return value, unstable
}

// offsetsRun drives a world and its model with the same steps.
type offsetsRun struct {
	*world
	r     *rapid.T
	model offsetModel
	value int64
}

var modelGroups = []string{"g", "h"}

const modelParts = 3

// did adds an event if the call wrote something.
func (o *offsetsRun) did(e event, call func()) {
	e.at = o.j.End()
	call()
	if o.j.End() > e.at {
		o.model.events = append(o.model.events, e)
	}
}

func (o *offsetsRun) commit(pid int64) {
	o.value++
	e := event{
		kind: 'c', group: rapid.SampledFrom(modelGroups).Draw(o.r, "group"),
		p: rapid.Int32Range(0, modelParts-1).Draw(o.r, "partition"), pid: pid, value: o.value,
	}
	in := plain(e.group, e.p, e.value)
	if pid >= 0 {
		e.kind = 't'
		in = staged(e.group, pid, e.p, e.value)
	}
	o.did(e, func() { o.stage(in) })
}

// marker writes a marker and tells it before or after what lies before it became durable.
func (o *offsetsRun) marker() {
	mk := batch.Marker{PID: o.pid(), Epoch: 3, Commit: rapid.Bool().Draw(o.r, "commit")}
	at := o.j.marker(mk)
	o.model.events = append(o.model.events, event{at: at, kind: 'm', pid: mk.PID, commit: mk.Commit})
	if rapid.Bool().Draw(o.r, "told first") {
		o.m.OnMarker(0, at, mk)
		o.j.flush()
	} else {
		o.j.flush()
		o.m.OnMarker(0, at, mk)
	}
	if rapid.IntRange(0, 3).Draw(o.r, "twice") == 0 {
		o.m.OnMarker(0, o.j.End()-1, mk)
	}
}

func (o *offsetsRun) pid() int64 { return rapid.Int64Range(7, 9).Draw(o.r, "pid") }

func (o *offsetsRun) remove() {
	id := rapid.SampledFrom(modelGroups).Draw(o.r, "group")
	if rapid.Bool().Draw(o.r, "all") {
		o.j.flush()
		o.did(event{kind: 'g', group: id}, func() { o.m.Delete(id, func(*kerr.Error) {}) })
		return
	}
	p := rapid.Int32Range(0, modelParts-1).Draw(o.r, "partition")
	o.did(event{kind: 'd', group: id, p: p}, func() {
		o.m.OffsetDelete(id, []TP{{Topic: "orders", Partition: p}}, func([]*kerr.Error, *kerr.Error) {})
	})
}

// crash starts again from what is durable, once with the snapshot and once without: the state is the same, and the same
// as before if nothing was lost (I14).
func (o *offsetsRun) crash() {
	clean, before := len(o.j.waiting) == 0, o.dump()
	o.restart()
	for i, e := range o.model.events {
		if e.at >= o.j.End() {
			o.model.events = o.model.events[:i]
			break
		}
	}
	after := o.dump()
	if clean && !reflect.DeepEqual(before, after) {
		o.r.Fatalf("live\n%+v\nreplayed\n%+v", before, after)
	}
	other := *o.world
	other.snaps = newFakeSnaps()
	other.open()
	if full := other.dump(); !reflect.DeepEqual(full, after) {
		o.r.Fatalf("from the journal\n%+v\nfrom snapshot and tail\n%+v", full, after)
	}
}

// stateDump is what a restart must bring back.
type stateDump struct {
	live   map[string]map[tpKey]committed
	staged map[string]map[int64]map[tpKey]committed
	others map[string]other
	open   map[int64]map[string]bool
	count  int
}

func (w *world) dump() stateDump {
	s := (*w.m.shards.Load())[0]
	d := stateDump{
		live: map[string]map[tpKey]committed{}, staged: map[string]map[int64]map[tpKey]committed{},
		others: maps.Clone(s.others), open: map[int64]map[string]bool{}, count: s.count,
	}
	for id, g := range s.groups {
		if len(g.offsets.live) > 0 {
			d.live[id] = maps.Clone(g.offsets.live)
		}
		if len(g.offsets.staged) > 0 {
			d.staged[id] = map[int64]map[tpKey]committed{}
			for pid, keys := range g.offsets.staged {
				d.staged[id][pid] = maps.Clone(keys)
			}
		}
	}
	for pid, groups := range s.open {
		d.open[pid] = maps.Clone(groups)
	}
	return d
}

func (o *offsetsRun) check() {
	limit, quiet := o.j.End(), len(o.j.waiting) == 0
	if !quiet {
		limit = o.j.waiting[0].base
	}
	for _, id := range modelGroups {
		if g := o.world.group(id); g != nil && g.dead {
			continue // answered COORDINATOR_NOT_AVAILABLE
		}
		for p := range int32(modelParts) {
			want, unstable := o.model.holds(id, p, limit)
			if got := o.offset(id, p, false); got != want {
				o.r.Fatalf("%s-%d holds %d, want %d", id, p, got, want)
			}
			if unstable {
				want = -2
			}
			if quiet {
				if got := o.offset(id, p, true); got != want {
					o.r.Fatalf("%s-%d with requireStable %d, want %d", id, p, got, want)
				}
			}
		}
	}
	first := o.j.End()
	for _, at := range o.j.open {
		first = min(first, at)
	}
	if o.j.start > first {
		o.r.Fatalf("log start %d passed the first open transaction at %d", o.j.start, first)
	}
}

// TestOffsetsModel: random commits, transactions, markers, deletions, crashes, rewrites and snapshots give what the
// model says: transactional offsets are seen with their commit marker and never otherwise (I12), the later one holds,
// and every restart brings back the same state (I14).
func TestOffsetsModel(t *testing.T) {
	rewrites, snapshots := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		cfg := testConfig()
		cfg.RewriteEvery = rapid.SampledFrom([]int64{0, 3, 20}).Draw(r, "rewrite every")
		cfg.SnapshotEvery = rapid.SampledFrom([]int64{0, 2, 10}).Draw(r, "snapshot every")
		w := newWorld(t, cfg)
		w.topics.set("orders", 1, modelParts)
		o := &offsetsRun{world: w, r: r}
		r.Repeat(map[string]func(*rapid.T){
			"":      func(*rapid.T) { o.check() },
			"plain": func(*rapid.T) { o.commit(-1) },
			"txn":   func(*rapid.T) { o.commit(o.pid()) },
			"txn2":  func(*rapid.T) { o.commit(o.pid()) },
			"mark":  func(*rapid.T) { o.marker() },
			"drop":  func(*rapid.T) { o.remove() },
			"hold":  func(*rapid.T) { o.j.held = true },
			"flush": func(*rapid.T) { o.j.held = false; o.j.flush() },
			"one": func(*rapid.T) {
				if len(o.j.waiting) > 0 {
					o.j.flushOne()
				}
			},
			"refuse": func(*rapid.T) {
				o.j.fail = rapid.SampledFrom([]error{ErrTooLarge, ErrStorage, ErrFenced}).Draw(r, "error")
				o.commit(rapid.SampledFrom([]int64{-1, 7}).Draw(r, "as"))
				o.j.fail = nil
			},
			"tick":  func(*rapid.T) { o.advance(100 * time.Millisecond) },
			"wait":  func(*rapid.T) { o.advance(11 * time.Second) },
			"crash": func(*rapid.T) { o.crash() },
		})
		if o.j.start > 0 {
			rewrites++
		}
		snapshots += len(o.snaps.data)
	})
	if rewrites == 0 || snapshots == 0 {
		t.Fatalf("%d runs with a rewrite, %d with a snapshot: the test tests less than it says", rewrites, snapshots)
	}
}
