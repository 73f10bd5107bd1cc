// Package rawclient is a client for tests that decides everything itself: bytes of frames, order, producer ids,
// epochs and sequence numbers, when to read answers and when not to. It retries nothing and checks what every client
// relies on: that answers come in the order of the requests.
package rawclient

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"sekali/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Wait is how long Receive waits for an answer at most.
const Wait = 20 * time.Second

// Client is one connection. It belongs to one goroutine.
type Client struct {
	Conn net.Conn
	ID   string // client id of the requests
	br   *bufio.Reader
	corr int32   // of the last request
	sent []int32 // requests without an answer yet
}

// Dial connects to a broker.
func Dial(addr string) (*Client, error) {
	nc, err := net.DialTimeout("tcp", addr, Wait)
	if err != nil {
		return nil, fmt.Errorf("rawclient: %w", err)
	}
	return &Client{Conn: nc, ID: "raw", br: bufio.NewReaderSize(nc, 64<<10)}, nil
}

// Close ends the connection; answers not read are lost.
func (c *Client) Close() error { return c.Conn.Close() }

// Frame encodes a request with its length and header in the version set in it.
func Frame(corr int32, clientID string, r kmsg.Request) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 4, 256), uint16(r.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(r.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID)))
	b = append(b, clientID...)
	if r.IsFlexible() {
		b = append(b, 0)
	}
	b = r.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Send writes requests with one write and does not wait for answers. A Produce with acks=0 expects none.
func (c *Client) Send(rs ...kmsg.Request) error {
	var b []byte
	for _, r := range rs {
		b = append(b, c.Next(r)...)
	}
	return c.SendRaw(b)
}

// Next encodes the next request without sending it: its answer is expected in its turn.
func (c *Client) Next(r kmsg.Request) []byte {
	c.corr++
	if p, ok := r.(*kmsg.ProduceRequest); !ok || p.Acks != 0 {
		c.sent = append(c.sent, c.corr)
	}
	return Frame(c.corr, c.ID, r)
}

// SendRaw writes bytes as they are.
func (c *Client) SendRaw(b []byte) error {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(Wait)); err != nil {
		return err
	}
	_, err := c.Conn.Write(b)
	return err
}

// ErrOrder is an answer that is not the next one expected.
var ErrOrder = errors.New("rawclient: answer out of order")

// Receive reads the next answer, which must be that to the oldest request sent and not answered, and decodes it as an
// answer to r. io.EOF: the broker closed the connection.
func (c *Client) Receive(r kmsg.Request) (kmsg.Response, error) {
	corr, body, err := c.ReceiveFrame(Wait)
	if err != nil {
		return nil, err
	}
	if len(c.sent) == 0 || c.sent[0] != corr {
		return nil, fmt.Errorf("%w: correlation id %d, expected %v", ErrOrder, corr, c.sent)
	}
	c.sent = c.sent[1:]
	resp := r.ResponseKind()
	resp.SetVersion(r.GetVersion())
	if r.IsFlexible() && r.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("rawclient: response header without an empty tag section: % x", body)
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("rawclient: answer to key %d version %d: %w", r.Key(), r.GetVersion(), err)
	}
	if n := len(resp.AppendTo(nil)); n != len(body) {
		return nil, fmt.Errorf("rawclient: answer to key %d version %d: %d bytes, of which %d were read",
			r.Key(), r.GetVersion(), len(body), n)
	}
	return resp, nil
}

// ReceiveFrame reads the next answer without decoding it: what follows the correlation id.
func (c *Client) ReceiveFrame(wait time.Duration) (corr int32, body []byte, err error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return 0, nil, err
	}
	var h [8]byte
	if _, err := io.ReadFull(c.br, h[:]); err != nil {
		return 0, nil, err
	}
	n := int32(binary.BigEndian.Uint32(h[:]))
	if n < 4 || n > 256<<20 {
		return 0, nil, fmt.Errorf("rawclient: answer of %d bytes", n)
	}
	body = make([]byte, n-4)
	_, err = io.ReadFull(c.br, body)
	return int32(binary.BigEndian.Uint32(h[4:])), body, err
}

// Closed reports whether the broker closes the connection within wait, without another byte.
func (c *Client) Closed(wait time.Duration) bool {
	_, _, err := c.ReceiveFrame(wait)
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// Call sends one request and reads its answer.
func (c *Client) Call(r kmsg.Request) (kmsg.Response, error) {
	if err := c.Send(r); err != nil {
		return nil, err
	}
	return c.Receive(r)
}

// Batch makes a batch of n records of one producer: record i has the value "<seq+i>" padded to size bytes.
func Batch(attrs batch.Attrs, pid int64, epoch int16, seq int32, n, size int) batch.View {
	b := batch.Builder{BaseTime: 1_700_000_000_000}
	for i := range n {
		v := fmt.Append(nil, seq+int32(i))
		for len(v) < size {
			v = append(v, '.')
		}
		b.Add(batch.Record{Value: v})
	}
	return b.Done(attrs, pid, epoch, seq)
}

// Produce makes a Produce request, acks=-1, of one batch for each partition named, in the order of the partitions.
func Produce(version int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, -1, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// Fetch makes a Fetch request of one partition with no session; it does not wait for data.
func Fetch(version int16, topic string, partition int32, offset int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxBytes, r.MinBytes, r.SessionEpoch = version, 50<<20, 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 50<<20
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// CreateTopic makes a topic and waits until it is there.
func (c *Client) CreateTopic(name string, partitions int32, set map[string]string) (id [16]byte, err error) {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis = 7, 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for k, v := range set {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: kmsg.StringPtr(v)})
	}
	r.Topics = append(r.Topics, t)
	resp, err := c.Call(r)
	if err != nil {
		return id, err
	}
	got := resp.(*kmsg.CreateTopicsResponse).Topics
	if len(got) != 1 || got[0].ErrorCode != 0 {
		return id, fmt.Errorf("rawclient: create topic %q: %+v", name, got)
	}
	return got[0].TopicID, nil
}
