package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// modelClient is a consumer that does what it is told: it gives up partitions before it takes others, and forgets all
// when it is fenced.
type modelClient struct {
	id, instance string
	epoch        int32
	in           bool // has joined, as far as it knows
	dead         bool
	owned        []TP
	whole        bool // says everything next time: an answer was lost
	waiting      bool
	heard        time.Duration // Mono of the last answer
}

// crowd is a group of modelClients.
type crowd struct {
	t       *rapid.T
	w       *world
	clients []*modelClient
	made    int
	fresh   map[string]int32 // highest epoch each member was told
}

func (c *crowd) add(instance string) {
	c.made++
	c.clients = append(c.clients, &modelClient{id: fmt.Sprintf("m%03d", c.made), instance: instance})
}

// beat sends a heartbeat. lost: its answer does not arrive.
func (c *crowd) beat(m *modelClient, lost bool) {
	if m.dead || m.waiting {
		return
	}
	in := beats(m.id, m.epoch, append([]TP{}, m.owned...))
	if !m.in {
		in = joins(m.id, "orders", "bills")
	} else if m.whole {
		in.RebalanceMs, in.Topics = 60000, []string{"orders", "bills"}
	}
	if m.instance != "" {
		in = with(in, m.instance)
	}
	joining := !m.in
	m.waiting = true
	c.w.m.ConsumerHeartbeat(in, func(out ConsumerOut, code *kerr.Error) {
		m.waiting = false
		if lost || m.dead {
			m.whole = true
			return
		}
		c.answered(m, joining, out, code)
	})
}

func (c *crowd) answered(m *modelClient, joining bool, out ConsumerOut, code *kerr.Error) {
	switch {
	case code == nil:
		m.heard = c.w.clk.Mono()
		if out.Epoch < m.epoch {
			c.t.Fatalf("%s went from epoch %d to %d", m.id, m.epoch, out.Epoch)
		}
		m.in, m.whole, m.epoch = true, false, out.Epoch
		if out.Changed {
			m.owned = out.Assigned
		} else if joining {
			c.t.Fatalf("%s joined and was told no assignment", m.id)
		}
	case errors.Is(code, kerr.FencedMemberEpoch), errors.Is(code, kerr.UnknownMemberID),
		errors.Is(code, kerr.GroupIDNotFound):
		m.in, m.epoch, m.owned, m.whole = false, 0, nil, false
	case errors.Is(code, kerr.UnreleasedInstanceID), errors.Is(code, kerr.FencedInstanceID):
		m.dead, m.owned = true, nil
	default:
		m.whole = true
	}
}

// disjoint checks that no partition is owned by two clients that live.
func (c *crowd) disjoint() {
	owner := map[TP]string{}
	for _, m := range c.clients {
		for _, tp := range m.owned {
			if other := owner[tp]; other != "" {
				c.t.Fatalf("%v is owned by %s and %s", tp, other, m.id)
			}
			owner[tp] = m.id
		}
	}
}

func (c *crowd) leave(m *modelClient, epoch int32) {
	if m.dead || m.waiting || !m.in {
		return
	}
	in := beats(m.id, epoch, nil)
	if m.instance != "" {
		in = with(in, m.instance)
	}
	m.owned, m.dead = nil, true
	c.w.m.ConsumerHeartbeat(in, func(ConsumerOut, *kerr.Error) {})
}

// step does one thing that can happen to a group.
func (c *crowd) step() {
	pick := func() *modelClient {
		return c.clients[rapid.IntRange(0, len(c.clients)-1).Draw(c.t, "client")]
	}
	switch rapid.IntRange(0, 13).Draw(c.t, "what") {
	case 0:
		if len(c.clients) < 8 {
			c.add("")
		}
	case 1:
		c.leave(pick(), epochLeave)
	case 2:
		if m := pick(); m.instance != "" {
			c.leave(m, epochLeaveStatic)
			c.add(m.instance)
		}
	case 3:
		c.w.j.held = !c.w.j.held
		if !c.w.j.held {
			c.w.j.flush()
		}
	case 4:
		c.w.j.breakAll(errors.New("no space left"))
	case 5:
		c.w.j.flush()
	case 6:
		for _, m := range c.clients { // answers of before the restart never arrive
			if m.waiting {
				m.waiting, m.whole = false, true
			}
		}
		c.w.restart()
	case 7:
		c.w.advance(time.Duration(rapid.IntRange(1, 20).Draw(c.t, "seconds")) * time.Second)
	case 8:
		c.w.topics.set("bills", 2, rapid.Int32Range(1, 5).Draw(c.t, "partitions"))
	default:
		c.beat(pick(), rapid.IntRange(0, 5).Draw(c.t, "lost") == 0)
	}
}

// forgetGone takes their partitions from clients that were removed and had no answer for as long as that takes: a
// consumer that knows its timeouts gives them up by itself.
func (c *crowd) forgetGone() {
	g := c.w.group("g")
	silence := time.Duration(c.w.cfg.ConsumerSessionMs)*time.Millisecond - time.Second
	for _, m := range c.clients {
		gone := g == nil || g.consumer.state.members[m.id] == nil
		if gone && c.w.clk.Mono()-m.heard >= silence {
			m.owned = nil
		}
	}
}

// TestConsumerModel: whatever happens, no two clients own one partition, no member's epoch goes back, and once nothing
// happens any more the group becomes stable with all partitions given out evenly; a restart changes none of it.
func TestConsumerModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, testConfig())
		w.topics.set("orders", 1, rapid.Int32Range(1, 9).Draw(rt, "partitions"))
		w.topics.set("bills", 2, 1)
		c := &crowd{t: rt, w: w}
		c.add("")
		c.add("i1")
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			c.step()
			c.forgetGone()
			c.disjoint()
		}
		w.j.held = false
		w.j.flush()
		c.add("")
		for range 40 {
			for _, m := range c.clients {
				c.beat(m, false)
				c.disjoint()
			}
			w.advance(5 * time.Second)
			c.forgetGone()
		}
		c.settled()
	})
}

func (c *crowd) settled() {
	w := c.w
	st := w.group("g").consumer.state
	if st.name() != consumerStable {
		c.t.Fatalf("the group is %s: %+v", st.name(), tidy(st))
	}
	_, orders, _ := w.topics.Lookup("orders")
	_, bills, _ := w.topics.Lookup("bills")
	total, least, most := 0, 1<<30, 0
	for _, m := range c.clients {
		if m.dead {
			continue
		}
		least, most, total = min(least, len(m.owned)), max(most, len(m.owned)), total+len(m.owned)
	}
	if total != int(orders+bills) || most-least > 1 {
		c.t.Fatalf("%d of %d partitions are owned, between %d and %d each", total, orders+bills, least, most)
	}
	live := tidy(st)
	w.restart()
	again := tidy(w.group("g").consumer.state)
	if fmt.Sprint(live) != fmt.Sprint(again) {
		c.t.Fatalf("live\n%v\nreplayed\n%v", live, again)
	}
}
