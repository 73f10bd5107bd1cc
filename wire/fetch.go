package wire

import "encoding/binary"

// Aborted is one aborted transaction of a Fetch answer.
type Aborted struct{ PID, First int64 }

// FetchPart is one partition of a Fetch answer. Records are whole batches in pieces; the frame borrows them.
type FetchPart struct {
	Topic               string   // up to version 12
	TopicID             [16]byte // from version 13 on
	Partition           int32
	Code                int16
	High, Stable, Start int64
	Aborted             []Aborted // nil: null on the wire, as for isolation level 0
	Records             [][]byte
}

// FetchAnswer is a Fetch response. Parts that follow one another and belong to one topic share its entry.
type FetchAnswer struct {
	Code    int16 // from version 7 on
	Session int32 // from version 7 on
	Parts   []FetchPart
}

// EncodeFetch makes the frame of a Fetch answer in any version from 4 to 18. Records are not copied: release runs
// when the frame is released, and until then the pieces must not change. kmsg would copy them, so the layout is
// written here and held against kmsg by a test, byte for byte.
func EncodeFetch(h Header, a *FetchAnswer, release func()) *Frame {
	f := frames.Get().(*Frame)
	e := fetchEncoder{version: h.Version, flexible: Flexible(KeyFetch, h.Version), f: f}
	f.head = appendHeader(f.head[:0], h)
	e.int32(0) // throttle time
	if h.Version >= 7 {
		e.int16(a.Code)
		e.int32(a.Session)
	}
	e.arrayLen(topicRuns(a.Parts, h.Version))
	for i := 0; i < len(a.Parts); {
		n := run(a.Parts[i:], h.Version)
		e.topic(a.Parts, i, i+n)
		i += n
	}
	e.noTags()
	size := len(f.head)
	last := 0
	for _, c := range f.cuts {
		f.bufs = append(f.bufs, f.head[last:c.at])
		last = c.at
		for _, r := range a.Parts[c.part].Records {
			f.bufs = append(f.bufs, r)
			size += len(r)
		}
	}
	if last < len(f.head) {
		f.bufs = append(f.bufs, f.head[last:])
	}
	f.finish(size)
	f.release = release
	return f
}

// run counts how many parts from the front belong to one topic.
func run(parts []FetchPart, version int16) int {
	n := 1
	for n < len(parts) && sameTopic(&parts[0], &parts[n], version) {
		n++
	}
	return n
}

func topicRuns(parts []FetchPart, version int16) (n int) {
	for i := range parts {
		if i == 0 || !sameTopic(&parts[i-1], &parts[i], version) {
			n++
		}
	}
	return n
}

func sameTopic(a, b *FetchPart, version int16) bool {
	if version >= 13 {
		return a.TopicID == b.TopicID
	}
	return a.Topic == b.Topic
}

type fetchEncoder struct {
	f        *Frame
	version  int16
	flexible bool
}

func (e *fetchEncoder) int16(v int16) { e.f.head = binary.BigEndian.AppendUint16(e.f.head, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.f.head = binary.BigEndian.AppendUint32(e.f.head, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.f.head = binary.BigEndian.AppendUint64(e.f.head, uint64(v)) }

// arrayLen also serves byte strings: both have a four-byte or a compact length.
func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.f.head = binary.AppendUvarint(e.f.head, uint64(n)+1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.f.head = append(e.f.head, 0)
	}
}

func (e *fetchEncoder) topic(parts []FetchPart, from, to int) {
	switch p := &parts[from]; {
	case e.version >= 13:
		e.f.head = append(e.f.head, p.TopicID[:]...)
	case e.flexible:
		e.f.head = binary.AppendUvarint(e.f.head, uint64(len(p.Topic))+1)
		e.f.head = append(e.f.head, p.Topic...)
	default:
		e.int16(int16(len(p.Topic)))
		e.f.head = append(e.f.head, p.Topic...)
	}
	e.arrayLen(to - from)
	for i := from; i < to; i++ {
		e.part(&parts[i], i)
	}
	e.noTags()
}

func (e *fetchEncoder) part(p *FetchPart, i int) {
	e.int32(p.Partition)
	e.int16(p.Code)
	e.int64(p.High)
	e.int64(p.Stable)
	if e.version >= 5 {
		e.int64(p.Start)
	}
	if p.Aborted == nil {
		e.arrayLen(-1)
	} else {
		e.arrayLen(len(p.Aborted))
		for _, t := range p.Aborted {
			e.int64(t.PID)
			e.int64(t.First)
			e.noTags()
		}
	}
	if e.version >= 11 {
		e.int32(-1) // preferred read replica
	}
	n := 0
	for _, r := range p.Records {
		n += len(r)
	}
	e.arrayLen(n)
	if n > 0 {
		e.f.cuts = append(e.f.cuts, cut{len(e.f.head), i})
	}
	e.noTags()
}
