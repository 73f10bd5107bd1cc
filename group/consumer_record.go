package group

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Of values of consumer groups (spec groups 3) there is one version, extended by tagged fields.
const (
	consumerValue       int16 = 0
	tagMetadataHash           = 0
	tagAssignmentEpochs       = 0
)

// isConsumerKey reports whether records with this key version belong to consumer groups.
func isConsumerKey(version int16) bool {
	return version >= keyEpoch && version <= keyCurrent || version == keyRegex
}

// consumerKey gives the key of a record of a consumer group; name is empty where the type has none.
func consumerKey(version int16, group, name string) []byte {
	k := recordKey{version: version, group: group, name: name}
	return k.encode()
}

// flexWriter builds a flexible value of version 0.
type flexWriter struct{ b []byte }

func newFlexWriter() *flexWriter {
	return &flexWriter{b: binary.BigEndian.AppendUint16(nil, uint16(consumerValue))}
}

func (w *flexWriter) uvarint(n int) { w.b = binary.AppendUvarint(w.b, uint64(n)) }
func (w *flexWriter) int32(n int32) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) }
func (w *flexWriter) int64(n int64) { w.b = binary.BigEndian.AppendUint64(w.b, uint64(n)) }
func (w *flexWriter) int8(n int8)   { w.b = append(w.b, byte(n)) }

func (w *flexWriter) string(s string) {
	w.uvarint(len(s) + 1)
	w.b = append(w.b, s...)
}

// nullable writes null for a string that is not given.
func (w *flexWriter) nullable(s string, given bool) {
	if !given {
		w.uvarint(0)
		return
	}
	w.string(s)
}

func (w *flexWriter) strings(all []string) {
	w.uvarint(len(all) + 1)
	for _, s := range all {
		w.string(s)
	}
}

func (w *flexWriter) noTags() { w.uvarint(0) }

func (c groupChange) record(group string) Record {
	r := Record{Key: consumerKey(keyEpoch, group, "")}
	if c.gone {
		return r
	}
	w := newFlexWriter()
	w.int32(c.epoch)
	if c.hash == 0 {
		w.noTags()
	} else {
		w.uvarint(1)
		w.uvarint(tagMetadataHash)
		w.uvarint(8)
		w.int64(c.hash)
	}
	r.Value = w.b
	return r
}

func (c partitionMetadataChange) record(group string) Record {
	return Record{Key: consumerKey(keySubscription, group, "")}
}

func (c memberChange) record(group string) Record {
	r := Record{Key: consumerKey(keyMember, group, c.id)}
	if c.member == nil {
		return r
	}
	m, w := c.member, newFlexWriter()
	w.nullable(m.instance, m.instance != "")
	w.nullable(m.rack, m.rack != "")
	w.string(m.clientID)
	w.string(m.host)
	w.strings(m.topics)
	w.nullable(m.regex, m.hasRegex)
	w.int32(m.rebalanceMs)
	w.nullable(m.assignor, m.assignor != "")
	w.noTags()
	r.Value = w.b
	return r
}

func (c targetEpochChange) record(group string) Record {
	r := Record{Key: consumerKey(keyTargetEpoch, group, "")}
	if c.gone {
		return r
	}
	w := newFlexWriter()
	w.int32(c.epoch)
	w.noTags()
	r.Value = w.b
	return r
}

func (c targetChange) record(group string) Record {
	r := Record{Key: consumerKey(keyTargetMember, group, c.id)}
	if c.set == nil {
		return r
	}
	w := newFlexWriter()
	topics := byTopic(c.set.sorted())
	w.uvarint(len(topics) + 1)
	for _, t := range topics {
		w.b = append(w.b, t[0].id[:]...)
		w.uvarint(len(t) + 1)
		for _, p := range t {
			w.int32(p.partition)
		}
		w.noTags()
	}
	w.noTags()
	r.Value = w.b
	return r
}

func (c currentChange) record(group string) Record {
	r := Record{Key: consumerKey(keyCurrent, group, c.id)}
	if c.member == nil {
		return r
	}
	w := newFlexWriter()
	w.int32(c.member.epoch)
	w.int32(c.member.previousEpoch)
	w.int8(int8(c.member.state))
	w.epochs(c.member.assigned)
	w.epochs(c.member.revoking)
	w.noTags()
	r.Value = w.b
	return r
}

// epochs writes partitions with the epochs since which they are held.
func (w *flexWriter) epochs(m epochMap) {
	topics := byTopic(m.sorted())
	w.uvarint(len(topics) + 1)
	for _, t := range topics {
		w.b = append(w.b, t[0].id[:]...)
		w.uvarint(len(t) + 1)
		for _, p := range t {
			w.int32(p.partition)
		}
		var tag flexWriter
		tag.uvarint(len(t) + 1)
		for _, p := range t {
			tag.int32(m[p])
		}
		w.uvarint(1)
		w.uvarint(tagAssignmentEpochs)
		w.uvarint(len(tag.b))
		w.b = append(w.b, tag.b...)
	}
}

func (c regexChange) record(group string) Record {
	r := Record{Key: consumerKey(keyRegex, group, c.regex)}
	if c.resolved == nil {
		return r
	}
	w := newFlexWriter()
	w.strings(c.resolved.topics)
	w.int64(c.resolved.version)
	w.int64(c.resolved.at)
	w.noTags()
	r.Value = w.b
	return r
}

// sorted is the partitions in order of topic id and number.
func (m epochMap) sorted() []partitionKey {
	all := make([]partitionKey, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.SortFunc(all, comparePartitions)
	return all
}

// byTopic cuts sorted partitions into runs of one topic.
func byTopic(sorted []partitionKey) [][]partitionKey {
	var runs [][]partitionKey
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].id == sorted[0].id {
			n++
		}
		runs, sorted = append(runs, sorted[:n]), sorted[n:]
	}
	return runs
}

// flexReader reads what flexWriter writes; the first error stays and every later read gives zero values.
type flexReader struct {
	b   []byte
	err error
}

func (r *flexReader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *flexReader) fail() {
	if r.err == nil {
		r.err = errRecord
	}
	r.b = nil
}

func (r *flexReader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *flexReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *flexReader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *flexReader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *flexReader) uvarint() int {
	n, size := binary.Uvarint(r.b)
	if r.err != nil || size <= 0 || n > math.MaxInt32 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

// length reads a compact length of elements of at least size bytes; -1 is null.
func (r *flexReader) length(size int) int {
	n := r.uvarint() - 1
	if n > len(r.b)/size {
		r.fail()
		return 0
	}
	return n
}

func (r *flexReader) nullable() (s string, given bool) {
	n := r.length(1)
	if r.err != nil || n < 0 {
		return "", false
	}
	return string(r.take(n)), true
}

func (r *flexReader) string() string {
	s, given := r.nullable()
	if !given {
		r.fail()
	}
	return s
}

func (r *flexReader) strings() []string {
	n := r.length(1)
	if n < 0 {
		r.fail()
	}
	var all []string
	for range n {
		all = append(all, r.string())
	}
	return all
}

func (r *flexReader) id() (id [16]byte) {
	copy(id[:], r.take(len(id)))
	return id
}

// tags calls fn for each tagged field; what fn leaves is skipped.
func (r *flexReader) tags(fn func(tag int, f *flexReader)) {
	for range r.uvarint() {
		if r.err != nil {
			return
		}
		tag := r.uvarint()
		f := &flexReader{b: r.take(r.uvarint())}
		if fn != nil {
			fn(tag, f)
		}
		if f.err != nil {
			r.fail()
		}
	}
}

// epochs reads partitions; those of a log of before KIP-1251 count as held since epoch 0.
func (r *flexReader) epochs() epochMap {
	m := epochMap{}
	for range r.length(1) {
		id, n := r.id(), r.length(4)
		keys := make([]partitionKey, 0, max(n, 0))
		for range n {
			keys = append(keys, partitionKey{id, r.int32()})
			m[keys[len(keys)-1]] = 0
		}
		r.tags(func(tag int, f *flexReader) {
			if tag != tagAssignmentEpochs {
				return
			}
			for i := range f.length(4) {
				if epoch := f.int32(); i < len(keys) {
					m[keys[i]] = epoch
				}
			}
		})
		if r.err != nil {
			return nil
		}
	}
	return m
}

func (r *flexReader) targets() partitionSet {
	set := partitionSet{}
	for range r.length(1) {
		id := r.id()
		for range r.length(4) {
			set[partitionKey{id, r.int32()}] = struct{}{}
		}
		r.tags(nil)
		if r.err != nil {
			return nil
		}
	}
	return set
}

// decodeConsumer reads what a record of a consumer group changes (isConsumerKey holds for its key). A nil value is a
// tombstone. Tagged fields that are not known are skipped. Errors: errRecord.
func decodeConsumer(key, value []byte) (group string, c change, err error) {
	k, err := parseKey(key)
	if err != nil {
		return "", nil, err
	}
	if k.version == keySubscription {
		return k.group, partitionMetadataChange{}, nil // of before Kafka 4.1; nobody reads it
	}
	v := &flexReader{b: value}
	gone := value == nil
	if !gone {
		if err := checkValue(value, consumerValue); err != nil {
			return k.group, nil, err
		}
		v.int16()
	}
	c = decodeChange(k.version, k.name, gone, v)
	if k.version != keyEpoch { // which has read its tags
		v.tags(nil)
	}
	if !gone && v.err != nil {
		return k.group, nil, fmt.Errorf("%w: value of type %d of group %q", v.err, k.version, k.group)
	}
	return k.group, c, nil
}

func decodeChange(version int16, second string, gone bool, v *flexReader) change {
	switch version {
	case keyEpoch:
		c := groupChange{gone: gone}
		if !gone {
			c.epoch = v.int32()
			v.tags(func(tag int, f *flexReader) {
				if tag == tagMetadataHash {
					c.hash = f.int64()
				}
			})
		}
		return c
	case keyMember:
		c := memberChange{id: second}
		if !gone {
			c.member = decodeMember(second, v)
		}
		return c
	case keyTargetEpoch:
		c := targetEpochChange{gone: gone}
		if !gone {
			c.epoch = v.int32()
		}
		return c
	case keyTargetMember:
		c := targetChange{id: second}
		if !gone {
			c.set = v.targets()
		}
		return c
	case keyCurrent:
		c := currentChange{id: second}
		if !gone {
			c.member = &consumerMember{id: second, epoch: v.int32(), previousEpoch: v.int32(), state: memberState(v.int8()),
				assigned: v.epochs(), revoking: v.epochs()}
		}
		return c
	case keyRegex:
		c := regexChange{regex: second}
		if !gone {
			c.resolved = &resolvedRegex{topics: v.strings(), version: v.int64(), at: v.int64()}
		}
		return c
	}
	return partitionMetadataChange{}
}

func decodeMember(id string, v *flexReader) *consumerMember {
	m := &consumerMember{id: id}
	m.instance, _ = v.nullable()
	m.rack, _ = v.nullable()
	m.clientID, m.host = v.string(), v.string()
	m.topics = v.strings()
	m.regex, m.hasRegex = v.nullable()
	m.rebalanceMs = v.int32()
	m.assignor, _ = v.nullable()
	slices.Sort(m.topics)
	m.topics = slices.Compact(m.topics)
	return m
}
