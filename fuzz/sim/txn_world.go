package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"
)

// TxnSetup is what holds for one whole run of the transaction simulator.
type TxnSetup struct {
	Partitions   int // of the topic that stays
	IDs, Groups  int
	Steps        int
	SegmentBytes int64
	Timeout      time.Duration // of the transactions
	Deaths       int           // weight
	Rewrite      int64         // bytes or records of a journal before it is written anew
}

// String is the setup as a report shows it.
func (s TxnSetup) String() string {
	return fmt.Sprintf("%d partitions, %d transactional ids, %d groups, segments of %d bytes, timeout %v, deaths %d, "+
		"rewriting every %d", s.Partitions, s.IDs, s.Groups, s.SegmentBytes, s.Timeout, s.Deaths, s.Rewrite)
}

// The topics of the transaction simulator: one stays, one is deleted and made anew.
const (
	keptTopic = "kept"
	goneTopic = "gone"
)

// txnWorld is one run with transactions: clients, their zombies, one process at a time with engine and store, and what
// must be true of them. One goroutine owns it; answers of the process come in through calls.
type txnWorld struct {
	seed    uint64
	setup   TxnSetup
	node    *node
	engine  *engine.Engine
	starts  uint64
	wall    int64
	alive   time.Duration
	ids     []*txnID
	groups  []*txnGroup
	all     []*txnRec // every transaction ever begun
	batches map[string]*txnBatch
	plain   []*plainClient
	late    []*lateBatch // requests that are still on their way
	topics  map[string]*txnTopic
	parts   []*txnPart // partitions of all topics that exist
	calls   txnCalls
	step    int
	stats   TxnStats

	timeouts atomic.Int64
}

// TxnStats counts what runs have met.
type TxnStats struct {
	Steps, Begun, Committed, Aborted, Fenced, Refused, Kills, Cuts, Mines, Timeouts, Zombies, Late, Deleted,
	Fetched, Unstable, Restarts, Sick int
}

func (s *TxnStats) all() map[string]*int {
	return map[string]*int{
		"steps": &s.Steps, "transactions": &s.Begun, "commits": &s.Committed, "aborts": &s.Aborted, "fences": &s.Fenced,
		"refusals": &s.Refused, "process deaths": &s.Kills, "power cuts": &s.Cuts, "deaths inside": &s.Mines,
		"timeouts": &s.Timeouts, "zombies": &s.Zombies, "delayed batches": &s.Late, "deletions": &s.Deleted,
		"offsets read": &s.Fetched, "unstable offsets": &s.Unstable, "clean restarts": &s.Restarts,
		"failed flushes of a journal": &s.Sick,
	}
}

func (s *TxnStats) add(o *TxnStats) {
	from := o.all()
	for name, n := range s.all() {
		*n += *from[name]
	}
}

// missing names what none of the runs has met: a campaign of some hundred seeds that lacks one tests less than it says.
func (s *TxnStats) missing() (names []string) {
	for name, n := range s.all() {
		if *n == 0 {
			names = append(names, name)
		}
	}
	return names
}

// txnTopic is one topic; its incarnation rises when it is made anew.
type txnTopic struct {
	name        string
	id          store.TopicID
	incarnation int
	dying       bool // its deletion was asked for and not answered
}

// txnPart is one partition of one incarnation of a topic.
type txnPart struct {
	topic       *txnTopic
	incarnation int
	n           int32
	stable      int64 // as last seen
	high        int64
	asked       map[int64]bool // producer ids that asked to register it
}

func (p *txnPart) key() string { return fmt.Sprintf("%s.%d-%d", p.topic.name, p.incarnation, p.n) }

func (p *txnPart) tp() store.TP { return store.TP{Topic: p.topic.name, ID: p.topic.id, Partition: p.n} }

func (p *txnPart) coord() coord.TP {
	return coord.TP{Topic: p.topic.name, ID: p.topic.id, Partition: p.n}
}

// txnCalls collects the answers of a process. What a dead one says reaches nobody.
type txnCalls struct {
	mu   sync.Mutex
	list []func()
}

// put keeps an answer for the driver; any goroutine.
func (c *txnCalls) put(n *node, fn func()) {
	if n.dead() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fn)
}

func (c *txnCalls) take() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

// RunTxns plays operations over the seed's setup. A nil violation means that everything was as it must be.
func RunTxns(seed uint64, s TxnSetup, ops []TxnOp) (stats TxnStats, v *Violation) {
	w := newTxnWorld(seed, s)
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
		stats = w.stats
		stats.Timeouts = int(w.timeouts.Load())
	}()
	w.boot(nil)
	for i := range ops {
		w.step = ops[i].N
		w.tell("%s", ops[i])
		w.do(&ops[i])
		w.settle()
		w.stats.Steps++
	}
	w.step = s.Steps
	w.finish()
	return w.stats, nil
}

func newTxnWorld(seed uint64, s TxnSetup) *txnWorld {
	w := &txnWorld{
		seed: seed, setup: s, wall: 1_700_000_000_000, step: -1, batches: map[string]*txnBatch{},
		topics: map[string]*txnTopic{},
	}
	for _, name := range []string{keptTopic, goneTopic} {
		w.topics[name] = &txnTopic{name: name}
	}
	for i := range s.IDs {
		w.ids = append(w.ids, &txnID{w: w, name: fmt.Sprint("id", i)})
	}
	for i := range s.Groups {
		w.groups = append(w.groups, &txnGroup{name: fmt.Sprint("group", i)})
	}
	w.node = newNode(vfs.NewMem(), w.wall)
	return w
}

func (w *txnWorld) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func (w *txnWorld) tell(format string, args ...any) {
	if Trace != nil {
		fmt.Fprintf(Trace, "%d %s\n", w.step, fmt.Sprintf(format, args...))
	}
}

// now is monotonic time over all processes.
func (w *txnWorld) now() time.Duration { return w.alive + w.node.clk.Mono() }

// boot starts processes until one serves. With dice each may be made to die while it recovers.
func (w *txnWorld) boot(r *rand.Rand) {
	for attempt := 0; ; attempt++ {
		if r != nil && attempt < 3 && r.IntN(3) == 0 {
			w.node.plant(1+r.IntN(pick(r, 5, 40, 100)), pick(r, nil, randomPlan(r)))
		}
		w.tell("a process starts")
		w.starts++
		err := w.start()
		if w.node.dead() {
			w.stats.Mines++
			w.bury()
			continue
		}
		if err != nil {
			w.fail("start: %v", err)
		}
		return
	}
}

// start opens store and engine, as a broker does.
func (w *txnWorld) start() error {
	s := &Setup{Expire: 24 * time.Hour}
	if err := w.node.start(w.node.config(s, rand.New(rand.NewPCG(w.seed, 100+w.starts)))); err != nil {
		return err
	}
	w.node.setOpen(true)
	defer w.node.setOpen(false)
	if err := w.makeTopics(); err != nil {
		return err
	}
	groups := group.Defaults()
	groups.Inline, groups.SnapshotEvery, groups.RewriteEvery = true, w.setup.Rewrite, w.setup.Rewrite
	w.engine = engine.New(engine.Config{
		Store: w.node.store, Meta: w.node.meta, FS: w.node.inj, Clock: w.node.clk, PIDBlock: 10,
		Txns: coord.Config{
			TimeoutMaxMs: 900_000, IDExpireMs: 7 * 24 * 3600 * 1000, SnapshotEvery: 60 * w.setup.Rewrite,
			RewriteEvery: 60 * w.setup.Rewrite, TV: 2, Inline: true, Events: coord.Events{Aborted: w.aborted},
		},
		Groups: groups, TxnPartitions: 2, OffsetsPartitions: 2, TxnSegmentBytes: 1 << 20, OffsetsSegmentBytes: 1 << 20,
		RetryFor: -1, Fault: func(what string, err error) { w.tell("fault: %s: %v", what, err) },
	})
	if err := w.engine.Ensure(context.Background()); err != nil {
		return err
	}
	for _, t := range w.node.store.Interrupted() {
		if err := w.node.store.DeleteTopic(t.ID, w.engine.BeforeDelete); err != nil {
			w.tell("deletion of %s: %v", t.Name, err)
		}
	}
	w.node.rest()
	return w.makeTopics()
}

// aborted counts the transactions that the coordinator ends by itself; it is told on whatever goroutine runs the shard.
func (w *txnWorld) aborted(by coord.Cause) {
	if by == coord.ByTimeout {
		w.timeouts.Add(1)
	}
}

// makeTopics makes the topics that are missing and lists the partitions there are.
func (w *txnWorld) makeTopics() error {
	for _, name := range []string{keptTopic, goneTopic} {
		t := w.topics[name]
		found := w.node.store.Catalog().ByName[name]
		switch {
		case found != nil && found.ID == t.id:
			t.dying = false // its deletion did not come to be
			continue
		case found != nil:
			w.taken(t, found.ID)
			continue
		case t.id != (store.TopicID{}) && !t.dying:
			w.fail("topic %s is gone", name)
		}
		n := int32(1)
		if name == keptTopic {
			n = int32(w.setup.Partitions)
		}
		c, err := store.ParseTopic(map[string]string{
			"internal.segment.bytes": fmt.Sprint(w.setup.SegmentBytes), "retention.ms": "-1",
		}, w.node.store.Defaults())
		if err != nil {
			return err
		}
		made, err := w.node.store.CreateTopics(store.NewTopic{Name: name, Partitions: n, Config: c})
		if err != nil {
			if errors.Is(err, store.ErrTopicExists) {
				continue // its deletion is not at its end
			}
			return err
		}
		w.taken(t, made[0].ID)
	}
	return nil
}

// taken notes a new incarnation of a topic.
func (w *txnWorld) taken(t *txnTopic, id store.TopicID) {
	t.id, t.dying = id, false
	t.incarnation++
	kept := w.parts[:0]
	for _, p := range w.parts {
		if p.topic != t {
			kept = append(kept, p)
		}
	}
	w.parts = kept
	n := 1
	if t.name == keptTopic {
		n = w.setup.Partitions
	}
	for i := range n {
		w.parts = append(w.parts, &txnPart{topic: t, incarnation: t.incarnation, n: int32(i), asked: map[int64]bool{}})
	}
}

// exists reports whether a partition's incarnation is the present one.
func (w *txnWorld) exists(p *txnPart) bool {
	return p.incarnation == p.topic.incarnation && !p.topic.dying
}

// log is the log of a partition, nil where its topic is gone.
func (w *txnWorld) log(p *txnPart) *plog.Log {
	if !w.exists(p) {
		return nil
	}
	l, err := w.node.store.Partition(p.tp())
	if err != nil {
		if w.node.dead() {
			return nil
		}
		w.fail("%s: %v", p.key(), err)
	}
	return l
}

// wait runs fn, which may wait for a flush, and lets as many flushes through as it takes.
func (w *txnWorld) wait(fn func()) {
	done := make(chan struct{})
	var broken any
	go func() {
		defer close(done)
		defer func() { broken = recover() }()
		fn()
	}()
	for {
		w.node.rest()
		select {
		case <-done:
			if broken != nil {
				panic(broken)
			}
			return
		default:
		}
		if w.node.pass(1) == 0 {
			w.fail("a call waits, and nothing is left to flush")
		}
	}
}

// settle comes after every operation: the process rests, a dead one is replaced, all is looked at.
func (w *txnWorld) settle() {
	for {
		w.node.rest()
		if !w.node.dead() {
			if w.hear(); !w.node.dead() {
				break
			}
		}
		w.stats.Mines++
		w.bury()
		w.boot(nil)
	}
	w.look()
}

// hear lets the clients have their answers, and do at once what follows from them.
func (w *txnWorld) hear() {
	for range 100 {
		list := w.calls.take()
		for _, fn := range list {
			fn()
		}
		w.node.rest()
		if len(list) == 0 {
			return
		}
	}
	w.fail("answers that cause answers without an end")
}

// kill ends the process now, alone or with the power, and starts the next.
func (w *txnWorld) kill(plan *vfs.CrashPlan, r *rand.Rand) {
	if w.node.dead() {
		return
	}
	w.node.end(plan)
	if plan == nil {
		w.stats.Kills++
	} else {
		w.stats.Cuts++
	}
	w.bury()
	w.boot(r)
}

// bury takes the dead process away; the next one finds what it left, its clients find their connections closed.
func (w *txnWorld) bury() {
	w.node.rest()
	w.calls.take()
	w.shut()
	_ = w.node.stop() // of a dead process: every call to the disk fails
	w.calls.take()
	w.succeed(2500)
}

// succeed makes the next process, pause milliseconds later; the clients find their connections closed.
func (w *txnWorld) succeed(pause int64) {
	w.alive += w.node.clk.Mono()
	w.wall = w.node.clk.Wall() + pause
	w.node = newNode(w.node.next, w.wall)
	for _, id := range w.ids {
		id.disconnected()
	}
}

// shut closes the engine of a process.
func (w *txnWorld) shut() {
	if w.engine != nil {
		w.node.pass(-1)
		w.node.setOpen(true)
		w.engine.Close()
		w.engine = nil
	}
}

// restart stops in order and starts again; what the coordinator knows must be what it knew (I14).
func (w *txnWorld) restart() {
	w.idle()
	before := w.dump()
	w.shut()
	if err := w.node.stop(); err != nil && !w.node.dead() {
		w.fail("stop: %v", err)
	}
	if w.node.dead() {
		w.stats.Mines++
		w.bury()
		w.boot(nil)
		return
	}
	w.calls.take()
	w.stats.Restarts++
	w.node.end(nil)
	w.succeed(0)
	w.boot(nil)
	w.idle()
	if after := w.dump(); after != before {
		w.fail("a clean restart changed what is known (I14):\n%s\nbefore:\n%s", after, before)
	}
}

// idle lets every flush through and every answer arrive.
func (w *txnWorld) idle() {
	for range 100 {
		n := w.node.pass(-1)
		w.hear()
		if n == 0 && w.node.atGate() == 0 {
			return
		}
	}
	w.fail("the process does not come to rest")
}

// abandon lets go of a process after a violation, so that the bubble can end.
func (w *txnWorld) abandon() {
	w.node.end(nil)
	w.shut()
	_ = w.node.stop()
}
