package broker

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a served Server for one test.
type node struct {
	*Server
	t     *testing.T
	addr  string
	ended chan error
	down  atomic.Bool
}

// start opens a server in memory, or as change says, and serves it until the test ends.
func start(t *testing.T, change func(*Config)) *node {
	t.Helper()
	n := open(t, change)
	n.serve()
	return n
}

// open is start without serving.
func open(t *testing.T, change func(*Config)) *node {
	t.Helper()
	c := Defaults()
	c.Listeners = []Listener{{Name: "PLAINTEXT", Addr: "127.0.0.1:0"}}
	c.Admin = ""
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	c.Store.FS, c.Store.Dir = vfs.NewMem(), "/data"
	if change != nil {
		change(&c)
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Server: s, t: t, addr: s.Addrs()[0].String(), ended: make(chan error, 1)}
	return n
}

func (n *node) serve() {
	go func() { n.ended <- n.Serve() }()
	n.t.Cleanup(n.stop)
}

// stop shuts the server down in order.
func (n *node) stop() {
	n.t.Helper()
	if n.down.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		n.t.Errorf("shutdown: %v", err)
	}
	if err := <-n.ended; err != nil {
		n.t.Errorf("serve: %v", err)
	}
}

// dial connects a raw client that is closed when the test ends.
func (n *node) dial() *rawclient.Client {
	n.t.Helper()
	c, err := rawclient.Dial(n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// topic makes a topic.
func (n *node) topic(name string, partitions int32, set map[string]string) [16]byte {
	n.t.Helper()
	id, err := n.dial().CreateTopic(name, partitions, set)
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

// coordinate makes the internal topics.
func (n *node) coordinate() {
	n.t.Helper()
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.Version, r.CoordinatorType, r.CoordinatorKeys = 4, coordinatorTxn, []string{"x"}
	resp := call[*kmsg.FindCoordinatorResponse](n.t, n.dial(), r)
	if resp.Coordinators[0].ErrorCode != 0 {
		n.t.Fatalf("no coordinator: %+v", resp.Coordinators[0])
	}
}

// call sends a request and returns its answer.
func call[R kmsg.Response](t *testing.T, c *rawclient.Client, r kmsg.Request) R {
	t.Helper()
	resp, err := c.Call(r)
	if err != nil {
		t.Fatalf("key %d version %d: %v", r.Key(), r.GetVersion(), err)
	}
	return resp.(R)
}

// receive reads the next answer.
func receive[R kmsg.Response](t *testing.T, c *rawclient.Client, r kmsg.Request) R {
	t.Helper()
	resp, err := c.Receive(r)
	if err != nil {
		t.Fatalf("key %d version %d: %v", r.Key(), r.GetVersion(), err)
	}
	return resp.(R)
}

// produced is the answer for the only partition of a Produce.
func produced(t *testing.T, c *rawclient.Client, r *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	return call[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions[0]
}

// put appends n plain records of size bytes to partition 0 and returns their base offset.
func put(t *testing.T, c *rawclient.Client, topic string, n, size int) int64 {
	t.Helper()
	p := produced(t, c, rawclient.Produce(9, topic, 0, rawclient.Batch(0, -1, -1, -1, n, size)))
	if p.ErrorCode != 0 {
		t.Fatalf("produce: code %d", p.ErrorCode)
	}
	return p.BaseOffset
}

// fetched is the answer for the only partition of a Fetch.
func fetched(t *testing.T, c *rawclient.Client, r *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := call[*kmsg.FetchResponse](t, c, r)
	if resp.ErrorCode != 0 {
		t.Fatalf("fetch: code %d", resp.ErrorCode)
	}
	return resp.Topics[0].Partitions[0]
}

// high is the high watermark of partition 0.
func high(t *testing.T, c *rawclient.Client, topic string) int64 {
	t.Helper()
	return fetched(t, c, rawclient.Fetch(12, topic, 0, 0)).HighWatermark
}

// batches splits records into whole batches.
func batches(t *testing.T, b []byte) (out []batch.View) {
	t.Helper()
	for len(b) > 0 {
		v, rest, err := batch.Next(b)
		if err != nil {
			t.Fatalf("records end within a batch: %v", err)
		}
		out, b = append(out, v), rest
	}
	return out
}

// eventually polls, on the machine's clock, for what another goroutine does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// silent reports that nothing arrives on a connection for a while.
func silent(c *rawclient.Client, d time.Duration) bool {
	_, _, err := c.ReceiveFrame(d)
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}
