package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/plog"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TxnKind is what an operation of the transaction simulator does.
type TxnKind uint8

// The operations.
const (
	TxnAct      TxnKind = iota // the owner of an id takes its next step
	TxnTakeOver                // another instance asks for the id
	TxnZombie                  // an instance that was replaced goes on
	TxnDelay                   // a batch stays on its way, its client gives it up
	TxnHalf                    // as TxnDelay, but the coordinator was asked already
	TxnArrive                  // such a batch arrives
	TxnPlain                   // a plain producer's batch
	TxnPlainBad                // a batch without the transactional bit of a producer in a transaction
	TxnCommit                  // a plain commit of a group's offset
	TxnFetch                   // read a group's offset
	TxnFlush                   // a commit round goes on
	TxnTick                    // time passes
	TxnDelete                  // a topic is deleted, and made anew
	TxnKill                    // process death
	TxnCut                     // power cut
	TxnMine                    // death in the middle of an operation to come
	TxnRestart                 // clean stop and start
	TxnSick                    // a flush of a coordinator's journal fails, and the journal is opened anew
	txnKinds
)

var txnKindNames = [txnKinds]string{
	"act", "take-over", "zombie", "delay", "half", "arrive", "plain", "plain-bad", "commit", "fetch", "flush", "tick",
	"delete", "kill", "cut", "mine", "restart", "sick",
}

// TxnOp is one operation; its dice are its own, so that it means the same in a shorter script.
type TxnOp struct {
	N    int
	Kind TxnKind
	Dice uint64
}

// String is the operation as a report shows it.
func (o TxnOp) String() string { return fmt.Sprintf("%3d %-9s %d", o.N, txnKindNames[o.Kind], o.Dice) }

// TxnScript makes setup and operations from a seed.
func TxnScript(seed uint64) (TxnSetup, []TxnOp) {
	r := rand.New(rand.NewPCG(seed, 7))
	s := TxnSetup{
		Partitions: 1 + r.IntN(3), IDs: 1 + r.IntN(3), Groups: 1 + r.IntN(2), Steps: pick(r, 80, 160, 300),
		SegmentBytes: pick[int64](r, 400, 1500, 1<<20), Timeout: pick(r, 5*time.Second, 20*time.Second, 10*time.Minute),
		Deaths: pick(r, 0, 1, 3), Rewrite: pick[int64](r, 10, 30, 1000),
	}
	weights := [txnKinds]int{
		TxnAct: 60, TxnTakeOver: 3, TxnZombie: 4, TxnDelay: 2, TxnHalf: 2, TxnArrive: 5, TxnPlain: 4, TxnPlainBad: 1,
		TxnCommit: 2, TxnFetch: 4, TxnFlush: 35, TxnTick: 8, TxnDelete: 1, TxnKill: s.Deaths, TxnCut: s.Deaths,
		TxnMine: 2 * s.Deaths, TxnRestart: 1, TxnSick: 1,
	}
	total := 0
	for _, n := range weights {
		total += n
	}
	ops := make([]TxnOp, s.Steps)
	for i := range ops {
		n := r.IntN(total)
		k := TxnKind(0)
		for ; n >= weights[k]; k++ {
			n -= weights[k]
		}
		ops[i] = TxnOp{N: i, Kind: k, Dice: r.Uint64()}
	}
	return s, ops
}

// do is one operation.
func (w *txnWorld) do(o *TxnOp) {
	r := rand.New(rand.NewPCG(o.Dice, 11))
	id := w.ids[r.IntN(len(w.ids))]
	lose := r.IntN(8) == 0
	switch o.Kind {
	case TxnAct:
		w.act(id, r, lose)
	case TxnTakeOver:
		id.takeOver(r.IntN(2) == 0)
	case TxnZombie:
		if len(id.old) > 0 {
			w.zombie(id.old[r.IntN(len(id.old))], r)
		}
	case TxnDelay, TxnHalf:
		w.delay(id.owner, o.Kind == TxnHalf, r)
	case TxnArrive:
		w.arrive(r)
	case TxnPlain, TxnPlainBad:
		w.sendPlain(id, o.Kind == TxnPlainBad, r)
	case TxnCommit:
		g := w.groups[r.IntN(len(w.groups))]
		g.next++
		w.commitOffset(&txnEntry{g: g, offset: g.next}, nil, coord.TP{}, 0, lose)
	case TxnFetch:
		w.idle()
		w.fetch(w.groups[r.IntN(len(w.groups))])
	case TxnFlush:
		w.node.pass(1 + r.IntN(3))
	case TxnTick:
		w.tick(r)
	case TxnDelete:
		w.remake()
	case TxnKill:
		w.kill(nil, r)
	case TxnCut:
		w.kill(randomPlan(r), r)
	case TxnMine:
		w.node.plant(1+r.IntN(pick(r, 5, 30)), pick(r, nil, randomPlan(r)))
	case TxnRestart:
		w.restart()
	case TxnSick:
		w.sick(id, r)
	}
}

// act lets the owner of an id do what a client would do next.
func (w *txnWorld) act(id *txnID, r *rand.Rand, lose bool) {
	if id.contender != nil {
		id.contender.init()
		if id.owner == nil || r.IntN(2) == 0 {
			return
		}
	}
	c := id.owner
	switch {
	case c == nil || c.fenced:
		id.takeOver(r.IntN(2) == 0)
	case c.waiting > 0:
	case c.unresolved != nil && c.cur != nil && !c.cur.failed:
		c.send(c.unresolved, lose)
	case c.cur != nil && c.cur.asked != askedNothing:
		c.end(true, lose)
	case c.cur != nil && c.cur.failed:
		c.end(false, lose)
	case c.cur == nil && c.bump:
		c.init()
	case c.cur != nil && r.IntN(4) == 0 && c.begun():
		c.end(r.IntN(4) != 0, lose)
	case r.IntN(4) == 0:
		c.stage(w.groups[r.IntN(len(w.groups))], lose)
	default:
		p := w.parts[r.IntN(len(w.parts))]
		if w.exists(p) {
			c.produce(p, lose)
		}
	}
}

// begun: the transaction has something in it. To end an empty one is an error for a v1 client.
func (c *txnClient) begun() bool {
	for _, b := range c.cur.batches {
		if b.acked {
			return true
		}
	}
	for _, e := range c.cur.entries {
		if e.acked {
			return true
		}
	}
	return false
}

// zombie lets an instance go on that another has replaced. Nothing of it may pass.
func (w *txnWorld) zombie(c *txnClient, r *rand.Rand) {
	w.stats.Zombies++
	if !c.ready {
		return
	}
	n := w.node
	switch r.IntN(3) {
	case 0:
		p := w.parts[r.IntN(len(w.parts))]
		l := w.log(p)
		if l == nil {
			return
		}
		t := &txnRec{n: len(w.all), c: c, pid: c.pid, epoch: c.epoch, failed: true, asked: askedAbort}
		w.all = append(w.all, t)
		b := &txnBatch{t: t, part: p, seq: pick(r, 0, c.seq[p.key()]), value: fmt.Sprintf("T%d/z", t.n), forbidden: true}
		w.batches[b.value] = b
		p.asked[c.pid] = true // by itself, before
		v := int16(11)
		if c.v2 {
			v = 12
		}
		q := w.request(b, l, c.pid, c.epoch, v)
		w.wait(func() { w.engine.AppendTxn(c.part(), c.v2, []*engine.Batch{q}, func(*kerr.Error) {}) })
	case 1:
		in := coord.EndIn{TxnID: c.id.name, PID: c.pid, Epoch: c.epoch, Commit: r.IntN(2) == 0}
		if c.v2 {
			in.TV = 2
		}
		w.engine.Txns().End(in, func(out coord.InitOut, code *kerr.Error) {
			w.calls.put(n, func() {
				if code == nil {
					w.fail("EndTxn of a zombie of %s (producer %d epoch %d) is answered %+v", c.id.name, c.pid, c.epoch, out)
				}
			})
		})
	default:
		g := w.groups[r.IntN(len(w.groups))]
		tp, _ := w.engine.OffsetsTP(g.name)
		t := &txnRec{n: len(w.all), c: c, pid: c.pid, epoch: c.epoch, failed: true, asked: askedAbort}
		w.all = append(w.all, t)
		g.next++
		e := &txnEntry{g: g, t: t, offset: g.next, forbidden: true}
		c.waiting++
		w.commitOffset(e, c, tp, 0, false)
	}
}

// delay makes a batch that does not arrive, and whose client aborts. half: the coordinator has said yes to it already.
func (w *txnWorld) delay(c *txnClient, half bool, r *rand.Rand) {
	if c == nil || !c.ready || c.fenced || c.waiting > 0 || c.unresolved != nil || c.cur == nil || c.cur.failed ||
		c.cur.asked != askedNothing {
		return
	}
	p := w.parts[r.IntN(len(w.parts))]
	l := w.log(p)
	if l == nil || !w.exists(p) {
		return
	}
	p.asked[c.pid] = true
	b := c.make(p)
	late := &lateBatch{b: b, pid: c.pid, epoch: c.epoch, v2: c.v2, id: c.id.name}
	if half {
		late.guard = w.askHalf(c, b, l)
	}
	c.cur.failed, c.bump = true, true
	w.late = append(w.late, late)
	w.stats.Late++
}

// askHalf does the first half of an append: the log wants the coordinator asked, and the coordinator agrees. 0: it came
// out otherwise.
func (w *txnWorld) askHalf(c *txnClient, b *txnBatch, l *plog.Log) uint64 {
	if c.v2 || !c.added[b.part.key()] {
		return 0
	}
	q := w.request(b, l, c.pid, c.epoch, 11)
	_, err := l.Append(q.In)
	guard := guardIn(err)
	if guard == 0 {
		return 0
	}
	var no *kerr.Error
	w.wait(func() { no = w.engine.Confirm(c.part(b.part.coord()), false, nil)[0] })
	if no != nil {
		return 0
	}
	return guard
}

// arrive lets a delayed batch arrive. It may be stored as long as its transaction is not ended; look finds out.
func (w *txnWorld) arrive(r *rand.Rand) {
	if len(w.late) == 0 {
		return
	}
	i := r.IntN(len(w.late))
	x := w.late[i]
	w.late = append(w.late[:i:i], w.late[i+1:]...)
	l := w.log(x.b.part)
	if l == nil || !w.exists(x.b.part) {
		return
	}
	version, part := int16(11), coord.Part{TxnID: x.id, PID: x.pid, Epoch: x.epoch}
	if x.v2 {
		version, part.TV = 12, 2
	}
	q := w.request(x.b, l, x.pid, x.epoch, version)
	if x.guard != 0 {
		q.In.Guard = x.guard
		_, _ = l.Append(q.In)
		return
	}
	w.wait(func() { w.engine.AppendTxn(part, x.v2, []*engine.Batch{q}, func(*kerr.Error) {}) })
}

// tick lets time pass, sometimes enough for transactions to time out.
func (w *txnWorld) tick(r *rand.Rand) {
	d := pick(r, 100*time.Millisecond, time.Second, 3*time.Second, w.setup.Timeout/2, w.setup.Timeout+time.Second)
	for range 3 {
		w.node.clk.Advance(d / 3)
		w.node.through(w.node.store.Tick)
		if w.node.dead() {
			return
		}
		w.engine.Tick()
		w.node.rest()
		w.hear()
	}
}

// remake deletes the topic that goes and makes it anew.
func (w *txnWorld) remake() {
	t := w.topics[goneTopic]
	if t.dying {
		return
	}
	t.dying = true
	var err error
	w.node.through(func() { err = w.node.store.DeleteTopic(t.id, w.engine.BeforeDelete) })
	if w.node.dead() {
		return
	}
	if err != nil {
		w.fail("deletion of %s: %v", t.name, err)
	}
	w.stats.Deleted++
	w.node.through(func() { err = w.makeTopics() })
	if err != nil && !w.node.dead() {
		w.fail("%s made anew: %v", t.name, err)
	}
}

// plainClient is an idempotent producer of one partition.
type plainClient struct {
	pid int64
	seq map[string]int32
}

// sendPlain sends a batch without the transactional bit: of a producer of its own, or, bad, of one in a transaction.
func (w *txnWorld) sendPlain(id *txnID, bad bool, r *rand.Rand) {
	p := w.parts[r.IntN(len(w.parts))]
	l := w.log(p)
	if l == nil || !w.exists(p) {
		return
	}
	if bad {
		c := id.owner
		if c == nil || c.cur == nil || c.unresolved != nil || c.waiting > 0 || c.cur.asked != askedNothing {
			return
		}
		for _, b := range c.cur.batches {
			if b.part == p && b.acked {
				w.plainBatch(l, c.pid, c.epoch, c.seq[p.key()], "X")
				return
			}
		}
		return
	}
	if len(w.plain) == 0 {
		pid, err := w.engine.PIDs().Next()
		if err != nil {
			return
		}
		w.plain = append(w.plain, &plainClient{pid: pid, seq: map[string]int32{}})
	}
	c := w.plain[0]
	if w.plainBatch(l, c.pid, 0, c.seq[p.key()], fmt.Sprintf("P%d/%d", c.pid, c.seq[p.key()])) {
		c.seq[p.key()]++
	} else {
		w.plain = nil // it begins anew
	}
}

func (w *txnWorld) plainBatch(l *plog.Log, pid int64, epoch int16, seq int32, value string) bool {
	_, err := l.Append(plainIn(w, pid, epoch, seq, value))
	return err == nil
}

// fetch reads a group's offset at rest and holds it against what may be.
func (w *txnWorld) fetch(g *txnGroup) {
	for _, stable := range []bool{false, true} {
		kept := w.topics[keptTopic]
		tp := group.TP{Topic: keptTopic, ID: kept.id}
		in := group.FetchIn{Member: group.Member{Group: g.name, Generation: -1}, TPs: []group.TP{tp}, StableOnly: stable}
		answered := false
		n := w.node
		w.engine.Groups().Fetch(in, func(got map[group.TP]group.Fetched, code *kerr.Error) {
			w.calls.put(n, func() {
				answered = true
				if code != nil {
					w.fail("fetch of %s: %v", g.name, code)
				}
				w.stats.Fetched++
				w.checkOffset(g, got[tp], stable)
			})
		})
		w.idle()
		if !answered && !w.node.dead() {
			w.fail("fetch of %s is not answered", g.name)
		}
	}
}
