package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"sekali/internal/clock"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchReq makes a Fetch request of partitions of topic "t" (id 1).
func fetchReq(version int16, id, epoch int32, parts ...int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionID, r.SessionEpoch = version, id, epoch
	if len(parts) > 0 {
		t := kmsg.NewFetchRequestTopic()
		if version >= 13 {
			t.TopicID = [16]byte{1}
		} else {
			t.Topic = "t"
		}
		for _, n := range parts {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, int64(10*n), 100
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func forget(r *kmsg.FetchRequest, parts ...int32) *kmsg.FetchRequest {
	f := kmsg.NewFetchRequestForgottenTopic()
	if f.Partitions = parts; r.Version >= 13 {
		f.TopicID = [16]byte{1}
	} else {
		f.Topic = "t"
	}
	r.ForgottenTopics = append(r.ForgottenTopics, f)
	return r
}

func numbers(ws []want) (out []int32) {
	for _, w := range ws {
		out = append(out, w.partition)
	}
	return out
}

// full makes a session of the partitions of a full request, all told to be at high watermark 5.
func full(t *testing.T, ss *sessions, version int16, parts ...int32) int32 {
	t.Helper()
	cx, ws, code := ss.begin(fetchReq(version, 0, 0, parts...), nil)
	if code != 0 || !cx.create || !slices.Equal(numbers(ws), parts) {
		t.Fatalf("full request: code %d, create %v, %v", code, cx.create, numbers(ws))
	}
	told := make([]answered, len(ws))
	for i, w := range ws {
		told[i] = answered{key: w.partKey, high: 5, start: 0}
	}
	return ss.create(cx.ids, ws, told)
}

// TestSessionTable is the table of spec/api.md 8.4: what (session id, epoch) means, and the codes.
func TestSessionTable(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		ss := newSessions(clock.NewSim(0))
		id := full(t, ss, version, 1, 2, 3)
		other := int16(13)
		if version >= 13 {
			other = 12
		}
		for _, c := range []struct {
			what   string
			req    *kmsg.FetchRequest
			code   int16
			parts  []int32
			create bool
			left   int // sessions afterwards
		}{
			{"0,-1: none", fetchReq(version, 0, -1, 4), 0, []int32{4}, false, 1},
			{"0,n: not found", fetchReq(version, 0, 1), 70, nil, false, 1},
			{"unknown id", fetchReq(version, id+1, 1), 70, nil, false, 1},
			{"wrong epoch", fetchReq(version, id, 2), 71, nil, false, 1},
			{"names and ids changed", fetchReq(other, id, 1), 106, nil, false, 1},
			{"incremental, nothing new", fetchReq(version, id, 1), 0, []int32{1, 2, 3}, false, 1},
			{"epoch counts", fetchReq(version, id, 1), 71, nil, false, 1},
			{"adds", fetchReq(version, id, 2, 9), 0, []int32{1, 2, 3, 9}, false, 1},
			{"updates in place", fetchReq(version, id, 3, 2), 0, []int32{1, 2, 3, 9}, false, 1},
			{"forgets", forget(fetchReq(version, id, 4), 1, 9), 0, []int32{2, 3}, false, 1},
			{"forgets what it does not know", forget(fetchReq(version, id, 5), 77), 0, []int32{2, 3}, false, 1},
			{"emptied: closed", forget(fetchReq(version, id, 6), 2, 3), 0, nil, false, 0},
			{"gone", fetchReq(version, id, 7), 70, nil, false, 0},
			{"0,0: create", fetchReq(version, 0, 0, 1), 0, []int32{1}, true, 0},
			{"id,0 of a session that is gone", fetchReq(version, id, 0, 1), 0, []int32{1}, true, 0},
		} {
			cx, ws, code := ss.begin(c.req, nil)
			if code != c.code || !slices.Equal(numbers(ws), c.parts) || cx.create != c.create || len(ss.byID) != c.left {
				t.Errorf("v%d %s: code %d want %d, parts %v want %v, create %v, %d sessions",
					version, c.what, code, c.code, numbers(ws), c.parts, cx.create, len(ss.byID))
			}
		}
		for _, epoch := range []int32{epochFull, epochFinal} {
			id := full(t, ss, version, 1)
			if cx, _, code := ss.begin(fetchReq(version, id, epoch, 2), nil); code != 0 || cx.create != (epoch == 0) ||
				len(ss.byID) != 0 {
				t.Errorf("v%d id,%d: code %d, create %v, %d sessions", version, epoch, code, cx.create, len(ss.byID))
			}
		}
		if ss.parts != 0 {
			t.Errorf("v%d: %d partitions counted, none left", version, ss.parts)
		}
	}
	cx, ws, code := newSessions(clock.NewSim(0)).begin(fetchReq(6, 5, 5, 1), nil)
	if code != 0 || cx.create || len(ws) != 1 {
		t.Error("version 6 knows no sessions")
	}
}

func TestSessionEpochWraps(t *testing.T) {
	ss := newSessions(clock.NewSim(0))
	id := full(t, ss, 12, 1)
	ss.byID[id].epoch = math.MaxInt32
	for _, epoch := range []int32{math.MaxInt32, 1, 2} {
		if _, _, code := ss.begin(fetchReq(12, id, epoch), nil); code != 0 {
			t.Fatalf("epoch %d: code %d", epoch, code)
		}
	}
}

// TestSessionTold: an incremental answer carries what has records, an error, or another high watermark or log start;
// after an error the partition is told again. What returned data moves to the end.
func TestSessionTold(t *testing.T) {
	ss := newSessions(clock.NewSim(0))
	id := full(t, ss, 12, 1, 2, 3)
	s := ss.byID[id]
	key := func(n int32) partKey { return partKey{topic: "t", partition: n} }
	for _, c := range []struct {
		what string
		a    answered
		send bool
	}{
		{"nothing new", answered{key: key(1), high: 5}, false},
		{"high moved", answered{key: key(1), high: 6}, true},
		{"nothing new again", answered{key: key(1), high: 6}, false},
		{"start moved", answered{key: key(1), high: 6, start: 2}, true},
		{"error", answered{key: key(1), code: 3, high: -1, start: -1}, true},
		{"same error", answered{key: key(1), code: 3, high: -1, start: -1}, true},
		{"error over", answered{key: key(1), high: 6, start: 2}, true},
		{"records", answered{key: key(1), high: 6, start: 2, bytes: 9}, true},
		{"forgotten meanwhile, silent", answered{key: key(8), high: 6}, false},
	} {
		if got := s.told(&c.a); got != c.send {
			t.Errorf("%s: send %v", c.what, got)
		}
	}
	_, ws, _ := ss.begin(fetchReq(12, id, 1), nil)
	if got := numbers(ws); !slices.Equal(got, []int32{2, 3, 1}) {
		t.Errorf("order %v: what returned data moves to the end", got)
	}
}

// TestSessionRoom: 1,000 sessions. A new one takes the place of one unused for 120 s, or of a smaller one of that age;
// without either it gets none.
func TestSessionRoom(t *testing.T) {
	sim := clock.NewSim(0)
	ss := newSessions(sim)
	var ids []int32
	for i := range sessionsMax {
		n := []int32{1, 2}
		if i == 500 {
			n = n[:1]
		}
		ids = append(ids, full(t, ss, 12, n...))
	}
	if full(t, ss, 12, 1, 2, 3) != 0 {
		t.Fatal("a session too many")
	}
	sim.Advance(sessionEvict - time.Second)
	for i, id := range ids {
		if _, _, code := ss.begin(fetchReq(12, id, 1), nil); code != 0 && i != 7 {
			t.Fatalf("session %d: code %d", i, code)
		}
	}
	if full(t, ss, 12, 1, 2, 3) != 0 {
		t.Fatal("all were used within 120 s, none is older")
	}
	sim.Advance(2 * time.Second)
	if full(t, ss, 12, 1) != 0 {
		t.Fatal("none is smaller than the new one")
	}
	if full(t, ss, 12, 1, 2) == 0 || ss.byID[ids[500]] != nil {
		t.Fatal("the smaller one of that age gives way")
	}
	sim.Advance(sessionEvict + time.Second)
	if full(t, ss, 12, 1) == 0 || len(ss.byID) != sessionsMax {
		t.Fatal("an unused one gives way to any")
	}
}

// TestSessionPartitionsBounded: however a client grows its sessions, they remember a bounded number of partitions.
func TestSessionPartitionsBounded(t *testing.T) {
	ss := newSessions(clock.NewSim(0))
	ss.max = 400
	var many []int32
	for i := range int32(100) {
		many = append(many, i)
	}
	made := 0
	for range 6 {
		if full(t, ss, 12, many...) != 0 {
			made++
		}
	}
	if made != 4 || ss.parts != ss.max {
		t.Fatalf("%d sessions, %d partitions remembered", made, ss.parts)
	}
	for id := range ss.byID {
		r := fetchReq(12, id, 1)
		for i := range 3 {
			extra := fetchReq(12, id, 1, many[:10]...).Topics[0]
			extra.Topic = fmt.Sprint("more", i)
			r.Topics = append(r.Topics, extra)
		}
		if _, _, code := ss.begin(r, nil); code != kerr.FetchSessionIDNotFound.Code {
			t.Fatalf("code %d: no room to grow", code)
		}
		break
	}
	if ss.parts > ss.max || len(ss.byID) != 3 {
		t.Fatalf("%d partitions, %d sessions", ss.parts, len(ss.byID))
	}
}

// TestSessionNamesBounded: names longer than any topic's count for more, so that what sessions keep is bounded in
// bytes.
func TestSessionNamesBounded(t *testing.T) {
	ss := newSessions(clock.NewSim(0))
	ss.max = 400
	named := func(size int) *kmsg.FetchRequest {
		r := fetchReq(12, 0, 0, 1)
		r.Topics[0].Topic = strings.Repeat("x", size)
		return r
	}
	for _, x := range []struct{ size, weight int }{{1, 1}, {249, 1}, {250, 2}, {30_000, 121}} {
		r := named(x.size)
		_, ws, _ := ss.begin(r, nil)
		id := ss.create(false, ws, make([]answered, 1))
		if id == 0 || ss.parts != x.weight {
			t.Fatalf("a name of %d bytes: session %d, weight %d, want %d", x.size, id, ss.parts, x.weight)
		}
		r.SessionID, r.SessionEpoch = id, 1
		r.Topics = append(r.Topics, fetchReq(12, 0, 0, 2).Topics...)
		if _, _, code := ss.begin(r, nil); code != 0 || ss.parts != x.weight+1 {
			t.Fatalf("one more: code %d, weight %d", code, ss.parts)
		}
		f := fetchReq(12, id, 2)
		f.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: r.Topics[0].Topic, Partitions: []int32{1}}}
		if _, _, code := ss.begin(f, nil); code != 0 || ss.parts != 1 {
			t.Fatalf("without the long name: code %d, weight %d", code, ss.parts)
		}
		ss.drop(id)
	}
	_, ws, _ := ss.begin(named(120_000), nil)
	if id := ss.create(false, ws, make([]answered, 1)); id != 0 || ss.parts != 0 {
		t.Fatalf("session %d of more than there is room for, weight %d", id, ss.parts)
	}
}
