package main

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// keys are the keys of requests that ApiVersions of Apache Kafka 4.4 tells, 94 is the last.
const lastKey = 94

// apiVersions asks what is served; every key is a step.
func apiVersions(s *side) {
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = 3, "raw", "1"
	resp, _ := ask[*kmsg.ApiVersionsResponse](s, r)
	served := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range resp.ApiKeys {
		served[k.ApiKey] = k
	}
	for key := range int16(lastKey + 1) {
		name := kmsg.NameForKey(key)
		if name == "Unknown" {
			continue
		}
		if k, ok := served[key]; ok {
			s.see(fmt.Sprintf("key %d %s", key, name), "%d-%d", k.MinVersion, k.MaxVersion)
		} else {
			s.see(fmt.Sprintf("key %d %s", key, name), "not served")
		}
	}
	for _, f := range resp.FinalizedFeatures {
		s.see("finalized "+f.Name, "%d-%d", f.MinVersionLevel, f.MaxVersionLevel)
	}
	s.see("features have an epoch", "%v", resp.FinalizedFeaturesEpoch >= 0)
	for v := range int16(7) {
		q := kmsg.NewPtrApiVersionsRequest()
		q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion, q.NodeID = min(v, 5), "raw", "1", -1
		s.versionsAnswer(fmt.Sprintf("version %d", v), v, rawclient.Frame(1, "raw", q))
	}
	for _, c := range []struct{ step, name, version string }{{"no name", "", "1"}, {"no version", "raw", ""},
		{"space in the name", "a b", "1"}, {"dash at the end", "raw-", "1"}, {"dots", "a.b", "1.0-x"}, {"slash", "a/b", "1"}} {
		q := kmsg.NewPtrApiVersionsRequest()
		q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion = 3, c.name, c.version
		got, _ := ask[*kmsg.ApiVersionsResponse](s, q)
		s.see(c.step, "code %d, any keys %v", got.ErrorCode, len(got.ApiKeys) > 0)
	}
	for _, c := range []struct {
		step    string
		cluster *string
		node    int32
	}{{"another cluster", kmsg.StringPtr("another"), 1}, {"cluster without node", kmsg.StringPtr("another"), -1},
		{"node without cluster", nil, 1}} {
		q := kmsg.NewPtrApiVersionsRequest()
		q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion, q.ClusterID, q.NodeID = 5, "raw", "1", c.cluster, c.node
		got, ok := ask[*kmsg.ApiVersionsResponse](s, q)
		if !ok {
			s.see(c.step, "%s", s.failure)
			continue
		}
		s.see(c.step, "code %d, any keys %v", got.ErrorCode, len(got.ApiKeys) > 0)
	}
}

// versionsAnswer sends an ApiVersions frame whose version is set by hand, and records how the answer begins.
func (s *side) versionsAnswer(step string, version int16, frame []byte) {
	binary.BigEndian.PutUint16(frame[6:], uint16(version))
	s.must(s.c.SendRaw(frame))
	_, body, err := s.c.ReceiveFrame(rawclient.Wait)
	s.must(err)
	text := fmt.Sprintf("code %d", int16(binary.BigEndian.Uint16(body)))
	if version > 5 { // in the layout of version 0: an array of keys, the first of them
		text += fmt.Sprintf(", %x", body[2:])
	}
	s.see(step, "%s", text)
	s.must(s.connect())
}

// frames sends what is no request, or none that is served.
func frames(s *side) {
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version = 9
	good := rawclient.Frame(7, "raw", meta)
	set := func(at int, v uint16) []byte {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint16(b[at:], v)
		return b
	}
	size := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	resize := func(b []byte) []byte { binary.BigEndian.PutUint32(b, uint32(len(b)-4)); return b }
	s.hangsUp("size -1", size(0xffffffff))
	s.hangsUp("size 0", size(0))
	s.hangsUp("size 7", append(size(7), good[4:11]...))
	s.hangsUp("size above the limit", append(size(104857601), good[4:]...))
	s.hangsUp("unknown key", set(4, 999))
	s.hangsUp("negative key", set(4, 0xffff))
	s.hangsUp("key of brokers only", set(4, 4))
	s.hangsUp("unknown version", set(6, 99))
	s.hangsUp("negative version", set(6, 0xffff))
	s.hangsUp("body cut short", resize(append([]byte(nil), good[:len(good)-3]...)))
	s.hangsUp("client id longer than the frame", set(12, 30000))
	s.hangsUp("array of 2147483647", resize(append(append([]byte(nil), good[:18]...), 0x80, 0x80, 0x80, 0x80, 0x08)))
	answers := func(step string, frame []byte) {
		s.must(s.c.SendRaw(frame))
		corr, body, err := s.c.ReceiveFrame(rawclient.Wait)
		s.must(err)
		s.see(step, "correlation id %d, any bytes %v", corr, len(body) > 0)
	}
	answers("good", good)
	answers("bytes behind the body", resize(append(append([]byte(nil), good...), 1, 2, 3)))
	null := append([]byte(nil), good[:12]...)
	null = append(append(null, 0xff, 0xff), good[17:]...) // client id
	answers("null client id", resize(null))
	tagged := append([]byte(nil), good[:17]...)
	tagged = append(append(tagged, 1, 77, 2, 'x', 'y'), good[18:]...) // one tagged field, number 77, two bytes
	answers("unknown tagged field in the header", resize(tagged))
	last := append([]byte(nil), good[:len(good)-1]...)
	answers("unknown tagged field in the body", resize(append(last, 1, 77, 2, 'x', 'y')))
}
