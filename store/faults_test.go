package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/plog"
)

// fill appends acknowledged batches with the values 0, 1, ... n-1.
func fill(t testing.TB, l *plog.Log, n int) (want []string) {
	t.Helper()
	for i := range n {
		v := fmt.Sprint(i)
		if _, err := putDurable(l, oneBatch(1, int32(i), v)); err != nil {
			t.Fatal(err)
		}
		want = append(want, v)
	}
	return want
}

// edit changes a file in place, durably, as a careless hand does.
func edit(t testing.TB, fs vfs.FS, name string, fn func(b []byte) []byte) {
	t.Helper()
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(fn(b), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Datasync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestOfflineLogComesBack: after a failed flush the partition answers with the reason, is tried again after 5, 10, 20
// seconds, and serves what is on the disk, not what the page cache still shows (I15).
func TestOfflineLogComesBack(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, nil)
	n.create(t, "t", 1, nil)
	want := fill(t, log(t, n, "t", 0), 3)
	n.tick(3)
	m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, 3, "lost?")); !errors.Is(err, plog.ErrOffline) {
		t.Fatal(err)
	}
	tries := fs.Add(vfs.Rule{Op: "readdir", Match: dataDir + "/t-0", Err: syscall.EIO})
	var at []int
	for second := 1; second <= 80; second++ {
		before := tries.Hits()
		n.tick(1)
		if tries.Hits() > before {
			at = append(at, second)
		}
		if second == 1 {
			var offline *OfflineError
			if _, err := n.s.Partition(TP{Topic: "t"}); err != nil || n.told(NoticeOffline) != 1 {
				t.Fatalf("before the first attempt the log itself tells: %v, %+v", err, n.notices)
			}
			_ = offline
		}
		if second == 7 {
			var offline *OfflineError
			_, err := n.s.Partition(TP{Topic: "t"})
			if !errors.As(err, &offline) || !errors.Is(err, plog.ErrOffline) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("%v", err)
			}
		}
	}
	if want := []int{6, 16, 36, 76}; !slices.Equal(at, want) {
		t.Fatalf("attempts after %v s, want %v", at, want)
	}
	tries.Remove()
	if err := n.s.Reopen(TP{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	l := log(t, n, "t", 0)
	got := readAll(l)
	if len(got) == 4 {
		want = append(want, "lost?")
	}
	if !slices.Equal(got, want) || n.told(NoticeReopened) != 1 {
		t.Fatalf("%v", got)
	}
	out, err := putDurable(l, oneBatch(1, 3, "lost?"))
	if err != nil || out.Base != 3 || out.Duplicate != (len(got) == 4) {
		t.Fatalf("the retry: %+v, %v", out, err)
	}
	if err := n.s.Reopen(TP{Topic: "t"}); err != nil || log(t, n, "t", 0) != l {
		t.Fatalf("reopening a partition that serves: %v", err)
	}
	shown := readAll(l)
	after := m.Crash(vfs.CrashPlan{})
	_ = n.close()
	n = mustStart(t, after, nil)
	defer mustClose(t, n)
	if got := readAll(log(t, n, "t", 0)); !slices.Equal(got, shown) {
		t.Fatalf("shown before the power loss %v, after it %v", shown, got)
	}
}

// TestFlappingPartition: a partition that fails again and again is reopened more and more seldom, until it has kept
// well for a while.
func TestFlappingPartition(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	defer mustClose(t, n)
	n.create(t, "t", 1, nil)
	seq := int32(0)
	outage := func() (seconds int) {
		t.Helper()
		m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
		if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, seq, "v")); !errors.Is(err, plog.ErrOffline) {
			t.Fatal(err)
		}
		for before := n.told(NoticeReopened); n.told(NoticeReopened) == before; seconds++ {
			n.tick(1)
		}
		out, err := putDurable(log(t, n, "t", 0), oneBatch(1, seq, "v"))
		if err != nil || out.Base != int64(seq) {
			t.Fatalf("%+v, %v", out, err)
		}
		seq++
		n.tick(1)
		return seconds
	}
	var got []int
	for range 8 {
		got = append(got, outage())
	}
	n.tick(301)
	got = append(got, outage())
	if want := []int{6, 11, 21, 41, 81, 161, 301, 301, 6}; !slices.Equal(got, want) {
		t.Fatalf("reopened after %v s, want %v", got, want)
	}
}

// TestReopenBeside: reopening by the clock runs beside the ticks, and a deletion meanwhile waits for it.
func TestReopenBeside(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, func(c *Config) { c.Clock = struct{ clock.Clock }{c.Clock} }) // not seen as simulated
	defer mustClose(t, n)
	topic := n.create(t, "t", 1, nil)
	n.create(t, "other", 1, nil)
	fill(t, log(t, n, "t", 0), 2)
	m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, 2, "x")); err == nil {
		t.Fatal("acknowledged")
	}
	gate := make(chan struct{})
	held := fs.Add(vfs.Rule{Op: "readdir", Match: dataDir + "/t-0", Nth: 1, Do: func() { <-gate }})
	n.tick(6)
	waitFor(t, func() bool { return held.Hits() == 1 })
	n.tick(3) // the other partition is looked after meanwhile
	fill(t, log(t, n, "other", 0), 2)
	deleted := make(chan error, 1)
	go func() { deleted <- n.s.DeleteTopic(topic.ID, nil) }()
	waitFor(t, func() bool { return len(n.s.Catalog().ByName) == 1 })
	close(gate)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if ok, _ := vfs.Exists(m, dataDir+"/t-0"); ok {
		t.Fatal("the directory is still there")
	}
}

// TestF1bDamageBelowTheMark is the engine's part of case F1b: acknowledged data that is gone or damaged takes its own
// partition offline, with path, position and the command that helps; nothing is cut, the others serve.
func TestF1bDamageBelowTheMark(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"cut inside the last batch": func(b []byte) []byte { return b[:len(b)-1] },
		"empty":                     func(b []byte) []byte { return nil },
		"a flipped bit":             func(b []byte) []byte { b[80] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			n := mustStart(t, m, nil)
			n.create(t, "t", 2, nil)
			fill(t, log(t, n, "t", 0), 5)
			want := fill(t, log(t, n, "t", 1), 5)
			n.tick(3)
			after := m.Crash(vfs.CrashPlan{})
			_ = n.close()
			file := dataDir + "/t-0/00000000000000000000.log"
			edit(t, after, file, damage)
			before, err := vfs.ReadFile(after, file)
			if err != nil {
				t.Fatal(err)
			}
			n = mustStart(t, after, nil)
			var offline *OfflineError
			_, err = n.s.Partition(TP{Topic: "t", Partition: 0})
			if !errors.As(err, &offline) || !errors.Is(err, plog.ErrOffline) || offline.TP.Partition != 0 {
				t.Fatalf("%v", err)
			}
			for _, part := range []string{file, "position", "sekali check --repair " + dataDir} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in: %v", part, err)
				}
			}
			topic := n.s.Catalog().ByName["t"]
			if topic.Partitions[0] != nil || topic.Faults[0] == nil || topic.Faults[1] != nil ||
				n.s.Recovery().Offline != 1 || n.s.Recovery().Logs != 1 {
				t.Errorf("%+v, %+v", topic, n.s.Recovery())
			}
			if got := readAll(log(t, n, "t", 1)); !slices.Equal(got, want) {
				t.Errorf("the other partition: %v", got)
			}
			if _, err := putDurable(log(t, n, "t", 1), oneBatch(1, 5, "5")); err != nil {
				t.Error(err)
			}
			n.tick(400) // no attempt by itself: the damage does not heal
			if n.told(NoticeOffline) != 1 {
				t.Errorf("%d notices of one damaged partition", n.told(NoticeOffline))
			}
			if again, err := vfs.ReadFile(after, file); err != nil || string(again) != string(before) {
				t.Error("the damaged file was changed")
			}
			if o, err := ReadOffsets(after, dataDir, MarkFile); err != nil || o[Place{"t", 0}] != 5 {
				t.Errorf("the mark of the offline partition was lost: %v, %v", o, err)
			}
			if err := n.close(); !errors.Is(err, plog.ErrOffline) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMissingDirectory: a partition whose directory is gone is offline, and comes back with it.
func TestMissingDirectory(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "t", 2, nil)
	want := fill(t, log(t, n, "t", 0), 2)
	mustClose(t, n)
	if err := m.Rename(dataDir+"/t-0", "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	n = mustStart(t, m, nil)
	_, err := n.s.Partition(TP{Topic: "t"})
	if !errors.Is(err, ErrMissing) || !errors.Is(err, plog.ErrOffline) || !strings.Contains(err.Error(), dataDir+"/t-0") {
		t.Fatalf("%v", err)
	}
	if err := n.s.Reopen(TP{Topic: "t"}); !errors.Is(err, ErrMissing) {
		t.Fatal(err)
	}
	if err := m.Rename("/elsewhere", dataDir+"/t-0"); err != nil {
		t.Fatal(err)
	}
	if err := n.s.Reopen(TP{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(log(t, n, "t", 0)); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	if err := n.s.Reopen(TP{Topic: "t", Partition: 9}); !errors.Is(err, ErrUnknownPartition) {
		t.Fatal(err)
	}
	mustClose(t, n)
}

// TestDamagedOffsetFiles: each costs a longer scan at most, and is told.
func TestDamagedOffsetFiles(t *testing.T) {
	for _, file := range []string{RecoveryFile, StartFile, MarkFile, CleanerFile} {
		for _, text := range []string{"", "garbage", "0\n1\nt 0 x\n"} {
			for _, clean := range []bool{true, false} {
				m := vfs.NewMem()
				n := mustStart(t, m, nil)
				n.create(t, "t", 1, nil)
				want := fill(t, log(t, n, "t", 0), 4)
				n.tick(70)
				if clean {
					mustClose(t, n)
				} else {
					m = m.Crash(vfs.CrashPlan{})
					_ = n.close()
				}
				edit(t, m, dataDir+"/"+file, func([]byte) []byte { return []byte(text) })
				n = mustStart(t, m, nil)
				if got := readAll(log(t, n, "t", 0)); !slices.Equal(got, want) {
					t.Errorf("%s %q clean %v: %v", file, text, clean, got)
				}
				if told := n.told(NoticeCheckpoint) == 1; told != (text != "") {
					t.Errorf("%s %q: told %v", file, text, told)
				}
				if out, err := putDurable(log(t, n, "t", 0), oneBatch(1, 3, "3")); err != nil || !out.Duplicate || out.Base != 3 {
					t.Errorf("%s %q: a retry: %+v, %v", file, text, out, err)
				}
				mustClose(t, n)
			}
		}
	}
}

// TestF7Leftovers is the engine's part of case F7: what interrupted housekeeping and strangers left in the
// directory is cleaned up, set aside or left alone, and told; live data is not touched.
func TestF7Leftovers(t *testing.T) {
	const uuid = "0123456789abcdef0123456789abcdef"
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "a.b-c", 1, nil)
	want := fill(t, log(t, n, "a.b-c", 0), 3)
	mustClose(t, n)
	put := func(name, text string) {
		t.Helper()
		dir := name[:strings.LastIndexByte(name, '/')]
		if err := m.MkdirAll(dataDir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(m, dataDir+dir, name[len(dir)+1:], []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	stranger := string(encodeTopicID(TopicID{1, 2, 3}))
	put("/gone.x-y-0."+uuid+"-delete/00000000000000000000.log", "old")
	put("/empty-0/partition.metadata", stranger)
	put("/empty-0/00000000000000000000.log", "")
	put("/stray-7/partition.metadata", stranger)
	put("/stray-7/00000000000000000000.log", "records")
	put("/a.b-c-1/00000000000000000000.log", "a partition number beyond the topic's")
	put("/aside-0."+uuid+"-stray/00000000000000000000.log", "from an earlier start")
	put("/backup-4/photo.jpg", "unrelated")
	put("/notes.txt", "unrelated")
	put("/sekali.coord-3", "a snapshot of a coordinator")
	put("/recovery-point-offset-checkpoint.tmp", "half")
	put("/a.b-c-0/00000000000000009000.snapshot.tmp", "half")
	put("/__cluster_metadata-0/00000000000000000000.log", "of another program")
	n = mustStart(t, m, nil)
	n.tick(1)
	if got := readAll(log(t, n, "a.b-c", 0)); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	names, err := m.ReadDir(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, name := range names {
		if _, _, kind := parseDir(name); kind == dirStray {
			name = name[:strings.LastIndexByte(name, '.')] + "-stray"
		}
		if !ownName(name) || strings.HasPrefix(name, "sekali.coord") {
			left = append(left, name)
		}
	}
	should := []string{"__cluster_metadata-0", "a.b-c-0", "a.b-c-1-stray", "aside-0-stray", "backup-4", "notes.txt",
		"sekali.coord-3", "stray-7-stray"}
	if !slices.Equal(left, should) {
		t.Errorf("left %v\nwant %v", left, should)
	}
	if s, f, r := n.told(NoticeStray), n.told(NoticeForeign), n.told(NoticeRemoved); s != 2 || f != 4 || r != 4 {
		t.Errorf("%d strays, %d foreign, %d removed: %+v", s, f, r, n.notices)
	}
	n.create(t, "stray", 1, nil)
	if err := n.s.Validate(NewTopic{Name: "backup", Partitions: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.s.CreateTopics(NewTopic{Name: "backup", Partitions: 5}); err == nil ||
		!strings.Contains(err.Error(), "in the way") {
		t.Errorf("a topic over a stranger's directory: %v", err)
	}
	if ok, _ := vfs.Exists(m, dataDir+"/backup-4/photo.jpg"); !ok {
		t.Error("a stranger's file was removed")
	}
	mustClose(t, n)
}

// kafkaDirectory makes what Apache Kafka leaves after a clean stop, out of a directory of ours.
func kafkaDirectory(t *testing.T, unclean bool) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "orders", 2, nil)
	compact, err := ParseTopic(map[string]string{"cleanup.policy": "compact"}, TopicConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.s.CreateTopics(NewTopic{Name: "__consumer_offsets", Partitions: 1, Internal: true,
		Config: compact}); err != nil {
		t.Fatal(err)
	}
	fill(t, log(t, n, "orders", 0), 3)
	if _, err := putDurable(log(t, n, "orders", 1), oneBatch(70_123, 0, "high pid")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
	for _, name := range []string{FormatFile, "sekali.meta"} {
		if err := m.Remove(dataDir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if unclean {
		if err := m.Remove(dataDir + "/" + CleanFile); err != nil {
			t.Fatal(err)
		}
	}
	// High watermarks of a cluster say nothing about this disk.
	high := Offsets{{"orders", 0}: 3, {"orders", 1}: 900}
	if err := WriteOffsets(m, dataDir, MarkFile, high); err != nil {
		t.Fatal(err)
	}
	edit(t, m, dataDir+"/orders-0/leader-epoch-checkpoint", func([]byte) []byte { return []byte("0\n1\n41 0\n") })
	id := "#\nversion=1\ncluster.id=Some-Kafka_Cluster-Id0\nnode.id=0\ndirectory.id=abcdefghijklmnopqrstuv\n"
	if err := vfs.WriteFileAtomic(m, dataDir, PropertiesFile, []byte(id)); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAdoption: a directory without our marker is taken over in place, also when the first attempts are cut short
// at any file operation.
func TestAdoption(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		for step := 1; ; step += 4 {
			m := kafkaDirectory(t, unclean)
			n, err := start(vfs.Inject(m, vfs.Rule{Nth: step, Times: -1, Err: errDead}), nil)
			if n.s != nil {
				_ = n.close()
			}
			whole := err == nil
			m = m.Crash(vfs.CrashPlan{Seed: uint64(step), KeepUnsynced: 50})
			for range 2 {
				n = mustStart(t, m, nil)
				adopted(t, n)
				mustClose(t, n)
			}
			if whole {
				if step < 40 {
					t.Fatalf("only %d file operations", step)
				}
				break
			}
		}
	}
}

func adopted(t *testing.T, n *node) {
	t.Helper()
	if n.s.ClusterID() != "Some-Kafka_Cluster-Id0" || n.s.NodeID() != 0 || n.s.DirectoryID() != "abcdefghijklmnopqrstuv" {
		t.Fatalf("%+v", n.s.id)
	}
	orders, offsets := n.s.Catalog().ByName["orders"], n.s.Catalog().ByName["__consumer_offsets"]
	if len(n.s.Catalog().ByName) != 2 || len(orders.Partitions) != 2 || orders.Internal || !offsets.Internal ||
		!offsets.Config.Compact || n.s.Recovery().Offline != 0 {
		t.Fatalf("%+v %+v %+v", orders, offsets, n.s.Recovery())
	}
	if id, err := ReadPartitionID(n.fs, dataDir+"/orders-1"); err != nil || id != orders.ID {
		t.Fatalf("id %s of the directory, %s of the topic, %v", id, orders.ID, err)
	}
	if n.s.Epoch() <= 41 {
		t.Fatalf("start epoch %d, the old leader was at 41", n.s.Epoch())
	}
	if got := readAll(log(t, n, "orders", 0)); len(got) < 3 || !slices.Equal(got[:3], []string{"0", "1", "2"}) {
		t.Fatalf("%v", got)
	}
	if out, err := putDurable(log(t, n, "orders", 0), oneBatch(1, 2, "2")); err != nil || !out.Duplicate || out.Base != 2 {
		t.Fatalf("a retry of before: %+v, %v", out, err)
	}
	if first, err := ReservePIDs(t.Context(), n.m, 1); err != nil || first <= 70_123 {
		t.Fatalf("producer id %d was given out by the old cluster, %v", first, err)
	}
	if v, err := readFormat(n.fs, dataDir); err != nil || v != FormatVersion {
		t.Fatalf("format %d, %v", v, err)
	}
}

// TestFullDiskCanDelete: on a full disk appends are refused with ErrFull, reading goes on, and deleting a topic gives
// room again, without a restart.
func TestFullDiskCanDelete(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	big := n.create(t, "big", 1, nil)
	n.create(t, "small", 1, nil)
	want := fill(t, log(t, n, "small", 0), 3)
	fill(t, log(t, n, "big", 0), 1)
	n.tick(2)
	m.SetCapacity(m.Used() + 100_000)
	value := strings.Repeat("x", 5000)
	full := func(topic string, pid int64) error {
		for seq := int32(0); ; seq++ {
			if _, err := putDurable(log(t, n, topic, 0), oneBatch(pid, seq, value)); err != nil {
				return err
			}
			if seq > 10_000 {
				t.Fatal("the disk does not fill up")
			}
		}
	}
	for _, topic := range []string{"big", "small"} {
		if err := full(topic, 9); !errors.Is(err, plog.ErrFull) {
			t.Fatalf("%s: %v", topic, err)
		}
	}
	n.tick(3)
	if got := readAll(log(t, n, "small", 0)); len(got) < 3 || !slices.Equal(got[:3], want) {
		t.Fatalf("reading on a full disk: %d records", len(got))
	}
	err := n.s.DeleteTopic(big.ID, nil)
	for tries := 0; err != nil && tries < 3; tries++ { // as an administrator does
		n.tick(2)
		err = n.s.DeleteTopic(big.ID, nil)
	}
	if err != nil {
		t.Fatalf("deleting on a full disk: %v", err)
	}
	n.tick(2)
	if _, err := putDurable(log(t, n, "small", 0), oneBatch(10, 0, "room")); err != nil {
		t.Fatalf("after the deletion: %v", err)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if _, err := n.s.Partition(TP{Topic: "big"}); !errors.Is(err, ErrUnknownTopic) {
		t.Fatal(err)
	}
}

// TestRecurringFaultsAreToldOnce: work that fails every second is told when it begins to fail, and again when it
// fails in another way or after it had gone well.
func TestRecurringFaultsAreToldOnce(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, nil)
	defer mustClose(t, n)
	n.create(t, "t", 1, nil)
	for i, c := range []struct {
		err  error
		told int
	}{{syscall.ENOSPC, 1}, {syscall.ENOSPC, 1}, {syscall.EIO, 2}, {nil, 2}, {syscall.EIO, 3}} {
		if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, int32(i), "v")); err != nil {
			t.Fatal(err)
		}
		rule := fs.Add(vfs.Rule{Op: "openfile", Match: MarkFile + ".tmp", Err: c.err})
		n.tick(3)
		rule.Remove()
		if got := n.told(NoticeFault); got != c.told {
			t.Errorf("step %d, %v: told %d times, want %d", i, c.err, got, c.told)
		}
	}
}

// TestEveryLogHasItsTurn: with more logs than one tick looks at, each is looked at within a few ticks.
func TestEveryLogHasItsTurn(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	defer mustClose(t, n)
	const topics, parts = 10, 40
	for i := range topics {
		n.create(t, fmt.Sprint("t", i), parts, map[string]string{"segment.ms": "1000"})
	}
	n.s.parts(func(p *part) {
		if _, err := putDurable(p.log.Load(), oneBatch(1, 0, "v")); err != nil {
			t.Fatal(err)
		}
	})
	n.clk.Advance(2 * time.Second)
	for range tickShare {
		n.s.Tick()
	}
	rolled := 0
	n.s.parts(func(p *part) {
		if ok, _ := vfs.Exists(m, p.dir+"/00000000000000000001.log"); ok {
			rolled++
		}
	})
	if rolled != topics*parts {
		t.Fatalf("%d of %d logs had their turn within %d ticks", rolled, topics*parts, tickShare)
	}
}

// TestUnknownLogStart: where no log start is filed, in a directory Kafka wrote or after the file was damaged, the
// first segment begins the log; then the start is filed, and from there on a missing head is damage.
func TestUnknownLogStart(t *testing.T) {
	for _, adopted := range []bool{true, false} {
		m := vfs.NewMem()
		n := mustStart(t, m, nil)
		n.create(t, "t", 1, map[string]string{"internal.segment.bytes": "300"})
		fill(t, log(t, n, "t", 0), 20)
		if err := log(t, n, "t", 0).DeleteBefore(9); err != nil {
			t.Fatal(err)
		}
		n.tick(70)
		mustClose(t, n)
		first := n.s.firstBase(dataDir + "/t-0")
		if first <= 0 || first > 9 {
			t.Fatalf("the first segment begins at %d", first)
		}
		if adopted {
			for _, name := range []string{FormatFile, "sekali.meta", StartFile} {
				if err := m.Remove(dataDir + "/" + name); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			edit(t, m, dataDir+"/"+StartFile, func([]byte) []byte { return []byte("x") })
		}
		n = mustStart(t, m, nil)
		if at := log(t, n, "t", 0).Offsets(); at.Start != first || at.End != 20 {
			t.Fatalf("adopted %v: %+v, the first segment begins at %d", adopted, at, first)
		}
		if o, err := ReadOffsets(m, dataDir, StartFile); err != nil || o[Place{"t", 0}] != first {
			t.Fatalf("adopted %v: filed %v, %v", adopted, o, err)
		}
		mustClose(t, n)
		if err := m.Remove(fmt.Sprintf("%s/t-0/%020d.log", dataDir, first)); err != nil {
			t.Fatal(err)
		}
		n = mustStart(t, m, nil)
		if _, err := n.s.Partition(TP{Topic: "t"}); !errors.Is(err, plog.ErrOffline) {
			t.Fatalf("adopted %v: a head that vanished: %v", adopted, err)
		}
		_ = n.close()
	}
}

// TestFirstStartIsOurs: only what lies in a directory before its first start may be Kafka's. A partition that is opened
// again later in that process lost what it lacks: neither a missing transaction index nor a hole is let pass.
func TestFirstStartIsOurs(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	defer mustClose(t, n)
	n.create(t, "t", 1, map[string]string{"cleanup.policy": "compact,delete", "internal.segment.bytes": "300"})
	l := log(t, n, "t", 0)
	m.FailSync(dataDir+"/t-0/00000000000000000000.log", 1, syscall.EIO)
	ins, outs := make([]plog.AppendIn, 2), make([]plog.AppendOut, 2)
	for i := range ins { // with one call, so that no flush comes between: the second one rolls
		v := oneBatch(int64(i), 0, strings.Repeat("x", 150))
		checked, err := v.Validate(batch.Limits{Deep: true})
		if err != nil {
			t.Fatal(err)
		}
		ins[i] = plog.AppendIn{Batch: v, Checked: checked, Version: 9}
	}
	if err := l.AppendAll(ins, outs); err != nil {
		t.Fatal(err)
	}
	if _, err := putDurable(l, oneBatch(-1, -1, "z")); !errors.Is(err, plog.ErrOffline) {
		t.Fatalf("flush of a bad disk: %v", err)
	}
	n.tick(7)
	if l = log(t, n, "t", 0); l.Offsets().End != 0 {
		t.Fatalf("opened again at %+v: the first batch is lost, and what follows it with it", l.Offsets())
	}
}
