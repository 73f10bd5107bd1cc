package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sekali/internal/vfs"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminNode is a served node whose file system can die.
type adminNode struct {
	*node
	fs *vfs.Mem
}

// startNode serves until the test ends; the options change its configuration before it opens.
func startNode(t *testing.T, opts ...func(*Config)) *adminNode {
	t.Helper()
	return startNodeOn(t, vfs.NewMem(), opts...)
}

func startNodeOn(t *testing.T, fs *vfs.Mem, opts ...func(*Config)) *adminNode {
	t.Helper()
	return &adminNode{fs: fs, node: start(t, func(c *Config) {
		c.Store.FS, c.AutoCreate = fs, true
		for _, o := range opts {
			o(c)
		}
	})}
}

// abandon ends a server whose file system is gone; errors are what is expected of it.
func (n *adminNode) abandon() {
	n.down.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Shutdown(ctx)
	<-n.ended
}

// rawConn sends one request at a time and holds each answer to the exact layout of its version.
type rawConn struct {
	t    *testing.T
	nc   net.Conn
	corr int32
}

func (n *adminNode) dial() *rawConn {
	n.t.Helper()
	nc, err := net.Dial("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = nc.Close() })
	return &rawConn{t: n.t, nc: nc}
}

// ask sends r and returns its answer; anything but an answer of r's version fails the test.
func ask[R kmsg.Response](c *rawConn, r kmsg.Request) R {
	c.t.Helper()
	resp, err := c.try(r)
	if err != nil {
		c.t.Fatalf("%T version %d: %v", r, r.GetVersion(), err)
	}
	return resp.(R)
}

// try is ask with the error for the caller; closed tells whether it is that of a closed connection.
func (c *rawConn) try(r kmsg.Request) (kmsg.Response, error) {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))
	c.corr++
	if err := c.send(f.AppendRequest(nil, r, c.corr)); err != nil {
		return nil, err
	}
	body, err := c.answer()
	if err != nil {
		return nil, err
	}
	return decodeAnswer(r, body)
}

func (c *rawConn) send(frame []byte) error {
	if err := c.nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	_, err := c.nc.Write(frame)
	return err
}

// answer reads one frame and takes its correlation id off.
func (c *rawConn) answer() ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.nc, head[:]); err != nil {
		return nil, err
	}
	if corr := int32(binary.BigEndian.Uint32(head[4:])); corr != c.corr {
		return nil, errors.New("answer to another request")
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:4])-4)
	_, err := io.ReadFull(c.nc, body)
	return body, err
}

// decodeAnswer decodes the answer to r behind its correlation id. The header has tagged fields when the version is
// flexible, except that of ApiVersions; encoding the answer again must give the same bytes.
func decodeAnswer(r kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := r.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("response header of a flexible version without its empty tagged fields")
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return nil, errors.New("the answer is not what its version lays down: encoded again it has other bytes")
	}
	return resp, nil
}

// at sets the version of a request.
func at[R kmsg.Request](r R, version int16) R {
	r.SetVersion(version)
	return r
}

// versionsOf is what is advertised for a key.
func versionsOf(t *testing.T, key int16) (from, to int16) {
	t.Helper()
	for _, v := range wire.Versions() {
		if v.Key == key {
			return v.Min, v.Max
		}
	}
	t.Fatalf("key %d is not advertised", key)
	return 0, 0
}

// makeTopic creates a topic.
func (c *rawConn) makeTopic(name string, partitions int32, configs ...string) kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	t := kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
	for i := 0; i < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics = []kmsg.CreateTopicsRequestTopic{t}
	resp := ask[*kmsg.CreateTopicsResponse](c, at(r, 7))
	if resp.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("create %s: %d %s", name, resp.Topics[0].ErrorCode, *resp.Topics[0].ErrorMessage)
	}
	return resp.Topics[0]
}
