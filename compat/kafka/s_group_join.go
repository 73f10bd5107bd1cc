package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinRows are the tables of JoinGroup.
var joinRows = []tableRow{
	{"empty group id", func(a *actor) {
		a.id = ""
		for v := range int16(10) {
			a.member("A").joinAs(fmt.Sprintf("join v%d", v), a.member("A").joinRequest(v, "", "range"))
		}
	}},
	{"session timeouts", func(a *actor) {
		for _, ms := range []int32{-1, 0, 499, 1_800_001} {
			m := a.member("A")
			r := m.joinRequest(9, "", "range")
			r.SessionTimeoutMillis = ms
			m.joinAs(fmt.Sprintf("join, session %d", ms), r)
		}
	}},
	{"member id in an unknown group", func(a *actor) {
		for _, v := range []int16{0, 4, 6, 7, 9} {
			a.member("A").joinAs(fmt.Sprintf("join v%d", v), a.member("A").joinRequest(v, "nobody", "range"))
		}
		a.group(5)
	}},
	{"new member, every version", func(a *actor) {
		group := a.id
		for v := range int16(10) {
			a.id = fmt.Sprintf("%s-%d", group, v)
			m := a.member("A")
			m.joinAs(fmt.Sprintf("join v%d", v), m.joinRequest(v, "", "range", "roundrobin"))
		}
	}},
	{"id that was given", func(a *actor) { a.member("A").join("range"); a.group(5) }},
	{"no protocols", func(a *actor) { a.member("A").join() }},
	{"no protocol type", func(a *actor) {
		m := a.member("A")
		r := m.joinRequest(3, "", "range")
		r.ProtocolType = ""
		m.joinAs("join", r)
	}},
	{"another protocol type", func(a *actor) {
		a.member("A").stable()
		m := a.member("B")
		r := m.joinRequest(3, "", "range")
		r.ProtocolType = "connect"
		m.joinAs("join", r)
	}},
	{"no common protocol", func(a *actor) { a.member("A").stable(); a.member("B").join("roundrobin") }},
	{"unknown member id", func(a *actor) {
		m := a.member("A")
		m.stable()
		m.joinAs("join", m.joinRequest(9, "nobody", "range"))
		m.leave(4, [2]string{m.id, ""})
		m.joinAs("join of Empty", m.joinRequest(9, m.id, "range"))
	}},
	{"instance id, not mapped, with a member id", func(a *actor) {
		a.member("A").stable()
		m := a.member("B").static("i")
		m.joinAs("join", m.joinRequest(9, "nobody", "range"))
	}},
	{"instance id of another", func(a *actor) {
		a.member("A").static("i").stable()
		m := a.member("B").static("i")
		m.joinAs("join", m.joinRequest(9, "nobody", "range"))
	}},
	{"instance id below version 5", func(a *actor) { m := a.member("A").static("i"); m.joinAs("join", m.joinRequest(4, "", "range")) }},
	{"leader again in Stable", func(a *actor) { a.member("A").stable().join("range").beat(); a.group(5) }},
	{"member again in Completing", func(a *actor) { a.member("A").join("range").join("range").beat(); a.group(5) }},
	{"member again in Completing, other protocols", func(a *actor) { a.member("A").join("range").join("range", "x").beat(); a.group(5) }},
	{"second member", func(a *actor) {
		x, y := a.member("A").stable(), a.member("B").begin("range")
		a.rebalancing()
		x.beat().join("range")
		y.end()
		early := y.syncRequest(5)
		a.s.must(y.c.Send(early)) // it waits for the leader's
		x.sync(x, y)
		resp, err := y.c.Receive(early)
		a.s.must(err)
		y.synced("early sync", 5, resp.(*kmsg.SyncGroupResponse))
		y.joinAs("again, follower", y.joinRequest(9, y.id, "range"))
		x.beat()
		y.beat()
		a.group(5)
	}},
	{"protocol of most votes", func(a *actor) {
		x := a.member("A").join("range", "roundrobin")
		x.sync(x)
		y := a.member("B").begin("roundrobin", "range")
		a.rebalancing()
		z := a.member("C").begin("roundrobin", "range")
		a.members(3)
		x.join("range", "roundrobin")
		y.end()
		z.end()
	}},
	{"follower with other protocols in Stable", func(a *actor) {
		x, y := a.pairOf()
		y.begin("range", "sticky")
		a.rebalancing()
		x.beat().join("range")
		y.end()
	}},
	{"static member comes back to Stable", func(a *actor) {
		x := a.member("A").static("i").stable()
		y := a.member("B").static("i").join("range")
		y.beat()
		x.beat()
		x.sync(x)
		x.join("range")
		y.sync()
		a.group(5)
	}},
	{"static follower comes back to Stable", func(a *actor) {
		x, y := a.pairOf()
		z := a.member("C").static("follower").join("range")
		z.sync()
		y.beat()
		x.beat()
		a.group(5)
	}},
	{"static member comes back below version 9", func(a *actor) {
		x := a.member("A").static("i").stable()
		y := a.member("B").static("i")
		y.joinAs("join v8", y.joinRequest(8, "", "range"))
		x.beat()
	}},
	{"static member comes back with other protocols", func(a *actor) {
		a.member("A").static("i").stable()
		a.member("B").static("i").join("roundrobin")
		a.group(5)
	}},
	{"static member comes back to Completing", func(a *actor) {
		x := a.member("A").static("i").join("range")
		y := a.member("B").static("i").join("range")
		x.beat()
		y.sync(y)
		a.group(5)
	}},
}

// pairOf is a stable group of a leader and a static follower.
func (a *actor) pairOf() (x, y *member) {
	x = a.member("A").stable()
	y = a.member("B").static("follower").begin("range")
	a.rebalancing()
	x.join("range")
	y.end()
	x.sync(x, y)
	y.sync()
	return x, y
}

// rebalancing waits until the group has heard that someone joins.
func (a *actor) rebalancing() { a.inState("PreparingRebalance") }

func (a *actor) inState(state string) {
	a.s.until(func() bool { return a.described().State == state })
}

// members waits until the group has so many members.
func (a *actor) members(n int) {
	a.s.until(func() bool { return len(a.described().Members) == n })
}

func (a *actor) described() *kmsg.DescribeGroupsResponseGroup {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = 5, []string{a.id}
	resp, _ := ask[*kmsg.DescribeGroupsResponse](a.s, r)
	return &resp.Groups[0]
}

// syncRows are the tables of SyncGroup, Heartbeat and LeaveGroup.
var syncRows = []tableRow{
	{"unknown group", func(a *actor) {
		m := a.member("A")
		m.id, m.generation = "nobody", 1
		for v := range int16(6) {
			m.syncAs(fmt.Sprintf("sync v%d", v), m.syncRequest(v))
		}
		for v := range int16(5) {
			m.beatAs(v, "nobody", 1)
		}
		for v := range int16(6) {
			m.leave(v, [2]string{"nobody", ""})
		}
	}},
	{"empty group id", func(a *actor) {
		a.id = ""
		m := a.member("A")
		m.id, m.generation = "nobody", 1
		m.syncAs("sync", m.syncRequest(5))
		m.beat()
		m.leave(2, [2]string{"nobody", ""})
		m.leave(4, [2]string{"nobody", ""})
	}},
	{"unknown member", func(a *actor) {
		m := a.member("A").stable()
		m.beatAs(4, "nobody", m.generation)
		r := m.syncRequest(5)
		r.MemberID = "nobody"
		m.syncAs("sync as nobody", r)
	}},
	{"other generations", func(a *actor) {
		m := a.member("A").stable()
		for _, d := range []int32{-2, -1, 1} {
			m.beatAs(4, m.id, m.generation+d)
			r := m.syncRequest(5, m)
			r.Generation += d
			m.syncAs(fmt.Sprintf("sync %+d", d), r)
		}
	}},
	{"instance ids", func(a *actor) {
		m := a.member("A").static("i").stable()
		m.beat()
		m.beatAs(4, "nobody", m.generation)
		m.static("unknown").beat()
		m.syncAs("sync of an unknown instance", m.syncRequest(5, m))
		m.instance = nil
		m.beat()
	}},
	{"other protocol", func(a *actor) {
		m := a.member("A").join("range")
		r := m.syncRequest(5, m)
		r.Protocol = kmsg.StringPtr("sticky")
		m.syncAs("sync of another protocol", r)
		r = m.syncRequest(5, m)
		r.ProtocolType = kmsg.StringPtr("connect")
		m.syncAs("sync of another type", r)
		r = m.syncRequest(5, m)
		r.ProtocolType, r.Protocol = nil, nil
		m.syncAs("sync of none", r)
	}},
	{"every version", func(a *actor) {
		m := a.member("A").join("range")
		for v := range int16(6) {
			m.syncAs(fmt.Sprintf("sync v%d", v), m.syncRequest(v, m))
			if v < 5 {
				m.beatAs(v, m.id, m.generation)
			}
		}
	}},
	{"Preparing", func(a *actor) {
		x := a.member("A").stable()
		y := a.member("B").begin("range")
		a.rebalancing()
		x.beat().sync(x)
		x.join("range")
		y.end()
		a.group(5)
	}},
	{"Completing", func(a *actor) {
		m := a.member("A").join("range").beat()
		a.group(5)
		m.sync()
		a.group(5)
	}},
	{"no assignment for the follower", func(a *actor) {
		x, y := a.member("A").stable(), a.member("B").begin("range")
		a.rebalancing()
		x.join("range")
		y.end()
		x.sync(x)
		y.sync()
		a.group(5)
	}},
	{"leave, every version", func(a *actor) {
		for v := range int16(6) {
			m := a.member(fmt.Sprintf("V%d", v)).stable()
			m.leave(v, [2]string{m.id, ""})
			m.beat()
			a.group(5)
		}
	}},
	{"leave of several", func(a *actor) {
		x, y := a.pairOf()
		x.leave(5, [2]string{"nobody", ""}, [2]string{"", "unknown"}, [2]string{"", "follower"}, [2]string{x.id, "follower"},
			[2]string{"", ""})
		y.beat()
		x.beat()
	}},
	{"leave of an instance with another's id", func(a *actor) {
		x, y := a.pairOf()
		x.leave(5, [2]string{x.id, "follower"})
		y.beat()
	}},
	{"leave of one that was given an id", func(a *actor) {
		m := a.member("A")
		resp := call[*kmsg.JoinGroupResponse](m, m.joinRequest(9, "", "range"))
		a.s.memberText(resp.MemberID)
		m.leave(5, [2]string{resp.MemberID, ""})
		m.joinAs("join with it", m.joinRequest(9, resp.MemberID, "range"))
		a.group(5)
	}},
	{"session timeout", func(a *actor) {
		m := a.member("A")
		r := m.joinRequest(3, "", "range")
		r.SessionTimeoutMillis = 500
		m.joinAs("join", r)
		m.sync(m)
		a.inState("Empty")
		m.beat()
		a.group(5)
	}},
}
