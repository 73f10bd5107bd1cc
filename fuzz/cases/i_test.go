package cases

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// I1. Lengths that lie, at every place of every request.
func TestI1LengthsThatLie(t *testing.T) {
	const perAttempt = 10 << 20
	n := launch(t, options{realTime: true, counters: true, settings: map[string]string{"sekali.fetch.max.wait.ms": "20"}})
	p := n.topic("i1", 1)
	other, who := n.dial(), n.init()
	seq := int32(0)
	undisturbed := func() {
		t.Helper()
		n.want("another connection", n.produceOn(other, p, n.records(who, seq, 1)), codeNone, int64(seq))
		seq++
	}
	undisturbed()
	l := &liar{n: n}
	before := n.heap()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, k := range n.ranges() {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			if !full && v != k.MinVersion && v != k.MaxVersion {
				continue
			}
			frame := fullRequest(k.ApiKey, v)
			head := len(frame) - bodyLen(k.ApiKey, v)
			for at := head; at <= len(frame); at++ {
				all := lies(frame, at)
				if !full { // a sample
					rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					all = all[:1]
				}
				allocated := n.allocs()
				for _, b := range all {
					l.tell(k.ApiKey, v, b)
				}
				if got := n.allocs() - allocated; got > perAttempt {
					t.Errorf("key %d version %d, lies at byte %d: %d bytes allocated", k.ApiKey, v, at, got)
				}
			}
			undisturbed()
		}
	}
	for _, size := range []uint32{0, 1<<32 - 1, 1<<31 - 1, 1 << 31} {
		c := n.dial()
		allocated := n.allocs()
		n.must(c.SendRaw(append(binary.BigEndian.AppendUint32(nil, size), 0, 3, 0, 1, 0, 0, 0, 1)))
		if !c.Closed(10 * time.Second) {
			t.Errorf("a frame of %d bytes: not closed", int32(size))
		}
		if got := n.allocs() - allocated; got > perAttempt {
			t.Errorf("a frame of %d bytes: %d bytes allocated", int32(size), got)
		}
		c.Close()
	}
	l.hangUp()
	undisturbed()
	if rise := n.heap() - before; rise > 64<<20 {
		t.Errorf("memory rose by %d bytes", rise)
	}
	if strings.Contains(n.log(), "panic") {
		t.Error("a panic in the log")
	}
	t.Logf("%d attempts: %d closed, %d answered", l.closed+l.answered, l.closed, l.answered)
}

// liar sends one frame after the other, over one connection as long as it stays open.
type liar struct {
	n                *node
	c                *rawclient.Client
	closed, answered int
}

func (l *liar) hangUp() {
	if l.c == nil {
		return
	}
	if tcp, ok := l.c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // tens of thousands of these must not use up the ports
	}
	l.c.Close()
	l.c = nil
}

// tell sends a frame with a lie in it and, since it may be one that is legal all the same and asks for no answer, an
// honest one behind it: either that is answered, or the connection is closed.
func (l *liar) tell(key, version int16, frame []byte) {
	l.n.t.Helper()
	if l.c == nil {
		c, err := rawclient.Dial(l.n.address())
		l.n.must(err)
		l.c = c
	}
	const honest = 77
	b := append(bytes.Clone(frame), rawclient.Frame(honest, "liar", &kmsg.ApiVersionsRequest{})...)
	if err := l.c.SendRaw(b); err != nil {
		l.closed++
		l.hangUp()
		return
	}
	for {
		corr, _, err := l.c.ReceiveFrame(10 * time.Second)
		switch {
		case closed(err):
			l.closed++
			l.hangUp()
			return
		case err != nil:
			l.n.t.Fatalf("key %d version %d, % x: %v", key, version, frame, err)
		case corr == honest:
			l.answered++
			return
		}
	}
}

// lies are frames in which the bytes at a position claim something: as int16, int32 and varint, too much, negative, and
// one more than what is left.
func lies(frame []byte, at int) (out [][]byte) {
	put := func(claim []byte, over int) {
		rest := frame[min(at+over, len(frame)):]
		b := slices.Concat(frame[:at], claim, rest)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		out = append(out, b)
	}
	left := func(over int) int { return max(len(frame)-at-over, 0) }
	for _, x := range []uint32{1<<31 - 1, 1<<32 - 2, 1<<32 - 1, uint32(left(4) + 1)} {
		put(binary.BigEndian.AppendUint32(nil, x), 4)
	}
	for _, x := range []uint16{1<<15 - 1, 1<<16 - 2, uint16(left(2) + 1)} {
		put(binary.BigEndian.AppendUint16(nil, x), 2)
	}
	// Compact lengths are one more than the length.
	for _, x := range []uint64{1 << 31, 1<<32 - 1, uint64(left(1) + 2)} {
		put(binary.AppendUvarint(nil, x), 1)
	}
	put([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 1)
	return out
}

// fullRequest is the frame of a request in which every list has one element and every string a letter.
func fullRequest(key, version int16) []byte {
	return rawclient.Frame(1, "liar", filledRequest(key, version))
}

func bodyLen(key, version int16) int { return len(filledRequest(key, version).AppendTo(nil)) }

func filledRequest(key, version int16) kmsg.Request {
	r := kmsg.RequestForKey(key)
	fillFields(reflect.ValueOf(r).Elem())
	r.SetVersion(version)
	if p, ok := r.(*kmsg.ProduceRequest); ok {
		p.Acks = -1
	}
	return r
}

func fillFields(v reflect.Value) {
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Version" && name != "UnknownTags" {
			fillValue(v.Field(i))
		}
	}
}

func fillValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0))
	case reflect.Struct:
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		fillFields(v)
	}
}

// outside lists what lies beside the data directory.
func (n *node) outside() []string {
	n.t.Helper()
	return slices.DeleteFunc(n.tree(path.Dir(n.dir())), func(p string) bool { return strings.HasPrefix(p, n.dir()+"/") })
}

// I5. Names of topics are never paths.
func TestI5NamesAsPaths(t *testing.T) {
	n := launch(t, options{})
	before, inside := n.outside(), n.list("", "")
	bad := []string{".", "..", "../x", "a/b", "a\x00b", strings.Repeat("a", 250), "", "a\nb", "../../x", "/x", `a\b`, "ä"}
	for _, name := range bad {
		r := kmsg.NewPtrCreateTopicsRequest()
		r.Version, r.TimeoutMillis = 7, 10_000
		x := kmsg.NewCreateTopicsRequestTopic()
		x.Topic, x.NumPartitions, x.ReplicationFactor = name, 1, 1
		r.Topics = append(r.Topics, x)
		if code := ask[*kmsg.CreateTopicsResponse](n, r).Topics[0].ErrorCode; code != codeName {
			t.Errorf("create %q: code %d, want 17", name, code)
		}
		m := kmsg.NewPtrMetadataRequest()
		m.Version, m.AllowAutoTopicCreation = 9, true
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(name)}}
		if code := ask[*kmsg.MetadataResponse](n, m).Topics[0].ErrorCode; code != codeName {
			t.Errorf("create %q on first use: code %d, want 17", name, code)
		}
		a := n.P(tp{name, 0}, producer{-1, -1}, -1, 1)
		n.refused(fmt.Sprintf("produce to %q", name), a, codeUnknown, codeName)
		i := initRequest()
		i.TransactionalID, i.TransactionTimeoutMillis = kmsg.StringPtr(name), 1000
		ask[*kmsg.InitProducerIDResponse](n, i) // whatever it says: an id is data only
		f := kmsg.NewPtrFindCoordinatorRequest()
		f.Version, f.CoordinatorKey = 3, name
		ask[*kmsg.FindCoordinatorResponse](n, f)
	}
	if after := n.outside(); !slices.Equal(after, before) {
		t.Errorf("outside the data directory: %q, was %q", after, before)
	}
	for _, name := range n.list("", "") {
		if !slices.Contains(inside, name) && !strings.HasPrefix(name, "__") {
			t.Errorf("in the data directory: %q is new", name)
		}
	}

	// Names that differ only in case are two topics; names that differ only in '.' and '_' cannot both exist.
	who := n.init()
	lower, upper := n.topic("i5-case", 1), n.topic("I5-Case", 1)
	n.want("lower", n.P(lower, who, 0, 2), codeNone, 0)
	n.want("upper", n.P(upper, who, 0, 3), codeNone, 0)
	dotted := n.topic("i5.a.b", 1)
	n.want("dotted", n.P(dotted, who, 0, 4), codeNone, 0)
	if _, err := n.conn().CreateTopic("i5_a.b", 1, nil); err == nil {
		n.want("underscored", n.P(tp{"i5_a.b", 0}, who, 0, 5), codeNone, 0)
	} else if !strings.Contains(err.Error(), "ErrorCode:17 ") {
		t.Error(err)
	}
	n.restart("STOP")
	n.wantHigh(lower, 2)
	n.wantHigh(upper, 3)
	n.wantHigh(dotted, 4)
}

// I6. Clients may not write control batches.
func TestI6ControlBatches(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("i6", 1), n.init()
	n.want("s=0", n.P(p, who, 0, 1), codeNone, 0)
	marker := batch.View(batch.AppendMarker(nil, 0, -1, batch.Marker{PID: who.id, Epoch: who.epoch, CoordEpoch: 0,
		Commit: true, Time: n.now()}))
	sequenced := batch.Builder{BaseTime: n.now()}
	sequenced.Add(batch.Record{Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 0}})
	for name, b := range map[string]batch.View{
		"plain":           n.records(who, 1, 1, shape{attrs: batch.AttrControl}),
		"transactional":   n.records(who, 1, 1, shape{attrs: batch.AttrControl | batch.AttrTransactional}),
		"perfect marker":  marker,
		"marker in order": sequenced.Done(batch.AttrControl|batch.AttrTransactional, who.id, who.epoch, 1),
		"of nobody":       n.records(producer{-1, -1}, -1, 1, shape{attrs: batch.AttrControl}),
	} {
		n.unchanged(p, func() {
			r := request(p, b)
			if b.Attrs().Transactional() {
				r.TransactionID = kmsg.StringPtr("t")
			}
			n.refused(name, answerOf(ask[*kmsg.ProduceResponse](n, r)), codeRecord, codeRequest)
		})
	}
	n.want("s=1", n.P(p, who, 1, 1), codeNone, 1)
}
