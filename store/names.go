package store

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// TopicID identifies one incarnation of a topic. The zero id is none.
type TopicID [16]byte

// String is Kafka's form of a uuid: 22 characters of base64url without padding.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads the form that String gives.
func ParseTopicID(s string) (id TopicID, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("store: %q is no topic id", s)
	}
	return TopicID(b), nil
}

// TP names one partition.
type TP struct {
	Topic     string
	ID        TopicID // zero: whatever topic bears the name now
	Partition int32
}

// String is the name of the partition's directory.
func (tp TP) String() string { return dirName(tp.Topic, tp.Partition) }

func dirName(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

// CheckName tests a topic name by Kafka's rules: 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither "." nor
// "..". The error wraps ErrInvalidName and says what is wrong.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalidName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q is not allowed", ErrInvalidName, name)
	case len(name) > NameBytesMax:
		return fmt.Errorf("%w: %d characters, at most %d are allowed", ErrInvalidName, len(name), NameBytesMax)
	}
	for i := range len(name) {
		if !legalByte(name[i]) {
			return fmt.Errorf("%w: %q has a character other than letters, digits, '.', '_' and '-'",
				ErrInvalidName, name)
		}
	}
	return nil
}

func legalByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// collides reports whether two different names become equal where '.' is written as '_', as metric names do.
func collides(a, b string) bool {
	return a != b && len(a) == len(b) && strings.ReplaceAll(a, ".", "_") == strings.ReplaceAll(b, ".", "_")
}

// IsInternalName reports whether a name is one of the topics that coordinators keep their state in.
func IsInternalName(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state"
}

// dirKind tells what a directory of the data directory is by its name alone.
type dirKind uint8

const (
	dirForeign dirKind = iota
	dirLive            // <topic>-<partition>
	dirDelete          // <topic>-<partition>.<uuid>-delete
	dirStray           // ...-stray: set aside by a start
	dirFuture          // ...-future: Kafka's copy between disks, never ours
)

var movedSuffixes = map[dirKind]string{dirDelete: "-delete", dirStray: "-stray", dirFuture: "-future"}

// parseDir reads a directory name. The partition number is what follows the last '-', without leading zeros.
func parseDir(name string) (topic string, partition int32, kind dirKind) {
	for k, suffix := range movedSuffixes {
		rest, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		head, uuid, ok := cutLast(rest, '.')
		if !ok || len(uuid) != 32 || strings.Trim(uuid, "0123456789abcdef") != "" {
			return "", 0, dirForeign
		}
		if topic, partition, ok = splitLive(head); !ok {
			return "", 0, dirForeign
		}
		return topic, partition, k
	}
	if topic, partition, ok := splitLive(name); ok {
		return topic, partition, dirLive
	}
	return "", 0, dirForeign
}

// ParseDir reads the name of a partition's directory for tools: the partition, and how the directory was moved away:
// "" (it was not), "-delete", "-stray" or "-future" (Kafka's copy between disks). The topic of a moved one may be cut.
// ok is false for a name of another form.
func ParseDir(name string) (tp TP, moved string, ok bool) {
	topic, partition, kind := parseDir(name)
	return TP{Topic: topic, Partition: partition}, movedSuffixes[kind], kind != dirForeign
}

func splitLive(name string) (topic string, partition int32, ok bool) {
	topic, digits, ok := cutLast(name, '-')
	if !ok || CheckName(topic) != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return "", 0, false
	}
	return topic, int32(n), true
}

func cutLast(s string, sep byte) (head, tail string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// movedName is the name of a directory on its way out, at most 255 bytes long: the topic is cut if need be.
func movedName(topic string, partition int32, uuid [16]byte, kind dirKind) string {
	tail := "-" + strconv.Itoa(int(partition)) + "." + hex.EncodeToString(uuid[:]) + movedSuffixes[kind]
	return topic[:min(len(topic), fileNameMax-len(tail))] + tail
}
