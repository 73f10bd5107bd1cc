package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// commitOf is a commit for partitions 0 to 3 of topic 1.
func commitOf(member string, epoch int32) CommitIn {
	in := CommitIn{Member: Member{Group: "g", Member: member, Generation: epoch}, Version: 9, PID: -1, RetainMs: -1}
	for p := range int32(4) {
		in.TPs = append(in.TPs, TP{Topic: "orders", ID: [16]byte{1}, Partition: p})
		in.Offsets = append(in.Offsets, Offset{Offset: 7, LeaderEpoch: -1})
	}
	return in
}

// TestConsumerCommitEpoch: the epoch of a member, and older ones for partitions it has had since (KIP-1251). Member a
// is at epoch 3 with partitions 0 and 1 since epoch 1; it has given up 2 and 3, which b has.
func TestConsumerCommitEpoch(t *testing.T) {
	stale := kerr.StaleMemberEpoch
	for _, c := range []struct {
		name   string
		change func(*CommitIn)
		want   [4]*kerr.Error
	}{
		{"own epoch", func(*CommitIn) {}, [4]*kerr.Error{}},
		{"epoch above", func(in *CommitIn) { in.Generation = 4 }, [4]*kerr.Error{stale, stale, stale, stale}},
		{"epoch since which it has two", func(in *CommitIn) { in.Generation = 1 }, [4]*kerr.Error{nil, nil, stale, stale}},
		{"epoch between", func(in *CommitIn) { in.Generation = 2 }, [4]*kerr.Error{nil, nil, stale, stale}},
		{"epoch of before", func(in *CommitIn) { in.Generation = 0 }, [4]*kerr.Error{stale, stale, stale, stale}},
		{"topic by name only", func(in *CommitIn) {
			in.Generation = 1
			for i := range in.TPs {
				in.TPs[i].ID = [16]byte{}
			}
		}, [4]*kerr.Error{nil, nil, stale, stale}},
		{"unknown member", func(in *CommitIn) { in.Member.Member = "x" }, all4(kerr.UnknownMemberID)},
		{"no member while there are some", func(in *CommitIn) { in.Member = Member{Group: "g", Generation: -1} },
			all4(kerr.UnknownMemberID)},
		{"version that cannot tell an epoch", func(in *CommitIn) { in.Version = 8 }, all4(kerr.UnsupportedVersion)},
	} {
		w := committing(t)
		in := commitOf("a", 3)
		c.change(&in)
		var got []*kerr.Error
		w.m.Commit(in, func(codes []*kerr.Error, _ uint64) { got = codes })
		if len(got) != 4 || [4]*kerr.Error(got) != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func all4(code *kerr.Error) [4]*kerr.Error { return [4]*kerr.Error{code, code, code, code} }

// committing is the group of TestConsumerCommitEpoch.
func committing(t *testing.T) *world {
	w := newConsumerWorld(t)
	all := w.assigned(w.ok(w.pulse(joins("a", "orders")), 1), 0, 1, 2, 3)
	w.ok(w.pulse(joins("b", "orders")), 2)
	kept := w.assigned(w.ok(w.pulse(beats("a", 1, all)), 1), 0, 1)
	w.ok(w.pulse(beats("a", 1, kept)), 2)
	w.assigned(w.ok(w.pulse(beats("b", 2, nil)), 2), 2, 3)
	w.topics.set("orders", 1, 5)
	w.ok(w.pulse(beats("a", 2, nil)), 3)
	w.ok(w.pulse(beats("b", 2, nil)), 3)
	return w
}

// TestConsumerCommitRevoking: what a member still has to give up may be committed until it says that it has.
func TestConsumerCommitRevoking(t *testing.T) {
	w := newConsumerWorld(t)
	all := w.assigned(w.ok(w.pulse(joins("a", "orders")), 1), 0, 1, 2, 3)
	w.ok(w.pulse(joins("b", "orders")), 2)
	w.ok(w.pulse(beats("a", 1, all)), 1)
	var got []*kerr.Error
	w.m.Commit(commitOf("a", 1), func(codes []*kerr.Error, _ uint64) { got = codes })
	if len(got) != 4 || [4]*kerr.Error(got) != all4(nil) {
		t.Errorf("while revoking: %v", got)
	}
}

// TestConsumerFetchMember: OffsetFetch with a member tests it, without one it does not.
func TestConsumerFetchMember(t *testing.T) {
	w := committing(t)
	for _, c := range []struct {
		member string
		epoch  int32
		want   *kerr.Error
	}{{"", -1, nil}, {"a", 3, nil}, {"a", 2, kerr.StaleMemberEpoch}, {"a", 4, kerr.StaleMemberEpoch},
		{"x", 3, kerr.UnknownMemberID}} {
		n := 0
		w.m.Fetch(FetchIn{Member: Member{Group: "g", Member: c.member, Generation: c.epoch}},
			func(_ map[TP]Fetched, code *kerr.Error) {
				if n++; code != c.want {
					t.Errorf("member %q, epoch %d: %v, want %v", c.member, c.epoch, code, c.want)
				}
			})
		if n != 1 {
			t.Errorf("member %q: %d answers", c.member, n)
		}
	}
}

// TestProtocolSwitch: an empty group changes its protocol with the first member of the other one and keeps its offsets,
// also over a restart; a group with members does not.
func TestProtocolSwitch(t *testing.T) {
	w := newConsumerWorld(t)
	committed := func() int64 {
		at := int64(-2)
		w.m.Fetch(FetchIn{Member: Member{Group: "g", Generation: -1}, TPs: []TP{{Topic: "orders", ID: [16]byte{1}}}},
			func(out map[TP]Fetched, _ *kerr.Error) {
				for _, f := range out {
					at = f.Offset.Offset
				}
			})
		return at
	}
	kind := func() string { return w.group("g").info(false).Type }

	w.m.Commit(commitOf("", -1), func([]*kerr.Error, uint64) {}) // a simple group
	w.ok(w.pulse(joins("a", "orders")), 1)
	if w.restart(); kind() != TypeConsumer || committed() != 7 {
		t.Fatalf("type %s, offset %d", kind(), committed())
	}
	if j := w.join(asks("")); j.code != kerr.InconsistentGroupProtocol {
		t.Errorf("classic member: %v", j.code)
	}
	w.ok(w.pulse(beats("a", -1, nil)), -1)
	j := w.enter()
	if j.n != 1 || j.code != nil || kind() != TypeClassic || committed() != 7 {
		t.Fatalf("%d answers, %v, type %s, offset %d", j.n, j.code, kind(), committed())
	}
	if w.restart(); kind() != TypeClassic || committed() != 7 {
		t.Fatalf("after a restart: type %s, offset %d", kind(), committed())
	}
	for _, in := range []ConsumerIn{joins("a", "orders"), beats("a", 1, nil)} {
		j = w.enter()
		if b := w.pulse(in); b.code != kerr.GroupIDNotFound {
			t.Errorf("consumer member: %v", b.code)
		}
	}
}

// TestProtocolSwitchRefused: a group whose change the journal refuses stays what it was.
func TestProtocolSwitchRefused(t *testing.T) {
	w := newConsumerWorld(t)
	w.m.Commit(commitOf("", -1), func([]*kerr.Error, uint64) {})
	w.j.fail = ErrStorage
	if b := w.pulse(joins("a", "orders")); b.code != kerr.NotCoordinator || w.group("g").classic == nil {
		t.Errorf("%v, %+v", b.code, w.group("g"))
	}
	w.j.fail = nil
	w.ok(w.pulse(joins("a", "orders")), 1)
}
