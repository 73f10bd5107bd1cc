package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"sekali/meta"
)

// Keys of the metadata store that belong to this package. Values are JSON, except the two counters and the cluster
// id, which are plain text.
const (
	topicPrefix  = "topic/"         // topic/<name>: record
	configPrefix = "config/topic/"  // config/topic/<name>: what is set, name to value
	serverPrefix = "config/broker/" // config/broker/<node>, config/broker/ for all: the same
	epochKey     = "epoch"
	pidKey       = "pid"
	clusterKey   = "cluster"
)

// States of a topic record.
const (
	stateActive   = "active"
	stateDeleting = "deleting"
)

// record is what meta says about a topic.
type record struct {
	ID         string `json:"id"`
	Partitions int32  `json:"partitions"`
	State      string `json:"state"`
	Internal   bool   `json:"internal,omitempty"`

	id TopicID
}

func encodeRecord(r record) []byte {
	r.ID = r.id.String()
	b, err := json.Marshal(r)
	return must(b, err)
}

func encodeSet(set map[string]string) []byte {
	b, err := json.Marshal(set)
	return must(b, err)
}

// must is for values whose encoding cannot fail: strings, numbers and maps of strings.
func must(b []byte, err error) []byte {
	if err != nil {
		return []byte("{}")
	}
	return b
}

func decodeRecord(it meta.Item) (r record, err error) {
	if err = json.Unmarshal(it.Value, &r); err == nil {
		r.id, err = ParseTopicID(r.ID)
	}
	if err == nil && (r.Partitions < 1 || r.State != stateActive && r.State != stateDeleting) {
		err = fmt.Errorf("%d partitions, state %q", r.Partitions, r.State)
	}
	if err != nil {
		return r, fmt.Errorf("store: metadata key %q: %w", it.Key, err)
	}
	return r, nil
}

func decodeSet(it meta.Item) (map[string]string, error) {
	set := map[string]string{}
	if err := json.Unmarshal(it.Value, &set); err != nil {
		return nil, fmt.Errorf("store: metadata key %q: %w", it.Key, err)
	}
	return set, nil
}

// TopicInfo is a topic as the metadata store has it, for tools.
type TopicInfo struct {
	Name       string
	ID         TopicID
	Partitions int32
	Internal   bool
	Deleting   bool
	Set        map[string]string // settings, never nil
}

// ReadCatalog decodes the topics of a metadata state, sorted by name, and the server settings that were stored at run
// time, by node ("": for all nodes).
func ReadCatalog(st *meta.State) (topics []TopicInfo, servers map[string]map[string]string, err error) {
	servers = map[string]map[string]string{}
	st.Range("", func(it meta.Item) bool {
		if name, ok := strings.CutPrefix(it.Key, topicPrefix); ok {
			var r record
			if r, err = decodeRecord(it); err != nil {
				return false
			}
			info := TopicInfo{Name: name, ID: r.id, Partitions: r.Partitions, Internal: r.Internal,
				Deleting: r.State == stateDeleting, Set: map[string]string{}}
			if c, ok := st.Get(configPrefix + name); ok {
				info.Set, err = decodeSet(c)
			}
			topics = append(topics, info)
		} else if node, ok := strings.CutPrefix(it.Key, serverPrefix); ok {
			servers[node], err = decodeSet(it)
		}
		return err == nil
	})
	return topics, servers, err
}
