package broker

import (
	"sync"
	"time"

	"sekali/auth"
	"sekali/plog"
	"sekali/store"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicaDebug is the replica id of Kafka's debug consumer. It reads what any consumer reads: nothing is visible here
// before it is durable.
const replicaDebug = -2

// fetch is one Fetch request. It belongs to the execution turn of its connection until its frame is made, then to the
// frame, whose release gives it back. Pooled: whatever outlives one request (waiters) lies elsewhere.
type fetch struct {
	c         *conn
	slot      *slot
	version   int16
	cx        fetchContext
	ends      time.Duration // when to answer with what is there
	minBytes  int
	maxBytes  int
	committed bool

	wants    []want
	parts    []fetchPart
	answered []answered
	answer   wire.FetchAnswer
	park     *parking
	giveBack func()
}

// fetchPart is one partition of a Fetch: what one reading gave.
type fetchPart struct {
	log     *plog.Log
	topic   *store.Topic
	code    int16
	bytes   int
	read    plog.Fetch
	aborted []wire.Aborted
}

// fetches keeps fetches for reuse.
var fetches sync.Pool

func newFetch() *fetch {
	if f, ok := fetches.Get().(*fetch); ok {
		return f
	}
	f := &fetch{}
	f.giveBack = f.release
	return f
}

// fetch answers a Fetch at once or parks it (spec/api.md 8.1).
func (s *Server) fetch(c *conn, p *pending) {
	req := p.msg.(*kmsg.FetchRequest)
	f := newFetch()
	f.c, f.slot, f.version = c, p.slot, req.Version
	f.committed = req.IsolationLevel != 0 // whatever is not known reads what is safe
	f.maxBytes = int(max(0, min(req.MaxBytes, s.cfg.FetchBytesMax)))
	f.minBytes = min(int(req.MinBytes), f.maxBytes)
	wait := time.Duration(max(0, min(req.MaxWaitMillis, s.cfg.FetchWaitMaxMs))) * time.Millisecond
	f.ends = p.slot.read + wait
	var code int16
	if f.cx, f.wants, code = s.sessions.begin(req, f.wants[:0]); code != 0 {
		f.send(code, 0)
		return
	}
	c.drop(p)
	f.grow(len(f.wants))
	if follower(req) {
		f.refuseAll(kerr.TopicAuthorizationFailed.Code)
		return
	}
	f.attempt()
}

// follower reports whether a replica asks: replication between nodes is not served.
func follower(req *kmsg.FetchRequest) bool {
	id := req.ReplicaID
	if req.Version >= 15 {
		id = req.ReplicaState.ID
	}
	return id != -1 && id != replicaDebug
}

func (f *fetch) grow(n int) {
	if cap(f.parts) < n {
		f.parts = make([]fetchPart, n)
	}
	f.parts = f.parts[:n]
}

func (f *fetch) refuseAll(code int16) {
	for i := range f.parts {
		f.parts[i].code = code
	}
	f.finish()
}

// attempt reads, and answers if that is enough, if a partition has an error, if the time is up, if there is nothing to
// wait for or if too many others wait; else it parks. Nothing stays pinned while it is parked.
func (f *fetch) attempt() {
	total, more, failed := f.read()
	done := failed || more || total >= f.minBytes || len(f.parts) == 0 || f.c.s.clk.Mono() >= f.ends
	if done || f.c.draining.Load() || !f.c.s.parkings.enter(len(f.parts)) {
		f.finish()
		return
	}
	above := make([]int64, len(f.parts))
	for i := range f.parts {
		r := &f.parts[i].read
		above[i] = r.High
		if f.committed {
			above[i] = r.Stable
		}
		r.Release()
	}
	f.wait(above)
}

// read reads all partitions in order. more: some limit of bytes cut what could be read, so waiting makes no sense.
func (f *fetch) read() (total int, more, failed bool) {
	cat := f.c.s.store.Catalog()
	for i := range f.parts {
		p, w := &f.parts[i], &f.wants[i]
		p.bytes, p.aborted = 0, nil
		if p.resolve(cat, w, f); p.code == 0 {
			p.read1(w, f, total)
		}
		total += p.bytes
		failed = failed || p.code != 0
		more = more || p.code == 0 && p.read.More
	}
	return total, more, failed
}

// resolve finds the log of a partition and tests the leader epoch the client believes in.
func (p *fetchPart) resolve(cat *store.Catalog, w *want, f *fetch) {
	if f.cx.ids {
		p.topic = cat.ByID[store.TopicID(w.id)]
	} else {
		p.topic = cat.ByName[w.topic]
	}
	if p.topic == nil && f.cx.sess != nil && w.name != "" && cat.ByName[w.name] != nil {
		// The session knows the topic by an id that its name no longer has.
		p.code = kerr.InconsistentTopicID.Code
		return
	}
	if !f.c.s.mayTopic(f.c, auth.Read, p.topic, w.topic) {
		p.code = kerr.TopicAuthorizationFailed.Code
		return
	}
	if p.log, p.code = logOf(p.topic, w.partition, f.cx.ids); p.code != 0 {
		p.code = old(p.code, f.version)
		return
	}
	w.name = p.topic.Name
	switch at := p.log.Epoch(); {
	case w.leaderEpoch < 0 || w.leaderEpoch == at:
	case w.leaderEpoch < at:
		p.code = kerr.FencedLeaderEpoch.Code
	default:
		p.code = kerr.UnknownLeaderEpoch.Code
	}
}

// old gives Fetch 5 and below the only code for an absent log they know.
func old(code, version int16) int16 {
	if version <= 5 && code == kerr.KafkaStorageError.Code {
		return kerr.NotLeaderForPartition.Code
	}
	return code
}

// read1 reads one partition; total is what those before it gave. Until one of them has given data, the first batch is
// read whole, whatever its size.
func (p *fetchPart) read1(w *want, f *fetch, total int) {
	in := plog.ReadIn{
		From:      w.offset,
		BytesMax:  max(0, min(int(w.bytesMax), f.maxBytes-total)),
		Committed: f.committed,
		AtLeast1:  total == 0,
		Copy:      f.c.nc != f.c.raw, // TLS would read cold pages of the mapping in Go code
	}
	if err := p.log.Read(in, &p.read); err != nil {
		p.code = old(byID(codeOf(err), f.cx.ids), f.version)
		return
	}
	for _, b := range p.read.Parts {
		p.bytes += len(b)
	}
	if f.committed {
		p.aborted = make([]wire.Aborted, len(p.read.Aborted))
		for i, t := range p.read.Aborted {
			p.aborted[i] = wire.Aborted{PID: t.PID, First: t.First}
		}
	}
}

// finish turns what was read into the answer.
func (f *fetch) finish() {
	f.answered = f.answered[:0]
	for i := range f.parts {
		p, w := &f.parts[i], &f.wants[i]
		a := answered{key: w.partKey, name: w.name, code: p.code, high: -1, start: -1}
		if p.code == 0 {
			a.high, a.start, a.bytes = p.read.High, p.read.Start, p.bytes
		}
		f.answered = append(f.answered, a)
	}
	t := f.c.s.sessions
	switch s := f.cx.sess; {
	case s != nil:
		s.mu.Lock()
		if s.epoch != f.cx.epoch {
			s.mu.Unlock()
			f.send(kerr.InvalidFetchSessionEpoch.Code, 0)
			return
		}
		for i := range f.parts {
			if s.told(&f.answered[i]) {
				f.add(i)
			}
		}
		s.mu.Unlock()
		f.send(0, s.id)
	default:
		id := int32(0)
		if f.cx.create {
			id = t.create(f.cx.ids, f.wants, f.answered)
		}
		for i := range f.parts {
			f.add(i)
		}
		f.send(0, id)
	}
}

// add puts one partition into the answer.
func (f *fetch) add(i int) {
	p, w := &f.parts[i], &f.wants[i]
	a := wire.FetchPart{Topic: w.topic, TopicID: w.id, Partition: w.partition, Code: p.code}
	a.High, a.Stable, a.Start = -1, -1, -1
	if p.code == 0 {
		a.High, a.Stable, a.Start = p.read.High, p.read.Stable, p.read.Start
		a.Aborted, a.Records = p.aborted, p.read.Parts
	}
	f.answer.Parts = append(f.answer.Parts, a)
}

// send makes the frame and completes the slot. The pins are held until the frame has left; whoever executed sends at
// once if nobody else is sending.
func (f *fetch) send(code int16, session int32) {
	c, slot := f.c, f.slot
	f.answer.Code, f.answer.Session = code, session
	total := 0
	for i := range f.parts {
		total += f.parts[i].bytes
	}
	c.s.metrics.fetched(total)
	c.s.metrics.fetchLatency(c.s.clk.Mono() - slot.read)
	slot.frame = wire.EncodeFetch(slot.hdr, &f.answer, f.giveBack)
	c.complete(slot)
	c.slots.flush()
}

// release unpins what was read and gives the fetch back to the pool.
func (f *fetch) release() {
	for i := range f.parts {
		p := &f.parts[i]
		p.read.Release()
		p.log, p.topic, p.code, p.aborted, p.bytes = nil, nil, 0, nil, 0
	}
	clear(f.answer.Parts)
	f.answer.Parts = f.answer.Parts[:0]
	f.c, f.slot, f.cx, f.park = nil, nil, fetchContext{}, nil
	clear(f.wants)
	f.wants, f.parts = f.wants[:0], f.parts[:0]
	if cap(f.parts) <= fetchPartsKeep && cap(f.wants) <= fetchPartsKeep {
		fetches.Put(f)
	}
}
