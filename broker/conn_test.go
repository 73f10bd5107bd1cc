package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sekali/internal/clock"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestHandlers: what is advertised has a handler, and nothing else has.
func TestHandlers(t *testing.T) {
	for _, r := range wire.Versions() {
		own := r.Key == wire.KeyProduce || r.Key == wire.KeyFetch
		if (handlers[r.Key] == nil) != own {
			t.Errorf("key %d: handler %v", r.Key, handlers[r.Key] != nil)
		}
	}
	if len(handlers) != len(wire.Versions())-2 {
		t.Errorf("%d handlers for %d keys", len(handlers), len(wire.Versions()))
	}
}

// G2, small: every advertised version of every key gets a well-formed answer of that version; what is not advertised
// closes the connection, and Produce 0 to 2 too.
func TestG2AdvertisedIsTrue(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	for _, rg := range wire.Versions() {
		for v := rg.Min - 1; v <= rg.Max+1; v++ {
			r := kmsg.RequestForKey(rg.Key)
			c := n.dial()
			if r.SetVersion(v); v < 0 {
				continue
			}
			if p, ok := r.(*kmsg.ProduceRequest); ok {
				p.Acks = -1
			}
			if wire.Served(rg.Key, v) {
				if resp, err := c.Call(r); err != nil || resp.Key() != rg.Key {
					t.Errorf("key %d version %d: %v", rg.Key, v, err)
				}
				continue
			}
			if rg.Key == wire.KeyApiVersions {
				continue // answered with 35, see TestG1
			}
			if err := c.Send(r); err != nil {
				t.Fatal(err)
			}
			if !c.Closed(5 * time.Second) {
				t.Errorf("key %d version %d: not closed", rg.Key, v)
			}
			c.Close()
		}
	}
	c := n.dial()
	if err := c.Send(&kmsg.LeaderAndISRRequest{Version: 5}); err != nil {
		t.Fatal(err)
	}
	if !c.Closed(5 * time.Second) {
		t.Error("a key that is not advertised must close the connection")
	}
}

// G1, small: ApiVersions of a version of the future is answered in version 0 with our range, header version 0, and the
// connection stays.
func TestG1ApiVersionsOfTheFuture(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	b := rawclient.Frame(9, "future", &kmsg.ApiVersionsRequest{Version: 0})
	binary.BigEndian.PutUint16(b[6:], 99)
	if err := c.SendRaw(append(b, "what version 99 may hold"...)[:len(b)]); err != nil {
		t.Fatal(err)
	}
	corr, body, err := c.ReceiveFrame(5 * time.Second)
	if err != nil || corr != 9 {
		t.Fatalf("correlation id %d, %v", corr, err)
	}
	if want := []byte{0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5}; !bytes.Equal(body, want) {
		t.Fatalf("body % x, want % x", body, want)
	}
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = 3, strings.Repeat("x", 200), "1.0"
	got := call[*kmsg.ApiVersionsResponse](t, n.dial(), r)
	if got.ErrorCode != 0 || len(got.ApiKeys) != len(wire.Versions()) {
		t.Errorf("code %d, %d keys", got.ErrorCode, len(got.ApiKeys))
	}
}

// I1 over the socket, for every advertised request: lengths that lie close the connection or are answered 42; memory
// stays where it was, nothing panics, another connection works on.
func TestI1LengthsThatLie(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	other := n.dial()
	lies := [][]byte{
		{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xfe}, {0xff, 0xff, 0xff, 0xff},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0xfe, 0xff, 0xff, 0xff, 0x0f},
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	attempts := 0
	for _, rg := range wire.Versions() {
		for _, v := range []int16{max(rg.Min, 3*b2i(rg.Key == 0)), rg.Max} {
			r := kmsg.RequestForKey(rg.Key)
			r.SetVersion(v)
			frame := rawclient.Frame(1, "liar", r)
			head := len(frame) - len(r.AppendTo(nil))
			for at := head; at <= len(frame); at++ {
				for _, lie := range lies {
					b := append(bytes.Clone(frame[:at]), lie...)
					binary.BigEndian.PutUint32(b, uint32(len(b)-4))
					attempts++
					c := n.dial()
					// A body that is legal all the same may ask for no answer; the request behind it has one.
					b = append(b, rawclient.Frame(2, "liar", &kmsg.ApiVersionsRequest{})...)
					if err := c.SendRaw(b); err != nil {
						t.Fatal(err)
					}
					if _, _, err := c.ReceiveFrame(5 * time.Second); err != nil && !gone(err) {
						t.Fatalf("key %d version %d, % x at %d: %v", rg.Key, v, lie, at, err)
					}
					c.Close()
				}
			}
		}
	}
	for _, size := range []uint32{0, 1<<32 - 1, 1<<31 - 1, 7} {
		c := n.dial()
		if err := c.SendRaw(binary.BigEndian.AppendUint32(nil, size)); err != nil {
			t.Fatal(err)
		}
		if err := c.SendRaw([]byte{0, 3, 0, 1, 0, 0, 0, 1}); err == nil && !c.Closed(5*time.Second) {
			t.Errorf("frame of %d bytes: not closed", int32(size))
		}
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / uint64(attempts); per > 1<<20 {
		t.Errorf("%d bytes allocated per attempt", per)
	}
	put(t, other, "t", 1, 10)
}

func b2i(b bool) int16 {
	if b {
		return 1
	}
	return 0
}

// gone: the peer closed, or reset, the connection.
func gone(err error) bool {
	ne, ok := err.(net.Error)
	return !ok || !ne.Timeout()
}

// TestBareConnection: answers go to the connection as it was accepted, for behind a wrapper one writev becomes many
// writes.
func TestBareConnection(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	call[*kmsg.ApiVersionsResponse](t, c, &kmsg.ApiVersionsRequest{})
	for _, sc := range n.open() {
		if _, ok := sc.nc.(*net.TCPConn); !ok {
			t.Errorf("connection is a %T", sc.nc)
		}
	}
}

// TestPanicCostsOneConnection: a handler that panics closes its connection; the process and the others go on.
func TestPanicCostsOneConnection(t *testing.T) {
	var logged lines
	n := open(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	n.handlers = maps.Clone(handlers)
	n.handlers[wire.KeyDescribeCluster] = func(*Server, *request) kmsg.Response {
		var none []int
		_ = none[len(none)]
		return nil
	}
	n.serve()
	n.topic("t", 1, nil)
	c, other := n.dial(), n.dial()
	if err := c.Send(kmsg.NewPtrDescribeClusterRequest()); err != nil {
		t.Fatal(err)
	}
	if !c.Closed(5 * time.Second) {
		t.Fatal("not closed")
	}
	put(t, other, "t", 1, 10)
	eventually(t, "told with its stack", func() bool {
		return strings.Contains(logged.String(), "index out of range") && strings.Contains(logged.String(), "conn_test.go")
	})
	// An answer reaches its client before what the request held is given back.
	eventually(t, "nothing is charged", func() bool { return n.pool.Usage().InFlight == 0 })
}

// lines is a log for tests.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestBadRequestsAreTold: a bad request is counted and logged, with a bound on the lines.
func TestBadRequestsAreTold(t *testing.T) {
	var logged lines
	n := start(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	for range 50 {
		c := n.dial()
		if err := c.SendRaw([]byte{0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if !c.Closed(5 * time.Second) {
			t.Fatal("not closed")
		}
		c.Close()
	}
	if k := strings.Count(logged.String(), "bad request"); k == 0 || k > 3*complaintsPerSecond {
		t.Errorf("%d lines for 50 bad requests", k)
	}
}

// TestConnectionLimits: connections beyond a limit are closed at once, and those that left make room.
func TestConnectionLimits(t *testing.T) {
	n := start(t, func(c *Config) { c.ConnsMax, c.ConnsMaxPerIP = 3, 2 })
	a, b := n.dial(), n.dial()
	for _, c := range []*rawclient.Client{a, b} {
		call[*kmsg.ApiVersionsResponse](t, c, &kmsg.ApiVersionsRequest{})
	}
	if c := n.dial(); !c.Closed(5 * time.Second) {
		t.Fatal("a third connection from one address")
	}
	a.Close()
	eventually(t, "room", func() bool {
		c := n.dial()
		defer c.Close()
		_, err := c.Call(&kmsg.ApiVersionsRequest{})
		return err == nil
	})
}

// TestIdle: a connection that does nothing is closed; one with a parked request is not idle.
func TestIdle(t *testing.T) {
	sim := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Clock, c.FetchWaitMaxMs = sim, 1<<30 })
	n.topic("t", 1, nil)
	idle, parked := n.dial(), n.dial()
	call[*kmsg.ApiVersionsResponse](t, idle, &kmsg.ApiVersionsRequest{})
	r := wait(12, "t", 0, 1, int32(2*idleDefault/time.Millisecond))
	if err := parked.Send(r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "parked", func() bool { return n.parked() == 1 })
	sim.Advance(idleDefault - 2*time.Second)
	if !silent(idle, 20*time.Millisecond) {
		t.Fatal("closed before its time")
	}
	sim.Advance(4 * time.Second)
	if !idle.Closed(5 * time.Second) {
		t.Fatal("an idle connection stays open")
	}
	if n.parked() != 1 {
		t.Fatal("a parked request is not idleness")
	}
	sim.Advance(idleDefault)
	receive[*kmsg.FetchResponse](t, parked, r)
}

// TestStalledFrame: a frame of which nothing more arrives costs its connection soon, however much it claims; every
// piece that arrives gives it time for the next one.
func TestStalledFrame(t *testing.T) {
	sim := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Clock = sim })
	for _, x := range []struct {
		size, sent int
		alive      time.Duration
	}{
		{1000, 6, frameGrace - time.Second}, {64 << 20, 6, frameGrace - time.Second},
		{64 << 20, 12 << 20, frameGrace + 99*time.Second}, // 12 of 16 MiB: the piece has 8 MiB
	} {
		c := n.dial()
		head := append(binary.BigEndian.AppendUint32(nil, uint32(x.size)), 0, 0, 0, 9, 0, 0)
		if err := c.SendRaw(append(head, make([]byte, x.sent-6)...)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "arrived", func() bool { return n.pieceEnds() >= int64(sim.Mono()+x.alive) })
		sim.Advance(x.alive)
		if !silent(c, 20*time.Millisecond) {
			t.Errorf("frame of %d bytes: closed within %v", x.size, x.alive)
		}
		sim.Advance(100 * time.Second)
		if !c.Closed(5 * time.Second) {
			t.Errorf("frame of %d bytes: not closed", x.size)
		}
		eventually(t, "given back", func() bool { return n.pool.Usage().InFlight == 0 })
	}
}

// TestSlowReader: a client that does not take its answers is cut off, and what it held is given back.
func TestSlowReader(t *testing.T) {
	sim := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Clock = sim })
	n.topic("t", 1, nil)
	put(t, n.dial(), "t", 1, 40_000)
	n.block()
	for _, c := range n.open() {
		if k := c.slots.tail.Load() - c.slots.head.Load(); k > 1 {
			t.Errorf("%d answers are held for a client that takes none", k)
		}
	}
	sim.Advance(writeTimeoutDefault - time.Second)
	if n.sent() == 0 {
		t.Fatal("cut off before its time")
	}
	sim.Advance(3 * time.Second)
	eventually(t, "cut off, and nothing charged", func() bool { return n.sent() == 0 && n.pool.Usage().InFlight == 0 })
}

// block has a client ask for more than the sockets hold and take none of it.
func (n *node) block() {
	n.t.Helper()
	c := n.dial()
	var rs []kmsg.Request
	for range 1500 {
		rs = append(rs, rawclient.Fetch(12, "t", 0, 0))
	}
	if err := c.Send(rs...); err != nil {
		n.t.Fatal(err)
	}
	stuck := int64(0)
	eventually(n.t, "blocked", func() bool {
		was := stuck
		stuck = n.sent()
		time.Sleep(20 * time.Millisecond)
		return stuck > 0 && stuck == was
	})
	if stuck == int64(len(rs)) {
		n.t.Fatal("all answers left: the client was not slow")
	}
}

// sent counts the answers that left on the connections that are open and have an answer under way.
func (n *node) sent() (k int64) {
	for _, c := range n.open() {
		if c.writeEnds.Load() != 0 {
			k += int64(c.slots.head.Load())
		}
	}
	return k
}

// TestBackPressure: a budget that is full pauses reading; everything is answered in the end, nothing stays charged.
func TestBackPressure(t *testing.T) {
	n := start(t, func(c *Config) { c.InFlightBytesMax = 1 << 18 })
	n.topic("t", 1, nil)
	var wg sync.WaitGroup
	for pid := range int64(8) {
		c := n.dial()
		wg.Go(func() {
			for i := range int32(10) {
				r := rawclient.Produce(9, "t", 0, rawclient.Batch(0, pid, 0, i, 1, 100_000))
				resp, err := c.Call(r)
				if err != nil {
					t.Error(err)
					return
				}
				if p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
					t.Errorf("code %d", p.ErrorCode)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "nothing is charged, nobody waits", func() bool {
		u := n.pool.Usage()
		return u.InFlight == 0 && u.Waiting == 0
	})
}

// TestReadAhead: what is pipelined behind a parked Fetch is read ahead only so far, and answered in order afterwards.
func TestReadAhead(t *testing.T) {
	n := start(t, func(c *Config) { c.PipelineMax = 4 })
	n.topic("t", 1, nil)
	c := n.dial()
	rs := []kmsg.Request{wait(12, "t", 0, 1, 20_000)}
	for i := range int32(20) {
		rs = append(rs, rawclient.Produce(9, "t", 0, rawclient.Batch(0, 1, 0, i, 1, 100)))
	}
	rs = append(rs, &kmsg.ApiVersionsRequest{})
	if err := c.Send(rs...); err != nil {
		t.Fatal(err)
	}
	if !silent(c, 50*time.Millisecond) {
		t.Fatal("something overtook the parked Fetch")
	}
	put(t, n.dial(), "t", 1, 10)
	for i, r := range rs {
		resp, err := c.Receive(r)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if p, ok := resp.(*kmsg.ProduceResponse); ok && (p.Topics[0].Partitions[0].ErrorCode != 0 ||
			p.Topics[0].Partitions[0].BaseOffset != int64(i)) {
			t.Fatalf("answer %d: %+v", i, p.Topics[0].Partitions[0])
		}
	}
}

// TestBehindParked: what has to wait behind a parked Fetch holds nothing of the budget meanwhile, and gets its answer.
func TestBehindParked(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	c := n.dial()
	parked := wait(12, "t", 0, 1, 20_000)
	large := kmsg.NewPtrMetadataRequest()
	large.Version = 9
	for i := range 20 {
		large.Topics = append(large.Topics, kmsg.MetadataRequestTopic{
			Topic: kmsg.StringPtr(fmt.Sprint(i, strings.Repeat("x", 20_000)))})
	}
	if err := c.Send(parked, large); err != nil {
		t.Fatal(err)
	}
	eventually(t, "parked", func() bool { return n.parked() == 1 })
	if !silent(c, 50*time.Millisecond) {
		t.Fatal("something overtook the parked Fetch")
	}
	eventually(t, "what nobody executes is not charged", func() bool { return n.pool.Usage().InFlight == 0 })
	put(t, n.dial(), "t", 1, 10)
	receive[*kmsg.FetchResponse](t, c, parked)
	if got := receive[*kmsg.MetadataResponse](t, c, large); len(got.Topics) != 20 {
		t.Errorf("%d topics", len(got.Topics))
	}
}

// TestAnswersAlone: a request whose answer may be large is the last one that is read until it is answered.
func TestAnswersAlone(t *testing.T) {
	of := func(parts ...int) *kmsg.ProduceRequest {
		r := kmsg.NewPtrProduceRequest()
		for _, n := range parts {
			r.Topics = append(r.Topics, kmsg.ProduceRequestTopic{
				Partitions: make([]kmsg.ProduceRequestTopicPartition, n)})
		}
		return r
	}
	for _, x := range []struct {
		r    kmsg.Request
		want bool
	}{
		{of(), false}, {of(1), false}, {of(1000, 24), false}, {of(1000, 25), true}, {of(60_000), true},
		{kmsg.NewPtrFetchRequest(), true}, {kmsg.NewPtrMetadataRequest(), true}, {kmsg.NewPtrApiVersionsRequest(), true},
	} {
		if got := answersAlone(x.r); got != x.want {
			t.Errorf("key %d: %v", x.r.Key(), got)
		}
	}
}

// TestShutdownAnswers: requests that were read are answered, also those that wait for a flush; the next start finds
// them.
func TestShutdownAnswers(t *testing.T) {
	n := start(t, slowDisk(150*time.Millisecond))
	n.topic("t", 1, nil)
	c := n.dial()
	var rs []kmsg.Request
	for i := range int32(5) {
		rs = append(rs, rawclient.Produce(9, "t", 0, rawclient.Batch(0, 1, 0, i, 1, 10)))
	}
	if err := c.Send(rs...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "read", func() bool {
		for _, sc := range n.open() {
			if sc.slots.tail.Load() >= 5 {
				return true
			}
		}
		return false
	})
	n.stop()
	for i, r := range rs {
		p := receive[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Fatalf("answer %d: code %d at %d", i, p.ErrorCode, p.BaseOffset)
		}
	}
	if !c.Closed(5 * time.Second) {
		t.Fatal("the connection stays open")
	}
}

// TestShutdownIsBounded: a stop whose time is up cuts connections off and says so; what it could not close keeps the
// directory locked until it is closed.
func TestShutdownIsBounded(t *testing.T) {
	var fs vfs.FS
	n := start(t, func(c *Config) {
		slowDisk(500 * time.Millisecond)(c)
		fs = c.Store.FS
	})
	n.topic("t", 1, nil)
	c := n.dial()
	if err := c.Send(rawclient.Produce(9, "t", 0, rawclient.Batch(0, 1, 0, 0, 1, 10))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "read", func() bool { return anyWaiting(n) })
	n.down.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v", err)
	}
	if !c.Closed(5 * time.Second) {
		t.Error("the connection stays open")
	}
	if err := <-n.ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	again := n.cfg
	again.Store.FS = fs
	if s, err := Open(t.Context(), again); err == nil {
		t.Error("the directory was opened while it was being closed")
		_ = s.Shutdown(t.Context())
	}
	eventually(t, "closed in the end", func() bool {
		s, err := Open(t.Context(), again)
		return err == nil && s.Shutdown(t.Context()) == nil
	})
}

// TestShutdownCutsOff: a client that does not take its answers holds a stop up for five seconds.
func TestShutdownCutsOff(t *testing.T) {
	sim := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Clock = sim })
	n.topic("t", 1, nil)
	put(t, n.dial(), "t", 1, 40_000)
	n.block()
	ended := make(chan error, 1)
	n.down.Store(true)
	go func() { ended <- n.Shutdown(context.Background()) }()
	select {
	case err := <-ended:
		t.Fatalf("stopped with an answer on its way: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	sim.Advance(drainMax)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-n.ended
}

func anyWaiting(n *node) bool {
	for _, c := range n.open() {
		if c.waiting.Load() > 0 {
			return true
		}
	}
	return false
}

// TestVanishedProducer: a client that goes away before its answer has stored its batch all the same, and leaves
// nothing behind.
func TestVanishedProducer(t *testing.T) {
	n := start(t, slowDisk(50*time.Millisecond))
	n.topic("t", 1, nil)
	for i := range int32(5) {
		c := n.dial()
		if err := c.Send(rawclient.Produce(9, "t", 0, rawclient.Batch(0, 1, 0, i, 1, 10))); err != nil {
			t.Fatal(err)
		}
		eventually(t, "read", func() bool { return anyWaiting(n) })
		c.Close()
		eventually(t, "gone", func() bool { return !anyWaiting(n) })
	}
	c := n.dial()
	eventually(t, "all stored, once", func() bool { return high(t, c, "t") == 5 })
	// An answer reaches its client before what the request held is given back.
	eventually(t, "nothing is charged", func() bool { return n.pool.Usage().InFlight == 0 })
}

// I13 over the wire: requests of all kinds, pipelined in pieces of any size, are answered in their order, and a
// request sees what those before it on its connection have done.
func TestI13OverTheWire(t *testing.T) {
	n := start(t, slowDisk(time.Millisecond))
	n.topic("t", 1, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	var wg sync.WaitGroup
	for pid := range int64(3) {
		c, seed := n.dial(), rng.Uint64()
		wg.Go(func() {
			if err := mixed(c, pid, rand.New(rand.NewPCG(seed, 0))); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	wg.Wait()
}

// mixed sends 40 rounds of up to 12 requests and checks the answers. rawclient checks their order.
func mixed(c *rawclient.Client, pid int64, rng *rand.Rand) error {
	seq, stored := int32(0), int64(0)
	for range 40 {
		var rs []kmsg.Request
		for range 1 + rng.IntN(12) {
			switch rng.IntN(6) {
			case 0:
				rs = append(rs, &kmsg.ApiVersionsRequest{})
			case 1:
				rs = append(rs, rawclient.Fetch(12, "t", 0, 0))
			case 2:
				r := wait(12, "t", 0, 1<<30, int32(rng.IntN(3)))
				r.Topics[0].Partitions[0].PartitionMaxBytes = 1 << 30
				rs = append(rs, r)
			default:
				r := rawclient.Produce(9, "t", 0, rawclient.Batch(0, pid, 0, seq, 1, 20))
				r.Acks = int16(rng.IntN(3) - 1)
				rs = append(rs, r)
				seq++
			}
		}
		var b []byte
		for _, r := range rs {
			b = append(b, c.Next(r)...)
		}
		for len(b) > 0 {
			k := 1 + rng.IntN(len(b))
			if err := c.SendRaw(b[:k]); err != nil {
				return err
			}
			b = b[k:]
		}
		for _, r := range rs {
			p, ok := r.(*kmsg.ProduceRequest)
			if ok {
				stored++
				if p.Acks == 0 {
					continue
				}
			}
			resp, err := c.Receive(r)
			if err != nil {
				return err
			}
			switch resp := resp.(type) {
			case *kmsg.ProduceResponse:
				if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 {
					return kerr.ErrorForCode(got.ErrorCode)
				}
			case *kmsg.FetchResponse:
				if got := resp.Topics[0].Partitions[0]; got.HighWatermark < stored {
					return fmt.Errorf("a Fetch behind %d batches sees %d", stored, got.HighWatermark)
				}
			}
		}
	}
	return nil
}
