package sim

import (
	"errors"
	"fmt"
	"slices"

	"sekali/batch"
	"sekali/coord"
	"sekali/engine"
	"sekali/pidmap"
	"sekali/plog"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What a client has asked for with EndTxn.
const (
	askedNothing = iota
	askedCommit
	askedAbort
)

// txnID is one transactional id: the client that owns it, one that wants to, and those that do not know yet that they
// are zombies.
type txnID struct {
	w         *txnWorld
	name      string
	owner     *txnClient
	contender *txnClient
	old       []*txnClient
}

// txnClient is one producer instance.
type txnClient struct {
	id         *txnID
	v2         bool // transactions v2: a write registers, every end raises the epoch
	pid        int64
	epoch      int16
	ready      bool
	bump       bool // before the next transaction it asks for another epoch, as itself
	fenced     bool // told so; a new instance takes its place
	waiting    int  // requests without an answer
	seq        map[string]int32
	added      map[string]bool // v1: what is registered
	cur        *txnRec
	unresolved *txnBatch // sent, and not known whether stored
	staging    *txnEntry
}

// txnRec is one transaction as its client sees it.
type txnRec struct {
	n                 int
	c                 *txnClient
	pid               int64
	epoch             int16
	batches           []*txnBatch
	entries           []*txnEntry
	asked             int
	answered          bool // EndTxn was answered with success
	failed            bool // something of it was refused: its client can only abort
	committed, denied bool // what markers have said of it
}

// txnBatch is one transactional batch of one record, whose value names it.
type txnBatch struct {
	t         *txnRec
	part      *txnPart
	seq       int32
	value     string
	acked     bool
	forbidden bool // sent by a zombie after its successor was let in: must never be stored
}

// lateBatch is a request on its way: its client has given it up.
type lateBatch struct {
	b     *txnBatch
	pid   int64
	epoch int16
	v2    bool
	id    string
	guard uint64 // the coordinator has been asked already, under this guard
}

// txnGroup is one consumer group with one partition, and what was committed for it in order.
type txnGroup struct {
	name string
	log  []*txnEntry
	next int64
}

// txnEntry is one committed offset; t is nil of a plain one.
type txnEntry struct {
	g         *txnGroup
	t         *txnRec
	offset    int64
	acked     bool
	forbidden bool
}

// disconnected is what a process death is to the clients.
func (id *txnID) disconnected() {
	for _, c := range append([]*txnClient{id.owner, id.contender}, id.old...) {
		if c == nil {
			continue
		}
		c.waiting, c.staging = 0, nil
		if c.cur != nil && !c.cur.answered && c.cur.hasDoubtfulEntry() {
			c.cur.failed = true // it does not know what it has staged
		}
	}
}

func (t *txnRec) hasDoubtfulEntry() bool {
	return slices.ContainsFunc(t.entries, func(e *txnEntry) bool { return !e.acked })
}

// takeOver lets another instance ask for the id.
func (id *txnID) takeOver(v2 bool) {
	if id.contender == nil {
		id.contender = &txnClient{id: id, v2: v2}
	}
	id.contender.init()
}

// init is one InitProducerId: of a new instance, or of one that raises its own epoch.
func (c *txnClient) init() {
	w := c.id.w
	if c.waiting > 0 {
		return
	}
	in := coord.InitIn{TxnID: c.id.name, TimeoutMs: int32(w.setup.Timeout.Milliseconds()), PID: -1, Epoch: -1}
	if c.ready {
		in.PID, in.Epoch = c.pid, c.epoch
	}
	c.waiting++
	n := w.node
	w.engine.Txns().Init(in, func(out coord.InitOut, code *kerr.Error) {
		w.calls.put(n, func() { c.inited(out, code) })
	})
}

func (c *txnClient) inited(out coord.InitOut, code *kerr.Error) {
	c.waiting--
	id := c.id
	id.w.tell("init %s: %+v %v", id.name, out, code)
	switch {
	case code == nil:
	case mayPass(code):
		return
	default:
		c.fenced = true
		return
	}
	for _, t := range id.w.all {
		if t.c.id == id && t.pid == out.PID && t.epoch >= out.Epoch {
			id.w.fail("%s: given producer %d epoch %d, used before by transaction %d", id.name, out.PID, out.Epoch, t.n)
		}
	}
	c.pid, c.epoch, c.ready, c.bump = out.PID, out.Epoch, true, false
	c.seq, c.added, c.cur, c.unresolved = map[string]int32{}, map[string]bool{}, nil, nil
	if id.contender == c {
		if id.owner != nil {
			id.old = append(id.old, id.owner)
		}
		id.owner, id.contender = c, nil
	}
}

// mayPass reports codes after which the same request may pass.
func mayPass(code *kerr.Error) bool {
	switch code {
	case kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		return true
	}
	return false
}

// begin is the transaction the client is in, a new one if need be.
func (c *txnClient) begin() *txnRec {
	if c.cur == nil {
		w := c.id.w
		c.cur = &txnRec{n: len(w.all), c: c, pid: c.pid, epoch: c.epoch}
		w.all = append(w.all, c.cur)
		w.stats.Begun++
	}
	return c.cur
}

// part names partitions in a request of the client.
func (c *txnClient) part(tps ...coord.TP) coord.Part {
	p := coord.Part{TxnID: c.id.name, PID: c.pid, Epoch: c.epoch, TPs: tps}
	if c.v2 {
		p.TV = 2
	}
	return p
}

// add is AddPartitionsToTxn or AddOffsetsToTxn of one partition, of a v1 client.
func (c *txnClient) add(key string, tp coord.TP, lose bool) {
	w := c.id.w
	t := c.begin()
	c.waiting++
	n := w.node
	w.engine.Txns().Add(c.part(tp), nil, func(code *kerr.Error) {
		w.calls.put(n, func() {
			c.waiting--
			switch {
			case lose:
			case code == nil:
				c.added[key] = true
			case !mayPass(code):
				c.refused(t, code)
			}
		})
	})
}

// refused takes a refusal that does not pass.
func (c *txnClient) refused(t *txnRec, code *kerr.Error) {
	c.id.w.stats.Refused++
	c.id.w.tell("transaction %d: refused: %v", t.n, code)
	t.failed = true
	switch code {
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping:
		c.fenced = true
		c.id.w.stats.Fenced++
	}
}

// produce makes the client's next batch and sends it. A v1 client registers the partition first.
func (c *txnClient) produce(p *txnPart, lose bool) {
	p.asked[c.pid] = true
	if !c.v2 && !c.added[p.key()] {
		c.add(p.key(), p.coord(), lose)
		return
	}
	b := c.make(p)
	c.unresolved = b
	c.send(b, lose)
}

// make makes a batch of the present transaction with the next sequence.
func (c *txnClient) make(p *txnPart) *txnBatch {
	t := c.begin()
	b := &txnBatch{t: t, part: p, seq: c.seq[p.key()], value: fmt.Sprintf("T%d/%d", t.n, len(t.batches))}
	t.batches = append(t.batches, b)
	c.id.w.batches[b.value] = b
	return b
}

// request is a batch as the broker hands it to the engine.
func (w *txnWorld) request(b *txnBatch, l *plog.Log, pid int64, epoch int16, version int16) *engine.Batch {
	build := batch.Builder{BaseTime: w.node.clk.Wall()}
	build.Add(batch.Record{Value: []byte(b.value)})
	v := build.Done(batch.AttrTransactional, pid, epoch, b.seq)
	checked, err := v.Validate(batch.Limits{Deep: true})
	if err != nil {
		w.fail("a client's batch is refused: %v", err)
	}
	return &engine.Batch{Log: l, TP: b.part.coord(), In: plog.AppendIn{Batch: v, Checked: checked, Version: version}}
}

// send is one Produce of a batch.
func (c *txnClient) send(b *txnBatch, lose bool) {
	w := c.id.w
	l := w.log(b.part)
	if l == nil {
		b.t.failed, c.unresolved, c.bump = true, nil, true
		return
	}
	version := int16(11)
	if c.v2 {
		version = 12
	}
	q := w.request(b, l, c.pid, c.epoch, version)
	n, owed := w.node, 1
	c.waiting++
	good := true
	part := func(err bool) {
		good = good && !err
		if owed--; owed == 0 {
			c.waiting--
			if good && !lose {
				c.stored(b)
			}
		}
	}
	registering := false
	w.wait(func() {
		w.engine.AppendTxn(c.part(), c.v2, []*engine.Batch{q}, func(code *kerr.Error) {
			registering = true
			w.calls.put(n, func() { part(code != nil) })
		})
	})
	if q.Registering || registering {
		owed++
	}
	switch {
	case q.Code != nil:
		c.waiting--
		if !mayPass(q.Code) {
			c.unresolved = nil
			c.refused(b.t, q.Code)
		}
	case q.Err != nil:
		owed += 1000 // a registration that still comes answers nobody
		c.waiting--
		c.rejected(b, q.Err)
	default:
		x := &plog.Waiter{}
		x.Fn = func(err error) { w.calls.put(n, func() { part(err != nil) }) }
		l.AfterDurable(q.Out.Until, x)
	}
}

// stored is the acknowledgement of a batch.
func (c *txnClient) stored(b *txnBatch) {
	b.acked = true
	if c.unresolved == b {
		c.unresolved = nil
		c.seq[b.part.key()] = b.seq + 1
	}
}

// rejected takes an error of a log.
func (c *txnClient) rejected(b *txnBatch, err error) {
	w := c.id.w
	verdict, ok := verdictIn(err)
	if !ok {
		if !w.node.dead() && w.exists(b.part) {
			w.fail("%s: %v", b.value, err)
		}
		return
	}
	c.unresolved, c.bump = nil, true
	if verdict == pidmap.Fenced {
		c.refused(b.t, kerr.InvalidProducerEpoch)
	} else {
		c.refused(b.t, kerr.InvalidTxnState)
	}
}

// end is EndTxn.
func (c *txnClient) end(commit, lose bool) {
	w, t := c.id.w, c.cur
	if t.asked == askedNothing {
		t.asked = askedAbort
		if commit {
			t.asked = askedCommit
		}
	}
	in := coord.EndIn{TxnID: c.id.name, PID: c.pid, Epoch: c.epoch, Commit: t.asked == askedCommit}
	if c.v2 {
		in.TV = 2
	}
	c.waiting++
	n := w.node
	w.engine.Txns().End(in, func(out coord.InitOut, code *kerr.Error) {
		w.calls.put(n, func() {
			if c.waiting--; !lose {
				c.ended(t, out, code)
			}
		})
	})
}

func (c *txnClient) ended(t *txnRec, out coord.InitOut, code *kerr.Error) {
	w := c.id.w
	w.tell("transaction %d, asked %d: ended: %+v %v", t.n, t.asked, out, code)
	switch {
	case code == nil:
	case mayPass(code):
		return
	default:
		c.refused(t, code)
		// A v1 client that has registered nothing cannot abort; it begins anew under another epoch.
		if code == kerr.InvalidTxnState && t.asked == askedAbort {
			c.cur, c.bump = nil, true
		} else {
			c.fenced = true
		}
		return
	}
	t.answered = true
	if c.v2 {
		c.pid, c.epoch, c.seq = out.PID, out.Epoch, map[string]int32{}
	}
	c.cur, c.added = nil, map[string]bool{}
	c.bump = c.bump || c.unresolved != nil
	c.unresolved = nil
}

// verdictIn is the decision of a producer map in an error.
func verdictIn(err error) (pidmap.Verdict, bool) {
	var r *plog.RejectError
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.Decision.Verdict, true
}

// guardIn is the guard a log has given with its refusal of a batch it wants verified, else 0.
func guardIn(err error) uint64 {
	var r *plog.RejectError
	if errors.As(err, &r) && r.Decision.Verdict == pidmap.TxnUnverified {
		return r.Decision.Guard
	}
	return 0
}

// plainIn is a batch of one record without the transactional bit.
func plainIn(w *txnWorld, pid int64, epoch int16, seq int32, value string) plog.AppendIn {
	build := batch.Builder{BaseTime: w.node.clk.Wall()}
	build.Add(batch.Record{Value: []byte(value)})
	v := build.Done(0, pid, epoch, seq)
	checked, err := v.Validate(batch.Limits{Deep: true})
	if err != nil {
		w.fail("a client's batch is refused: %v", err)
	}
	return plog.AppendIn{Batch: v, Checked: checked, Version: 11}
}
