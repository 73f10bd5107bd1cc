package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Setup is what holds for one whole run.
type Setup struct {
	Partitions, Clients, Steps    int
	SegmentBytes, IndexInterval   int64
	SegmentMs                     int64
	RetainMs, RetainBytes         int64
	Expire                        time.Duration
	Written, SyncFS, AppendTime   bool
	Compact                       bool // allowed by the policy; nothing here compacts
	Deaths, Disk, Space, Patience int  // weights
}

// String is the setup as the report of a violation shows it.
func (s Setup) String() string {
	return fmt.Sprintf("%d partitions, %d clients, segments of %d bytes and %d ms, index every %d bytes, "+
		"retention %d ms %d bytes, expiry %v, written %v, syncfs %v, append time %v, compact %v", s.Partitions, s.Clients,
		s.SegmentBytes, s.SegmentMs, s.IndexInterval, s.RetainMs, s.RetainBytes, s.Expire, s.Written, s.SyncFS,
		s.AppendTime, s.Compact)
}

// Kind is what an operation does.
type Kind uint8

// The operations of a script.
const (
	Send     Kind = iota // a client's next batch
	Group                // several batches of several clients with one gathered write
	Retry                // a batch that is not answered, or one answered not long ago, again
	Stale                // a copy of any batch ever sent to the partition
	Gap                  // a batch whose numbers skip some
	Recut                // numbers sent before, cut at other borders
	Bump                 // a client raises its epoch
	Fresh                // a client begins anew with another producer id
	Flush                // a commit round goes on
	Read                 // read somewhere and compare
	Hold                 // read and keep the bytes
	Drop                 // look at kept bytes and give them back
	Lookup               // by time and by leader epoch
	Tick                 // time passes, housekeeping
	Wall                 // the wall clock jumps
	Delete               // DeleteRecords
	Retain               // other retention settings
	Kill                 // process death
	Cut                  // power cut
	Mine                 // death in the middle of an operation to come
	BadFlush             // a flush to come fails
	BadWrite             // a write to come fails
	Full                 // the disk is full
	Heal                 // all faults end
	Restart              // clean stop and start
	Reopen               // offline partitions are reopened by hand
	Remake               // the topic is deleted and created again
	kinds
)

var kindNames = [kinds]string{
	"send", "group", "retry", "stale", "gap", "recut", "bump", "fresh", "flush", "read", "hold", "drop", "lookup",
	"tick", "wall", "delete", "retain", "kill", "cut", "mine", "bad-flush", "bad-write", "full", "heal", "restart",
	"reopen", "remake",
}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// Op is one operation. A, B and C choose among what there is when it runs: any script is a valid one.
type Op struct {
	N       int // place in the script of the seed
	Kind    Kind
	A, B, C uint32
}

// String is the operation as a report shows it.
func (o Op) String() string { return fmt.Sprintf("%4d %-9s %d %d %d", o.N, o.Kind, o.A, o.B, o.C) }

// Script makes setup and operations of a seed.
func Script(seed uint64) (Setup, []Op) {
	r := rand.New(rand.NewPCG(seed, 0x5e4a11))
	s := setup(r)
	s.Compact = seed%4 == 0 // drawn by r it would change the scripts of all seeds
	w := weights(&s)
	total := 0
	for _, n := range w {
		total += n
	}
	ops := make([]Op, s.Steps)
	for i := range ops {
		k, at := Kind(0), r.IntN(total)
		for at >= w[k] {
			at -= w[k]
			k++
		}
		ops[i] = Op{N: i, Kind: k, A: r.Uint32(), B: r.Uint32(), C: r.Uint32()}
	}
	return s, ops
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func setup(r *rand.Rand) Setup {
	s := Setup{
		Partitions: pick(r, 1, 1, 2, 3, 4), Clients: 1 + r.IntN(4), Steps: pick(r, 60, 120, 240, 480),
		SegmentBytes: pick[int64](r, 1000, 2000, 4000, 16_000, 64_000), IndexInterval: pick[int64](r, 1, 100, 400, 2000),
		SegmentMs: pick[int64](r, 20_000, 300_000, 1<<40), RetainMs: pick[int64](r, -1, -1, 100_000, 2_000_000),
		RetainBytes: pick[int64](r, -1, -1, 0, 1500, 8000), Expire: pick(r, 10*time.Minute, 24*time.Hour),
		Written: r.IntN(5) == 0, SyncFS: r.IntN(5) == 0, AppendTime: r.IntN(4) == 0,
		Deaths: pick(r, 1, 4, 10), Disk: pick(r, 0, 0, 2, 6), Space: pick(r, 0, 0, 2, 5), Patience: pick(r, 0, 1, 3),
	}
	return s
}

// weights is how often each kind comes.
func weights(s *Setup) (w [kinds]int) {
	w = [kinds]int{
		Send: 40, Group: 12, Retry: 16, Stale: 6, Gap: 3, Recut: 5, Bump: 2, Fresh: 2, Flush: 30, Read: 8, Hold: 2,
		Drop: 2, Lookup: 3, Tick: 9, Wall: 1, Delete: 2, Retain: 1, Kill: s.Deaths, Cut: s.Deaths, Mine: s.Deaths * 3 / 2,
		BadFlush: s.Disk, BadWrite: s.Disk, Full: s.Space, Restart: 2,
	}
	if s.Patience > 0 {
		w[Remake] = 1
	}
	if s.Disk+s.Space > 0 {
		w[Heal], w[Reopen] = 3, 3
	}
	return w
}
