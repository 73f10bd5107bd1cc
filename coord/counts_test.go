package coord

import "testing"

// Count follows ids through their states, does not know those that expired, and answers after Close too.
func TestCount(t *testing.T) {
	r := newRig(t)
	count := func() (n Counts) {
		called := 0
		r.c.Count(func(c Counts) { n = c; called++ })
		if called != 1 {
			t.Fatalf("answered %d times", called)
		}
		return n
	}
	check := func(what string, want map[State]int) {
		t.Helper()
		var all Counts
		for s, n := range want {
			all[s] = n
		}
		if got := count(); got != all {
			t.Errorf("%s: %v, want %v", what, got, all)
		}
	}
	check("nothing", nil)
	for i, state := range []State{Empty, Ongoing, Ongoing, CompleteCommit, CompleteAbort} {
		m := newTxn(int64(i))
		m.epoch, m.state, m.startMs, m.updateMs = 1, state, 5, 5
		r.s.load(string(rune('a'+i)), m, -1, int64(i))
	}
	r.s.load("unborn", newTxn(9), -1, -1)
	check("loaded", map[State]int{Empty: 1, Ongoing: 2, CompleteCommit: 1, CompleteAbort: 1})
	r.s.unload("a")
	check("one expired", map[State]int{Ongoing: 2, CompleteCommit: 1, CompleteAbort: 1})
	r.c.Close()
	check("closed", nil)
}
