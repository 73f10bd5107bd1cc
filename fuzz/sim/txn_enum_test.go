package sim

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sekali/internal/vfs"
)

// enumerated is the number of points at which TestEveryCrash ends the process, over all four transactions. Whoever
// changes what a transaction writes changes it, and says why.
const enumerated = 164

var waysFlag = flag.Int("ways", 2, "in how many ways TestEveryCrash ends a process at each point, at most 5")

// crash is a way in which a process ends: alone (no plan), or with the power.
type crash struct {
	name string
	plan *vfs.CrashPlan
}

// crashes are the ways at one point; of a power cut the disk keeps nothing, all or some of what was not flushed.
func crashes(at int) []crash {
	seed := uint64(at)
	return []crash{
		{"kill", nil},
		{"cut", &vfs.CrashPlan{Seed: seed}},
		{"cut, some kept", &vfs.CrashPlan{Seed: seed, KeepUnsynced: 50, SectorSize: 512}},
		{"cut, some garbled", &vfs.CrashPlan{Seed: seed, KeepUnsynced: 60, Garble: true, SectorSize: 512}},
		{"cut, all kept", &vfs.CrashPlan{Seed: seed, KeepUnsynced: 100}},
	}[:min(*waysFlag, 5)]
}

// TestEveryCrash does one transaction over two partitions and a group, of both generations, committed and aborted, and
// ends the process before each change of a file from the first request to the last answer, in every way. The client
// repeats what was not answered; afterwards everything must be decided and as answered.
func TestEveryCrash(t *testing.T) {
	began, points, cases := time.Now(), 0, 0
	for _, v2 := range []bool{false, true} {
		for _, commit := range []bool{true, false} {
			for at, more := 1, true; more; at++ {
				for _, how := range crashes(at) {
					name := fmt.Sprintf("v2 %v, commit %v, %s before change %d", v2, commit, how.name, at)
					died := false
					synctest.Test(t, func(t *testing.T) {
						if v := everyCrash(v2, commit, at, how.plan, &died); v != "" {
							t.Fatalf("%s: %s", name, v)
						}
					})
					if more = more && died; died {
						cases++
					}
				}
				if more {
					points++
				}
			}
		}
	}
	fmt.Printf("sim: every crash of one transaction: %d cases at %d points in %.1f s\n", cases, points,
		time.Since(began).Seconds())
	if points != enumerated || cases != points*min(*waysFlag, 5) {
		t.Errorf("%d cases at %d points, there were %d points: a transaction does other things than it did", cases, points,
			enumerated)
	}
}

// everyCrash plays one case and returns what was wrong. died: the transaction was not over before the crash.
func everyCrash(v2, commit bool, at int, plan *vfs.CrashPlan, died *bool) (wrong string) {
	w := newTxnWorld(uint64(at), TxnSetup{
		Partitions: 2, IDs: 1, Groups: 1, SegmentBytes: 1 << 20, Timeout: 10 * time.Minute, Rewrite: 1000,
	})
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			wrong = string(f)
			w.abandon()
		}
	}()
	w.boot(nil)
	w.node.plant(at, plan)
	id := w.ids[0]
	id.contender = &txnClient{id: id, v2: v2}
	w.until("an owner", func() bool { return id.contender == nil }, func() { id.takeOver(v2) })
	c := id.owner
	for _, p := range w.parts[:2] {
		n := 0
		w.until("a write", func() bool { return n > 0 && c.unresolved == nil || c.cur != nil && c.cur.failed }, func() {
			if c.unresolved != nil {
				c.send(c.unresolved, false)
				return
			}
			if c.produce(p, false); c.unresolved != nil {
				n++
			}
		})
	}
	g := w.groups[0]
	w.until("an offset", func() bool {
		return c.cur.failed || len(c.cur.entries) > 0 && c.cur.entries[len(c.cur.entries)-1].acked
	}, func() { c.stage(g, false) })
	t := c.cur
	w.until("the end", func() bool { return t.answered || c.fenced }, func() { c.end(commit && !t.failed, false) })
	*died = w.stats.Mines > 0
	if !t.answered {
		return "its only client is fenced"
	}
	w.finish()
	if committed := t.asked == askedCommit; t.committed != committed || t.denied == committed {
		return fmt.Sprintf("asked %d, committed %v, aborted %v", t.asked, t.committed, t.denied)
	}
	return ""
}

// until does something again and again until it is done; a process that dies meanwhile is replaced.
func (w *txnWorld) until(what string, done func() bool, do func()) {
	for range 50 {
		for w.idle(); w.node.dead(); w.idle() {
			w.stats.Mines++
			w.bury()
			w.boot(nil)
		}
		if done() {
			return
		}
		if c := w.ids[0].owner; c == nil || c.waiting == 0 {
			do()
		}
	}
	w.fail("%s never comes", what)
}
