package broker

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wait makes a Fetch that waits for data.
func wait(version int16, topic string, offset int64, min int32, ms int32) *kmsg.FetchRequest {
	r := rawclient.Fetch(version, topic, 0, offset)
	r.MinBytes, r.MaxWaitMillis = min, ms
	return r
}

// TestFetchVersions: what was stored comes back byte for byte, but for base offset and leader epoch, in every version.
func TestFetchVersions(t *testing.T) {
	n := start(t, nil)
	id := n.topic("t", 1, nil)
	c := n.dial()
	var sent [][]byte
	for i := range int32(3) {
		v := rawclient.Batch(0, 5, 0, 2*i, 2, 50)
		sent = append(sent, bytes.Clone(v))
		if p := produced(t, c, rawclient.Produce(9, "t", 0, v)); p.ErrorCode != 0 {
			t.Fatal(p.ErrorCode)
		}
	}
	for version := int16(4); version <= 18; version++ {
		for _, isolation := range []int8{0, 1} {
			r := rawclient.Fetch(version, "t", 0, 0)
			r.Topics[0].TopicID, r.IsolationLevel = id, isolation
			p := fetched(t, c, r)
			if p.ErrorCode != 0 || p.HighWatermark != 6 || p.LastStableOffset != 6 || version >= 5 && p.LogStartOffset != 0 {
				t.Fatalf("v%d: %+v", version, p)
			}
			if (p.AbortedTransactions != nil) != (isolation == 1) {
				t.Errorf("v%d isolation %d: aborted %v", version, isolation, p.AbortedTransactions)
			}
			got := batches(t, p.RecordBatches)
			if len(got) != 3 {
				t.Fatalf("v%d: %d batches", version, len(got))
			}
			for i, v := range got {
				if !bytes.Equal(v[8:12], sent[i][8:12]) || !bytes.Equal(v[16:], sent[i][16:]) ||
					v.BaseOffset() != int64(2*i) || v.LeaderEpoch() != n.Epoch() {
					t.Errorf("v%d: batch %d is not what was sent", version, i)
				}
			}
		}
	}
}

// TestFetchErrors is spec/api.md 6 and 8.3 for Fetch.
func TestFetchErrors(t *testing.T) {
	n := start(t, nil)
	id := n.topic("t", 1, nil)
	c := n.dial()
	put(t, c, "t", 4, 10)
	with := func(version int16, fn func(*kmsg.FetchRequest)) *kmsg.FetchRequest {
		r := rawclient.Fetch(version, "t", 0, 0)
		r.Topics[0].TopicID, r.MaxWaitMillis = id, 20_000
		fn(r)
		return r
	}
	part := func(r *kmsg.FetchRequest) *kmsg.FetchRequestTopicPartition { return &r.Topics[0].Partitions[0] }
	for _, x := range []struct {
		what string
		req  *kmsg.FetchRequest
		code int16
	}{
		{"below the start", with(12, func(r *kmsg.FetchRequest) { part(r).FetchOffset = -1 }), 1},
		{"above the end", with(12, func(r *kmsg.FetchRequest) { part(r).FetchOffset = 5 }), 1},
		{"unknown topic", with(12, func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "x" }), 3},
		{"unknown partition", with(12, func(r *kmsg.FetchRequest) { part(r).Partition = 1 }), 3},
		{"unknown id", with(13, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID[3]++ }), 100},
		{"unknown partition by id", with(13, func(r *kmsg.FetchRequest) { part(r).Partition = -1 }), 3},
		{"older epoch", with(12, func(r *kmsg.FetchRequest) { part(r).CurrentLeaderEpoch = n.Epoch() - 1 }), 74},
		{"newer epoch", with(12, func(r *kmsg.FetchRequest) { part(r).CurrentLeaderEpoch = n.Epoch() + 1 }), 75},
		{"a follower", with(12, func(r *kmsg.FetchRequest) { r.ReplicaID = 2 }), 29},
		{"a follower by tag", with(15, func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 2 }), 29},
		{"our epoch", with(12, func(r *kmsg.FetchRequest) { part(r).CurrentLeaderEpoch = n.Epoch() }), 0},
		{"a debug replica", with(12, func(r *kmsg.FetchRequest) { r.ReplicaID = -2 }), 0},
	} {
		begin := time.Now()
		p := fetched(t, c, x.req)
		if p.ErrorCode != x.code {
			t.Errorf("%s: code %d, want %d", x.what, p.ErrorCode, x.code)
		}
		if x.code != 0 &&
			(p.HighWatermark != -1 || p.LogStartOffset != -1 || p.RecordBatches == nil || len(p.RecordBatches) > 0) {
			t.Errorf("%s: %+v", x.what, p)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s: an error waited %v", x.what, d)
		}
	}
	// An error of one partition answers at once for all.
	r := wait(12, "t", 4, 1, 20_000)
	r.Topics[0].Partitions = append(r.Topics[0].Partitions,
		kmsg.FetchRequestTopicPartition{Partition: 7, CurrentLeaderEpoch: -1})
	got := call[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions
	if got[0].ErrorCode != 0 || got[0].HighWatermark != 4 || got[1].ErrorCode != 3 {
		t.Errorf("%+v", got)
	}
}

// TestFetchSizes is spec/api.md 8.2: the first batch is whole whatever its size, later partitions are empty once the
// limit is reached, and only whole batches are sent.
func TestFetchSizes(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 3, nil)
	c := n.dial()
	for p := range int32(3) {
		for range 4 {
			r := rawclient.Produce(9, "t", p, rawclient.Batch(0, -1, -1, -1, 1, 1000))
			if got := produced(t, c, r); got.ErrorCode != 0 {
				t.Fatal(got.ErrorCode)
			}
		}
	}
	size := len(rawclient.Batch(0, -1, -1, -1, 1, 1000))
	for _, x := range []struct {
		what       string
		max, part  int
		want       [3]int // batches
		firstEmpty bool
	}{
		{"tiny limits", 1, 1, [3]int{1, 0, 0}, false},
		{"zero limits", 0, 0, [3]int{1, 0, 0}, false},
		{"two of each", 1 << 20, 2 * size, [3]int{2, 2, 2}, false},
		{"a border is not cut", 1 << 20, 2*size + size - 1, [3]int{2, 2, 2}, false},
		{"the request's limit", 5 * size, 1 << 20, [3]int{4, 1, 0}, false},
		{"first has nothing", 1, 1, [3]int{0, 1, 0}, true},
		{"all", 1 << 20, 1 << 20, [3]int{4, 4, 4}, false},
	} {
		r := rawclient.Fetch(12, "t", 0, 0)
		r.MaxBytes, r.Topics[0].Partitions = int32(x.max), nil
		for p := range int32(3) {
			q := kmsg.NewFetchRequestTopicPartition()
			q.Partition, q.PartitionMaxBytes = p, int32(x.part)
			if x.firstEmpty && p == 0 {
				q.FetchOffset = 4
			}
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, q)
		}
		var got [3]int
		for _, p := range call[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions {
			got[p.Partition] = len(batches(t, p.RecordBatches))
		}
		if got != x.want {
			t.Errorf("%s: %v batches, want %v", x.what, got, x.want)
		}
	}
	// A batch is whole when the offset lies inside it.
	put(t, c, "t", 10, 10)
	inside := batches(t, fetched(t, c, rawclient.Fetch(12, "t", 0, 9)).RecordBatches)
	if len(inside) != 1 || inside[0].BaseOffset() != 4 {
		t.Errorf("offset 9 gives %d batches", len(inside))
	}
}

// TestFetchParks: a Fetch without enough data waits, wakes when there is enough, and answers with what there is when
// its time is up. A limit that cuts counts as enough.
func TestFetchParks(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	c, p := n.dial(), n.dial()
	r := wait(12, "t", 0, 1, 20_000)
	if err := c.Send(r); err != nil {
		t.Fatal(err)
	}
	if !silent(c, 50*time.Millisecond) {
		t.Fatal("answered without data")
	}
	put(t, p, "t", 1, 100)
	if got := receive[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions[0]; len(batches(t, got.RecordBatches)) != 1 {
		t.Fatal("woken without the batch")
	}
	size := int32(len(rawclient.Batch(0, -1, -1, -1, 1, 100)))
	r = wait(12, "t", 1, 3*size, 20_000)
	if err := c.Send(r); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		put(t, p, "t", 1, 100)
	}
	if !silent(c, 50*time.Millisecond) {
		t.Fatal("answered with less than minBytes")
	}
	put(t, p, "t", 1, 100)
	if got := receive[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions[0]; len(batches(t, got.RecordBatches)) != 3 {
		t.Fatal("not the three batches")
	}
	r = wait(12, "t", 1, 3*size, 20_000)
	r.Topics[0].Partitions[0].PartitionMaxBytes = 2*size + 1
	if got := fetched(t, c, r); len(batches(t, got.RecordBatches)) != 2 {
		t.Fatal("a partition's limit must not park for ever")
	}
	begin := time.Now()
	if got := fetched(t, c, wait(12, "t", 2, 1<<20, 60)); len(batches(t, got.RecordBatches)) != 2 {
		t.Fatal("time up: what there is")
	}
	if d := time.Since(begin); d < 55*time.Millisecond || d > 5*time.Second {
		t.Fatalf("waited %v, asked for 60 ms", d)
	}
	nothing := fetched(t, c, wait(12, "t", 4, 1, 30))
	if nothing.ErrorCode != 0 || nothing.HighWatermark != 4 || len(nothing.RecordBatches) > 0 {
		t.Fatalf("%+v", nothing)
	}
	none := wait(12, "t", 0, 1, 20_000)
	none.Topics = nil
	if got := call[*kmsg.FetchResponse](t, c, none); len(got.Topics) != 0 {
		t.Fatal("no partitions: nothing to wait for")
	}
}

// TestParkedFetchEnds: a parked Fetch ends when its topic is deleted (3, by id 100), when its client vanishes, and
// when the server stops. The request behind it waits for its answer.
func TestParkedFetchEnds(t *testing.T) {
	n := start(t, nil)
	id := n.topic("gone", 1, nil)
	n.topic("t", 1, nil)
	for _, version := range []int16{12, 13} {
		if version == 13 {
			id = n.topic("gone", 1, nil)
		}
		c := n.dial()
		r := wait(version, "gone", 0, 1, 20_000)
		r.Topics[0].TopicID = id
		behind := rawclient.Fetch(12, "t", 0, 0)
		if err := c.Send(r, behind); err != nil {
			t.Fatal(err)
		}
		if !silent(c, 30*time.Millisecond) {
			t.Fatal("answered, or overtaken by the request behind it")
		}
		d := kmsg.NewPtrDeleteTopicsRequest()
		d.Version, d.TimeoutMillis, d.TopicNames = 5, 10_000, []string{"gone"}
		if got := call[*kmsg.DeleteTopicsResponse](t, n.dial(), d).Topics[0]; got.ErrorCode != 0 {
			t.Fatalf("delete: code %d", got.ErrorCode)
		}
		want := int16(3)
		if version >= 13 {
			want = 100
		}
		if got := receive[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions[0]; got.ErrorCode != want {
			t.Errorf("v%d: code %d, want %d", version, got.ErrorCode, want)
		}
		if got := receive[*kmsg.FetchResponse](t, c, behind); got.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Error("the request behind it failed")
		}
	}
	c := n.dial()
	if err := c.Send(wait(12, "t", 0, 1, 300_000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "parked", func() bool { return n.parked() == 1 })
	c.Close()
	eventually(t, "noticed that the client vanished", func() bool { return n.parked() == 0 })

	c = n.dial()
	r := wait(12, "t", 0, 1, 300_000)
	if err := c.Send(r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "parked", func() bool { return n.parked() == 1 })
	begin := time.Now()
	n.stop()
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if got := receive[*kmsg.FetchResponse](t, c, r).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Errorf("answered at stop: code %d", got.ErrorCode)
	}
}

// TestParkedPartitionsBounded: fetches that wait hold a bounded number of partitions; one beyond it is answered at
// once, and those that end make room.
func TestParkedPartitionsBounded(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	large := wait(12, "t", 0, 1, 300_000)
	for range 60_000 - 1 {
		large.Topics[0].Partitions = append(large.Topics[0].Partitions, large.Topics[0].Partitions[0])
	}
	var cs []*rawclient.Client
	for i := range parkedPartsMax / 60_000 {
		cs = append(cs, n.dial())
		if err := cs[i].Send(large); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "parked", func() bool { return n.parked() == len(cs) })
	if got := call[*kmsg.FetchResponse](t, n.dial(), large); len(got.Topics[0].Partitions) != 60_000 {
		t.Fatalf("%d partitions answered", len(got.Topics[0].Partitions))
	}
	small := n.dial()
	if err := small.Send(wait(12, "t", 0, 1, 300_000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a small one has room", func() bool { return n.parked() == len(cs)+1 })
	cs[0].Close()
	eventually(t, "gone", func() bool { return n.parkings.parts.Load() == int64(60_000*(len(cs)-1)+1) })
	put(t, n.dial(), "t", 1, 10)
	for _, c := range append(cs[1:], small) {
		receive[*kmsg.FetchResponse](t, c, large)
	}
	if k := n.parkings.parts.Load(); k != 0 {
		t.Fatalf("%d partitions are counted, none is waited for", k)
	}
}

// parked counts the connections with a parked Fetch.
func (n *node) parked() (k int) {
	for _, c := range n.open() {
		c.mu.Lock()
		if c.parked != nil {
			k++
		}
		c.mu.Unlock()
	}
	return k
}

// TestFetchSessions: the life of a session over the wire: a full answer, then only what changed; the epoch that moved
// while a request was parked; a topic deleted and made anew (103).
func TestFetchSessions(t *testing.T) {
	n := start(t, nil)
	id := n.topic("t", 3, nil)
	c := n.dial()
	full := rawclient.Fetch(13, "", 0, 0)
	full.SessionEpoch, full.Topics[0].TopicID, full.Topics[0].Partitions = 0, id, nil
	for p := range int32(3) {
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.PartitionMaxBytes = p, 1<<20
		full.Topics[0].Partitions = append(full.Topics[0].Partitions, q)
	}
	resp := call[*kmsg.FetchResponse](t, c, full)
	if resp.SessionID == 0 || len(resp.Topics[0].Partitions) != 3 {
		t.Fatalf("full: session %d, %d topics", resp.SessionID, len(resp.Topics))
	}
	next := func(epoch int32, offsets ...int64) *kmsg.FetchRequest {
		r := rawclient.Fetch(13, "", 0, 0)
		r.SessionID, r.SessionEpoch, r.Topics = resp.SessionID, epoch, nil
		if len(offsets) > 0 {
			r.Topics = rawclient.Fetch(13, "", int32(offsets[0]), offsets[1]).Topics
			r.Topics[0].TopicID = id
		}
		return r
	}
	told := func(r *kmsg.FetchRequest) (code int16, parts []int32) {
		got := call[*kmsg.FetchResponse](t, c, r)
		for _, tp := range got.Topics {
			for _, p := range tp.Partitions {
				parts = append(parts, p.Partition)
			}
		}
		return got.ErrorCode, parts
	}
	if code, parts := told(next(1)); code != 0 || len(parts) != 0 {
		t.Fatalf("nothing new: code %d, %v", code, parts)
	}
	if p := produced(t, c, rawclient.Produce(9, "t", 1, rawclient.Batch(0, -1, -1, -1, 1, 9))); p.ErrorCode != 0 {
		t.Fatal(p.ErrorCode)
	}
	if code, parts := told(next(2)); code != 0 || !slices.Equal(parts, []int32{1}) {
		t.Fatalf("one moved: code %d, %v", code, parts)
	}
	if code, parts := told(next(3, 1, 1)); code != 0 || len(parts) != 0 {
		t.Fatalf("read on: code %d, %v", code, parts)
	}
	if code, _ := told(next(3)); code != 71 {
		t.Fatalf("wrong epoch: code %d", code)
	}
	// Parked on one connection, used on another: the epoch moved.
	parked, other := next(4), n.dial()
	parked.MaxWaitMillis = 150
	if err := c.Send(parked); err != nil {
		t.Fatal(err)
	}
	eventually(t, "parked", func() bool { return n.parked() == 1 })
	if got := call[*kmsg.FetchResponse](t, other, next(5)); got.ErrorCode != 0 {
		t.Fatalf("the other connection: code %d", got.ErrorCode)
	}
	if got := receive[*kmsg.FetchResponse](t, c, parked); got.ErrorCode != 71 {
		t.Fatalf("parked while the epoch moved: code %d, want 71", got.ErrorCode)
	}
	d := kmsg.NewPtrDeleteTopicsRequest()
	d.Version, d.TimeoutMillis, d.TopicNames = 5, 10_000, []string{"t"}
	call[*kmsg.DeleteTopicsResponse](t, other, d)
	got := call[*kmsg.FetchResponse](t, c, next(6))
	if len(got.Topics) != 1 || got.Topics[0].Partitions[0].ErrorCode != 100 {
		t.Fatalf("deleted: %+v", got)
	}
	n.topic("t", 3, nil)
	got = call[*kmsg.FetchResponse](t, c, next(7))
	if len(got.Topics) != 1 || got.Topics[0].Partitions[0].ErrorCode != 103 {
		t.Fatalf("made anew: %+v, want 103", got)
	}
}

// TestFetchAllocations: fetching hot data copies no record bytes: a megabyte costs less than its hundredth on the
// heap.
func TestFetchAllocations(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, map[string]string{"max.message.bytes": "2000000"})
	c := n.dial()
	put(t, c, "t", 1, 1<<20)
	frame := rawclient.Frame(1, "raw", rawclient.Fetch(12, "t", 0, 0))
	in := make([]byte, 1<<20+4096)
	round := func() {
		if err := c.SendRaw(frame); err != nil {
			t.Fatal(err)
		}
		read := 0
		for size := 4; read < size; {
			k, err := c.Conn.Read(in[read:])
			if err != nil {
				t.Fatal(err)
			}
			if read += k; read >= 4 && size == 4 {
				size = 4 + int(in[0])<<24 + int(in[1])<<16 + int(in[2])<<8 + int(in[3])
			}
		}
	}
	for range 20 {
		round()
	}
	bytes := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			round()
		}
	}).AllocedBytesPerOp()
	t.Logf("%d bytes allocated per fetched MB, reading client included", bytes)
	if bytes > 10_000 {
		t.Errorf("%d bytes allocated per fetched MB", bytes)
	}
}
