package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of keys, which are the types of records in __consumer_offsets (spec groups.md 3). 9 to 15 belong to share
// groups, 17 and up to streams groups: they are kept as they are and not interpreted.
const (
	keyOffset0      int16 = 0 // offset commit, as written by brokers before 0.9
	keyOffset       int16 = 1 // offset commit
	keyClassic      int16 = 2 // classic group
	keyEpoch        int16 = 3 // consumer group: epoch
	keySubscription int16 = 4 // consumer group: subscription metadata, no longer written
	keyMember       int16 = 5 // consumer group: member
	keyTargetEpoch  int16 = 6 // consumer group: epoch of the target assignment
	keyTargetMember int16 = 7 // consumer group: target assignment of a member
	keyCurrent      int16 = 8 // consumer group: current assignment of a member
	keyRegex        int16 = 16
)

// Versions of values that Kafka writes, and the newest this package reads.
const (
	offsetValue       int16 = 3
	offsetValueExpire int16 = 1 // with an expire timestamp
	offsetValueMax    int16 = 4
	classicValue      int16 = 3
	classicValueMax   int16 = 4
)

// errRecord is the kind of every error of a record that cannot be read.
var errRecord = errors.New("group: unreadable record")

// recordKey is the key of a record. version is its type; name is the member id of types 5, 7 and 8 and the regular
// expression of type 16. Of a type that is not interpreted only the version is set.
type recordKey struct {
	version            int16
	group, topic, name string
	partition          int32
}

// foreign reports whether the records of this type are kept without being interpreted.
func (k *recordKey) foreign() bool {
	return k.version < 0 || k.version > keyCurrent && k.version != keyRegex
}

// parts tells which fields a key of this type has.
func (k *recordKey) parts() (topic, name bool) {
	switch k.version {
	case keyOffset0, keyOffset:
		return true, false
	case keyMember, keyTargetMember, keyCurrent, keyRegex:
		return false, true
	}
	return false, false
}

// encode gives the bytes of a key. Strings longer than 32767 bytes do not occur: they came in as such.
func (k *recordKey) encode() []byte {
	topic, name := k.parts()
	b := make([]byte, 0, 2+2+len(k.group)+2+len(k.topic)+len(k.name)+4)
	b = binary.BigEndian.AppendUint16(b, uint16(k.version))
	b = appendString(b, k.group)
	if topic {
		b = appendString(b, k.topic)
		b = binary.BigEndian.AppendUint32(b, uint32(k.partition))
	}
	if name {
		b = appendString(b, k.name)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// parseKey reads a key of any type. Errors: errRecord.
func parseKey(b []byte) (k recordKey, err error) {
	if len(b) < 2 {
		return k, fmt.Errorf("%w: key of %d bytes", errRecord, len(b))
	}
	k.version = int16(binary.BigEndian.Uint16(b))
	if k.foreign() {
		return k, nil
	}
	topic, name := k.parts()
	rest, ok := takeString(b[2:], &k.group)
	if ok && topic {
		if rest, ok = takeString(rest, &k.topic); ok {
			if ok = len(rest) >= 4; ok {
				k.partition = int32(binary.BigEndian.Uint32(rest))
				rest = rest[4:]
			}
		}
	}
	if ok && name {
		rest, ok = takeString(rest, &k.name)
	}
	if !ok || len(rest) != 0 {
		return k, fmt.Errorf("%w: key of type %d", errRecord, k.version)
	}
	return k, nil
}

func takeString(b []byte, s *string) (rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	if n < 0 || len(b) < 2+n {
		return nil, false
	}
	*s = string(b[2 : 2+n])
	return b[2+n:], true
}

// encodeOffset gives the record of a committed offset, in the version Kafka writes.
func encodeOffset(group string, k tpKey, c *committed) Record {
	v := kmsg.OffsetCommitValue{
		Version: offsetValue, Offset: c.offset, LeaderEpoch: c.epoch, Metadata: c.metadata, CommitTimestamp: c.timeMs,
	}
	if c.expireMs >= 0 {
		v.Version, v.ExpireTimestamp = offsetValueExpire, c.expireMs
	}
	return Record{Key: offsetKey(group, k), Value: v.AppendTo(make([]byte, 0, 32+len(c.metadata)))}
}

func offsetKey(group string, k tpKey) []byte {
	key := recordKey{version: keyOffset, group: group, topic: k.topic, partition: k.partition}
	return key.encode()
}

// decodeOffset reads an offset commit of any version.
func decodeOffset(b []byte) (*kmsg.OffsetCommitValue, error) {
	if err := checkValue(b, offsetValueMax); err != nil {
		return nil, err
	}
	v := new(kmsg.OffsetCommitValue)
	if err := v.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("%w: offset commit of version %d: %w", errRecord, v.Version, err)
	}
	if v.Version < 3 {
		v.LeaderEpoch = -1
	}
	if v.Version != offsetValueExpire {
		v.ExpireTimestamp = -1
	}
	return v, nil
}

// encodeClassic gives the record of a classic group, in the version Kafka writes.
func encodeClassic(id string, v *kmsg.GroupMetadataValue) Record {
	w := *v
	w.Version = classicValue
	return Record{Key: tombstoneClassic(id).Key, Value: w.AppendTo(nil)}
}

// tombstoneClassic gives the record that removes a classic group.
func tombstoneClassic(id string) Record {
	key := recordKey{version: keyClassic, group: id}
	return Record{Key: key.encode()}
}

// decodeClassic reads the value of a classic group of any version.
func decodeClassic(b []byte) (*kmsg.GroupMetadataValue, error) {
	if err := checkValue(b, classicValueMax); err != nil {
		return nil, err
	}
	v := new(kmsg.GroupMetadataValue)
	if err := v.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("%w: classic group of version %d: %w", errRecord, v.Version, err)
	}
	return v, nil
}

func checkValue(b []byte, newest int16) error {
	if len(b) < 2 {
		return fmt.Errorf("%w: value of %d bytes", errRecord, len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v < 0 || v > newest {
		return fmt.Errorf("%w: value of version %d, the newest known is %d", errRecord, v, newest)
	}
	return nil
}

// Logged is one record of __consumer_offsets, decoded. Value is a *kmsg.OffsetCommitValue (types 0 and 1), a
// *kmsg.GroupMetadataValue (2), a value of this package to be printed (3, 5 to 8, 16), the bytes as they are ([]byte:
// types that are not interpreted), or nil (a tombstone).
type Logged struct {
	Type      int16 // version of the key
	Group     string
	Topic     string // types 0 and 1
	Partition int32  // types 0 and 1
	Name      string // member id (5, 7, 8) or regular expression (16)
	Value     any
}

// DecodeRecord reads one record of __consumer_offsets, for tools and tests; it may be called from anywhere. An error
// tells that key or value cannot be read; r is not kept.
func DecodeRecord(r Record) (Logged, error) {
	k, err := parseKey(r.Key)
	if err != nil {
		return Logged{}, err
	}
	l := Logged{Type: k.version, Group: k.group, Topic: k.topic, Partition: k.partition, Name: k.name}
	if r.Value == nil {
		return l, nil
	}
	switch {
	case k.foreign() || k.version == keySubscription:
		l.Value = append([]byte{}, r.Value...)
	case k.version <= keyOffset:
		l.Value, err = decodeOffset(r.Value)
	case k.version == keyClassic:
		l.Value, err = decodeClassic(r.Value)
	default:
		_, l.Value, err = decodeChangeOf(r)
	}
	return l, err
}

func decodeChangeOf(r Record) (group string, value any, err error) {
	group, c, err := decodeConsumer(r.Key, r.Value)
	return group, c, err
}

// Record encodes l again, with a value version of its own where it has one, else in the version Kafka writes. ok is
// false for types that are not interpreted, and for a Value that DecodeRecord does not give.
func (l Logged) Record() (r Record, ok bool) {
	k := recordKey{version: l.Type, group: l.Group, topic: l.Topic, name: l.Name, partition: l.Partition}
	if k.foreign() {
		return Record{}, false
	}
	r.Key = k.encode()
	switch v := l.Value.(type) {
	case nil:
	case *kmsg.OffsetCommitValue:
		r.Value = v.AppendTo(nil)
	case *kmsg.GroupMetadataValue:
		r.Value = v.AppendTo(nil)
	case change:
		r = v.record(l.Group)
	case []byte:
		r.Value = append([]byte{}, v...)
	default:
		return Record{}, false
	}
	return r, true
}
