package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// Least bytes of a topic and of a partition of a Produce request, whatever the version.
const (
	produceTopicMin     = 3
	producePartitionMin = 6
)

// produceDecoded is a Produce request with room for the common case of one topic and one partition.
type produceDecoded struct {
	req  kmsg.ProduceRequest
	t    [1]kmsg.ProduceRequestTopic
	p    [1]kmsg.ProduceRequestTopicPartition
	txn  string
	used bool
}

// produce slices a Produce body of version 3 on. Null records stay nil: the answer tells them from empty ones in no
// way, but the caller must not take either for a batch. Tagged fields are skipped.
func (c *cursor) produce() (kmsg.Request, error) {
	d := &produceDecoded{}
	r := &d.req
	r.Version = c.version
	if s, null := c.str(); !null {
		d.txn = string(s)
		r.TransactionID = &d.txn
	}
	r.Acks = c.short()
	r.TimeoutMillis = c.int()
	n, null := c.count(produceTopicMin)
	if null {
		c.fail()
	}
	r.Topics = d.t[:0]
	if n > 1 {
		r.Topics = make([]kmsg.ProduceRequestTopic, 0, min(n, 16))
	}
	for ; n > 0 && !c.bad; n-- {
		r.Topics = append(r.Topics, kmsg.ProduceRequestTopic{})
		c.produceTopic(d, &r.Topics[len(r.Topics)-1])
	}
	if c.flexible {
		c.tags()
	}
	if c.bad {
		return nil, ErrBody
	}
	return r, nil
}

func (c *cursor) produceTopic(d *produceDecoded, t *kmsg.ProduceRequestTopic) {
	if c.version >= 13 {
		copy(t.TopicID[:], c.span(16))
	} else {
		s, null := c.str()
		if null {
			c.fail()
		}
		t.Topic = string(s)
	}
	n, null := c.count(producePartitionMin)
	if null {
		c.fail()
	}
	if n == 1 && !d.used {
		t.Partitions, d.used = d.p[:0], true
	} else if n > 0 {
		t.Partitions = make([]kmsg.ProduceRequestTopicPartition, 0, n)
	}
	for ; n > 0 && !c.bad; n-- {
		p := kmsg.ProduceRequestTopicPartition{Partition: c.int()}
		p.Records, _ = c.bytes()
		if c.flexible {
			c.tags()
		}
		t.Partitions = append(t.Partitions, p)
	}
	if c.flexible {
		c.tags()
	}
}
