package main

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// row is a batch to send, each into a partition of its own, so that what one broker stores and the other refuses does
// not shift what follows.
type row struct {
	name    string
	records []byte
}

// headerRows are batches whose header or length is not as it should be (rows 4 to 22 of the order in which Produce is
// validated), and their neighbours that are.
func headerRows() []row {
	length := func(n int32) func(*message) { return func(m *message) { m.length = &n } }
	two := append(plain(1).bytes(), plain(2).bytes()...)
	m := func(n int, change func(m *message)) []byte { return plain(n).with(change).bytes() }
	p := func(change func(m *message)) []byte { return by(1001, 0, 0, 2).with(change).bytes() }
	rows := []row{
		{"no records: empty", []byte{}},
		{"ten bytes", plain(1).bytes()[:10]},
		{"thirty bytes of a batch", plain(1).bytes()[:30]},
		{"batch without its last byte", plain(1).bytes()[:plain(1).size()-1]},
		{"one batch", plain(3).bytes()},
		{"two batches", two},
		{"one batch and part of a second", two[:len(two)-5]},
		{"one batch and three bytes", append(plain(1).bytes(), 1, 2, 3)},
		{"magic 0", old(0)},
		{"magic 1", old(1)},
		{"magic 3", m(1, func(m *message) { m.magic = 3 })},
		{"magic -1", m(1, func(m *message) { m.magic = -1 })},
		{"length -1", m(1, length(-1))},
		{"length 0", m(1, length(0))},
		{"length 13", m(1, length(13))},
		{"length 14", m(1, length(14))},
		{"length 30", m(1, length(30))},
		{"length 31", m(1, length(31))},
		{"length 48", m(1, length(48))},
		{"length 49", m(1, length(49))},
		{"length 2147483647", m(1, length(1<<31-1))},
		{"base offset 7", m(1, func(m *message) { m.base = 7 })},
		{"base offset -1", m(1, func(m *message) { m.base = -1 })},
		{"leader epoch 5", m(1, func(m *message) { m.leaderEpoch = 5 })},
		{"wrong CRC", m(1, func(m *message) { m.crc = new(uint32) })},
		{"codec 5", m(1, func(m *message) { m.attrs = 5 })},
		{"codec 6", m(1, func(m *message) { m.attrs = 6 })},
		{"codec 7", m(1, func(m *message) { m.attrs = 7 })},
		{"last offset delta -1", m(1, func(m *message) { m.lastDelta = -1 })},
		{"last offset delta 5 of 2 records", m(2, func(m *message) { m.lastDelta = 5 })},
		{"last offset delta 0 of 2 records", m(2, func(m *message) { m.lastDelta = 0 })},
		{"last offset delta 2147483647", m(2, func(m *message) { m.lastDelta = 1<<31 - 1 })},
		{"count 0", m(1, func(m *message) { m.count = 0 })},
		{"count -1", m(1, func(m *message) { m.count = -1 })},
		{"count 0 and no records", m(0, func(m *message) { m.lastDelta = 0 })},
		{"count 1 of 2 records", m(2, func(m *message) { m.count = 1 })},
		{"count 2147483647", m(2, func(m *message) { m.count = 1<<31 - 1 })},
		{"control bit", p(func(m *message) { m.attrs = attrControl })},
		{"control bit without a producer", m(1, func(m *message) { m.attrs = attrControl })},
		{"append time bit", m(1, func(m *message) { m.attrs = attrAppendTime })},
		{"delete horizon bit", m(1, func(m *message) { m.attrs = attrHorizon })},
		{"unused attributes", m(1, func(m *message) { m.attrs = 0x7f80 })},
		{"sequence -1 of a producer", p(func(m *message) { m.seq = -1 })},
		{"sequence -2147483648 of a producer", p(func(m *message) { m.seq = -1 << 31 })},
		{"producer -2", p(func(m *message) { m.pid = -2 })},
		{"producer with epoch -1", p(func(m *message) { m.epoch = -1 })},
		{"epoch without a producer", m(1, func(m *message) { m.epoch = 0 })},
		{"sequence without a producer", m(1, func(m *message) { m.seq = 0 })},
		{"producer 9223372036854775807", p(func(m *message) { m.pid = 1<<63 - 1 })},
		{"max timestamp too small", m(2, func(m *message) { m.maxTime -= 5 })},
		{"max timestamp too large", m(2, func(m *message) { m.maxTime += 5 })},
		{"max timestamp -1", m(2, func(m *message) { m.maxTime = -1 })},
		{"base timestamp -1", m(2, func(m *message) { m.baseTime, m.maxTime = -1, -1 })},
		{"base timestamp -2", m(2, func(m *message) { m.baseTime, m.maxTime = -2, -2 })},
	}
	return rows
}

// recordRows are batches whose records are not as they should be, plain and compressed.
func recordRows() []row {
	r := func(i int32) rec { return rec{delta: i, key: []byte("k"), value: []byte("value")} }
	count := func(n int64) *int64 { return &n }
	bad := map[string]*message{
		"record too long by one":          of(rec{value: []byte("a"), longer: 1}),
		"record too short by one":         of(rec{value: []byte("a"), longer: -1}),
		"first record eats the second":    of(rec{value: []byte("a"), longer: 9}, r(1)),
		"record of length 0":              of(r(0)).with(func(m *message) { m.records = []byte{0} }),
		"record of length -1":             of(r(0)).with(func(m *message) { m.records[0] = 1 }),
		"record of length 2147483647":     of(rec{value: []byte("a"), longer: 1<<31 - 1 - 8}),
		"length of 6 bytes":               of(r(0)).with(longLength),
		"stray byte behind the records":   of(r(0)).with(func(m *message) { m.records = append(m.records, 7) }),
		"one record less than counted":    of(r(0), r(1)).with(func(m *message) { m.count, m.lastDelta = 3, 2 }),
		"one record more than counted":    of(r(0), r(1)).with(func(m *message) { m.count, m.lastDelta = 1, 0 }),
		"offset deltas 0, 0":              of(r(0), r(0)),
		"offset deltas 1, 0":              of(r(1), r(0)),
		"offset deltas 0, 2":              of(r(0), r(2)).with(func(m *message) { m.lastDelta = 1 }),
		"offset deltas 0, -1":             of(r(0), r(-1)),
		"header count 1000000000":         of(rec{value: []byte("a"), count: count(1e9)}),
		"header count -1":                 of(rec{value: []byte("a"), count: count(-1)}),
		"header with a null key":          of(rec{value: []byte("a"), headers: []head{{nil, []byte("v")}}}),
		"header with an empty key":        of(rec{value: []byte("a"), headers: []head{{[]byte{}, nil}}}),
		"header key that is no UTF-8":     of(rec{value: []byte("a"), headers: []head{{[]byte("\xff\xfe"), nil}}}),
		"record attributes 0x7f":          of(rec{attrs: 0x7f, value: []byte("a")}),
		"null key, null value":            of(rec{}),
		"empty key, empty value":          of(rec{key: []byte{}, value: []byte{}}),
		"negative timestamp delta":        of(rec{time: -1000, value: []byte("a")}),
		"timestamp delta beyond 64 bits":  of(r(0)).with(func(m *message) { m.records = longDelta() }),
		"timestamp of the second is -1":   of(r(0), rec{delta: 1, time: -epochTime - 1}),
		"timestamp of the second is -100": of(r(0), rec{delta: 1, time: -epochTime - 100}),
	}
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		m := bad[name]
		rows = append(rows, row{name, m.bytes()}, row{name + ", gzip", m.packed(codecGzip, packGzip).bytes()})
	}
	return rows
}

// longLength puts a length of six bytes before the first record.
func longLength(m *message) { m.records = append([]byte("\xff\xff\xff\xff\xff\x01"), m.records...) }

// longDelta is one record whose timestamp delta takes eleven bytes.
func longDelta() []byte {
	body := append([]byte{0}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...)
	body = append(body, 0, 1, 1, 0)
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// codecRows are the forms of compression.
func codecRows() (rows []row) {
	for _, name := range slices.Sorted(maps.Keys(packers)) {
		p := packers[name]
		m := of(rec{value: []byte(strings.Repeat("abcdefgh", 500))}, rec{delta: 1, value: []byte(strings.Repeat("x", 40000))})
		rows = append(rows, row{name, m.packed(p.codec, p.pack).bytes()})
	}
	return rows
}

// validate sends rows and then reads back what is stored of each.
func validate(rows func() []row, topic string, set ...string) func(s *side) {
	return func(s *side) {
		all := rows()
		s.topic(topic, int32(len(all)), set...)
		for i, r := range all {
			s.produce(r.name, 9, topic, int32(i), r.records)
			s.stored(r.name+": stored", topic, int32(i))
		}
	}
}

// versions sends a good batch with every version of Produce, and zstd with every one.
func versions(s *side) {
	id := s.topic("versions", 32)
	for v := range int16(14) {
		for i, records := range [][]byte{plain(1).bytes(), plain(1).packed(codecZstd, packZstd).bytes()} {
			r := rawclient.Produce(v, "versions", int32(2*int(v)+i), records)
			r.Topics[0].TopicID = id
			s.produced("version "+string(rune('0'+v/10))+string(rune('0'+v%10))+[]string{"", " zstd"}[i], r)
		}
	}
}

// requests sends Produce requests that are refused as a whole or by what they name.
func requests(s *side) {
	id := s.topic("requests", 4)
	good := plain(1).bytes()
	with := func(version int16, topic string, partition int32, change func(r *kmsg.ProduceRequest)) *kmsg.ProduceRequest {
		r := rawclient.Produce(version, topic, partition, good)
		if change != nil {
			change(r)
		}
		return r
	}
	acks := func(n int16) func(r *kmsg.ProduceRequest) { return func(r *kmsg.ProduceRequest) { r.Acks = n } }
	txn := by(2001, 0, 0, 1).with(func(m *message) { m.attrs = attrTransactional })
	s.produced("acks 2", with(9, "requests", 0, acks(2)))
	s.produced("acks -2", with(9, "requests", 0, acks(-2)))
	s.produced("acks 1", with(9, "requests", 0, acks(1)))
	s.produced("unknown topic", with(9, "unknown", 0, nil))
	s.produced("unknown partition", with(9, "requests", 4, nil))
	s.produced("partition -1", with(9, "requests", -1, nil))
	s.produced("bad topic name", with(9, "a/b", 0, nil))
	s.produced("empty topic name", with(9, "", 0, nil))
	s.produced("unknown topic id", with(13, "", 0, func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = [16]byte{1} }))
	s.produced("topic id of zeros", with(13, "", 0, nil))
	s.produced("unknown partition of a topic id", with(13, "", 9, func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = id }))
	s.produced("no topics", with(9, "", 0, func(r *kmsg.ProduceRequest) { r.Topics = nil }))
	s.produced("transactional batch without a transactional id", with(9, "requests", 0, func(r *kmsg.ProduceRequest) {
		r.Topics[0].Partitions[0].Records = txn.bytes()
	}))
	s.produced("damaged transactional batch without a transactional id", with(9, "requests", 0,
		func(r *kmsg.ProduceRequest) {
			r.Topics[0].Partitions[0].Records = by(2001, 0, 0, 1).with(func(m *message) {
				m.attrs, m.crc = attrTransactional, new(uint32)
			}).bytes()
		}))
	s.produced("transactional bit without a producer", with(9, "requests", 1, func(r *kmsg.ProduceRequest) {
		r.TransactionID = kmsg.StringPtr("t")
		r.Topics[0].Partitions[0].Records = plain(1).with(func(m *message) { m.attrs = attrTransactional }).bytes()
	}))
	s.produced("two producers in one transactional request", with(9, "requests", 1, func(r *kmsg.ProduceRequest) {
		r.TransactionID = kmsg.StringPtr("t")
		one, two := r.Topics[0].Partitions[0], r.Topics[0].Partitions[0]
		one.Records = txn.bytes()
		two.Partition, two.Records = 2, txn.with(func(m *message) { m.pid++ }).bytes()
		r.Topics[0].Partitions = []kmsg.ProduceRequestTopicPartition{one, two}
	}))
	s.produced("good, bad, unknown and good partitions", with(9, "requests", 0, func(r *kmsg.ProduceRequest) {
		var parts []kmsg.ProduceRequestTopicPartition
		for i, b := range [][]byte{good, plain(1).with(func(m *message) { m.count = 2 }).bytes(), good, good} {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = []int32{0, 1, 7, 3}[i], b
			parts = append(parts, p)
		}
		r.Topics[0].Partitions = parts
	}))
	s.produced("a partition twice", with(9, "requests", 0, func(r *kmsg.ProduceRequest) {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
	}))
	s.acks0("requests", good)
	null := with(9, "requests", 0, func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Records = nil })
	s.hangsUp("records null: connection", s.c.Next(null))
	for p := range int32(4) {
		s.stored("stored in "+string(rune('0'+p)), "requests", p)
	}
}

// acks0 sends what is not answered; another request on the connection shows whether the broker closed it.
func (s *side) acks0(topic string, good []byte) {
	for _, step := range []struct {
		name    string
		records []byte
	}{{"acks 0", good}, {"acks 0 with a bad batch", good[:len(good)-1]}} {
		r := rawclient.Produce(9, topic, 3, step.records)
		r.Acks = 0
		s.must(s.c.Send(r))
		_, ok := ask[*kmsg.ListOffsetsResponse](s, listOffsets(7, topic, 3, -1))
		s.see(step.name, "connection closed: %v", !ok)
	}
}

// limits are the sizes and times a topic sets.
func limits(s *side) {
	s.topic("small", 1, "max.message.bytes", "1000")
	s.produce("above max.message.bytes", 9, "small", 0, of(rec{value: make([]byte, 1000)}).bytes())
	s.produce("above max.message.bytes before compression", 9, "small", 0,
		of(rec{value: make([]byte, 5000)}).packed(codecGzip, packGzip).bytes())
	size := 1000 - of(rec{value: make([]byte, 900)}).size()
	s.produce("max.message.bytes exactly", 9, "small", 0, of(rec{value: make([]byte, 900+size)}).bytes())
	s.produce("max.message.bytes and one", 9, "small", 0, of(rec{value: make([]byte, 901+size)}).bytes())
	s.stored("small: stored", "small", 0)

	s.topic("segment", 1, "segment.bytes", "1048576", "max.message.bytes", "4000000")
	s.produce("above segment.bytes", 9, "segment", 0, of(rec{value: make([]byte, 1<<20)}).bytes())
	s.produce("below segment.bytes", 9, "segment", 0, of(rec{value: make([]byte, 1<<20-200)}).bytes())
	s.stored("segment: stored", "segment", 0)

	s.topic("insync", 1, "min.insync.replicas", "2")
	s.produce("min.insync.replicas 2, acks all", 9, "insync", 0, by(1, 0, 0, 1).bytes())
	r := rawclient.Produce(9, "insync", 0, by(2, 0, 0, 1).bytes())
	r.Acks = 1
	s.produced("min.insync.replicas 2, acks 1", r)

	hour := int64(3600_000)
	s.topic("times", 8, "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
	at := func(ms ...int64) []byte {
		m := plain(len(ms))
		m.baseTime, m.maxTime, m.records = ms[0], slices.Max(ms), nil
		for i, t := range ms {
			m.records = append(m.records, rec{delta: int32(i), time: t - ms[0]}.bytes()...)
		}
		return m.bytes()
	}
	now := wall()
	for i, r := range []row{
		{"timestamp two hours ago", at(now - 2*hour)},
		{"timestamp in two hours", at(now + 2*hour)},
		{"timestamp half an hour ago", at(now - hour/2)},
		{"second timestamp two hours ago", at(now, now-2*hour)},
		{"timestamp -1 with bounds", at(-1)},
		{"timestamp 0 with bounds", at(0)},
		{"second timestamp wrong and third offset delta wrong", of(rec{time: now - epochTime}, rec{delta: 1},
			rec{delta: 7, time: now - epochTime}).bytes()},
	} {
		s.produce(r.name, 9, "times", int32(i), r.records)
	}
}

// appendTime is what LogAppendTime does to a batch and to its duplicate.
func appendTime(s *side) {
	rows := []row{
		{"plain", plain(3).bytes()},
		{"of a producer", by(1001, 0, 0, 3).bytes()},
		{"the same again", by(1001, 0, 0, 3).bytes()},
		{"gzip", plain(3).packed(codecGzip, packGzip).bytes()},
		{"zstd", plain(3).packed(codecZstd, packZstd).bytes()},
		{"unused attributes", plain(1).with(func(m *message) { m.attrs = 0x7f80 }).bytes()},
		{"append time bit", plain(1).with(func(m *message) { m.attrs = attrAppendTime }).bytes()},
		{"timestamps -1", plain(1).with(func(m *message) { m.baseTime, m.maxTime = -1, -1 }).bytes()},
		{"timestamps far ahead", plain(1).with(func(m *message) { m.baseTime, m.maxTime = 1<<60, 1<<60 }).bytes()},
		{"offset deltas 0, 0", of(rec{}, rec{}).bytes()},
		{"offset deltas 0, 0, gzip", of(rec{}, rec{}).packed(codecGzip, packGzip).bytes()},
	}
	s.topic("appendtime", 1, "message.timestamp.type", "LogAppendTime", "message.timestamp.after.max.ms", "1000")
	for _, r := range rows {
		s.produce(r.name, 9, "appendtime", 0, r.records)
	}
	s.stored("stored", "appendtime", 0)
}
