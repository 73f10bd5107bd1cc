package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// side is one of the two brokers while a script runs against it. What is seen of it is normalised only where two
// correct brokers cannot agree: topic ids and producer ids become names, the leader epoch of stored batches and times of
// the broker's clock become words.
type side struct {
	addr   string
	script string
	c      *rawclient.Client
	seen   []observation
	steps  map[string]bool
	topics map[[16]byte]string

	pids    map[int64]string
	members map[string]string
	marks   int    // changes made by marker
	failure string // how the last request ended that was not answered
}

// observation is what one step of a script showed.
type observation struct{ step, value string }

func newSide(addr, script string) (*side, error) {
	s := &side{addr: addr, script: script, steps: map[string]bool{}, topics: map[[16]byte]string{}}
	return s, s.connect()
}

// connect begins a new connection.
func (s *side) connect() (err error) {
	s.close()
	s.c, err = rawclient.Dial(s.addr)
	return err
}

func (s *side) close() {
	if s.c != nil {
		_ = s.c.Close()
		s.c = nil
	}
}

// see records an observation. Steps have names of their own within a script.
func (s *side) see(step, format string, args ...any) {
	if s.steps[step] {
		panic("two steps of " + s.script + " are called " + step)
	}
	s.steps[step] = true
	s.seen = append(s.seen, observation{step, fmt.Sprintf(format, args...)})
}

// ask sends a request and returns its answer. If the broker does not answer, ok is false, failure says how, and a new
// connection is begun.
func ask[T kmsg.Response](s *side, r kmsg.Request) (answer T, ok bool) {
	resp, err := s.c.Call(r)
	if err == nil {
		return resp.(T), true
	}
	var timeout net.Error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		s.failure = "closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		s.failure = "no answer"
	default:
		panic(broken{err})
	}
	s.must(s.connect())
	return answer, false
}

// broken ends a script: what it met is no answer that could be compared.
type broken struct{ err error }

func (s *side) must(err error) {
	if err != nil {
		panic(broken{err})
	}
}

// topic makes a topic and waits until its partitions take requests. It keeps its records, old as they are, unless set
// says otherwise.
func (s *side) topic(name string, partitions int32, set ...string) [16]byte {
	configs := map[string]string{"retention.ms": "-1"}
	for i := 0; i < len(set); i += 2 {
		configs[set[i]] = set[i+1]
	}
	id, err := s.c.CreateTopic(name, partitions, configs)
	s.must(err)
	s.topics[id] = name
	s.settled(name, partitions)
	return id
}

// settled waits until every partition of a topic answers.
func (s *side) settled(name string, partitions int32) {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = name
	for p := range partitions {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp, q.CurrentLeaderEpoch = p, -1, -1
		t.Partitions = append(t.Partitions, q)
	}
	r.Topics = append(r.Topics, t)
	s.until(func() bool {
		resp, _ := ask[*kmsg.ListOffsetsResponse](s, r)
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 {
				return false
			}
		}
		return true
	})
}

// until waits for what comes soon.
func (s *side) until(ok func() bool) {
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			panic(broken{errors.New("waited for 20 s")})
		}
	}
}

// produce sends the bytes with acks=-1 and records the answer.
func (s *side) produce(step string, version int16, topic string, partition int32, records []byte) {
	s.produced(step, rawclient.Produce(version, topic, partition, records))
}

// produced sends a Produce request and records the answer, partition by partition.
func (s *side) produced(step string, r *kmsg.ProduceRequest) {
	resp, ok := ask[*kmsg.ProduceResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	s.see(step, "%s", produceText(resp))
}

func produceText(resp *kmsg.ProduceResponse) string {
	var all []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			text := fmt.Sprintf("code %d, base %d, time %s, start %d", p.ErrorCode, p.BaseOffset, when(p.LogAppendTime),
				p.LogStartOffset)
			if len(p.ErrorRecords) > 0 {
				text += ", records"
				for _, r := range p.ErrorRecords {
					text += fmt.Sprintf(" %d", r.RelativeOffset)
				}
			}
			all = append(all, fmt.Sprintf("%s%d %s", t.Topic, p.Partition, text))
		}
	}
	if len(all) == 1 { // of what was asked
		return all[0][strings.Index(all[0], " ")+1:]
	}
	slices.Sort(all) // Kafka answers in the order of a hash table
	return strings.Join(all, "; ")
}

// when tells the times of the broker's clock from others.
func when(ms int64) string {
	if d := time.Since(time.UnixMilli(ms)); d.Abs() < 2*time.Minute {
		return "now"
	}
	return fmt.Sprint(ms)
}

// stored records what lies in a partition: every batch with its place, its producer and the bytes themselves.
func (s *side) stored(step, topic string, partition int32) {
	s.see(step, "%s", s.batches(topic, partition))
}

// batches describes all batches of a partition, one after the other.
func (s *side) batches(topic string, partition int32) string {
	var all []string
	for next := int64(0); ; {
		r := rawclient.Fetch(12, topic, partition, next)
		resp, ok := ask[*kmsg.FetchResponse](s, r)
		if !ok {
			return s.failure
		}
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return fmt.Sprintf("code %d", p.ErrorCode)
		}
		if len(p.RecordBatches) == 0 {
			return fmt.Sprintf("%d batches, end %d: %s", len(all), p.HighWatermark, strings.Join(all, "; "))
		}
		for b := p.RecordBatches; len(b) > 0; {
			var text string
			if text, next, b = describe(b); b == nil {
				return text
			}
			all = append(all, text)
		}
	}
}

// describe describes the first batch of b. The leader epoch is left out of the hash, and so are times that the broker
// set by its clock and the checksum over them, once it has been found right.
func describe(b []byte) (text string, next int64, rest []byte) {
	be := binary.BigEndian
	if len(b) < headerSize || len(b) < 12+int(be.Uint32(b[8:])) {
		return fmt.Sprintf("a torn batch of %d bytes", len(b)), 0, nil
	}
	n := 12 + int(be.Uint32(b[8:]))
	v, rest := append([]byte(nil), b[:n]...), b[n:]
	base := int64(be.Uint64(v))
	next = base + int64(int32(be.Uint32(v[23:]))) + 1
	text = fmt.Sprintf("%d..%d", base, next-1)
	if be.Uint32(v[17:]) != crc32.Checksum(v[crcFrom:], castagnoli) {
		text += " WRONG CRC"
	}
	if be.Uint16(v[21:])&attrAppendTime != 0 {
		text += " at " + when(int64(be.Uint64(v[35:])))
		clear(v[35:43])
		clear(v[17:21])
	}
	clear(v[12:16])
	sum := sha256.Sum256(v)
	return fmt.Sprintf("%s %d bytes %x", text, n, sum[:4]), next, rest
}

// topicName gives a topic id its name.
func (s *side) topicName(id [16]byte) string {
	if id == [16]byte{} {
		return "none"
	}
	if name, ok := s.topics[id]; ok {
		return name
	}
	return "unknown"
}

// hangsUp records whether the broker answers these bytes, closes the connection or does neither for three seconds.
func (s *side) hangsUp(step string, frame []byte) {
	s.must(s.c.SendRaw(frame))
	_, _, err := s.c.ReceiveFrame(3 * time.Second)
	var timeout net.Error
	switch {
	case err == nil:
		s.see(step, "answers")
	case errors.As(err, &timeout) && timeout.Timeout():
		s.see(step, "stays open")
	default:
		s.see(step, "closed")
	}
	s.must(s.connect())
}
