package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// fetched sends a Fetch and records the answer: the code, the session as a yes or no, and of every partition its
// watermarks and the bytes.
func (s *side) fetched(step string, r *kmsg.FetchRequest) *kmsg.FetchResponse {
	resp, ok := ask[*kmsg.FetchResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return nil
	}
	var all []string
	for _, t := range resp.Topics {
		name := t.Topic
		if r.Version >= 13 {
			name = s.topicName(t.TopicID)
		}
		for _, p := range t.Partitions {
			all = append(all, fmt.Sprintf("; %s %d: %s", name, p.Partition, partitionText(&p)))
		}
	}
	slices.Sort(all)
	s.see(step, "code %d, session %v%s", resp.ErrorCode, resp.SessionID != 0, strings.Join(all, ""))
	return resp
}

func partitionText(p *kmsg.FetchResponseTopicPartition) string {
	text := fmt.Sprintf("code %d, high %d, stable %d, start %d", p.ErrorCode, p.HighWatermark, p.LastStableOffset,
		p.LogStartOffset)
	if p.ErrorCode == 0 {
		text += ", aborted " + abortedText(p)
	}
	return text + ", records " + batchesText(p.RecordBatches)
}

func abortedText(p *kmsg.FetchResponseTopicPartition) string {
	if p.AbortedTransactions == nil {
		return "null"
	}
	return fmt.Sprint(len(p.AbortedTransactions))
}

// batchesText tells the batches of a partition: the offsets of each and the hash of all, leader epochs left out.
func batchesText(b []byte) string {
	if b == nil {
		return "null"
	}
	var all []string
	b = slices.Clone(b)
	sum := sha256.New()
	for len(b) > 0 {
		text, _, rest := describe(b)
		if rest == nil {
			all = append(all, text)
			break
		}
		all = append(all, strings.Fields(text)[0])
		batch := b[:len(b)-len(rest)]
		clear(batch[12:16])
		sum.Write(batch)
		b = rest
	}
	return fmt.Sprintf("[%s %x]", strings.Join(all, " "), sum.Sum(nil)[:4])
}

func fetchVersions(s *side) {
	s.filled("fetching")
	id := s.idOf("fetching")
	for v := int16(3); v <= 19; v++ {
		for _, isolation := range []int8{0, 1} {
			r := rawclient.Fetch(v, "fetching", 0, 4)
			r.Topics[0].TopicID, r.IsolationLevel = id, isolation
			s.fetched(fmt.Sprintf("version %d, isolation %d", v, isolation), r)
		}
	}
}

// idOf asks for the id of a topic.
func (s *side) idOf(name string) [16]byte {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	r.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, _ := ask[*kmsg.MetadataResponse](s, r)
	id := resp.Topics[0].TopicID
	s.topics[id] = name
	return id
}

// fetchPlaces fetches at every place a partition has, and where it has none.
func fetchPlaces(s *side) {
	s.filled("places")
	id := s.idOf("places")
	for _, at := range []int64{-1, 0, 1, 2, 3, 29, 30, 31, 1 << 40} {
		s.fetched(fmt.Sprintf("offset %d", at), rawclient.Fetch(12, "places", 0, at))
	}
	resp := s.fetched("unknown topic", rawclient.Fetch(12, "unknown", 0, 0))
	s.see("list of aborted transactions with an error", "%s", abortedText(&resp.Topics[0].Partitions[0]))
	s.fetched("unknown partition", rawclient.Fetch(12, "places", 1, 0))
	s.fetched("partition -1", rawclient.Fetch(12, "places", -1, 0))
	byID := func(id [16]byte, partition int32) *kmsg.FetchRequest {
		r := rawclient.Fetch(13, "", partition, 0)
		r.Topics[0].TopicID = id
		return r
	}
	s.fetched("unknown topic id", byID([16]byte{9}, 0))
	s.fetched("topic id of zeros", byID([16]byte{}, 0))
	s.fetched("unknown partition of a topic id", byID(id, 1))
	r := rawclient.Fetch(12, "places", 0, 0)
	r.Topics[0].Partitions[0].CurrentLeaderEpoch = 1000
	s.fetched("leader epoch far above", r)
	r = rawclient.Fetch(12, "places", 0, 0)
	r.ReplicaID = 5
	s.fetched("as a follower", r)
	r = rawclient.Fetch(12, "places", 0, 0)
	r.ReplicaID = -2
	s.fetched("as the debug consumer", r)
	r = rawclient.Fetch(12, "places", 0, 0)
	r.Topics = nil
	s.fetched("no topics", r)
	r = rawclient.Fetch(12, "places", 0, 0)
	r.IsolationLevel = 2
	s.fetched("isolation 2", r)
	r = rawclient.Fetch(12, "places", 0, 0)
	r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
	s.fetched("a partition twice", r)
}

// fetchSizes tests the rules about sizes: the first batch always whole, the rest within the limits. How much of a last
// batch fits is told in bytes by Kafka and in batches by sekali.
func fetchSizes(s *side) {
	s.topic("sizes", 2)
	m := of(rec{value: make([]byte, 1000)})
	n := int32(m.size())
	for p := range int32(2) {
		for range 4 {
			_, _ = ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, "sizes", p, m.bytes()))
		}
	}
	fetch := func(maxBytes, partMax int32) *kmsg.FetchRequest {
		r := rawclient.Fetch(12, "sizes", 0, 0)
		second := r.Topics[0].Partitions[0]
		second.Partition = 1
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, second)
		r.MaxBytes = maxBytes
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = partMax
		}
		return r
	}
	for _, c := range []struct {
		name         string
		all, partMax int32
	}{
		{"no limits", 1 << 20, 1 << 20}, {"0 bytes in all", 0, 1 << 20}, {"0 bytes a partition", 1 << 20, 0},
		{"1 byte in all", 1, 1 << 20}, {"1 byte a partition", 1 << 20, 1}, {"two batches in all", 2 * n, 1 << 20},
		{"two batches a partition", 1 << 20, 2 * n}, {"two and a half batches a partition", 1 << 20, 2*n + n/2},
		{"five batches in all", 5 * n, 1 << 20}, {"negative", -1, 1 << 20}, {"negative a partition", 1 << 20, -1},
	} {
		s.fetched(c.name, fetch(c.all, c.partMax))
	}
	for _, c := range []struct {
		name    string
		minimum int32
		at      int64
	}{{"minimum is there", 100, 0}, {"minimum is not there", 100, 4}, {"minimum 0 at the end", 0, 4},
		{"minimum larger than what is there", 1 << 20, 0}} {
		r := rawclient.Fetch(12, "sizes", 0, c.at)
		r.MinBytes, r.MaxWaitMillis = c.minimum, 600
		began := time.Now()
		s.fetched(c.name, r)
		s.see(c.name+": waited", "%v", time.Since(began) > 500*time.Millisecond)
	}
	r := fetch(1<<20, 1<<20)
	r.MinBytes, r.MaxWaitMillis = 1<<20, 5000
	r.Topics[0].Partitions[1].Partition = 9
	began := time.Now()
	s.fetched("an error ends the wait", r)
	s.see("an error ends the wait: waited", "%v", time.Since(began) > time.Second)
}

// sessions walks through fetch sessions.
func sessions(s *side) {
	s.topic("session", 3)
	s.topic("session-other", 1)
	put := func(topic string, partition int32) {
		_, _ = ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, topic, partition, plain(1).bytes()))
	}
	put("session", 0)
	type at struct {
		partition int32
		offset    int64
	}
	fetch := func(version int16, id, epoch int32, places ...at) *kmsg.FetchRequest {
		r := rawclient.Fetch(version, "session", 0, 0)
		r.SessionID, r.SessionEpoch = id, epoch
		t := r.Topics[0]
		t.TopicID = s.idOf("session")
		t.Partitions = nil
		for _, a := range places {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = a.partition, a.offset, 1<<20
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = []kmsg.FetchRequestTopic{t}
		if len(places) == 0 {
			r.Topics = nil
		}
		return r
	}
	for _, v := range []int16{12, 13} {
		say := func(step string) string { return fmt.Sprintf("version %d: %s", v, step) }
		first := s.fetched(say("no session asked for"), fetch(v, 0, -1, at{0, 0}))
		first = s.fetched(say("session asked for"), fetch(v, 0, 0, at{0, 0}, at{1, 0}))
		id := first.SessionID
		epoch := int32(0)
		next := func(step string, places ...at) {
			epoch++
			s.fetched(say(step), fetch(v, id, epoch, places...))
		}
		high := s.end("session", 0)
		next("offset goes on", at{0, high})
		next("nothing new")
		put("session", 1)
		next("data in the second")
		next("data in the second again, not acknowledged by a new offset")
		next("second goes on, third is added", at{1, s.end("session", 1)}, at{2, 0})
		put("session", 2)
		put("session", 0)
		next("data in two")
		next("out of range", at{2, 99})
		next("out of range again")
		next("back in range", at{2, s.end("session", 2)})
		next("unknown partition", at{7, 0})
		next("unknown partition again")
		epoch++
		forget := fetch(v, id, epoch)
		forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "session", TopicID: s.idOf("session"),
			Partitions: []int32{7, 0}}}
		s.fetched(say("forget two"), forget)
		put("session", 0)
		next("data in the forgotten")
		s.fetched(say("wrong epoch"), fetch(v, id, epoch+5))
		next("right epoch after the wrong one")
		s.fetched(say("unknown session"), fetch(v, id^0x55555, 1))
		s.fetched(say("no session, epoch 1"), fetch(v, 0, 1))
		s.fetched(say("names in place of ids, or ids in place of names"), fetch(25-v, id, epoch+1))
		s.fetched(say("session closed by a full request"), fetch(v, id, -1, at{0, 0}))
		s.fetched(say("after its end"), fetch(v, id, epoch+1))
		again := s.fetched(say("new session"), fetch(v, 0, 0, at{0, 0}))
		s.fetched(say("replaced by another"), fetch(v, again.SessionID, 0, at{1, 0}))
		s.fetched(say("after it was replaced"), fetch(v, again.SessionID, 1))
	}
}

// end is the high watermark of a partition.
func (s *side) end(topic string, partition int32) int64 {
	resp, _ := ask[*kmsg.ListOffsetsResponse](s, listOffsets(7, topic, partition, -1))
	return resp.Topics[0].Partitions[0].Offset
}

// recreated deletes a topic and makes it again while a session and ids still point to it.
func recreated(s *side) {
	old := s.topic("recreated", 1)
	fetch := rawclient.Fetch(13, "", 0, 0)
	fetch.Topics[0].TopicID, fetch.SessionEpoch = old, 0
	resp := s.fetched("session on the first", fetch)
	s.deleteTopic("recreated")
	incremental := rawclient.Fetch(13, "", 0, 0)
	incremental.Topics, incremental.SessionID, incremental.SessionEpoch = nil, resp.SessionID, 1
	s.fetched("after its deletion", incremental)
	s.topics[s.topic("recreated", 1)] = "recreated again"
	incremental.SessionEpoch = 2
	s.fetched("after it was made again", incremental)
	produce := rawclient.Produce(13, "", 0, plain(1).bytes())
	produce.Topics[0].TopicID = old
	s.produced("produce to the old id", produce)
	full := rawclient.Fetch(13, "", 0, 0)
	full.Topics[0].TopicID = old
	s.fetched("fetch of the old id", full)
}

// deleteTopic deletes a topic and waits until it is gone.
func (s *side) deleteTopic(name string) {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version, r.TimeoutMillis, r.TopicNames = 5, 10_000, []string{name}
	resp, _ := ask[*kmsg.DeleteTopicsResponse](s, r)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		panic(broken{fmt.Errorf("topic %s was not deleted: code %d", name, code)})
	}
	s.until(func() bool {
		resp, _ := ask[*kmsg.ListOffsetsResponse](s, listOffsets(7, name, 0, -1))
		return resp.Topics[0].Partitions[0].ErrorCode == 3
	})
}
