package group

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// actor is one client of the random test: it behaves as clients do, but dies, returns and repeats itself at any moment.
type actor struct {
	instance   string
	id         string
	generation int32
	leader     bool
	others     []string
	assignment string
	join       *joined
	sync       *synced
	topics     string
}

// throng drives one group with random clients, failing writes and crashes.
type throng struct {
	*world
	r      *rapid.T
	actors []*actor
	parked []*joined // every JoinGroup sent since the last start, with its count of answers
	syncs  []*synced
	told   map[int32]map[string]string
	fewest int32 // generation below which the group may not fall
}

func (c *throng) fail(format string, args ...any) { c.r.Helper(); c.r.Fatalf(format, args...) }

// ask sends a JoinGroup of the actor.
func (c *throng) ask(a *actor) {
	in := asks(a.id, a.topics)
	in.Instance = a.instance
	in.Version = rapid.SampledFrom([]int16{3, 5, 9}).Draw(c.r, "version")
	if a.instance != "" {
		in.Version = max(in.Version, 5)
	}
	a.join = c.join(in)
	a.sync = nil
	c.parked = append(c.parked, a.join)
}

// answer lets the actor take note of what was answered.
func (c *throng) answer(a *actor) {
	if j := a.join; j != nil && j.n > 0 {
		a.join = nil
		switch j.code {
		case nil:
			a.id, a.generation, a.leader = j.out.Member, j.out.Generation, len(j.out.Members) > 0
			a.others = nil
			for _, m := range j.out.Members {
				a.others = append(a.others, m.Member)
			}
			if j.out.Generation < c.fewest {
				c.fail("generation %d was told, %d is durable", j.out.Generation, c.fewest)
			}
		case kerr.MemberIDRequired:
			a.id, a.generation = j.out.Member, -1
		case kerr.UnknownMemberID, kerr.FencedInstanceID:
			a.id, a.generation = "", -1
		}
	}
	if s := a.sync; s != nil && s.n > 0 {
		a.sync = nil
		if s.code != nil {
			a.assignment = ""
			return
		}
		a.assignment = string(s.out.Assignment)
		c.assigned(a)
	}
}

// assigned holds an assignment against what others were told in the same generation: nobody is told two things, also
// not over a crash.
func (c *throng) assigned(a *actor) {
	if a.generation < c.fewest {
		return // of a generation that has been followed by another; the answer lay in the air
	}
	c.fewest = max(c.fewest, a.generation)
	if c.told[a.generation] == nil {
		c.told[a.generation] = map[string]string{}
	}
	was, ok := c.told[a.generation][a.id]
	if ok && was != a.assignment {
		c.fail("member %s of generation %d was told %q, then %q", a.id, a.generation, was, a.assignment)
	}
	c.told[a.generation][a.id] = a.assignment
}

func (c *throng) step(a *actor) {
	switch rapid.SampledFrom([]string{
		"join", "join", "sync", "sync", "sync", "beat", "leave", "forget", "change", "advance", "flush", "flush", "hold",
		"break", "refuse", "crash",
	}).Draw(c.r, "op") {
	case "join":
		c.ask(a)
	case "sync":
		c.askSync(a)
	case "beat":
		c.beatIn(Member{Group: "g", Member: a.id, Instance: a.instance, Generation: a.generation})
	case "leave":
		c.leave(Member{Member: a.id, Instance: a.instance})
	case "forget": // the process is started anew
		a.id, a.generation, a.join, a.sync = "", -1, nil, nil
	case "change":
		a.topics = rapid.SampledFrom([]string{"x", "y"}).Draw(c.r, "topics")
	case "advance":
		c.advance(time.Duration(rapid.SampledFrom([]int{100, 3000, 11000, 61000}).Draw(c.r, "ms")) * time.Millisecond)
	case "flush":
		c.j.held = false
		c.j.flush()
	case "hold":
		c.j.held = true
	case "break": // what is on its way is lost, and refused
		c.j.breakAll(ErrStorage)
	case "refuse":
		c.j.fail = errTest
		c.askSync(a)
		c.j.fail = nil
	case "crash":
		c.crash()
	}
}

func (c *throng) askSync(a *actor) {
	in := SyncIn{Member: Member{Group: "g", Member: a.id, Instance: a.instance, Generation: a.generation},
		Assignments: map[string][]byte{}}
	if a.leader {
		mark := rapid.StringMatching("[a-z]{3}").Draw(c.r, "assignment")
		for _, id := range a.others {
			in.Assignments[id] = []byte(mark + id)
		}
	}
	a.sync = c.syncIn(in)
	c.syncs = append(c.syncs, a.sync)
}

func (c *throng) crash() {
	for _, a := range c.actors {
		c.answer(a)
		a.join, a.sync = nil, nil
	}
	c.parked, c.syncs = nil, nil
	c.restart()
	if g := c.group("g"); g != nil {
		if got := g.classic.generation; got < c.fewest {
			c.fail("generation %d after a crash, %d had been told", got, c.fewest)
		}
	} else if c.fewest > 0 {
		c.fail("the group is gone, generation %d had been told", c.fewest)
	}
}

// check holds the state of the group against itself.
func (c *throng) check() {
	for _, j := range c.parked {
		if j.n > 1 {
			c.fail("a join was answered %d times", j.n)
		}
	}
	for _, s := range c.syncs {
		if s.n > 1 {
			c.fail("a sync was answered %d times", s.n)
		}
	}
	g := c.group("g")
	if g == nil {
		return
	}
	k := g.classic
	waiting, statics := 0, 0
	for _, m := range k.members {
		if k.byID[m.id] != m {
			c.fail("member %s is not under its id", m.id)
		}
		if m.join != nil {
			waiting++
		}
		if m.instance != "" {
			statics++
			if k.statics[m.instance] != m {
				c.fail("instance %s belongs to another", m.instance)
			}
		}
		if m.sync != nil && k.state != stateCompleting {
			c.fail("a sync is parked in %v", k.state)
		}
		if m.timer == nil && m.join == nil && m.sync == nil {
			c.fail("member %s would live for ever in %v", m.id, k.state)
		}
	}
	if waiting != k.awaiting || statics != len(k.statics) || len(k.byID) != len(k.members) {
		c.fail("%d wait, counted %d; %d static, %d known; %d ids, %d members", waiting, k.awaiting, statics,
			len(k.statics), len(k.byID), len(k.members))
	}
	if len(k.members) > 0 && k.byID[k.leader] == nil {
		c.fail("leader %q is no member", k.leader)
	}
	if (k.state == stateEmpty) != (len(k.members) == 0) && k.state != statePreparing {
		c.fail("%v with %d members", k.state, len(k.members))
	}
	if k.state == statePreparing && k.rebalance == nil {
		c.fail("nothing ends the rebalance")
	}
	for id := range k.pendingSync {
		if k.byID[id] == nil {
			c.fail("a sync of %s is waited for, who is gone", id)
		}
	}
}

// TestRandomMembers: whatever clients do, whenever writes fail or the process dies, every request is answered at most
// once, nobody is told two assignments in one generation, the generation never falls below one that was told, and a
// group that is left alone ends up empty with everything answered.
func TestRandomMembers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cfg := testConfig()
		cfg.RetainCheckMs = 0
		cfg.InitialDelayMs = rapid.SampledFrom([]int32{0, 3000}).Draw(r, "delay")
		cfg.SizeMax = rapid.SampledFrom([]int{2, 3, 1000}).Draw(r, "limit")
		c := &throng{world: newWorld(t, cfg), r: r, told: map[int32]map[string]string{}}
		for i := range rapid.IntRange(1, 4).Draw(r, "actors") {
			a := &actor{generation: -1, topics: "x"}
			if i%2 == 1 {
				a.instance = "i" + string(rune('0'+i))
			}
			c.actors = append(c.actors, a)
		}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			a := rapid.SampledFrom(c.actors).Draw(r, "actor")
			c.step(a)
			for _, a := range c.actors {
				c.answer(a)
			}
			c.check()
		}
		c.j.held = false
		c.j.flush()
		for range 12 {
			c.advance(61 * time.Second)
			c.check()
		}
		if g := c.group("g"); g != nil && (g.classic.state != stateEmpty || len(g.classic.pending) > 0) {
			c.fail("left alone the group is %v with %d members", g.classic.state, len(g.classic.members))
		}
		if slices.ContainsFunc(c.parked, func(j *joined) bool { return j.n != 1 }) ||
			slices.ContainsFunc(c.syncs, func(s *synced) bool { return s.n != 1 }) {
			c.fail("a request was never answered")
		}
	})
}
