package store

import (
	"errors"
	"fmt"

	"sekali/plog"
)

// The errors of the data directory. They come wrapped; test with errors.Is.
var (
	// ErrUnknownTopic: no topic bears the name (UNKNOWN_TOPIC_OR_PARTITION).
	ErrUnknownTopic = errors.New("store: unknown topic")
	// ErrUnknownTopicID: no topic has the id, or the topic of that name has another one (UNKNOWN_TOPIC_ID).
	ErrUnknownTopicID = errors.New("store: unknown topic id")
	// ErrUnknownPartition: the topic has no partition of that number (UNKNOWN_TOPIC_OR_PARTITION).
	ErrUnknownPartition = errors.New("store: unknown partition")
	// ErrTopicExists: the name is taken, also by a topic whose deletion has not ended (TOPIC_ALREADY_EXISTS).
	ErrTopicExists = errors.New("store: topic exists")
	// ErrInvalidName: a name that is no topic name, or that differs from another only by '.' and '_'
	// (INVALID_TOPIC_EXCEPTION).
	ErrInvalidName = errors.New("store: invalid topic name")
	// ErrPartitions: a number of partitions that cannot be (INVALID_PARTITIONS).
	ErrPartitions = errors.New("store: invalid number of partitions")
	// ErrTooMany: the limit of open files does not allow so many partitions (INVALID_PARTITIONS).
	ErrTooMany = errors.New("store: too many partitions for the limit of open files")
	// ErrTwice: a topic occurs twice in one call (INVALID_REQUEST).
	ErrTwice = errors.New("store: topic named twice")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrFileSystem: the data directory lies on a file system whose flushes cannot be trusted.
	ErrFileSystem = errors.New("store: unsuitable file system")
	// ErrFormat: the directory was written by a newer version, or its format marker is damaged.
	ErrFormat = errors.New("store: format of the data directory")
	// ErrIdentity: the directory belongs to another node or cluster.
	ErrIdentity = errors.New("store: identity of the data directory")
	// ErrMissing: a partition's directory is not there.
	ErrMissing = errors.New("store: partition directory missing")
)

// InvalidConfigError refuses a setting (INVALID_CONFIG). Reason is a sentence for the administrator.
type InvalidConfigError struct{ Name, Reason string }

// Error names setting and reason.
func (e *InvalidConfigError) Error() string {
	return "store: setting " + e.Name + ": " + e.Reason
}

// TopicError is what went wrong with one topic of a call that concerns several.
type TopicError struct {
	Topic string
	Err   error
}

// Error names the topic.
func (e *TopicError) Error() string { return fmt.Sprintf("topic %q: %v", e.Topic, e.Err) }

// Unwrap gives the cause.
func (e *TopicError) Unwrap() error { return e.Err }

// OfflineError is a partition that is known and cannot serve (KAFKA_STORAGE_ERROR). It wraps plog.ErrOffline and the
// cause, which names path, position and the command that helps where the directory is damaged.
type OfflineError struct {
	TP  TP
	Err error
}

// Error names the partition.
func (e *OfflineError) Error() string {
	return fmt.Sprintf("store: partition %s is offline: %v", e.TP, e.Err)
}

// Unwrap makes errors.Is(err, plog.ErrOffline) true and gives the cause.
func (e *OfflineError) Unwrap() []error { return []error{plog.ErrOffline, e.Err} }
