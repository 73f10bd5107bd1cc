package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// initRows are the tables of InitProducerId.
var initRows = []tableRow{
	{"timeouts", func(a *actor) {
		for _, ms := range []int32{0, -1, -1 << 31, 1, 900_000, 900_001, 1<<31 - 1} {
			a.initAs(4, -1, -1, ms)
		}
		a.state()
	}},
	{"one of id and epoch", func(a *actor) {
		a.init()
		a.initAs(4, a.pid, -1, 60_000)
		a.initAs(4, -1, a.epoch, 60_000)
	}},
	{"Empty", func(a *actor) { a.init().state().init().state() }},
	{"every version", func(a *actor) {
		for v := range int16(6) {
			a.initAs(v, -1, -1, 60_000)
		}
		a.initAs(6, -1, -1, 60_000)
	}},
	{"the pair at hand", func(a *actor) {
		a.init()
		for range 3 {
			a.initAs(4, a.pid, a.epoch, 60_000)
		}
	}},
	{"the pair before, once more", func(a *actor) {
		a.init()
		a.initAs(4, a.pid, 0, 60_000)
		a.initAs(4, a.pid, 0, 60_000)
		a.initAs(4, a.pid, 0, 60_000)
		a.initAs(4, a.pid, 1, 60_000)
		a.initAs(4, a.pid, 0, 60_000)
	}},
	{"the pair before, after an init without one", func(a *actor) {
		a.init().init()
		a.initAs(4, a.pid, 0, 60_000)
	}},
	{"other epochs", func(a *actor) {
		a.init().init().init()
		for _, v := range []int16{3, 4, 5} {
			a.initAs(v, a.pid, a.epoch+1, 60_000)
			a.initAs(v, a.pid, 0, 60_000)
		}
		a.state()
	}},
	{"another producer id", func(a *actor) {
		a.init()
		for _, v := range []int16{3, 4, 5} {
			a.initAs(v, a.pid+1_000_000, 0, 60_000)
		}
	}},
	{"a pair for an unknown id", func(a *actor) { a.initAs(4, 1_000_000, 7, 60_000); a.state() }},
	{"another timeout", func(a *actor) { a.init(); a.initAs(4, -1, -1, 30_000); a.state() }},
}

// fenceRows are InitProducerId in and after a transaction, in both generations.
var fenceRows = []tableRow{
	{"Ongoing", func(a *actor) {
		a.init().begin(0, 0)
		old := *a
		if code := a.initAs(5, -1, -1, 60_000); code != 51 {
			return
		}
		a.init().state().log(0)
		a.n += 100
		a.old(&old)
	}},
	{"Ongoing, the pair at hand", func(a *actor) {
		a.init().begin(0, 0)
		pid, epoch := a.pid, a.epoch
		a.initAs(4, pid, epoch, 60_000)
		a.decided()
		a.initAs(4, pid, epoch, 60_000)
		a.state().log(0)
	}},
	{"Ongoing, another epoch", func(a *actor) {
		a.init().begin(0, 0)
		a.initAs(4, a.pid, a.epoch+1, 60_000)
		a.state().log(0)
	}},
	{"CompleteCommit", func(a *actor) { a.init().begin(0, 0).end(true).state().init().state().log(0) }},
	{"CompleteAbort", func(a *actor) { a.init().begin(0, 0).end(false).state().init().state().log(0) }},
	{"CompleteCommit, the pair at hand", func(a *actor) {
		a.init().begin(0, 0).end(true)
		a.initAs(4, a.pid, a.epoch, 60_000)
		a.initAs(4, a.pid, a.epoch-1, 60_000)
		a.initAs(4, a.pid, a.epoch-2, 60_000)
	}},
	{"CompleteCommit, the pair before", func(a *actor) {
		a.init().begin(0, 0).end(true)
		a.initAs(4, a.pid, a.epoch-1, 60_000)
		a.state()
	}},
}

// old does with the pair of before all that a fenced producer might do.
func (a *actor) old(old *actor) {
	for _, v := range []int16{0, 1, 2, 3} {
		a.addAs(v, old.pid, old.epoch, a.topic, 1)
	}
	for _, v := range []int16{0, 1, 2, 4} {
		a.addOffsets(v, "group", old.pid, old.epoch)
	}
	for _, v := range []int16{9, 11, 12} {
		a.writeAs(v, &a.id, false, 0, old.pid, old.epoch, 1, 1)
		a.writeAs(v, &a.id, false, 1, old.pid, old.epoch, 0, 1)
	}
	for _, v := range []int16{0, 1, 2, 4, 5} {
		a.endAs(v, old.pid, old.epoch, true)
		a.endAs(v, old.pid, old.epoch, false)
	}
	for _, v := range []int16{0, 2, 3, 4, 5} {
		a.commitOffset(v, "group", old.pid, old.epoch, -1, "")
	}
	a.state().log(0).log(1)
}

// addRows are the tables of AddPartitionsToTxn and AddOffsetsToTxn.
var addRows = []tableRow{
	{"unknown id", func(a *actor) {
		for v := range int16(4) {
			a.addAs(v, 5, 0, a.topic, 0)
		}
		a.addOffsets(3, "group", 5, 0)
		a.verify(4, true, 5, 0, 0)
		a.verify(4, false, 5, 0, 0)
	}},
	{"empty id", func(a *actor) {
		a.id = ""
		a.add(0)
		a.addOffsets(3, "group", 5, 0)
		a.verify(4, true, 5, 0, 0)
		a.endAs(3, 5, 0, true)
	}},
	{"Empty", func(a *actor) { a.init().add(0).state().add(0).state().add(0, 1).state() }},
	{"unknown partition", func(a *actor) { a.init().add(0, 2).state(); a.addAs(3, a.pid, a.epoch, "unknown", 0); a.state() }},
	{"internal topic", func(a *actor) {
		a.init()
		a.addAs(3, a.pid, a.epoch, "__consumer_offsets", 0)
		a.addAs(3, a.pid, a.epoch, "__transaction_state", 0)
		a.state()
	}},
	{"another producer id", func(a *actor) {
		a.init()
		for v := range int16(4) {
			a.addAs(v, a.pid+1_000_000, a.epoch, a.topic, 0)
			a.addOffsets(v, "group", a.pid+1_000_000, a.epoch)
		}
		a.state()
	}},
	{"another epoch", func(a *actor) {
		a.init().init()
		for v := range int16(4) {
			for _, d := range []int16{-1, 1} {
				a.addAs(v, a.pid, a.epoch+d, a.topic, 0)
				a.addOffsets(v, "group", a.pid, a.epoch+d)
			}
		}
		a.state()
	}},
	{"CompleteCommit", func(a *actor) { a.init().begin(0, 0).end(true).add(1).state() }},
	{"CompleteAbort", func(a *actor) { a.init().begin(0, 0).end(false).add(1).state() }},
	{"no partition", func(a *actor) { a.init().add().state() }},
	{"offsets, every version", func(a *actor) {
		a.init()
		for v := range int16(5) {
			a.addOffsets(v, fmt.Sprintf("group-%d", v), a.pid, a.epoch)
		}
		a.addOffsets(3, "", a.pid, a.epoch)
		a.state()
	}},
	{"verification", func(a *actor) {
		a.init()
		for _, v := range []int16{4, 5} {
			a.verify(v, true, a.pid, a.epoch, 0)
		}
		a.add(0)
		for _, v := range []int16{4, 5} {
			a.verify(v, true, a.pid, a.epoch, 0, 1)
			a.verify(v, true, a.pid+1_000_000, a.epoch, 0)
			a.verify(v, true, a.pid, a.epoch+1, 0)
			a.verify(v, false, a.pid, a.epoch+1, 0)
		}
		a.verify(5, false, a.pid, a.epoch, 0, 1)
		a.verify(5, true, a.pid, a.epoch, 0, 1)
		a.verify(5, false, a.pid, a.epoch, 7)
		a.state()
	}},
}

// endRows are the tables of EndTxn of the first generation.
var endRows = []tableRow{
	{"unknown id", func(a *actor) {
		for v := range int16(6) {
			a.endAs(v, 5, 0, true)
		}
	}},
	{"another producer id", func(a *actor) {
		a.init().begin(0, 0)
		for v := range int16(6) {
			a.endAs(v, a.pid+1_000_000, a.epoch, true)
		}
		a.state()
	}},
	{"another epoch", func(a *actor) {
		a.init().init().begin(0, 0)
		for v := range int16(5) {
			a.endAs(v, a.pid, a.epoch-1, true)
			a.endAs(v, a.pid, a.epoch+1, false)
		}
		a.state()
	}},
	{"Empty", func(a *actor) { a.init().end(true).end(false).state() }},
	{"Ongoing, commit", func(a *actor) { a.init().begin(0, 0).end(true).state().log(0) }},
	{"Ongoing, abort", func(a *actor) { a.init().begin(0, 0).end(false).state().log(0) }},
	{"Ongoing, nothing written", func(a *actor) { a.init().add(0, 1).end(true).state().log(0).log(1) }},
	{"CompleteCommit", func(a *actor) { a.init().begin(0, 0).end(true).end(true).end(false).state().log(0) }},
	{"CompleteAbort", func(a *actor) { a.init().begin(0, 0).end(false).end(false).end(true).state().log(0) }},
	{"every version", func(a *actor) {
		a.init()
		for v := range int16(5) {
			a.begin(0, int32(v))
			a.endAs(v, a.pid, a.epoch, v%2 == 0)
			a.decided()
		}
		a.state().log(0)
	}},
	{"one transaction after the other", func(a *actor) {
		a.init().begin(0, 0).end(true).begin(0, 1).end(false).begin(1, 0).end(true).begin(0, 2).begin(1, 1).end(true)
		a.state().log(0).log(1)
	}},
}

// cell is one cell of the table of EndTxn 5.
func cell2(commit bool, retry bool) func(a *actor) {
	return func(a *actor) {
		epoch := a.epoch
		if retry {
			epoch--
		}
		a.endAs(5, a.pid, epoch, commit)
		a.state().log(0)
	}
}

// end2Rows are the cells of EndTxn 5, and what follows them.
func end2Rows() (rows []tableRow) {
	for _, from := range []struct {
		name string
		to   func(a *actor)
	}{
		{"Empty", func(a *actor) { a.init().init() }},
		{"Ongoing", func(a *actor) { a.init().init().begin(0, 0) }},
		{"CompleteCommit", func(a *actor) { a.init().begin(0, 0).end(true) }},
		{"CompleteAbort", func(a *actor) { a.init().begin(0, 0).end(false) }},
	} {
		for _, commit := range []bool{false, true} {
			for _, retry := range []bool{true, false} {
				name := strings.Join([]string{from.name, map[bool]string{true: "commit", false: "abort"}[commit],
					map[bool]string{true: "retry", false: "current"}[retry]}, ", ")
				rows = append(rows, tableRow{name, func(a *actor) { a.two = true; from.to(a); cell2(commit, retry)(a) }})
			}
		}
	}
	return append(rows,
		tableRow{"another epoch", func(a *actor) {
			a.two = true
			a.init().init().init().begin(0, 0)
			a.endAs(5, a.pid, a.epoch+1, true)
			a.endAs(5, a.pid, a.epoch-2, false)
			a.end(true).state()
			a.endAs(5, a.pid, a.epoch-2, true)
			a.endAs(5, a.pid, a.epoch+1, true)
		}},
		tableRow{"one transaction after the other", func(a *actor) {
			a.two = true
			a.init().begin(0, 0).end(true).begin(0, 0).end(false).begin(1, 0).end(true).begin(0, 0).begin(1, 0).end(true)
			a.state().log(0).log(1)
		}},
		tableRow{"first generation, then the second", func(a *actor) {
			a.init().begin(0, 0).end(true)
			a.two = true
			a.begin(0, 1).end(true).state()
			a.two = false
			a.begin(0, 0).end(false).state().log(0)
		}},
		tableRow{"begun in the first, ended in the second", func(a *actor) {
			a.init().begin(0, 0)
			a.two = true
			a.end(true).state().log(0)
		}},
		tableRow{"begun in the second, ended in the first", func(a *actor) {
			a.two = true
			a.init().begin(0, 0)
			a.two = false
			a.end(true).state().begin(0, 1).end(true).state().log(0)
		}},
	)
}

// listTransactions sends ListTransactions and records those of one row.
func (a *actor) listTransactions(what string, version int16, change func(r *kmsg.ListTransactionsRequest)) {
	r := kmsg.NewPtrListTransactionsRequest()
	r.Version = version
	change(r)
	resp, ok := ask[*kmsg.ListTransactionsResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	text := fmt.Sprintf("code %d, unknown %q", resp.ErrorCode, resp.UnknownStateFilters)
	var all []string
	for _, t := range resp.TransactionStates {
		if strings.HasPrefix(t.TransactionalID, a.id) {
			all = append(all, fmt.Sprintf(", %s %s %s", t.TransactionalID, a.s.pidText(t.ProducerID), t.TransactionState))
		}
	}
	slices.Sort(all)
	text += strings.Join(all, "")
	a.see(what, "%s", text)
}
