package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sekali/internal/vfs"
)

func TestOffsetsSamples(t *testing.T) {
	const kafka = "0\n3\norders 0 42\n__consumer_offsets 49 0\na.b-c 7 9223372036854775807\n"
	o, err := DecodeOffsets([]byte(kafka))
	want := Offsets{{"orders", 0}: 42, {"__consumer_offsets", 49}: 0, {"a.b-c", 7}: 1<<63 - 1}
	if err != nil || !maps.Equal(o, want) {
		t.Fatalf("%v, %v", o, err)
	}
	const sorted = "0\n3\n__consumer_offsets 49 0\na.b-c 7 9223372036854775807\norders 0 42\n"
	if got := string(EncodeOffsets(want)); got != sorted {
		t.Fatalf("%q", got)
	}
	if o, err := DecodeOffsets(nil); err != nil || len(o) != 0 {
		t.Fatalf("an empty file: %v, %v", o, err)
	}
	for _, bad := range []string{"0", "0\n", "1\n0\n", "0\n1\n", "0\n2\na 0 1\n", "0\n0\na 0 1\n", "0\n1\na 0\n",
		"0\n1\na 0 1 2\n", "0\n1\na x 1\n", "0\n1\na 0 x\n", "0\n1\na 0 -1\n", "0\n1\na -1 1\n", "x\n0\n",
		"0\n2\na 0 1\na 0 2\n", "0\n1\n\n", "\x00\x00\x00\x00"} {
		if o, err := DecodeOffsets([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, o)
		}
	}
}

func TestOffsetsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Offsets{}
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			p := Place{rapid.StringMatching(`[a-zA-Z0-9._-]{1,20}`).Draw(t, "topic"), rapid.Int32Range(0, 9).Draw(t, "n")}
			o[p] = rapid.Int64Min(0).Draw(t, "offset")
		}
		back, err := DecodeOffsets(EncodeOffsets(o))
		if err != nil || !maps.Equal(back, o) {
			t.Fatalf("%v, %v", back, err)
		}
	})
}

// TestOffsetFileSharesWrites: calls that meet share a write, each sees its value in the file, and a failure reaches
// those whose values it lost, and nobody later.
func TestOffsetFileSharesWrites(t *testing.T) {
	m := vfs.NewMem()
	if err := vfs.MkdirAllSync(m, dataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	fs := vfs.Inject(m)
	writes := fs.Add(vfs.Rule{Op: "rename"})
	f := newOffsetFile(fs, dataDir, RecoveryFile)
	var mu sync.Mutex
	now := Offsets{}
	render := func() Offsets {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(now)
	}
	const callers = 50
	var wg sync.WaitGroup
	gate := make(chan struct{})
	fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Do: func() { <-gate }})
	for i := range callers {
		wg.Go(func() {
			mu.Lock()
			now[Place{"t", int32(i)}] = int64(i)
			if len(now) == callers {
				close(gate)
			}
			mu.Unlock()
			if err := f.write(render); err != nil {
				t.Error(err)
			}
			got, err := ReadOffsets(m, dataDir, RecoveryFile)
			if at, ok := got[Place{"t", int32(i)}]; err != nil || !ok || at != int64(i) {
				t.Errorf("caller %d: %v, %v", i, at, err)
			}
		})
	}
	wg.Wait()
	if n := writes.Hits(); n > callers/2 {
		t.Errorf("%d writes for %d callers", n, callers)
	}
	fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Err: syscall.EIO})
	if err := f.write(render); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed write: %v", err)
	}
	if err := f.write(render); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestFormatMarker(t *testing.T) {
	m := vfs.NewMem()
	if err := vfs.MkdirAllSync(m, dataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text    string
		version int
		newer   bool
		bad     bool
	}{
		{string(encodeFormat(1)), 1, false, false},
		{string(encodeFormat(2)), 2, true, true},
		{"", 0, false, true},
		{"sekali-format 1\n", 0, false, true},
		{strings.Replace(string(encodeFormat(1)), "1", "2", 1), 0, false, true},
	} {
		if err := vfs.WriteFileAtomic(m, dataDir, FormatFile, []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		v, err := readFormat(m, dataDir)
		if v != c.version || errors.Is(err, ErrFormat) != c.bad || c.newer && !strings.Contains(err.Error(), "format 2") {
			t.Errorf("%q: %d, %v", c.text, v, err)
		}
	}
}

func TestProperties(t *testing.T) {
	for _, c := range []struct {
		text string
		want Identity
		bad  bool
	}{
		{"#\n#Thu Jan 01\nversion=1\ncluster.id=abc\nnode.id=0\ndirectory.id=xyz\n", Identity{"abc", 0, "xyz"}, false},
		{"version=0\nbroker.id=3\ncluster.id=abc\n", Identity{"abc", 3, ""}, false},
		{" node.id = 7 \nversion=1\n", Identity{"", 7, ""}, false},
		{"version=1\n", Identity{"", -1, ""}, false},
		{"version=2\nnode.id=1\n", Identity{}, true},
		{"node.id=1\n", Identity{}, true},
		{"version=1\nnode.id=-1\n", Identity{}, true},
		{"garbage", Identity{}, true},
	} {
		id, err := decodeProperties([]byte(c.text))
		if (err != nil) != c.bad || !c.bad && id != c.want {
			t.Errorf("%q: %+v, %v", c.text, id, err)
		}
	}
	id := Identity{"c", 5, "d"}
	if back, err := decodeProperties(encodeProperties(id)); err != nil || back != id {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestLock(t *testing.T) {
	m := vfs.NewMem()
	c := Config{Dir: dataDir, FS: m}
	first, err := Lock(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(c); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), dataDir) {
		t.Fatalf("a second instance: %v", err)
	}
	denied := c
	denied.FS = vfs.Inject(c.FS, vfs.Rule{Op: "lockfile", Err: fs.ErrPermission})
	if _, err := Lock(denied); !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "in use") {
		t.Fatalf("no permission: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for kind, refused := range map[string]bool{"nfs": true, "fuse": true, "smb": true, "9p": true, "ceph": true,
		"ext4": false, "xfs": false, "tmpfs": false, "overlay": false} {
		told := 0
		c := Config{Dir: dataDir, FS: m, Notice: func(n Notice) {
			if n.Kind == NoticeFileSystem {
				told++
			}
		}}
		m.SetKind(kind)
		l, err := Lock(c)
		if refused != errors.Is(err, ErrFileSystem) || !refused && err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if refused {
			c.UnsafeFS = true
			l, err = Lock(c)
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if want := kind == "overlay" || refused; (told == 1) != want {
			t.Errorf("%s: %d notices", kind, told)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostMetadataRefusesTheStart: without the metadata every partition would look like a stranger's.
func TestLostMetadataRefusesTheStart(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "a", 1, nil)
	mustClose(t, n)
	if err := m.Remove(dataDir + "/sekali.meta"); err != nil {
		t.Fatal(err)
	}
	if _, err := start(m, nil); !errors.Is(err, ErrFormat) {
		t.Fatalf("%v", err)
	}
	if _, err := m.Stat(dataDir + "/a-0"); err != nil {
		t.Fatal("the partition was touched")
	}
}

func TestIdentity(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, func(c *Config) { c.NodeID = 4 })
	cluster, dir := n.s.ClusterID(), n.s.DirectoryID()
	if n.s.NodeID() != 4 {
		t.Fatalf("node %d", n.s.NodeID())
	}
	mustClose(t, n)
	if _, err := start(m, func(c *Config) { c.NodeID = 5 }); !errors.Is(err, ErrIdentity) {
		t.Fatalf("another node: %v", err)
	}
	if err := m.Remove(dataDir + "/" + PropertiesFile); err != nil {
		t.Fatal(err)
	}
	n = mustStart(t, m, nil)
	if n.s.ClusterID() != cluster || n.s.DirectoryID() == dir || n.s.NodeID() != 1 {
		t.Fatalf("after the file was lost: cluster %s, was %s; node %d", n.s.ClusterID(), cluster, n.s.NodeID())
	}
	mustClose(t, n)
	other := Identity{strings.Repeat("A", 22), 1, dir}
	if err := vfs.WriteFileAtomic(m, dataDir, PropertiesFile, encodeProperties(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := start(m, nil); !errors.Is(err, ErrIdentity) {
		t.Fatalf("another cluster: %v", err)
	}
}

func TestCounters(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				first, err := ReservePIDs(context.Background(), n.m, 10)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if first%10 != 0 || seen[first] {
					t.Errorf("block %d twice or torn", first)
				}
				seen[first] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	mustClose(t, n)
	for want := int32(2); want < 5; want++ {
		n := mustStart(t, m, nil)
		if n.s.Epoch() != want {
			t.Fatalf("epoch %d, want %d", n.s.Epoch(), want)
		}
		first, err := ReservePIDs(context.Background(), n.m, 1)
		if err != nil || first != 1600+int64(want)-2 {
			t.Fatalf("producer id %d, %v", first, err)
		}
		mustClose(t, n)
	}
	if _, err := ReservePIDs(context.Background(), n.m, 0); err == nil {
		t.Fatal("an empty block")
	}
}

func TestReadCatalog(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	defer mustClose(t, n)
	b := n.create(t, "b", 2, map[string]string{"retention.ms": "5"})
	n.create(t, "a", 1, nil)
	if err := n.s.UpdateBroker("1", func(old map[string]string) (map[string]string, error) {
		return map[string]string{"log.retention.ms": "9"}, nil
	}); err != nil {
		t.Fatal(err)
	}
	state, _, err := n.m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	topics, servers, err := ReadCatalog(state)
	if err != nil || len(topics) != 2 || topics[0].Name != "a" || topics[1].ID != b.ID || topics[1].Partitions != 2 ||
		topics[1].Set["retention.ms"] != "5" || servers["1"]["log.retention.ms"] != "9" {
		t.Fatalf("%+v, %v, %v", topics, servers, err)
	}
	if got := fmt.Sprint(n.s.BrokerConfig("1"), n.s.BrokerConfig("")); got != "map[log.retention.ms:9] map[]" {
		t.Fatal(got)
	}
}
