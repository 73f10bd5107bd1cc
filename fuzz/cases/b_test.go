package cases

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// B2. An idempotent client raises its own epoch.
func TestB2OwnEpoch(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("b2", 1), n.init()
	last := n.records(who, 5, 1)
	n.want("s=0..4", n.P(p, who, 0, 5), codeNone, 0)
	n.want("s=5", n.produce(p, last), codeNone, 5)
	next := producer{who.id, who.epoch + 1}
	n.unchanged(p, func() { n.refused("e=1 s=6", n.P(p, next, 6, 1), codeOutOfOrder) })
	first := n.records(next, 0, 1)
	n.want("e=1 s=0", n.produce(p, first), codeNone, 6)
	n.unchanged(p, func() {
		n.want("e=1 s=0 again", n.produce(p, first), codeNone, 6)
		n.refused("e=0 s=6", n.P(p, who, 6, 1), codeEpoch)
		n.refused("e=0 s=5 again", n.produce(p, last), codeEpoch)
	})
}

// given is an answer of InitProducerId and the transactional id that asked, empty for none.
type given struct {
	producer
	to string
}

// giving is what InitProducerId gave out; it finds what was given out twice.
type giving struct {
	mu    sync.Mutex
	round []given
	seen  map[producer]int // round of each pair
	owner map[int64]string // transactional id of each producer id
	last  map[string]producer
}

func (b *giving) add(o given) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round = append(b.round, o)
}

func (b *giving) count() (plain, transactional int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.round {
		if o.to != "" {
			transactional++
		}
	}
	return len(b.round) - transactional, transactional
}

// close holds the answers of a round against all there were: no pair comes twice, no id has two owners, and the epoch
// of a transactional id rises.
func (b *giving) close(round int) error {
	for _, o := range b.round {
		before, twice := b.seen[o.producer]
		owner, known := b.owner[o.id]
		last, again := b.last[o.to]
		switch {
		case twice:
			return fmt.Errorf("%+v in round %d and in round %d", o, before, round)
		case o.id < 0 || o.epoch < 0 || (o.to == "" && o.epoch != 0):
			return fmt.Errorf("%+v in round %d", o, round)
		case known && (owner != o.to || o.to == ""):
			return fmt.Errorf("%+v in round %d, the id is that of %q", o, round, owner)
		case again && o.to != "" && last.id == o.id && last.epoch >= o.epoch:
			return fmt.Errorf("%+v in round %d behind %+v", o, round, last)
		}
		b.seen[o.producer], b.owner[o.id], b.last[o.to] = round, o.to, o.producer
	}
	b.round = nil
	return nil
}

// ask asks for ids until the connection ends: without a transactional id, or for one of 200 names after the other.
func (b *giving) ask(c *rawclient.Client, name string) error {
	for i := 0; ; {
		r, to := initRequest(), ""
		if name != "" {
			to = fmt.Sprint(name, i%200)
			r.TransactionalID, r.TransactionTimeoutMillis = &to, txnDefaultTimeoutMs
		}
		resp, err := c.Call(r)
		if err != nil {
			return nil // killed
		}
		a := resp.(*kmsg.InitProducerIDResponse)
		if retriable(a.ErrorCode) {
			continue // it loads, or its disk is gone already
		}
		if a.ErrorCode != 0 {
			return fmt.Errorf("InitProducerId of %q: code %d", to, a.ErrorCode)
		}
		b.add(given{producer{a.ProducerID, a.ProducerEpoch}, to})
		i++
	}
}

// B6. Producer ids are never given out twice, whatever dies when. Half of the clients have transactional ids, and ask
// for each again and again, in the next round too.
func TestB6IdsOnce(t *testing.T) {
	n := launch(t, options{realTime: true})
	n.coordinator(1, "b6")
	rounds, atLeast := size(5, 20), size(3000, 30_000)
	b := &giving{seen: map[producer]int{}, owner: map[int64]string{}, last: map[string]producer{}}
	total, transactional := 0, 0
	for round := range rounds {
		var asking sync.WaitGroup
		for w := range 8 {
			c, err := rawclient.Dial(n.address())
			n.must(err)
			name := ""
			if w%2 == 1 {
				name = fmt.Sprint("b6-", w, "-")
			}
			asking.Go(func() {
				defer c.Close()
				if err := b.ask(c, name); err != nil {
					t.Error(err)
				}
			})
		}
		// Let every round give its share, then strike at a random moment of a few blocks.
		n.until("the ids of a round", func() bool {
			plain, named := b.count()
			return plain+named >= atLeast/rounds && named >= atLeast/rounds/20
		})
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		n.kill()
		asking.Wait()
		plain, named := b.count()
		total, transactional = total+plain+named, transactional+named
		n.must(b.close(round))
		n.start()
	}
	t.Logf("%d ids in %d rounds, %d for transactional ids", total, rounds, transactional)
}
