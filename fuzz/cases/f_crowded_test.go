package cases

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"sekali/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// crowded is one transaction after the other on a disk that fills up in the middle of each, and a group of one member
// that forms anew for each.
type crowded struct {
	*txn
	p         tp
	member    member
	write     batch.View // of the present transaction
	done      int        // transactions
	full      bool
	pending   int            // transactions before that are decided and may lack markers
	refused   map[string]int // how often each request met the full disk
	unsettled int            // transactions that passed on a full disk
}

// The requests of one transaction, in their order.
var crowdedSteps = []string{"JoinGroup", "SyncGroup", "AddPartitions", "Produce", "AddOffsets", "TxnOffsetCommit",
	"EndTxn"}

// once sends the request of one step once.
func (x *crowded) once(step string) int16 {
	x.n.t.Helper()
	switch step {
	case "JoinGroup":
		return x.join()
	case "SyncGroup":
		return x.sync()
	case "AddPartitions":
		if x.write == nil {
			x.write = x.batch(x.seq[x.p], 1)
		}
		if x.g.v2 {
			return 0
		}
		return x.addOnce(x.p)
	case "Produce":
		a := x.send(x.p, x.write)
		if a.code == 0 {
			x.seq[x.p]++
			x.write = nil
		}
		return a.code
	case "AddOffsets":
		if x.g.v2 {
			return 0
		}
		return x.addOffsetsOnce(x.id)
	case "TxnOffsetCommit":
		return x.tocAs(x.id, x.member, x.p, int64(x.done))
	}
	return x.endOnce(true)
}

// patiently makes a call and lets time pass until it is answered: on a full disk the broker waits for what it tries
// again.
func (x *crowded) patiently(step string) int16 {
	x.n.t.Helper()
	codes := make(chan int16, 1)
	go func() {
		defer close(codes)
		codes <- x.once(step)
	}()
	for begin := x.n.now(); x.n.now()-begin < 10_000; x.n.pass(20 * time.Millisecond) {
		select {
		case code, answered := <-codes:
			if !answered {
				x.n.t.FailNow() // said by the call
			}
			return code
		case <-time.After(5 * time.Millisecond):
		}
	}
	x.n.t.Fatalf("%s of transaction %d: no answer after 10 s", step, x.done)
	return 0
}

func (x *crowded) join() int16 {
	x.n.t.Helper()
	a := x.n.join(x.c, joinRequest(x.id, x.member.id, x.p.topic, nil))
	if a.ErrorCode == 0 {
		x.member.id, x.member.generation = a.MemberID, a.Generation
	}
	return a.ErrorCode
}

func (x *crowded) sync() int16 {
	x.n.t.Helper()
	return x.n.sync(x.c, x.id, x.member, bytes.Repeat([]byte{byte(x.done)}, 1500))
}

// rebalanced is the answer to a member whose group has moved on without it: it joins again.
func rebalanced(code int16) bool {
	return code == codeGeneration || code == 27 || code == codeUnknownMember
}

// fewJournals are settings that give the internal topics one partition each.
func fewJournals() map[string]string {
	return map[string]string{"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
}

// F4, in the middle of everything a transaction and a group do: the daemon says so with codes that pass, reads go on,
// and with space again every request passes when it is repeated, without a restart.
func TestF4DiskFullInTransaction(t *testing.T) {
	set := fewJournals()
	set["group.initial.rebalance.delay.ms"] = "0"
	disk := size[int64](8<<20, 64<<20)
	generations(t, options{disk: disk, settings: set}, func(t *testing.T, n *node, g generation) {
		x := &crowded{p: n.topic("f4", 1), refused: map[string]int{}}
		// Long names, so that every record of a journal needs a page of its own now and then.
		x.txn = n.INITFor(g, strings.Repeat("crowded", 200), 900_000)
		n.coordinator(0, x.id)
		for round := range size(42, 70) {
			x.transaction(crowdedSteps[round%len(crowdedSteps)])
			if !x.full {
				x.holds(fmt.Sprint("round ", round))
				x.pending = 0
			}
		}
		for _, step := range []string{"SyncGroup", "TxnOffsetCommit", "EndTxn"} {
			if x.refused[step] == 0 {
				t.Errorf("%s never met the full disk", step)
			}
		}
		t.Logf("refused: %v, passed on a full disk: %d", x.refused, x.unsettled)
		n.must(n.leave(-1))
		x.full = false
		for _, how := range []string{"KILL", "STOP"} {
			n.restart(how)
			x.again()
			x.holds(how)
			if code := x.retry(x.heartbeat); code != 0 {
				t.Errorf("the member after %s: code %d", how, code)
			}
		}
	})
}

// transaction is one transaction. If the disk is not full already, it is from one of the steps on, until a request is
// refused, in this transaction or a later one.
func (x *crowded) transaction(from string) {
	x.n.t.Helper()
	x.done++
	filled := x.full
	for i := 0; i < len(crowdedSteps); i++ {
		step := crowdedSteps[i]
		if step == from && !filled {
			x.n.must(x.n.leave(0))
			x.full, filled = true, true
		}
		code := x.patiently(step)
		x.n.must(x.n.alive())
		if code != 0 && x.full {
			if !retriable(code) && (step != "Produce" || code != codeStorage) {
				x.n.t.Fatalf("%s of transaction %d on a full disk: code %d", step, x.done, code)
			}
			x.refused[step]++
			x.reads(step + " refused")
			x.n.must(x.n.leave(-1))
			x.full = false
		}
		if !x.full && code != 0 {
			code = x.retry(func() int16 { return x.patiently(step) })
		}
		if step == "SyncGroup" && rebalanced(code) {
			i -= 2
			continue
		}
		if code != 0 {
			x.n.t.Fatalf("%s of transaction %d, with space: code %d", step, x.done, code)
		}
	}
	if x.full {
		x.unsettled++
		x.reads("all passed")
		x.pending = 1
	}
}

// reads demands that what is readable on a full disk is what was committed, as far as the disk has taken the markers.
func (x *crowded) reads(what string) {
	x.n.t.Helper()
	if got := x.n.committed(x.p, 0, 1<<20); len(got) < x.done-1-x.pending || len(got) > x.done {
		x.n.t.Fatalf("transaction %d, %s: %d records: %v", x.done, what, len(got), got)
	}
	offset, code := x.n.OF(x.id, x.p, false)
	if code != 0 || offset > int64(x.done) || (offset < int64(x.done-1-x.pending) && x.done > 1+x.pending) {
		x.n.t.Fatalf("transaction %d, %s: group at %d, code %d", x.done, what, offset, code)
	}
}

// holds demands that every transaction is there once, in its order, and decided.
func (x *crowded) holds(what string) {
	x.n.t.Helper()
	x.n.decided(x.p)
	got := x.n.committed(x.p, 0, 1<<20)
	data := 0
	for _, v := range x.n.read(x.p).batches() {
		if !v.Attrs().Control() {
			data++
		}
	}
	if len(got) != x.done || data != x.done {
		x.n.t.Fatalf("%s: %d records committed, %d in all, after %d transactions", what, len(got), data, x.done)
	}
	x.n.settledOffsets(x.id, x.p)
	x.n.at(what, x.id, x.p, true, int64(x.done), 0)
}

func (x *crowded) heartbeat() int16 {
	x.n.t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.Generation, r.MemberID = 3, x.id, x.member.generation, x.member.id
	return askOn[*kmsg.HeartbeatResponse](x.n, x.c, r).ErrorCode
}
