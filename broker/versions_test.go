package broker

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// minimal is the smallest valid request of a version.
func minimal(key, version int16) kmsg.Request {
	r := kmsg.RequestForKey(key)
	if d, ok := r.(interface{ Default() }); ok {
		d.Default()
	}
	r.SetVersion(version)
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		r.Acks = -1
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "raw", "1.0"
	case *kmsg.ListOffsetsRequest:
		r.ReplicaID = -1
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKey, r.CoordinatorKeys = "k", []string{"k"}
	}
	return r
}

// closed reports whether err is what a client sees of a connection the server closed.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Case G2: every advertised version is answered in its own layout, and nothing else is.
func TestCaseG2AdvertisedRangesAreTrue(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	advertised := map[int16]bool{}
	for _, v := range wire.Versions() {
		advertised[v.Key] = true
		for version := v.Min; version <= v.Max; version++ {
			_, err := c.try(minimal(v.Key, version))
			if v.Key == 0 && version < 3 {
				if !closed(err) {
					t.Errorf("Produce version %d: %v, want a closed connection", version, err)
				}
				c = n.dial()
				continue
			}
			if err != nil {
				t.Errorf("%s version %d: %v", kmsg.NameForKey(v.Key), version, err)
				c = n.dial()
			}
		}
	}
	for key := int16(0); key <= kmsg.MaxKey+1; key++ {
		var refused []int16
		if advertised[key] {
			from, to := versionsOf(t, key)
			if from > 0 {
				refused = append(refused, from-1)
			}
			if key != 18 {
				refused = append(refused, to+1)
			}
		} else {
			refused = []int16{0}
		}
		for _, version := range refused {
			d := n.dial()
			d.corr = 1
			// Header version 2 is what any flexible version bears; the body is empty tagged fields.
			frame := []byte{0, 0, 0, 12, byte(key >> 8), byte(key), 0, byte(version), 0, 0, 0, 1, 0xff, 0xff, 0, 0}
			if err := d.send(frame); err != nil {
				t.Fatal(err)
			}
			if body, err := d.answer(); !closed(err) {
				t.Errorf("key %d version %d: answer %x, error %v; want a closed connection", key, version, body, err)
			}
		}
	}
}

// Every key that is advertised has a handler and the other way round.
func TestHandlersMatchVersions(t *testing.T) {
	for _, v := range wire.Versions() {
		if _, ok := handlers[v.Key]; ok == (v.Key < 2) {
			t.Errorf("key %d: in the table of handlers %v", v.Key, ok)
		}
	}
	for key := range handlers {
		versionsOf(t, key)
	}
}

// Case G1: ApiVersions from the future is answered in the layout of version 0, and the connection goes on.
func TestCaseG1ApiVersionsFromTheFuture(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	long := at(minimal(18, 3), 3).(*kmsg.ApiVersionsRequest)
	long.ClientSoftwareName = strings.Repeat("n", 200)
	if resp := ask[*kmsg.ApiVersionsResponse](c, long); resp.ErrorCode != 0 || len(resp.ApiKeys) != len(wire.Versions()) {
		t.Errorf("software name of 200 characters: error %d, %d keys", resp.ErrorCode, len(resp.ApiKeys))
	}
	from, to := versionsOf(t, 18)
	c.corr++
	body := []byte("whatever version 99 has here")
	head := []byte{0, 0, 0, byte(11 + len(body)), 0, 18, 0, 99, 0, 0, 0, byte(c.corr), 0xff, 0xff, 0}
	if err := c.send(append(head, body...)); err != nil {
		t.Fatal(err)
	}
	got, err := c.answer()
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0, 35, 0, 0, 0, 1, 0, 18, byte(from >> 8), byte(from), byte(to >> 8), byte(to)}
	if string(got) != string(want) {
		t.Errorf("version 99: %x, want %x", got, want)
	}
	if resp := ask[*kmsg.ApiVersionsResponse](c, minimal(18, 0)); resp.ErrorCode != 0 {
		t.Errorf("version 0 after it: error %d", resp.ErrorCode)
	}
	if resp := ask[*kmsg.MetadataResponse](c, minimal(3, 9)); len(resp.Brokers) != 1 {
		t.Errorf("Metadata after it: %d brokers", len(resp.Brokers))
	}
}

func TestApiVersionsSaysWhatItServes(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for version := int16(0); version <= 5; version++ {
		resp := ask[*kmsg.ApiVersionsResponse](c, minimal(18, version))
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(wire.Versions()) {
			t.Fatalf("version %d: error %d, %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
		}
		if version < 3 {
			continue
		}
		levels := map[string]int16{"metadata.version": 33, "transaction.version": 2, "group.version": 1}
		for _, f := range resp.SupportedFeatures {
			if version == 3 && f.MinVersion < 1 || f.MaxVersion != levels[f.Name] {
				t.Errorf("version %d: supported %+v", version, f)
			}
		}
		if want := map[bool]int{true: 1, false: len(levels)}[version == 3]; len(resp.SupportedFeatures) != want {
			t.Errorf("version %d: features %+v", version, resp.SupportedFeatures)
		}
		for _, f := range resp.FinalizedFeatures {
			if f.MinVersionLevel != f.MaxVersionLevel || f.MaxVersionLevel != levels[f.Name] {
				t.Errorf("version %d: finalized %+v", version, f)
			}
		}
		if len(resp.FinalizedFeatures) != len(levels) || resp.FinalizedFeaturesEpoch != 2 {
			t.Errorf("version %d: finalized %+v in epoch %d", version, resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch)
		}
	}
	for _, v := range wire.Versions() {
		if v.Key == 0 && (v.Min != 0 || v.Max != 13) {
			t.Errorf("Produce advertised %d-%d, want 0-13: old clients switch compression off otherwise", v.Min, v.Max)
		}
	}
}

func TestApiVersionsRefusals(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	own, other := n.clusterID, "AAAAAAAAAAAAAAAAAAAAAA"
	for _, tc := range []struct {
		name, version string
		at            int16
		cluster       *string
		node          int32
		want          int16
	}{
		{"a", "1", 3, nil, -1, 0},
		{"apache-kafka-java", "4.4.0", 4, nil, -1, 0},
		{"", "1", 3, nil, -1, 42},
		{"a", "", 3, nil, -1, 42},
		{"-a", "1", 3, nil, -1, 42},
		{"a.", "1", 3, nil, -1, 42},
		{"a b", "1", 3, nil, -1, 42},
		{"ä", "1", 3, nil, -1, 42},
		{"", "", 2, nil, -1, 0}, // has no such fields
		{"a", "1", 5, nil, -1, 0},
		{"a", "1", 5, &own, -1, 42},
		{"a", "1", 5, nil, 1, 42},
		{"a", "1", 5, &own, n.nodeID, 0},
		{"a", "1", 5, &other, n.nodeID, 129},
		{"a", "1", 5, &own, n.nodeID + 1, 129},
	} {
		r := kmsg.NewPtrApiVersionsRequest()
		r.ClientSoftwareName, r.ClientSoftwareVersion, r.ClusterID, r.NodeID = tc.name, tc.version, tc.cluster, tc.node
		resp := ask[*kmsg.ApiVersionsResponse](c, at(r, tc.at))
		if resp.ErrorCode != tc.want || (resp.ErrorCode != 0) != (len(resp.ApiKeys) == 0) {
			t.Errorf("%+v: error %d with %d keys, want %d", tc, resp.ErrorCode, len(resp.ApiKeys), tc.want)
		}
	}
}
