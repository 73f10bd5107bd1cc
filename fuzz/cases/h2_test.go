package cases

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// H2. Many transactional ids: one transaction each. The soak has the numbers of the case, and asserts what it costs.
func TestH2ManyIDs(t *testing.T) {
	expire, ids, workers := 1500*time.Millisecond, size(400, 5000), 8
	if soak {
		expire, ids, workers = 20*time.Minute, 100_000, 50 // longer than it takes to use them all
	}
	n := launch(t, options{realTime: true, counters: true, settings: map[string]string{
		"transactional.id.expiration.ms":      fmt.Sprint(expire.Milliseconds()),
		"transaction.state.log.segment.bytes": "1048576",
		"producer.id.expiration.ms":           fmt.Sprint(expire.Milliseconds()),
	}})
	p := n.topic("h2", 4)
	n.coordinator(1, "h2")
	before := n.cost()
	began := time.Now()
	inits := n.manyIDs(p.topic, ids, workers)
	t.Logf("%d ids with %d clients in %v", ids, workers, time.Since(began).Round(time.Millisecond))
	tenth := len(inits) / 10
	first, last := percentile99(inits[:tenth]), percentile99(inits[len(inits)-tenth:])
	t.Logf("InitProducerId p99: first tenth %v, last tenth %v, ratio %.2f", first, last, float64(last)/float64(first))
	total := 0
	for i := range int32(4) {
		q := tp{p.topic, i}
		n.decided(q)
		total += len(n.committed(q, 0, 1<<20))
	}
	if total != ids {
		t.Errorf("%d records of %d transactions", total, ids)
	}
	held := n.cost()
	listed := n.ids()
	n.expired(expire)
	after := n.cost()
	for began := time.Now(); soak && after.segments > before.segments && time.Since(began) < shortens; {
		after = n.cost()
	}
	for name, c := range map[string]cost{"before": before, "with all ids": held, "expired": after} {
		t.Logf("%s: idle %.2f %% of a core, transaction log %d KiB in %d segments, anonymous memory %d KiB", name,
			100*c.idle, c.log>>10, c.segments, c.heap>>10)
	}
	if !soak {
		return
	}
	if last > 2*first {
		t.Errorf("InitProducerId p99 at the end is %.2f times that at the start", float64(last)/float64(first))
	}
	if held.idle > 0.02 || listed != ids {
		t.Errorf("with %d ids of %d an idle broker uses %.2f %% of a core", listed, ids, 100*held.idle)
	}
	// What a partition appends to is there as long as it takes to fill it.
	if held.segments <= before.segments || after.segments > before.segments {
		t.Errorf("%d segments of the transaction log, with all ids %d, %d are left when they are gone", before.segments,
			held.segments, after.segments)
	}
}

// manyIDs commits one transaction of each id and returns how long each InitProducerId took, in the order of their ends.
func (n *node) manyIDs(topic string, ids, workers int) (inits []time.Duration) {
	n.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var next, failed atomic.Int64
	for w := range workers {
		wg.Go(func() {
			var stop atomic.Bool
			x := &tireless{n: n, stop: &stop, codes: map[int16]int{}}
			for i := next.Add(1); i <= int64(ids); i = next.Add(1) {
				x.g, x.id = []generation{txnV1, txnV2}[i%2], fmt.Sprint("h2-", i)
				took, ok := x.once(tp{topic, int32(w % 4)})
				if !ok {
					failed.Add(1)
				}
				mu.Lock()
				inits = append(inits, took)
				mu.Unlock()
			}
			x.c.Close()
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		n.t.Errorf("%d of %d transactions failed", failed.Load(), ids)
	}
	return inits
}

func percentile99(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)*99/100]
}

// shortens: within it the coordinator rewrites a log of which most is dead, however little that is.
const shortens = 8 * time.Minute

// ids is how many transactional ids there are.
func (n *node) ids() int {
	n.t.Helper()
	return len(ask[*kmsg.ListTransactionsResponse](n, kmsg.NewPtrListTransactionsRequest()).TransactionStates)
}

// expired waits until no id is left.
func (n *node) expired(within time.Duration) {
	n.t.Helper()
	gone := func() bool { return n.ids() == 0 }
	for begin := time.Now(); time.Since(begin) < within && !gone(); {
		n.pass(100 * n.step)
	}
	n.until("all ids expired", gone)
}

// cost is what a broker takes while nobody asks it anything.
type cost struct {
	idle      float64 // of one core
	log, heap int64   // bytes
	segments  int     // of the log
}

// cost looks for a short while, in the soak for long enough to see a timer that scans.
func (n *node) cost() cost {
	n.t.Helper()
	watch := 50 * time.Millisecond
	if soak {
		time.Sleep(3 * time.Second) // what was under way ends
		watch = 20 * time.Second
	}
	used := n.cpu()
	time.Sleep(watch)
	c := cost{idle: float64(n.cpu()-used) / float64(watch), heap: n.heap()}
	names, err := n.files().ReadDir(n.dir())
	n.must(err)
	for _, name := range names {
		if !strings.HasPrefix(name, "__transaction_state-") {
			continue
		}
		files, err := n.files().ReadDir(path.Join(n.dir(), name))
		n.must(err)
		for _, f := range files {
			info, err := n.files().Stat(path.Join(n.dir(), name, f))
			if !os.IsNotExist(err) { // removed meanwhile
				n.must(err)
				c.log += info.Size
				if strings.HasSuffix(f, ".log") {
					c.segments++
				}
			}
		}
	}
	return c
}

// once is one transaction of one record, and how long its InitProducerId took.
func (x *tireless) once(p tp) (took time.Duration, ok bool) {
	init := initRequest()
	init.Version, init.TransactionalID, init.TransactionTimeoutMillis = x.g.init, &x.id, 60_000
	began := time.Now()
	resp, ok := x.call(init, func(r kmsg.Response) int16 { return r.(*kmsg.InitProducerIDResponse).ErrorCode })
	took = time.Since(began)
	if !ok {
		return took, false
	}
	a := resp.(*kmsg.InitProducerIDResponse)
	who := producer{a.ProducerID, a.ProducerEpoch}
	if x.write(p, who, 0, "h2", 1) != "" {
		return took, false
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch = x.g.end, x.id, who.id, who.epoch
	end.Commit = true
	_, ok = x.call(end, func(r kmsg.Response) int16 { return r.(*kmsg.EndTxnResponse).ErrorCode })
	return took, ok
}
