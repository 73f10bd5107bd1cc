package coord

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (r *rig) list(f Filter) (ids []string, code *kerr.Error) {
	r.t.Helper()
	calls := 0
	r.c.List(f, func(in []Info, c *kerr.Error) {
		calls++
		for _, i := range in {
			ids = append(ids, i.TxnID)
		}
		code = c
	})
	if calls != 1 {
		r.t.Fatalf("answered %d times", calls)
	}
	slices.Sort(ids)
	return ids, code
}

func (r *rig) describe(id string) (info Info, code *kerr.Error) {
	r.t.Helper()
	calls := 0
	r.c.Describe(id, func(i Info, c *kerr.Error) { info, code, calls = i, c, calls+1 })
	if calls != 1 {
		r.t.Fatalf("answered %d times", calls)
	}
	return info, code
}

func TestListFilters(t *testing.T) {
	r := newRig(t)
	empty := r.fresh("empty")
	open := r.fresh("open-1")
	r.add("open-1", open, 2, tp("x", 0))
	r.tick(time.Minute / 2)
	later := r.fresh("open-2")
	r.add("open-2", later, 2, tp("x", 0))
	done := r.fresh("done.1")
	r.add("done.1", done, 2, tp("x", 0))
	r.end("done.1", done, 2, true).want(t, nil)
	all := []string{"done.1", "empty", "open-1", "open-2"}
	for _, c := range []struct {
		name string
		f    Filter
		want []string
	}{
		{"none", Filter{LongerMs: -1}, all},
		{"one state", Filter{LongerMs: -1, States: []State{Ongoing}}, all[2:]},
		{"two states", Filter{LongerMs: -1, States: []State{Empty, CompleteCommit}}, all[:2]},
		{"only unknown state names", Filter{LongerMs: -1, States: []State{}}, nil},
		{"state of nobody", Filter{LongerMs: -1, States: []State{PrepareAbort}}, nil},
		{"producer ids", Filter{LongerMs: -1, PIDs: []int64{empty.PID, later.PID, 1}}, []string{"empty", "open-2"}},
		{"state and producer id", Filter{LongerMs: -1, States: []State{Ongoing}, PIDs: []int64{empty.PID}}, nil},
		{"longer than 29999", Filter{LongerMs: 29_999}, []string{"empty", "open-1"}},
		{"longer than 30000, exactly", Filter{LongerMs: 30_000}, []string{"empty"}},
		{"longer than 0", Filter{LongerMs: 0}, []string{"empty", "open-1"}},
		{"longer, Ongoing", Filter{LongerMs: 10, States: []State{Ongoing}}, []string{"open-1"}},
		{"pattern", Filter{LongerMs: -1, Pattern: "open-[0-9]+"}, all[2:]},
		{"pattern of a part", Filter{LongerMs: -1, Pattern: "open"}, nil},
		{"alternatives are anchored too", Filter{LongerMs: -1, Pattern: "empty|open-"}, []string{"empty"}},
		{"dot", Filter{LongerMs: -1, Pattern: `done\.1`}, []string{"done.1"}},
		{"pattern of everything", Filter{LongerMs: -1, Pattern: ".*"}, all},
	} {
		if got, code := r.list(c.f); code != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, code, c.want)
		}
	}
	if got, code := r.list(Filter{LongerMs: -1, Pattern: "(open"}); code != kerr.InvalidRegularExpression || got != nil {
		t.Errorf("bad pattern: %v, %v", got, code)
	}
	if got, code := r.list(Filter{LongerMs: -1, Pattern: "a(?=b)"}); code != kerr.InvalidRegularExpression || got != nil {
		t.Errorf("a pattern that RE2 does not know: %v, %v", got, code)
	}
	if got, _ := r.list(Filter{LongerMs: math.MaxInt64}); got != nil {
		t.Errorf("longer than ever: %v", got)
	}
}

func TestDescribe(t *testing.T) {
	r := newRig(t)
	if _, code := r.describe("a"); code != kerr.TransactionalIDNotFound {
		t.Errorf("unknown: %v", code)
	}
	if _, code := r.describe(""); code != kerr.InvalidRequest {
		t.Errorf("empty: %v", code)
	}
	at := r.fresh("a")
	want := Info{TxnID: "a", State: Empty, PID: at.PID, TimeoutMs: 60_000, StartedMs: -1}
	if got, code := r.describe("a"); code != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, code, want)
	}
	started := r.clk.Wall()
	r.add("a", at, 2, tp("y", 1), tp("x", 0), tp("x", 2))
	want.State, want.StartedMs, want.TPs = Ongoing, started, []TP{tp("x", 0), tp("x", 2), tp("y", 1)}
	if got, code := r.describe("a"); code != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, code, want)
	}
	r.sink.hold = true
	r.end("a", at, 2, false)
	r.sink.markers()[1].done(nil)
	want.State, want.Epoch, want.TPs = PrepareAbort, 1, []TP{tp("x", 0), tp("y", 1)} // those awaited
	if got, code := r.describe("a"); code != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, code, want)
	}
	r.sink.flush()
	want.State, want.TPs = CompleteAbort, nil
	if got, code := r.describe("a"); code != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, code, want)
	}
}

// An id whose tombstone, or whose first record, is on its way is neither described nor listed.
func TestInvisible(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IDExpireMs = 1000 })
	r.fresh("old")
	r.j.hold = true
	r.tick(2 * time.Second)
	first := r.init(InitIn{TxnID: "new", PID: -1, Epoch: -1})
	first.wantNone(t)
	for _, id := range []string{"old", "new"} {
		if _, code := r.describe(id); code != kerr.TransactionalIDNotFound {
			t.Errorf("%s: %v", id, code)
		}
	}
	if ids, code := r.list(Filter{LongerMs: -1}); code != nil || ids != nil {
		t.Errorf("%v, %v", ids, code)
	}
	r.j.flush()
	first.want(t, nil)
	if ids, code := r.list(Filter{LongerMs: -1}); code != nil || !reflect.DeepEqual(ids, []string{"new"}) {
		t.Errorf("%v, %v", ids, code)
	}
}

// Before there are journals nothing exists; while one loads the list is refused as a whole, as with one that failed; a
// closed coordinator answers too.
func TestListWithoutJournals(t *testing.T) {
	r := newRig(t)
	shards := r.c.shards.Swap(nil)
	if ids, code := r.list(Filter{LongerMs: -1}); code != nil || ids != nil {
		t.Errorf("before: %v, %v", ids, code)
	}
	if _, code := r.describe("a"); code != kerr.TransactionalIDNotFound {
		t.Errorf("before: %v", code)
	}
	r.c.shards.Store(shards)
	r.fresh("a")
	loading, failed := newShard(r.c, 1, &fakeJournal{}), newShard(r.c, 2, &fakeJournal{})
	failed.loading = false
	failed.fail(errTest)
	r.c.shards.Store(&[]*shard{r.s, failed})
	if ids, code := r.list(Filter{LongerMs: -1}); code != kerr.NotCoordinator || ids != nil {
		t.Errorf("one failed: %v, %v", ids, code)
	}
	for _, order := range [][]*shard{{r.s, failed, loading}, {loading, failed, r.s}} {
		r.c.shards.Store(&order)
		if ids, code := r.list(Filter{LongerMs: -1}); code != kerr.CoordinatorLoadInProgress || ids != nil {
			t.Errorf("one loading: %v, %v", ids, code)
		}
	}
	r.c.Close()
	if ids, code := r.list(Filter{LongerMs: -1}); code != kerr.CoordinatorNotAvailable || ids != nil {
		t.Errorf("closed: %v, %v", ids, code)
	}
	if _, code := r.describe("a"); code != kerr.CoordinatorNotAvailable {
		t.Errorf("closed: %v", code)
	}
}

// A list gathers from all shards, on their goroutines.
func TestListOfManyShards(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Inline = false })
	js := make([]Journal, 8)
	for i := range js {
		js[i] = &fakeJournal{}
	}
	c := New(r.c.cfg, r.ids, r.sink, nil, r.clk)
	if err := c.Recover(t.Context(), js, 1, nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var want []string
	for i := range 100 {
		id := fmt.Sprintf("id-%02d", i)
		told := make(chan *kerr.Error, 1)
		c.Init(InitIn{TxnID: id, PID: -1, Epoch: -1, TimeoutMs: 1000}, func(_ InitOut, code *kerr.Error) { told <- code })
		if code := <-told; code != nil {
			t.Fatal(code)
		}
		want = append(want, id)
	}
	got := make(chan []string, 1)
	c.List(Filter{LongerMs: -1}, func(in []Info, _ *kerr.Error) {
		var ids []string
		for _, i := range in {
			ids = append(ids, i.TxnID)
		}
		got <- ids
	})
	ids := <-got
	if slices.Sort(ids); !reflect.DeepEqual(ids, want) {
		t.Fatalf("%v", ids)
	}
}
