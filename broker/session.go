package broker

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"sekali/internal/clock"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Epochs of a fetch session that are no counts (KIP-227).
const (
	epochFull  = 0  // a full request that asks for a session
	epochFinal = -1 // a full request that asks for none
)

// partKey identifies a partition within a session: by topic id from Fetch 13 on, by name before.
type partKey struct {
	topic     string
	id        [16]byte
	partition int32
}

// want is what a client asks of one partition.
type want struct {
	partKey
	offset      int64
	bytesMax    int32
	leaderEpoch int32  // -1: not to be checked
	name        string // last known name of a topic that is named by id
}

// sessionPart is a partition a session remembers: what the client asked for last, and what it was told last. Its list
// is the order in which partitions are read.
type sessionPart struct {
	want
	high, start int64 // told last; high is -1 after an error, so that the end of the error is told
	prev, next  *sessionPart
}

// session is one fetch session. It is not bound to a connection; mu guards all of it but id and ids.
type session struct {
	id  int32
	ids bool // topics are named by id

	mu      sync.Mutex
	epoch   int32 // expected next
	parts   map[partKey]*sessionPart
	root    sessionPart // ring
	weight  int         // of parts
	created time.Duration
	used    time.Duration // under sessions.mu
	size    int           // under sessions.mu: weight as last counted
}

// weight is what a partition counts for in the room for sessions: 1, and more for a name that is longer than that of
// any topic can be. Such a name is answered like that of any unknown topic, and a client can make it as long as it
// likes.
func (w *want) weight() int { return 1 + len(w.topic)/(store.NameBytesMax+1) }

// sessions are the fetch sessions of a server (spec/api.md 8.4): at most 1,000, and 262,144 partitions together, each
// counted by its weight.
// Owner: the Server; lock order sessions.mu after session.mu.
type sessions struct {
	clk   clock.Clock
	mu    sync.Mutex
	byID  map[int32]*session
	parts int
	max   int // of parts
}

func newSessions(clk clock.Clock) *sessions {
	return &sessions{clk: clk, byID: map[int32]*session{}, max: sessionPartsMax}
}

// fetchContext is how one Fetch relates to sessions.
type fetchContext struct {
	sess   *session // of an incremental request
	epoch  int32    // the session's epoch after this request
	create bool     // a full request that asks for a session
	ids    bool
}

// begin applies a request to the sessions and returns the partitions to read, in order, appended to dst. A code other
// than 0 is the whole answer.
func (t *sessions) begin(req *kmsg.FetchRequest, dst []want) (fetchContext, []want, int16) {
	cx := fetchContext{ids: req.Version >= 13}
	id, epoch := req.SessionID, req.SessionEpoch
	if req.Version < 7 {
		id, epoch = 0, epochFinal
	}
	if epoch == epochFull || epoch == epochFinal {
		if id != 0 {
			t.drop(id)
		}
		cx.create = epoch == epochFull
		return cx, wants(dst, req), 0
	}
	s := t.find(id)
	if s == nil {
		return cx, dst, kerr.FetchSessionIDNotFound.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return cx, dst, kerr.InvalidFetchSessionEpoch.Code
	}
	if s.ids != cx.ids {
		return cx, dst, kerr.FetchSessionTopicIDError.Code
	}
	s.update(req)
	if len(s.parts) == 0 {
		t.drop(id)
		return cx, dst, 0
	}
	if !t.touch(s, s.weight) {
		return cx, dst, kerr.FetchSessionIDNotFound.Code
	}
	s.epoch = nextEpoch(s.epoch)
	cx.sess, cx.epoch = s, s.epoch
	for p := s.root.next; p != &s.root; p = p.next {
		dst = append(dst, p.want)
	}
	return cx, dst, 0
}

// wants lists the partitions of a request in its order.
func wants(dst []want, req *kmsg.FetchRequest) []want {
	for i := range req.Topics {
		tp := &req.Topics[i]
		for j := range tp.Partitions {
			dst = append(dst, wantOf(req.Version, tp, &tp.Partitions[j]))
		}
	}
	return dst
}

func wantOf(version int16, t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) want {
	w := want{offset: p.FetchOffset, bytesMax: p.PartitionMaxBytes, leaderEpoch: -1}
	w.topic, w.id, w.partition = t.Topic, t.TopicID, p.Partition
	if version >= 9 {
		w.leaderEpoch = p.CurrentLeaderEpoch
	}
	return w
}

// nextEpoch counts from 1 to 2^31-1 and then again from 1.
func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// update adds and changes the partitions a request lists and removes those it forgets; under mu.
func (s *session) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		tp := &req.Topics[i]
		for j := range tp.Partitions {
			w := wantOf(req.Version, tp, &tp.Partitions[j])
			if p := s.parts[w.partKey]; p != nil {
				w.name = p.name
				p.want = w
			} else {
				s.add(&sessionPart{want: w, high: -1, start: -1})
			}
		}
	}
	for i := range req.ForgottenTopics {
		f := &req.ForgottenTopics[i]
		for _, n := range f.Partitions {
			k := partKey{topic: f.Topic, id: f.TopicID, partition: n}
			if p := s.parts[k]; p != nil {
				delete(s.parts, k)
				s.weight -= p.weight()
				p.unlink()
			}
		}
	}
}

func (s *session) add(p *sessionPart) {
	if s.parts == nil {
		s.parts = map[partKey]*sessionPart{}
		s.root.prev, s.root.next = &s.root, &s.root
	}
	s.parts[p.partKey] = p
	s.weight += p.weight()
	s.append(p)
}

func (s *session) append(p *sessionPart) {
	p.prev, p.next = s.root.prev, &s.root
	p.prev.next, p.next.prev = p, p
}

func (p *sessionPart) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}

// answered is what an answer says of one partition.
type answered struct {
	key         partKey
	name        string
	code        int16
	high, start int64
	bytes       int
}

// told decides whether an incremental answer has to carry a partition, and remembers what it says. A partition that
// returned data moves to the end, so that the byte limit is shared fairly. Under mu.
func (s *session) told(a *answered) bool {
	p := s.parts[a.key]
	if p == nil {
		return a.code != 0 || a.bytes > 0
	}
	send := a.bytes > 0 || a.code != 0 || a.high != p.high || a.start != p.start
	p.high, p.start = a.high, a.start
	if a.name != "" {
		p.name = a.name
	}
	if a.code != 0 {
		p.high = -1
	}
	if a.bytes > 0 {
		p.unlink()
		s.append(p)
	}
	return send
}

func (t *sessions) find(id int32) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// touch marks a session as used and counts its partitions anew; false: it is gone, or has to go as there is no room
// for what was added.
func (t *sessions) touch(s *session, size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.id] != s {
		return false
	}
	now := t.clk.Mono()
	s.used = now
	t.parts += size - s.size
	s.size = size
	for t.parts > t.max {
		if !t.evict(now, size) {
			t.remove(s)
		}
	}
	return t.byID[s.id] == s
}

func (t *sessions) drop(id int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(t.byID[id])
}

func (t *sessions) remove(s *session) {
	if s != nil {
		delete(t.byID, s.id)
		t.parts -= s.size
	}
}

// create makes a session of what a full answer told, and returns its id: 0 if there is no room for it.
func (t *sessions) create(ids bool, asked []want, told []answered) int32 {
	s := &session{ids: ids, epoch: 1}
	for i, w := range asked {
		if p := s.parts[w.partKey]; p != nil {
			p.want = w
			continue
		}
		p := &sessionPart{want: w, high: told[i].high, start: told[i].start}
		p.name = told[i].name
		if told[i].code != 0 {
			p.high = -1
		}
		s.add(p)
	}
	if len(s.parts) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clk.Mono()
	s.created, s.used, s.size = now, now, s.weight
	for len(t.byID) >= sessionsMax || t.parts+s.size > t.max {
		if !t.evict(now, s.size) {
			return 0
		}
	}
	for s.id == 0 || t.byID[s.id] != nil {
		s.id = rand.Int32()
	}
	t.byID[s.id] = s
	t.parts += s.size
	return s.id
}

// evict removes the session that was unused longest, if for more than 120 s, else the smallest of those that are older
// than that and smaller than the new one; false: there is none. Under mu.
func (t *sessions) evict(now time.Duration, size int) bool {
	var stale, small *session
	for _, s := range t.byID {
		if now-s.used > sessionEvict && (stale == nil || s.used < stale.used) {
			stale = s
		}
		if now-s.created > sessionEvict && s.size < size && (small == nil || s.size < small.size) {
			small = s
		}
	}
	if stale == nil {
		stale = small
	}
	t.remove(stale)
	return stale != nil
}
