package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"sekali/batch"
	"sekali/fuzz/model"
)

// inFlightMax is how many unanswered batches a client has in one partition, as real ones do.
const inFlightMax = 5

// client is a simulated idempotent producer: one producer id, a numbering of its own in every partition.
type client struct {
	name    int
	pid     int64
	epoch   int16
	streams []*stream // by partition
}

// stream is what a client has to do with one partition.
type stream struct {
	next  int32
	queue []*sent // not answered, in order
	done  []*sent // answered, the newest last
}

// sent is one batch of a client. The client keeps it and may send it any number of times.
type sent struct {
	model.Request
	stream *stream
	late   bool // the client has given it up; copies may still be on their way
}

func newClient(name int, pid int64, partitions int) *client {
	c := &client{name: name, pid: pid}
	for range partitions {
		c.streams = append(c.streams, &stream{})
	}
	return c
}

// bump begins a new epoch, as clients do by themselves: all numberings begin at 0, what was not answered is given up.
func (c *client) bump() {
	c.epoch++
	for _, s := range c.streams {
		for _, b := range s.queue {
			b.late = true
		}
		s.next, s.queue, s.done = 0, nil, nil
	}
}

// build makes a batch of n records with the numbers from first on. Equal arguments and dice give equal bytes.
func (c *client) build(p int, first int32, n int, wall int64, dice uint32) *sent {
	r := rand.New(rand.NewPCG(uint64(dice), uint64(c.pid)<<32|uint64(uint32(first))))
	b := batch.Builder{BaseTime: wall}
	s := &sent{stream: c.streams[p]}
	size := pick(r, 0, 10, 50, 50, 120, 300)
	for i := range n {
		delta := r.Int64N(2000) - 1000
		text := fmt.Sprintf("client %d epoch %d number %d ", c.name, c.epoch, (int64(first)+int64(i))%model.Modulus)
		b.Add(batch.Record{TimeDelta: delta, Value: []byte(text + strings.Repeat("x", r.IntN(size+1)))})
		s.Times = append(s.Times, wall+delta)
	}
	// Not zstd: its pooled coders keep channels, which may not leave the bubble they were made in.
	codec := pick(r, batch.None, batch.None, batch.None, batch.None, batch.Gzip, batch.Snappy, batch.LZ4)
	s.Bytes = b.Done(batch.Attrs(codec), c.pid, c.epoch, first)
	s.PID, s.Epoch, s.First = c.pid, c.epoch, first
	s.End = int32((int64(first) + int64(n) - 1) % model.Modulus)
	if r.IntN(20) == 0 {
		lie(s.Bytes)
	}
	return s
}

// lie gives a batch a wrong largest timestamp, with a checksum that is right for it; the log must correct it (I3).
func lie(v batch.View) { v.StampMaxTime(v.MaxTime() + 12_345) }

// answered takes a batch off the queue.
func (s *stream) answered(b *sent) {
	if b.late {
		return
	}
	for i, q := range s.queue {
		if q == b {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			s.done = append(s.done, b)
			if len(s.done) > 12 {
				s.done = s.done[1:]
			}
			return
		}
	}
}
