// Package group keeps consumer groups: who is a member (classic protocol and KIP-848), which offsets are committed, and
// which committed offsets wait for the marker of their transaction.
//
// It knows neither files nor sockets: the partitions of __consumer_offsets, the topics and the place for snapshots are
// the small interfaces declared here, which the broker supplies. Every partition is one shard, which alone touches the
// groups that hash to it; a call is a message to that shard.
package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
)

// TP names a partition. ID is the id of the topic, zero where only the name is known.
type TP struct {
	Topic     string
	ID        [16]byte
	Partition int32
}

// Record is one record of __consumer_offsets (spec: key and value begin with a version). A nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Journal is one partition of __consumer_offsets. Calls of Append come from one shard; the others may overlap with
// them.
type Journal interface {
	// Append writes recs as one batch, all or nothing; pid < 0: a plain batch, else a transactional one of pid and
	// epoch which must be admitted by guard unless the transaction is open here already (I8). done runs once, when the
	// batch is durable or refused, on any goroutine and also inside the call: base is its first offset, record i lies
	// at base + i. The done of two batches run in the order of their offsets. The slices belong to the journal until
	// done.
	//
	// err: ErrTooLarge, ErrClosed, ErrStorage, ErrFenced, ErrTxnState, *Unverified; anything else is a passing failure.
	Append(recs []Record, pid int64, epoch int16, guard uint64, done func(base int64, err error))
	// Replay calls fn for every record and marker from offset from to End, in order. fn's slices are its own.
	Replay(from int64, fn func(Replayed) error) error
	// Start is the first offset kept.
	Start() int64
	// End is the offset after the last record.
	End() int64
	// Stable is the last stable offset: the first offset of the first open transaction, or End.
	Stable() int64
	// DropBefore raises the log start to offset, durably.
	DropBefore(offset int64) error
}

// Replayed is one record of a journal, or one marker.
type Replayed struct {
	Offset int64 // of the record, not of its batch
	Record Record
	PID    int64 // -1: plain
	Epoch  int16
	Marker *batch.Marker // instead of a record
}

// Errors of a Journal. ErrTooLarge is answered with MESSAGE_TOO_LARGE, ErrClosed and ErrStorage with NOT_COORDINATOR,
// ErrFenced with INVALID_PRODUCER_EPOCH, ErrTxnState with INVALID_TXN_STATE, any other with COORDINATOR_NOT_AVAILABLE.
var (
	ErrTooLarge = errors.New("group: batch larger than the journal takes")
	ErrClosed   = errors.New("group: journal closed")
	ErrStorage  = errors.New("group: storage failed")
	ErrFenced   = errors.New("group: a newer producer epoch is known")
	ErrTxnState = errors.New("group: the transaction is not open here and the guard is not valid")
)

// Unverified is Append's error for a transactional batch that opens a transaction here: ask the coordinator, then
// append again with the guard.
type Unverified struct{ Guard uint64 }

// Error says what is missing.
func (e *Unverified) Error() string {
	return fmt.Sprintf("group: transaction not verified, guard %d", e.Guard)
}

// Topics answers the assignors, subscription checks and regular expressions. Its methods may be called from any
// goroutine and do not block.
type Topics interface {
	// Lookup finds a topic by name: its id and number of partitions.
	Lookup(name string) (id [16]byte, partitions int32, ok bool)
	// Names lists all topics, internal ones included, in no order.
	Names() []string
	// Watch registers fn to be called after topics were created, deleted or grown. fn only posts.
	Watch(fn func(changed []string))
}

// Snapshots keeps one snapshot per shard; any of them may be missing or old. asOf is a journal offset: the snapshot is
// the state of all records below it.
type Snapshots interface {
	Save(shard int, asOf int64, b []byte) error
	Load(shard int) (asOf int64, b []byte, err error)
}

// Config are the settings of a Manager (names of Kafka in brackets). Zero values are taken as they are, except where
// noted; Defaults gives Kafka's.
type Config struct {
	SessionMinMs   int32 // [group.min.session.timeout.ms]
	SessionMaxMs   int32 // [group.max.session.timeout.ms]
	InitialDelayMs int32 // [group.initial.rebalance.delay.ms]
	SizeMax        int   // [group.max.size] members
	MetadataMax    int   // [offset.metadata.max.bytes] characters
	RetainMs       int64 // [offsets.retention.minutes]
	RetainCheckMs  int64 // [offsets.retention.check.interval.ms]

	ConsumerSessionMs   int32 // [group.consumer.session.timeout.ms]
	ConsumerHeartbeatMs int32 // [group.consumer.heartbeat.interval.ms]
	ConsumerSizeMax     int   // [group.consumer.max.size]

	SnapshotEvery int64 // journal records between two snapshots of a shard; 0: none
	RewriteEvery  int64 // journal records beyond the live ones before they are appended again; 0: never

	// Inline: no goroutines. Whoever calls an idle shard runs it on the spot; calls from different goroutines must not
	// overlap. For simulators and tests.
	Inline bool
	Random func(b []byte) // fills b for member ids; nil: the random source of the machine
	Events Events
}

// Defaults are Kafka's settings.
func Defaults() Config {
	return Config{
		SessionMinMs: 6000, SessionMaxMs: 1800000, InitialDelayMs: 3000,
		SizeMax: 1<<31 - 1, MetadataMax: 4096,
		RetainMs: 7 * 24 * 60 * 60 * 1000, RetainCheckMs: 600000,
		ConsumerSessionMs: 45000, ConsumerHeartbeatMs: 5000, ConsumerSizeMax: 1<<31 - 1,
		SnapshotEvery: 100000, RewriteEvery: 100000,
	}
}

// Events tell what happens, for metrics. Any of them may be nil; they run on a shard and must not block.
type Events struct {
	State          func(kind, from, to string) // a group's state; from "" when it appears, to "" when it is removed
	Rebalanced     func(kind string, took time.Duration, members int)
	SessionExpired func(kind string)
	Committed      func(offsets int, transactional bool)
	Settled        func(offsets int, commit bool) // transactional offsets decided by a marker
	Expired        func(offsets int)
	Loaded         func(partition int32, took time.Duration)
}

// Offset is a committed position. LeaderEpoch is -1 where the client gave none.
type Offset struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// Member is what every request of a member says about itself. Instance is empty for a dynamic member.
type Member struct {
	Group, Member, Instance string
	Generation              int32 // or member epoch; -1: none given
	Reason                  string
}

// Protocol is one assignor a member supports, with its subscription.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinIn is one JoinGroup.
type JoinIn struct {
	Member
	Version                int16 // of JoinGroup: 4 member id required, 9 skip assignment
	ClientID, Host         string
	ProtocolType           string
	SessionMs, RebalanceMs int32 // RebalanceMs -1: as SessionMs
	Protocols              []Protocol
}

// JoinOut is the answer to a JoinGroup. With an error code it holds the member id and generation -1.
type JoinOut struct {
	Member, Leader         string
	ProtocolType, Protocol string
	Generation             int32
	SkipAssignment         bool
	Members                []JoinMember // for the leader only
}

// JoinMember is one member as the leader sees it.
type JoinMember struct {
	Member, Instance string
	Metadata         []byte
}

// SyncIn is one SyncGroup. ProtocolType and Protocol are empty where the client gave none (below version 5).
type SyncIn struct {
	Member
	ProtocolType, Protocol string
	Assignments            map[string][]byte
}

// SyncOut is the answer to a SyncGroup.
type SyncOut struct {
	ProtocolType, Protocol string
	Assignment             []byte
}

// ConsumerIn is one ConsumerGroupHeartbeat; Member.Generation is the member epoch.
type ConsumerIn struct {
	Member
	Version         int16 // of ConsumerGroupHeartbeat: 0 lets the server choose the member id
	ClientID, Host  string
	Rack            *string  // nil: unchanged
	RebalanceMs     int32    // -1: unchanged
	Topics          []string // nil: unchanged
	Regex, Assignor *string  // nil: unchanged
	Owned           []TP     // nil: unchanged
	InstanceGiven   bool     // an instance id was given, perhaps the empty string
}

// ConsumerOut is the answer to a ConsumerGroupHeartbeat. Assigned counts only when Changed.
type ConsumerOut struct {
	Member             string
	Epoch, HeartbeatMs int32
	Assigned           []TP
	Changed            bool
}

// CommitIn is one OffsetCommit (PID -1) or TxnOffsetCommit. Offsets[i] is that of TPs[i].
type CommitIn struct {
	Member
	Version  int16 // of OffsetCommit or TxnOffsetCommit
	PID      int64 // -1: plain
	Epoch    int16
	Guard    uint64
	RetainMs int64 // -1: the broker's
	TPs      []TP
	Offsets  []Offset
}

// FetchIn is one OffsetFetch of one group. Member "" and Generation -1: no checks of a consumer group.
type FetchIn struct {
	Member
	TPs        []TP // nil: all
	StableOnly bool
}

// Fetched is what a group holds for a partition. Unstable: a transaction that is open has staged an offset for it, and
// the request wants only stable ones; Offset is -1 then.
type Fetched struct {
	Offset
	Unstable bool
}

// Types of a group as ListGroups names them.
const (
	TypeClassic  = "classic"
	TypeConsumer = "consumer"
)

// Info is what is known of a group.
type Info struct {
	Group, Type, State, ProtocolType, Protocol string
	Generation                                 int32 // or group epoch
	AssignmentEpoch                            int32 // consumer groups
	Assignor                                   string
	Size                                       int // members
	Members                                    []MemberInfo
}

// MemberInfo is one member of an Info. Metadata and Assignment are empty unless the group is Stable.
type MemberInfo struct {
	Member, Instance, ClientID, Host string
	Metadata, Assignment             []byte
	Consumer                         *ConsumerMemberInfo // members of consumer groups
}

// ConsumerMemberInfo is what ConsumerGroupDescribe tells beyond MemberInfo.
type ConsumerMemberInfo struct {
	Epoch            int32
	Rack, Regex      string
	Topics           []string
	Assigned, Target []TP
}

// done types of the calls, for the files of this package.
type (
	joinDone  = func(JoinOut, *kerr.Error)
	syncDone  = func(SyncOut, *kerr.Error)
	codeDone  = func(*kerr.Error)
	codesDone = func([]*kerr.Error, *kerr.Error)
)
