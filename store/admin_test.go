package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
)

func TestCreateTopicsRefusals(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.FilesMax = filesReserved + 20 })
	defer mustClose(t, n)
	n.create(t, "a.b", 1, nil)
	compact, err := ParseTopic(map[string]string{"cleanup.policy": "compact"}, TopicConfig{})
	if err != nil {
		t.Fatal(err)
	}
	unknown := TopicConfig{Set: map[string]string{"bogus": "1"}}
	for _, c := range []struct {
		in   []NewTopic
		at   string
		want error // nil: *InvalidConfigError
	}{
		{[]NewTopic{{Name: "a.b", Partitions: 1}}, "a.b", ErrTopicExists},
		{[]NewTopic{{Name: "a_b", Partitions: 1}}, "a_b", ErrInvalidName},
		{[]NewTopic{{Name: "x.y", Partitions: 1}, {Name: "x_y", Partitions: 1}}, "x_y", ErrInvalidName},
		{[]NewTopic{{Name: "../x", Partitions: 1}}, "../x", ErrInvalidName},
		{[]NewTopic{{Name: "x", Partitions: 1}, {Name: "x", Partitions: 1}}, "x", ErrTwice},
		{[]NewTopic{{Name: "x", Partitions: 0}}, "x", ErrPartitions},
		{[]NewTopic{{Name: "x", Partitions: -1}}, "x", ErrPartitions},
		{[]NewTopic{{Name: "x", Partitions: PartitionsMax + 1}}, "x", ErrPartitions},
		{[]NewTopic{{Name: "x", Partitions: 20}}, "x", ErrTooMany},
		{[]NewTopic{{Name: "x", Partitions: 1, Config: unknown}}, "x", nil},
	} {
		made := fs.Add(vfs.Rule{Op: "mkdirall"})
		_, err := n.s.CreateTopics(c.in...)
		var topic *TopicError
		ok := errors.As(err, &topic) && topic.Topic == c.at
		var invalid *InvalidConfigError
		ok = ok && (c.want == nil && errors.As(err, &invalid) || c.want != nil && errors.Is(err, c.want))
		if verr := n.s.Validate(c.in...); verr == nil || verr.Error() != err.Error() {
			t.Errorf("%+v: validation says %v, creation %v", c.in, verr, err)
		}
		if !ok || made.Hits() != 0 {
			t.Errorf("%+v: %v, %d directories made", c.in, err, made.Hits())
		}
		made.Remove()
	}
	if got := len(n.s.Catalog().ByName); got != 1 {
		t.Fatalf("%d topics", got)
	}
	if topics, err := n.s.CreateTopics(
		NewTopic{Name: "__consumer_offsets", Partitions: 2, Internal: true, Config: compact},
		NewTopic{Name: "keyed", Partitions: 1, Config: compact},
	); err != nil || !topics[0].Internal || !topics[0].Config.Compact || !topics[1].Config.Compact {
		t.Fatalf("topics may be compacted: %v", err)
	}
}

// TestNamesThatDifferInCase are different topics with directories of their own.
func TestNamesThatDifferInCase(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	a, b := n.create(t, "Orders", 1, nil), n.create(t, "orders", 1, nil)
	if a.ID == b.ID {
		t.Fatal("one id for two topics")
	}
	for _, name := range []string{"Orders", "orders"} {
		if _, err := putDurable(log(t, n, name, 0), oneBatch(1, 0, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.s.DeleteTopic(a.ID, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if got := readAll(log(t, n, "orders", 0)); !slices.Equal(got, []string{"orders"}) {
		t.Fatalf("%v", got)
	}
	if _, err := n.s.Partition(TP{Topic: "Orders"}); !errors.Is(err, ErrUnknownTopic) {
		t.Fatalf("%v", err)
	}
}

func TestLookups(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	topic := n.create(t, "t", 2, nil)
	for _, c := range []struct {
		tp   TP
		want error
	}{
		{TP{Topic: "t", Partition: 1}, nil},
		{TP{ID: topic.ID, Partition: 0}, nil},
		{TP{Topic: "t", ID: topic.ID, Partition: 0}, nil},
		{TP{Topic: "x"}, ErrUnknownTopic},
		{TP{Topic: "t", ID: TopicID{1}}, ErrUnknownTopicID},
		{TP{Topic: "x", ID: topic.ID}, ErrUnknownTopicID},
		{TP{Topic: "t", Partition: 2}, ErrUnknownPartition},
		{TP{Topic: "t", Partition: -1}, ErrUnknownPartition},
	} {
		l, err := n.s.Partition(c.tp)
		got, ok := n.s.Log(c.tp)
		if !errors.Is(err, c.want) || (err == nil) != ok || (l != nil) != ok || got != l {
			t.Errorf("%+v: %v, %v", c.tp, l, err)
		}
	}
}

func TestAddPartitions(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, func(c *Config) { c.FilesMax = filesReserved + 6 })
	id := n.create(t, "t", 1, map[string]string{"max.message.bytes": "77"}).ID
	first := log(t, n, "t", 0)
	for total, want := range map[int32]error{0: ErrPartitions, 1: ErrPartitions, -5: ErrPartitions, 7: ErrTooMany,
		PartitionsMax + 1: ErrPartitions} {
		if err := n.s.AddPartitions("t", total); !errors.Is(err, want) {
			t.Errorf("%d: %v", total, err)
		}
		if err := n.s.ValidatePartitions("t", total); !errors.Is(err, want) {
			t.Errorf("%d: %v", total, err)
		}
	}
	if err := n.s.AddPartitions("x", 3); !errors.Is(err, ErrUnknownTopic) {
		t.Fatal(err)
	}
	if err := errors.Join(n.s.ValidatePartitions("t", 4), n.s.AddPartitions("t", 4)); err != nil {
		t.Fatal(err)
	}
	topic := n.s.Catalog().ByID[id]
	if len(topic.Partitions) != 4 || topic.Partitions[0] != first || topic.Config.BatchBytesMax != 77 {
		t.Fatalf("%+v", topic)
	}
	if _, err := putDurable(log(t, n, "t", 3), oneBatch(1, 0, "v")); err != nil {
		t.Fatal(err)
	}
	sizes := n.s.Sizes()
	total := int64(0)
	for _, x := range sizes {
		total += x.Bytes
	}
	if len(sizes) != 4 || total == 0 {
		t.Fatalf("%+v", sizes)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if got := readAll(log(t, n, "t", 3)); !slices.Equal(got, []string{"v"}) {
		t.Fatal(got)
	}
}

// TestAlterReachesTheRunningLog: a changed setting holds for the next append.
func TestAlterReachesTheRunningLog(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	id := n.create(t, "t", 1, nil).ID
	l := log(t, n, "t", 0)
	stamp := func() bool {
		t.Helper()
		out, err := putDurable(l, oneBatch(-1, 0, "v"))
		if err != nil {
			t.Fatal(err)
		}
		return out.Time >= 0
	}
	if stamp() {
		t.Fatal("append time without the setting")
	}
	set := map[string]string{"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}
	if err := n.s.Alter(id, set); err != nil {
		t.Fatal(err)
	}
	if topic := n.s.Catalog().ByName["t"]; !stamp() || topic.Config.MinISR != 2 || len(topic.Config.Set) != 2 {
		t.Fatalf("%+v", topic.Config)
	}
	var wg sync.WaitGroup
	for i := range 20 { // read-modify-write: none is lost
		wg.Go(func() {
			err := n.s.Update(id, func(old map[string]string) (map[string]string, error) {
				old["max.message.bytes"] = old["max.message.bytes"] + "1"
				if i%2 == 0 {
					delete(old, "message.timestamp.type")
				}
				old["retention.ms"] = fmt.Sprint(len(old["max.message.bytes"]))
				if len(old["max.message.bytes"]) > 9 {
					old["max.message.bytes"] = "1"
				}
				return old, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c := n.s.Catalog().ByName["t"].Config; len(c.Set["max.message.bytes"]) != 20%9 || stamp() {
		t.Fatalf("%v", c.Set)
	}
	refused := errors.New("no")
	if err := n.s.Update(id, func(map[string]string) (map[string]string, error) { return nil, refused }); err != refused {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"cleanup.policy=compress": "one of compact, delete",
		"retention.ms=x": "whole number", "bogus=1": "no such"} {
		k, v, _ := strings.Cut(set, "=")
		var invalid *InvalidConfigError
		if err := n.s.Alter(id, map[string]string{k: v}); !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
	if err := n.s.Alter(TopicID{9}, nil); !errors.Is(err, ErrUnknownTopicID) {
		t.Fatal(err)
	}
	if err := n.s.Alter(id, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if c := n.s.Catalog().ByName["t"].Config; len(c.Set) != 0 || c.MinISR != 1 {
		t.Fatalf("%+v", c)
	}
}

// TestDefaultsReachTheLogs: changed server defaults hold for topics that set nothing, at once.
func TestDefaultsReachTheLogs(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	n.create(t, "plain", 1, nil)
	n.create(t, "own", 1, map[string]string{"message.timestamp.type": "CreateTime"})
	d, err := ParseServer(map[string]string{"log.message.timestamp.type": "LogAppendTime", "log.retention.hours": "1"})
	if err != nil {
		t.Fatal(err)
	}
	n.s.SetDefaults(d)
	for name, want := range map[string]bool{"plain": true, "own": false} {
		out, err := putDurable(log(t, n, name, 0), oneBatch(-1, 0, "v"))
		if err != nil || (out.Time >= 0) != want {
			t.Errorf("%s: append time %d, %v", name, out.Time, err)
		}
		if c := n.s.Catalog().ByName[name].Config; c.RetainMs != 3600_000 || c.Value("retention.ms") != "3600000" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if got := n.s.Defaults().Set["log.retention.hours"]; got != "1" {
		t.Fatal(got)
	}
	if got := n.create(t, "later", 1, nil).Config; !got.AppendTime {
		t.Fatal("a topic made later has the old defaults")
	}
}

// TestA14DeletedAndCreatedAgain is the engine's part of case A14: nothing of the old incarnation answers for the
// new one.
func TestA14DeletedAndCreatedAgain(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	old := n.create(t, "t", 1, nil)
	for i := range int32(10) {
		if _, err := putDurable(log(t, n, "t", 0), oneBatch(3, i, "old")); err != nil {
			t.Fatal(err)
		}
	}
	n.tick(3) // the marks of the old topic are in the files
	stale := log(t, n, "t", 0)
	if err := n.s.DeleteTopic(old.ID, nil); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{MarkFile, RecoveryFile, StartFile} {
		if o, err := ReadOffsets(m, dataDir, file); err != nil || len(o) != 0 {
			t.Fatalf("%s still knows the topic: %v, %v", file, o, err)
		}
	}
	if _, err := put(stale, oneBatch(3, 10, "late")); !errors.Is(err, plog.ErrDeleted) {
		t.Fatalf("an append that held the old log: %v", err)
	}
	n.create(t, "t", 1, nil)
	var reject *plog.RejectError
	out, err := putDurable(log(t, n, "t", 0), oneBatch(3, 9, "gap"))
	if err == nil && (out.Duplicate || out.Base != 0) || err != nil && !errors.As(err, &reject) {
		t.Fatalf("sequence 9 of a producer the new topic does not know: %+v, %v", out, err)
	}
	stored := err == nil
	after := m.Crash(vfs.CrashPlan{})
	_ = n.close()
	n = mustStart(t, after, nil)
	defer mustClose(t, n)
	if n.s.Recovery().Offline != 0 {
		t.Fatalf("%+v", n.s.Recovery())
	}
	got := readAll(log(t, n, "t", 0))
	if stored && !slices.Equal(got, []string{"gap"}) || !stored && len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

// TestDeleteOrder: the coordinators are told while the topic is hidden and its records still lie there, a failure of
// theirs keeps the deletion open, over a restart too, and the name is free at the end alone.
func TestDeleteOrder(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	topic := n.create(t, "t", 2, nil)
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, 0, "v")); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("coordinator is loading")
	check := func(got Topic) {
		t.Helper()
		if got.ID != topic.ID || got.Name != "t" || len(got.Partitions) != 2 {
			t.Errorf("told of %+v", got)
		}
		if _, err := n.s.Partition(TP{ID: topic.ID}); !errors.Is(err, ErrUnknownTopicID) {
			t.Errorf("not hidden: %v", err)
		}
		if ok, _ := vfs.Exists(n.fs, dataDir+"/t-0"); !ok {
			t.Error("the directory went before the coordinators were told")
		}
		if err := n.s.Validate(NewTopic{Name: "t", Partitions: 1}); !errors.Is(err, ErrTopicExists) {
			t.Errorf("the name is free too early: %v", err)
		}
	}
	if err := n.s.DeleteTopic(topic.ID, func(x Topic) error { check(x); return busy }); !errors.Is(err, busy) {
		t.Fatal(err)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer func() { mustClose(t, n) }()
	left := n.s.Interrupted()
	if len(left) != 1 || len(n.s.Catalog().ByID) != 0 {
		t.Fatalf("%+v", left)
	}
	err := n.s.DeleteTopic(topic.ID, func(x Topic) error {
		check(x)
		if err := n.s.DeleteTopic(topic.ID, nil); !errors.Is(err, ErrUnknownTopicID) {
			t.Errorf("two deletions at once: %v", err)
		}
		if len(n.s.Interrupted()) != 0 {
			t.Error("a deletion at work is called interrupted")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.s.DeleteTopic(topic.ID, nil); !errors.Is(err, ErrUnknownTopicID) {
		t.Fatal(err)
	}
	n.tick(1)
	names, err := m.ReadDir(dataDir)
	if err != nil || slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "t-") }) {
		t.Fatalf("%v, %v", names, err)
	}
	if n.create(t, "t", 1, nil).ID == topic.ID {
		t.Fatal("the old id")
	}
}

// TestDeleteUnderLoad: appenders and waiting readers of a topic that goes end with an error, none hangs.
func TestDeleteUnderLoad(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	topic := n.create(t, "t", 3, nil)
	var wg sync.WaitGroup
	for p := range int32(3) {
		l := log(t, n, "t", p)
		woken := make(chan error, 1)
		l.AfterReadable(1<<40, false, &plog.Waiter{Fn: func(err error) { woken <- err }})
		wg.Go(func() {
			if err := <-woken; !errors.Is(err, plog.ErrDeleted) {
				t.Errorf("a parked fetch: %v", err)
			}
		})
		for w := range int64(4) {
			wg.Go(func() {
				for i := int32(0); ; i++ {
					if _, err := putDurable(l, oneBatch(w, i, "v")); err != nil {
						if !errors.Is(err, plog.ErrDeleted) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
	}
	waitFor(t, func() bool { return log(t, n, "t", 2).Offsets().High > 20 })
	if err := n.s.DeleteTopic(topic.ID, nil); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// TestDeleteWaitsForTheRound: a log is taken away between rounds, never out of one.
func TestDeleteWaitsForTheRound(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, nil)
	defer mustClose(t, n)
	topic := n.create(t, "t", 1, nil)
	fill(t, log(t, n, "t", 0), 1)
	gate := make(chan struct{})
	flush := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Nth: 1, Do: func() { <-gate }})
	acked := make(chan error, 1)
	l := log(t, n, "t", 0)
	go func() { _, err := putDurable(l, oneBatch(1, 1, "v")); acked <- err }()
	waitFor(t, func() bool { return flush.Hits() == 1 })
	deleted := make(chan error, 1)
	go func() { deleted <- n.s.DeleteTopic(topic.ID, nil) }()
	waitFor(t, func() bool { return len(n.s.Catalog().ByID) == 0 })
	for range 20 {
		clock.Sleep(clock.Real(), time.Millisecond)
		if ok, _ := vfs.Exists(m, dataDir+"/t-0"); !ok || l.Err() != nil {
			t.Fatal("the log was taken away in the middle of a round")
		}
	}
	close(gate)
	if err := errors.Join(<-deleted, <-acked); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteIsNotKeptWaiting: who holds what was read of a topic keeps its bytes, not its name.
func TestDeleteIsNotKeptWaiting(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	topic := n.create(t, "t", 3, nil)
	var held [3]plog.Fetch
	for p := range held {
		fill(t, log(t, n, "t", int32(p)), 1)
		if err := log(t, n, "t", int32(p)).Read(plog.ReadIn{BytesMax: 1 << 20, AtLeast1: true}, &held[p]); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Clone(held[2].Parts[0])
	deleted := make(chan error, 1)
	go func() { deleted <- n.s.DeleteTopic(topic.ID, nil) }()
	waitFor(t, func() bool { return n.clk.Pending() > 0 })
	select {
	case err := <-deleted:
		t.Fatalf("fetches under way were not waited for: %v", err)
	default:
	}
	n.clk.Advance(deleteWait)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	n.create(t, "t", 1, nil)
	n.tick(2)
	if !bytes.Equal(held[2].Parts[0], want) {
		t.Error("bytes that are held have changed")
	}
	for p := range held {
		held[p].Release()
	}
}

// TestCreateFailsCleanly: whatever file operation of a creation fails, the call leaves no topic and no directory,
// and the next one succeeds.
func TestCreateFailsCleanly(t *testing.T) {
	broken := errors.New("broken")
	for step := 1; ; step++ {
		m := vfs.NewMem()
		fs := vfs.Inject(m)
		n := mustStart(t, fs, nil)
		rule := fs.Add(vfs.Rule{Match: "*-*", Nth: step, Err: broken})
		_, err := n.s.CreateTopics(NewTopic{Name: "t", Partitions: 2})
		hits := rule.Hits()
		rule.Remove()
		if hits == 0 {
			mustClose(t, n)
			if err != nil || step < 8 {
				t.Fatalf("%d operations, %v", step, err)
			}
			return
		}
		if err != nil {
			if !errors.Is(err, broken) || len(n.s.Catalog().ByName) != 0 {
				t.Fatalf("operation %d: %v, %d topics", step, err, len(n.s.Catalog().ByName))
			}
			if ok, _ := vfs.Exists(m, dataDir+"/t-0"); ok {
				t.Fatalf("operation %d left a directory", step)
			}
			n.create(t, "t", 2, nil)
		}
		if _, err := putDurable(log(t, n, "t", 1), oneBatch(1, 0, "v")); err != nil {
			t.Fatalf("operation %d: %v", step, err)
		}
		mustClose(t, n)
	}
}

// TestReloadAfterCompaction: a catalog that missed changes, since the metadata store no longer had them, comes to the
// same state.
func TestReloadAfterCompaction(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	id := n.create(t, "kept", 1, map[string]string{"retention.ms": "5"}).ID
	gone := n.create(t, "gone", 1, nil)
	before := log(t, n, "kept", 0)
	if err := n.s.DeleteTopic(gone.ID, nil); err != nil {
		t.Fatal(err)
	}
	n.s.mu.Lock() // as if the last changes had not been seen
	n.s.records["gone"] = record{id: gone.ID, Partitions: 1, State: stateActive}
	n.s.sets["kept"] = map[string]string{"retention.ms": "6", "segment.ms": "7"}
	n.s.swap(gone)
	n.s.servers["9"] = map[string]string{"x": "y"}
	n.s.mu.Unlock()
	rev, err := n.s.reload(t.Context())
	if _, now, _ := n.m.Snapshot(t.Context()); err != nil || rev != now {
		t.Fatalf("revision %d, want %d, %v", rev, now, err)
	}
	kept := n.s.Catalog().ByID[id]
	if len(n.s.Catalog().ByName) != 1 || len(n.s.Catalog().ByID) != 1 || kept.Config.RetainMs != 5 ||
		kept.Config.Value("segment.ms") != "604800000" || kept.Partitions[0] != before ||
		len(n.s.BrokerConfig("9")) != 0 {
		t.Fatalf("%+v", kept)
	}
}

// TestStoredSettingsOfAnotherVersion: a setting this version refuses does not keep the directory from opening.
func TestStoredSettingsOfAnotherVersion(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "t", 1, map[string]string{"retention.ms": "5"})
	set := map[string]string{"retention.ms": "6", "future.setting": "x", "segment.ms": "never"}
	if _, err := n.m.Txn(t.Context(), nil, []meta.Op{{Key: configPrefix + "t", Value: encodeSet(set)}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return n.s.Catalog().ByName["t"].Config.RetainMs == 6 })
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if c := n.s.Catalog().ByName["t"].Config; c.RetainMs != 6 || len(c.Set) != 1 || n.told(NoticeSetting) != 2 {
		t.Fatalf("%+v, %+v", c.Set, n.notices)
	}
}
