package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Snapped is one record of a snapshot and its offset in the journal.
type Snapped struct {
	Offset int64
	Record Record
}

// DecodeSnapshot reads what Snapshots.Save was given for a partition, for tools. An error tells that a load would not
// use it; the slices alias b. Any number of callers may overlap.
func DecodeSnapshot(b []byte, partition int32, asOf int64) ([]Snapped, error) {
	recs, at, err := decodeSnapshot(b, partition, asOf)
	if err != nil {
		return nil, err
	}
	all := make([]Snapped, len(recs))
	for i := range recs {
		all[i] = Snapped{at[i], recs[i]}
	}
	return all, nil
}

// Interpreted reports whether this package knows what a record of the type means.
func (l *Logged) Interpreted() bool {
	k := recordKey{version: l.Type}
	return !k.foreign()
}

// Field is one value of a record, for print.
type Field struct {
	Name  string
	Value any
}

// Fields lists what the value of a record says, in the order of its bytes; nil for a tombstone and for a type that is
// not interpreted.
func (l *Logged) Fields() []Field {
	switch v := l.Value.(type) {
	case *kmsg.OffsetCommitValue:
		return []Field{{"committed_offset", v.Offset}, {"leader_epoch", v.LeaderEpoch}, {"metadata", v.Metadata},
			{"commit_timestamp", v.CommitTimestamp}, {"expire_timestamp", v.ExpireTimestamp}}
	case *kmsg.GroupMetadataValue:
		return classicFields(v)
	case groupChange:
		return []Field{{"epoch", v.epoch}, {"metadata_hash", v.hash}}
	case targetEpochChange:
		return []Field{{"assignment_epoch", v.epoch}}
	case memberChange:
		m := v.member
		return []Field{{"instance_id", m.instance}, {"rack", m.rack}, {"client_id", m.clientID}, {"host", m.host},
			{"topics", m.topics}, {"regex", m.regex}, {"rebalance_timeout_ms", m.rebalanceMs}, {"assignor", m.assignor}}
	case targetChange:
		return []Field{{"partitions", shown(v.set.sorted())}}
	case currentChange:
		m := v.member
		return []Field{{"member_epoch", m.epoch}, {"previous_member_epoch", m.previousEpoch}, {"state", int8(m.state)},
			{"assigned", shown(slices.Collect(maps.Keys(m.assigned)))},
			{"revoking", shown(slices.Collect(maps.Keys(m.revoking)))}}
	case regexChange:
		return []Field{{"topics", v.resolved.topics}, {"metadata_version", v.resolved.version}, {"timestamp", v.resolved.at}}
	}
	return nil
}

func classicFields(v *kmsg.GroupMetadataValue) []Field {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	members := make([]string, 0, len(v.Members))
	for i := range v.Members {
		members = append(members, v.Members[i].MemberID)
	}
	return []Field{{"protocol_type", v.ProtocolType}, {"generation", v.Generation}, {"protocol", text(v.Protocol)},
		{"leader", text(v.Leader)}, {"state_timestamp", v.CurrentStateTimestamp}, {"members", members}}
}

// shown are partitions of topics as text, sorted.
func shown(ps []partitionKey) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%x-%d", p.id, p.partition))
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
