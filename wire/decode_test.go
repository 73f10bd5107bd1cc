package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// TestVersions: the table agrees with kmsg about flexible versions, and kmsg knows every version advertised.
func TestVersions(t *testing.T) {
	last := int16(-1)
	for _, a := range apis {
		r := kmsg.RequestForKey(a.Key)
		if a.Key <= last || r == nil || a.Max > r.MaxVersion() || a.Min > a.Max {
			t.Errorf("key %d: row out of order or beyond kmsg", a.Key)
		}
		last = a.Key
		for v := a.Min; v <= a.Max; v++ {
			if r.SetVersion(v); Flexible(a.Key, v) != r.IsFlexible() {
				t.Errorf("key %d version %d: flexible %v, kmsg says %v", a.Key, v, Flexible(a.Key, v), r.IsFlexible())
			}
		}
	}
	want := map[int16][2]int16{
		0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4},
		13: {0, 5}, 14: {0, 5}, 15: {0, 6}, 16: {0, 5}, 17: {0, 1}, 18: {0, 5}, 19: {2, 7}, 20: {1, 6}, 21: {0, 2},
		22: {0, 5},
		23: {2, 4}, 24: {0, 5}, 25: {0, 4}, 26: {0, 5}, 27: {1, 2}, 28: {0, 6}, 29: {1, 3}, 30: {1, 3}, 31: {1, 3},
		32: {1, 4}, 33: {0, 2}, 34: {1, 2}, 35: {1, 5}, 36: {0, 2}, 37: {0, 3}, 42: {0, 3}, 43: {0, 2}, 44: {0, 1},
		45: {0, 1},
		46: {0, 0}, 47: {0, 0}, 48: {0, 1}, 49: {0, 1}, 50: {0, 0}, 51: {0, 0}, 55: {0, 2}, 57: {0, 2}, 60: {0, 2},
		61: {0, 0}, 65: {0, 0}, 66: {0, 2}, 68: {0, 1}, 69: {0, 1}, 74: {0, 1}, 75: {0, 0},
	}
	for _, r := range Versions() {
		if want[r.Key] != [2]int16{r.Min, r.Max} {
			t.Errorf("key %d: advertised %d-%d, want %v", r.Key, r.Min, r.Max, want[r.Key])
		}
		delete(want, r.Key)
	}
	if len(want) > 0 {
		t.Errorf("not advertised: %v", want)
	}
	for _, c := range []struct {
		key, version int16
		want         bool
	}{{0, 2, false}, {0, 3, true}, {0, 14, false}, {1, 3, false}, {4, 0, false}, {-1, 0, false}, {76, 0, false}} {
		if got := Served(c.key, c.version); got != c.want {
			t.Errorf("Served(%d, %d) = %v", c.key, c.version, got)
		}
	}
}

// TestDecodeAgreesWithKmsg: what kmsg encodes is accepted, nothing of it is left over or lost, and the request is the
// same.
func TestDecodeAgreesWithKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, h := request(t)
		body := r.AppendTo(nil)
		a := lookup(h.Key)
		if h.Key != KeyProduce {
			c := cursor{b: body, flexible: a.flexible <= h.Version, version: h.Version, left: elementsMax}
			if c.walk(a.fields); c.bad || len(c.b) != 0 {
				t.Fatalf("key %d version %d: walk bad %v, %d bytes left of % x", h.Key, h.Version, c.bad, len(c.b), body)
			}
		}
		got, err := Decode(h, append(body[:len(body):len(body)], "behind the body"...))
		if err != nil {
			t.Fatalf("key %d version %d: %v", h.Key, h.Version, err)
		}
		if again := got.AppendTo(nil); !bytes.Equal(again, body) {
			t.Fatalf("key %d version %d: decoded to another request\n% x\n% x", h.Key, h.Version, body, again)
		}
		for n := range body {
			if _, err := Decode(h, body[:n:n]); !errors.Is(err, ErrBody) {
				t.Fatalf("key %d version %d cut at %d of %d: error %v", h.Key, h.Version, n, len(body), err)
			}
		}
	})
}

// TestUnknownTags: unknown tagged fields are skipped in the header and at every level of the body.
func TestUnknownTags(t *testing.T) {
	r := kmsg.NewPtrProduceRequest()
	r.Version = 9
	r.UnknownTags.Set(77, []byte("x"))
	r.Topics = []kmsg.ProduceRequestTopic{{
		Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("r")}}}}
	r.Topics[0].UnknownTags.Set(5, []byte("yy"))
	r.Topics[0].Partitions[0].UnknownTags.Set(9, nil)
	h := Header{Key: KeyProduce, Version: 9}
	got, err := Decode(h, r.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if p := got.(*kmsg.ProduceRequest).Topics[0].Partitions[0]; string(p.Records) != "r" {
		t.Fatalf("records %q", p.Records)
	}
	m := kmsg.NewPtrMetadataRequest()
	m.Version = 13
	m.UnknownTags.Set(3, []byte("zzz"))
	if _, err := Decode(Header{Key: KeyMetadata, Version: 13}, m.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
}

// TestDecodeCopies: nothing of a request but the records of a Produce changes with the body it was read from, whose
// memory is used again.
func TestDecodeCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, h := request(t)
		if h.Key == KeyProduce {
			return
		}
		body := r.AppendTo(nil)
		got, err := Decode(h, body)
		if err != nil {
			t.Fatal(err)
		}
		before := got.AppendTo(nil)
		for i := range body {
			body[i] ^= 0xff
		}
		if after := got.AppendTo(nil); !bytes.Equal(before, after) {
			t.Fatalf("key %d version %d aliases the body", h.Key, h.Version)
		}
	})
}

// TestProduceAliases: records are slices of the body that cannot be appended to; everything else is copied.
func TestProduceAliases(t *testing.T) {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks = 11, -1
	r.TransactionID = kmsg.StringPtr("txn")
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: "name", Partitions: []kmsg.ProduceRequestTopicPartition{
		{Partition: 3, Records: bytes.Repeat([]byte{7}, 100)}, {Partition: 4, Records: nil}}}}
	body := r.AppendTo(nil)
	got, err := Decode(Header{Key: KeyProduce, Version: 11}, body)
	if err != nil {
		t.Fatal(err)
	}
	p := got.(*kmsg.ProduceRequest)
	rec := p.Topics[0].Partitions[0].Records
	if at := bytes.Index(body, bytes.Repeat([]byte{7}, 100)); &rec[0] != &body[at] || cap(rec) != 100 {
		t.Fatalf("records do not alias the body, or reach beyond their end: cap %d", cap(rec))
	}
	if p.Topics[0].Partitions[1].Records != nil {
		t.Fatal("null records must stay nil")
	}
	clear(body)
	if p.Topics[0].Topic != "name" || *p.TransactionID != "txn" {
		t.Fatalf("strings alias the body: %q %q", p.Topics[0].Topic, *p.TransactionID)
	}
}

// TestProduceAllocations: one topic and partition cost the request and its topic name.
func TestProduceAllocations(t *testing.T) {
	r := kmsg.NewPtrProduceRequest()
	r.Version = 9
	r.Topics = []kmsg.ProduceRequestTopic{{
		Topic: "a-topic-name", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 99)}}}}
	body := r.AppendTo(nil)
	n := testing.AllocsPerRun(100, func() {
		if _, err := Decode(Header{Key: KeyProduce, Version: 9}, body); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 {
		t.Fatalf("%v allocations, want at most 2", n)
	}
}

// I1 of the cases: every advertised request, every position, lengths that lie. Nothing panics, nothing is allocated
// for a claim.
func TestI1LengthsThatLie(t *testing.T) {
	lies := [][]byte{
		{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xfe}, {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0},
		{0x7f, 0xff}, {0xff, 0xfe},
		{0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0xff, 0x07}, {0xfe, 0xff, 0xff, 0xff, 0x0f},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	}
	versions(func(h Header) {
		r := kmsg.RequestForKey(h.Key)
		r.SetVersion(h.Version)
		seed := int(h.Key)*100 + int(h.Version)
		gen := rapid.Custom(func(t *rapid.T) kmsg.Request {
			fill(t, reflect.ValueOf(r).Elem())
			return r
		})
		body := gen.Example(seed).AppendTo(nil)
		if len(body) > 300 {
			body = body[:300]
		}
		worst := uint64(0)
		for at := 0; at <= len(body); at++ {
			bodies := [][]byte{}
			for _, lie := range lies {
				over := append(append(body[:at:at], lie...), body[min(at+len(lie), len(body)):]...)
				in := append(append(body[:at:at], lie...), body[at:]...)
				bodies = append(bodies, over, in, append(over, make([]byte, 4096)...))
			}
			if at < len(body) {
				one := bytes.Clone(body)
				one[at]++ // one more than what is there
				bodies = append(bodies, one)
			}
			worst = max(worst, allocated(func() {
				for _, b := range bodies {
					_, _ = Decode(h, b)
				}
			}))
		}
		if worst > 1<<20 {
			t.Errorf("key %d version %d: %d bytes allocated for 31 bodies of %d", h.Key, h.Version, worst, len(body))
		}
	})
}

func allocated(fn func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	fn()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

// TestFullFrames: frames that are all small elements cost at most decodedMax beside their own size, or are refused.
func TestFullFrames(t *testing.T) {
	versions(func(h Header) {
		if h.Version != lookup(h.Key).Max && h.Version != lookup(h.Key).Min {
			return
		}
		limit := Limits{}.Defaults().Cap(h.Key)
		for _, fillByte := range []byte{0, 1, 2} {
			body := bytes.Repeat([]byte{fillByte}, min(limit, 2<<20))
			n := allocated(func() { _, _ = Decode(h, body) })
			if n > uint64(decodedMax+len(body)) {
				t.Errorf("key %d version %d filled with %d: %d bytes allocated", h.Key, h.Version, fillByte, n)
			}
		}
	})
	// A list of as many topics as a request may name, and one more.
	for _, n := range []int{elementsMax, elementsMax + 1} {
		r := kmsg.NewPtrMetadataRequest()
		r.Version = 9
		r.Topics = make([]kmsg.MetadataRequestTopic, n)
		for i := range r.Topics {
			r.Topics[i].Topic = kmsg.StringPtr("t")
		}
		body := r.AppendTo(nil)
		var err error
		got := allocated(func() { _, err = Decode(Header{Key: KeyMetadata, Version: 9}, body) })
		if ok := n <= elementsMax; ok != (err == nil) || got > uint64(decodedMax+len(body)) {
			t.Errorf("%d topics: error %v, %d bytes allocated", n, err, got)
		}
	}
}

// TestHeavyElements: a request of as many elements as may be, each of the kind that costs most, stays within the bound.
func TestHeavyElements(t *testing.T) {
	two := kmsg.StringPtr("xy")
	acls := kmsg.NewPtrDeleteACLsRequest()
	leave := kmsg.NewPtrLeaveGroupRequest()
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.Topics = make([]kmsg.TxnOffsetCommitRequestTopic, 1)
	scram := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for range elementsMax - 1 {
		acls.Filters = append(acls.Filters, kmsg.DeleteACLsRequestFilter{ResourceName: two, Principal: two, Host: two})
		leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: *two, InstanceID: two, Reason: two})
		commit.Topics[0].Partitions = append(commit.Topics[0].Partitions,
			kmsg.TxnOffsetCommitRequestTopicPartition{Metadata: two})
		scram.Upsertions = append(scram.Upsertions, kmsg.AlterUserSCRAMCredentialsRequestUpsertion{Name: *two})
	}
	for _, r := range []kmsg.Request{acls, leave, commit, scram} {
		r.SetVersion(r.MaxVersion())
		body := r.AppendTo(nil)
		var err error
		n := allocated(func() { _, err = Decode(Header{Key: r.Key(), Version: r.GetVersion()}, body) })
		if err != nil || n > raceFactor*uint64(decodedMax+len(body)) {
			t.Errorf("key %d: error %v, %d bytes allocated for %d", r.Key(), err, n, len(body))
		}
	}
}

// TestStrings: a string longer than Kafka's limit is refused where its length has room for it.
func TestStrings(t *testing.T) {
	for n, ok := range map[int]bool{stringMax: true, stringMax + 1: false} {
		body := binary.AppendUvarint(nil, uint64(n)+1)
		body = append(body, strings.Repeat("x", n)...)
		c := cursor{b: body, flexible: true}
		if s, null := c.str(); null || c.bad == ok || ok && len(s) != n {
			t.Errorf("%d bytes: bad %v", n, c.bad)
		}
	}
}

// TestCount: a count is held against the bytes left and against the elements left.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		n, size, bytes, left int
		ok                   bool
	}{{10, 12, 120, 10, true}, {10, 12, 119, 10, false}, {10, 1, 10, 9, false}, {0, 12, 0, 0, true}} {
		k := cursor{b: append(binary.BigEndian.AppendUint32(nil, uint32(c.n)), make([]byte, c.bytes)...), left: c.left}
		if n, _ := k.count(c.size); k.bad == c.ok || c.ok && (n != c.n || k.left != c.left-c.n) {
			t.Errorf("%+v: bad %v, %d left", c, k.bad, k.left)
		}
	}
}

func TestHeader(t *testing.T) {
	frame := func(key, version int16, id *string, tail ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = binary.BigEndian.AppendUint32(b, 77)
		if id == nil {
			b = append(b, 0xff, 0xff)
		} else {
			b = binary.BigEndian.AppendUint16(b, uint16(len(*id)))
			b = append(b, *id...)
		}
		return append(b, tail...)
	}
	name := "me"
	for _, c := range []struct {
		what  string
		frame []byte
		id    string
		body  string
		err   error
	}{
		{"v1", frame(3, 1, &name, 'b'), "me", "b", nil},
		{"v1 null client id", frame(3, 1, nil, 'b'), "", "b", nil},
		{"v2 keeps the two-byte length", frame(3, 9, &name, 0, 'b'), "me", "b", nil},
		{"v2 with a tag", frame(3, 9, &name, 1, 5, 2, 'x', 'y', 'b'), "me", "b", nil},
		{"v2 tags cut", frame(3, 9, &name, 1, 5, 9, 'x'), "", "", ErrHeader},
		{"v2 tags missing", frame(3, 9, &name), "", "", ErrHeader},
		{"client id longer than the frame", frame(3, 1, nil)[:8], "", "", ErrHeader},
		{"length -2", append(frame(3, 1, nil)[:8], 0xff, 0xfe, 'b'), "", "", ErrHeader},
		{"short", []byte{0, 3, 0, 1}, "", "", ErrHeader},
		{"unknown key", frame(4, 0, &name), "", "", ErrVersion},
		{"version of the future", frame(18, 99, &name), "", "", ErrVersion},
		{"Produce 2", frame(0, 2, &name), "", "", ErrVersion},
	} {
		h, body, err := ParseHeader(c.frame, "")
		if !errors.Is(err, c.err) || err == nil && (h.ClientID != c.id || string(body) != c.body || h.Corr != 77) {
			t.Errorf("%s: %+v %q %v", c.what, h, body, err)
		}
		if errors.Is(err, ErrVersion) && h.Corr != 77 {
			t.Errorf("%s: correlation id %d is needed for an answer", c.what, h.Corr)
		}
	}
	f := frame(3, 1, &name)
	if n := testing.AllocsPerRun(50, func() { _, _, _ = ParseHeader(f, "me") }); n != 0 {
		t.Errorf("%v allocations for a known client id", n)
	}
}
