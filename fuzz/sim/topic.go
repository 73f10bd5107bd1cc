package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"sekali/fuzz/model"
	"sekali/store"
)

// topicSet is the settings of the topic.
func (w *world) topicSet() map[string]string {
	stamp := "CreateTime"
	if w.setup.AppendTime {
		stamp = "LogAppendTime"
	}
	policy := "delete"
	if w.setup.Compact {
		policy = "compact,delete"
	}
	return map[string]string{
		"cleanup.policy":         policy,
		"internal.segment.bytes": strconv.FormatInt(w.setup.SegmentBytes, 10),
		"index.interval.bytes":   strconv.FormatInt(w.setup.IndexInterval, 10),
		"segment.ms":             strconv.FormatInt(w.setup.SegmentMs, 10),
		"retention.ms":           strconv.FormatInt(w.retainMs, 10),
		"retention.bytes":        strconv.FormatInt(w.retainBytes, 10),
		"message.timestamp.type": stamp,
	}
}

// retain changes the topic's retention while it runs.
func (w *world) retain(r *rand.Rand) {
	w.unjudged()
	w.retainMs, w.retainBytes = pick[int64](r, -1, 50_000, 1_000_000), pick[int64](r, -1, 0, 1000, 5000)
	id := w.node.store.Catalog().ByName[topicName].ID
	if err := w.node.store.Alter(id, w.topicSet()); err != nil && !w.node.dead() && !w.faulty && !w.limited {
		w.fail("new retention: %v", err)
	}
	w.retained()
}

// unjudged notes the partitions that do not serve: what retention has taken from them so far was decided by the
// settings and the clock of that time, which are about to change.
func (w *world) unjudged() {
	for _, p := range w.parts {
		p.changed = p.changed || p.away
	}
}

// retained reads back which retention holds.
func (w *world) retained() {
	if t := w.node.store.Catalog().ByName[topicName]; t != nil {
		w.retainMs, w.retainBytes = t.Config.RetainMs, t.Config.RetainBytes
	}
}

// remake deletes the topic and creates it again under its name (A14). It is left out on a bad disk.
func (w *world) remake() {
	if w.faulty || w.limited {
		return
	}
	w.drop()
	w.dying = true
	var err error
	w.node.through(func() { err = w.node.store.DeleteTopic(w.id, nil) })
	if err == nil {
		w.gone()
		err = w.topic()
	}
	if err != nil && !w.node.dead() {
		w.fail("the topic is to be made anew: %v", err)
	}
}

// gone forgets all about a topic that was deleted; of what clients have sent copies may still arrive.
func (w *world) gone() {
	w.id, w.dying = store.TopicID{}, false
	for _, p := range w.parts {
		*p = part{n: p.n, m: model.New(w.setup.Expire, w.setup.AppendTime), copies: p.copies}
	}
	w.stats.Remade++
}

// topic sees to it that there is the topic: it ends a deletion that a death has cut short, and creates it if it is not
// there. A topic whose creation was answered, and whose deletion was never asked for, must be there.
func (w *world) topic() (err error) {
	t := w.node.store.Catalog().ByName[topicName]
	if t != nil && t.ID == w.id {
		w.dying = false
		return nil
	}
	if w.id != (store.TopicID{}) {
		if !w.dying {
			w.fail("the topic is gone")
		}
		for _, t := range w.node.store.Interrupted() {
			w.node.through(func() { err = w.node.store.DeleteTopic(t.ID, nil) })
			if err != nil {
				return err
			}
		}
		w.gone()
	}
	if t == nil {
		c, err := store.ParseTopic(w.topicSet(), store.TopicConfig{})
		if err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		in := store.NewTopic{Name: topicName, Partitions: int32(w.setup.Partitions), Config: c}
		w.node.through(func() { _, err = w.node.store.CreateTopics(in) })
		if err != nil {
			return err
		}
		t = w.node.store.Catalog().ByName[topicName]
	}
	w.id = t.ID // of one created by a process that died before it could say so, too
	return nil
}
