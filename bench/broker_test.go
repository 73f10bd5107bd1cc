package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// build makes the daemon from the sources as they are, once for all benchmarks.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sekali-bench-bin-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "sekali")
	out, err := exec.Command("go", "build", "-o", program, "sekali/cmd/sekali").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return program, nil
})

// daemon is a broker as a process of its own with its data in the temporary folder, which is to lie on a disk.
type daemon struct {
	b    *testing.B
	dir  string
	addr string
}

var ready = regexp.MustCompile(` is ready on ([0-9.:]+) `)

// startDaemon serves until the benchmark ends.
func startDaemon(b *testing.B, flags ...string) *daemon {
	b.Helper()
	program, err := build()
	if err != nil {
		b.Fatal(err)
	}
	d := &daemon{b: b}
	if d.dir, err = os.MkdirTemp("", "sekali-bench-"); err != nil {
		b.Fatal(err)
	}
	args := []string{"serve", "--data", filepath.Join(d.dir, "data"), "--listen", "127.0.0.1:0", "--admin", "none"}
	for _, s := range flags {
		args = append(args, "--"+s)
	}
	cmd := exec.Command(program, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for d.addr == "" && lines.Scan() {
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			d.addr = m[1]
		}
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an end before is told by Wait
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			b.Errorf("the daemon: %v\n%s", err, complaints.String())
		}
		if err := os.RemoveAll(d.dir); err != nil {
			b.Error(err)
		}
	})
	if d.addr == "" {
		b.Fatalf("the daemon did not start: %s", complaints.String())
	}
	return d
}

// client is a raw connection with a few calls that must succeed. It belongs to one goroutine.
type client struct {
	*rawclient.Client
	b *testing.B
}

func (d *daemon) dial() *client {
	d.b.Helper()
	c, err := rawclient.Dial(d.addr)
	if err != nil {
		d.b.Fatal(err)
	}
	d.b.Cleanup(func() { c.Close() })
	return &client{c, d.b}
}

// topic makes a topic.
func (d *daemon) topic(name string, partitions int32) {
	d.b.Helper()
	if _, err := d.dial().CreateTopic(name, partitions, nil); err != nil {
		d.b.Fatal(err)
	}
}

// call sends a request and waits for its answer.
func call[T kmsg.Response](c *client, r kmsg.Request) T {
	resp, err := c.Call(r)
	if err != nil {
		c.b.Fatal(err)
	}
	return resp.(T)
}

// Versions of the requests of the two transaction protocols.
type protocol struct {
	name                    string
	implicit                bool
	init, add, produce, end int16
}

var protocols = []protocol{{"TV1", false, 4, 3, 11, 4}, {"TV2", true, 5, 0, 12, 5}}

// committer is one transactional id that commits transactions of one record.
type committer struct {
	c     *client
	p     protocol
	id    string
	topic string
	pid   int64
	epoch int16
	seq   int32

	value       []byte
	asked, busy int // AddPartitionsToTxn, and those answered 51
}

// committer opens a transactional id.
func (d *daemon) committer(p protocol, id, topic string, value int) *committer {
	d.b.Helper()
	x := &committer{c: d.dial(), p: p, id: id, topic: topic, value: make([]byte, value)}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKeys = 4, 1, []string{id}
	for call[*kmsg.FindCoordinatorResponse](x.c, find).Coordinators[0].ErrorCode != 0 {
		time.Sleep(20 * time.Millisecond)
	}
	x.init()
	return x
}

func (x *committer) init() {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis = x.p.init, &x.id, 60_000
	r.ProducerID, r.ProducerEpoch = -1, -1
	a := call[*kmsg.InitProducerIDResponse](x.c, r)
	for a.ErrorCode == 51 || a.ErrorCode == 14 {
		time.Sleep(20 * time.Millisecond)
		a = call[*kmsg.InitProducerIDResponse](x.c, r)
	}
	if a.ErrorCode != 0 {
		x.c.b.Fatalf("InitProducerId: code %d", a.ErrorCode)
	}
	x.pid, x.epoch, x.seq = a.ProducerID, a.ProducerEpoch, 0
}

// begin writes the record of a transaction; v1 registers the partition before.
func (x *committer) begin(partition int32) {
	if !x.p.implicit {
		x.add(partition)
	}
	bld := batch.Builder{BaseTime: time.Now().UnixMilli()} // old ones would be retired
	bld.Add(batch.Record{Value: x.value})
	r := rawclient.Produce(x.p.produce, x.topic, partition, bld.Done(batch.AttrTransactional, x.pid, x.epoch, x.seq))
	r.TransactionID = &x.id
	a := call[*kmsg.ProduceResponse](x.c, r)
	if code := a.Topics[0].Partitions[0].ErrorCode; code != 0 {
		x.c.b.Fatalf("Produce: code %d", code)
	}
	x.seq++
}

func (x *committer) add(partition int32) {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = x.p.add, x.id, x.pid, x.epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = x.topic, []int32{partition}
	r.Topics = append(r.Topics, t)
	for {
		a := call[*kmsg.AddPartitionsToTxnResponse](x.c, r)
		x.asked++
		switch code := a.Topics[0].Partitions[0].ErrorCode; code {
		case 0:
			return
		case 51:
			x.busy++
			time.Sleep(20 * time.Millisecond) // as Java's client does
		default:
			x.c.b.Fatalf("AddPartitionsToTxn: code %d", code)
		}
	}
}

// end decides the transaction and takes the pair of the next one.
func (x *committer) end(commit bool) {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = x.p.end, x.id, x.pid, x.epoch, commit
	a := call[*kmsg.EndTxnResponse](x.c, r)
	if a.ErrorCode != 0 {
		x.c.b.Fatalf("EndTxn: code %d", a.ErrorCode)
	}
	if x.p.implicit && (a.ProducerID != x.pid || a.ProducerEpoch != x.epoch) {
		x.pid, x.epoch, x.seq = a.ProducerID, a.ProducerEpoch, 0
	}
}

// roundTrip is one request that costs the daemon next to nothing.
func (c *client) roundTrip() {
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version = 0
	call[*kmsg.ApiVersionsResponse](c, r)
}

// median sorts v and returns its middle.
func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// spread reports the median of v, the least and the greatest.
func spread(b *testing.B, v []float64, name string) {
	b.ReportMetric(median(v), name)
	b.ReportMetric(v[0], name+"-least")
	b.ReportMetric(v[len(v)-1], name+"-most")
}
