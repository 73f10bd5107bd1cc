package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"sekali/fuzz/model"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"
)

// Violation is what a run found wrong.
type Violation struct {
	Text  string
	Op    int  // number of the operation in the seed's script, -1: before the first, behind the last: at the end
	Panic bool // not a finding of the simulator's: the process may hold locks, its bubble cannot end
}

// Error makes it an error.
func (v *Violation) Error() string { return fmt.Sprintf("operation %d: %s", v.Op, v.Text) }

// topicName is the only topic.
const topicName = "t"

// world is one run. One goroutine owns it; waiters of the logs come in through answers.
type world struct {
	seed    uint64
	setup   Setup
	node    *node
	parts   []*part
	clients []*client
	nextPID int64
	id      store.TopicID // of the topic, once its creation was answered; zero: it was not
	dying   bool          // its deletion was asked for and not answered
	starts  uint64        // processes started

	alive time.Duration // monotonic time of the processes before this one
	wall  int64         // of their end

	badFlushes, badWrites []func() // take the faults back; the first stay with the disk, the others with the process
	faulty                bool     // there were faults in this process
	losing                bool     // a flush of a log may fail: what was not flushed may be lost
	untold                bool     // a flush may have failed that is told to the first who asks, later on
	limited, capped       bool     // the disk had a capacity in this process; it has one

	answers answers

	retainMs, retainBytes int64

	step  int
	stats Stats
}

// part is a partition beside its model.
type part struct {
	n       int
	m       *model.Partition
	log     *plog.Log // as last seen
	away    bool      // it did not serve when last seen
	sick    bool      // it has not served since the last tick
	changed bool      // retention or the wall clock was changed while it did not serve
	last    plog.Offsets
	maybe   []candidate // a write that failed may have stored them
	fragile bool        // what was not flushed may be gone at the next opening
	starts  int64       // of a deletion that failed and may come into force with any process to come
	copies  []*sent     // everything ever sent, the last few hundred
	held    []*held     // reads whose bytes are kept
	flushes int64       // written mode: end as of the last tick, flushed once the gate is empty
}

// candidate is a request whose write failed, with what would have been stamped.
type candidate struct {
	s      *sent
	leader int32
	wall   int64
	now    time.Duration
}

// held is a read whose bytes must not change while it is kept (I2).
type held struct {
	f    *plog.Fetch
	want [][]byte
}

// Run plays the operations over the seed's setup. A nil violation means that everything was as it must be.
func Run(seed uint64, s Setup, ops []Op) (stats Stats, trace uint64, v *Violation) {
	w := &world{
		seed: seed, setup: s, wall: 1_700_000_000_000, retainMs: s.RetainMs, retainBytes: s.RetainBytes, step: -1,
	}
	h := fnv.New64a()
	defer func() {
		if r := recover(); r != nil {
			v = &Violation{Op: w.step}
			if f, ok := r.(failure); ok {
				v.Text = string(f)
				w.abandon()
			} else {
				v.Text, v.Panic = fmt.Sprintf("panic: %v\n%s", r, debug.Stack()), true
			}
		}
		stats, trace = w.stats, h.Sum64()
	}()
	w.begin()
	for i := range ops {
		w.step = ops[i].N
		w.tell(ops[i].String())
		w.do(&ops[i])
		w.settle()
		w.stats.Steps++
		w.mark(h)
	}
	w.step = s.Steps
	w.finish()
	return w.stats, h.Sum64(), nil
}

// failure is the panic by which a check leaves the run.
type failure string

// fail ends the run.
func (w *world) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// begin makes the models and starts the first process.
func (w *world) begin() {
	for i := range w.setup.Partitions {
		w.parts = append(w.parts, &part{n: i, m: model.New(w.setup.Expire, w.setup.AppendTime)})
	}
	w.node = newNode(vfs.NewMem(), w.wall)
	w.boot(rand.New(rand.NewPCG(w.seed, 2)))
	for i := range w.setup.Clients {
		w.clients = append(w.clients, w.newClient(i))
	}
}

func (w *world) newClient(name int) *client {
	w.nextPID++
	return newClient(name, w.nextPID*7, w.setup.Partitions)
}

// abandon lets go of a process after a violation, so that the bubble can end.
func (w *world) abandon() {
	w.drop()
	w.node.end(nil)
	_ = w.node.stop()
}

// drop gives all kept reads back.
func (w *world) drop() {
	for _, p := range w.parts {
		for _, h := range p.held {
			h.f.Release()
		}
		p.held = nil
	}
}

// now is monotonic time over all processes.
func (w *world) now() time.Duration { return w.alive + w.node.clk.Mono() }

func (w *world) tp(n int) store.TP { return store.TP{Topic: topicName, Partition: int32(n)} }

// log is the log of a partition; nil while it is offline.
func (w *world) log(p *part) *plog.Log {
	l, err := w.node.store.Partition(w.tp(p.n))
	if err != nil || l.Err() != nil {
		return nil
	}
	return l
}

// mark mixes what can be seen of the run into its trace.
func (w *world) mark(h interface{ Write([]byte) (int, error) }) {
	fmt.Fprint(h, w.step, w.stats)
	for _, p := range w.parts {
		fmt.Fprint(h, p.last, p.m.Sure, len(p.m.Batches), p.fragile)
	}
}

// offline reports an error that means that a partition does not serve.
func offline(err error) bool { return errors.Is(err, plog.ErrOffline) || errors.Is(err, vfs.ErrDead) }
