package engine

import (
	"errors"

	"sekali/batch"
	"sekali/coord"
	"sekali/pidmap"
	"sekali/plog"
	"sekali/store"
)

// sink writes the coordinator's markers into the partitions of the store (coord.Sink).
type sink struct{ e *Engine }

var _ coord.Sink = sink{}

// Marker implements coord.Sink. Whatever is not the end of the matter comes back as an error that the coordinator
// takes as a reason to send the marker again.
//
// One coordinator writes to this store, and no older one can. An epoch above its own is in a partition because an
// administrator named one with WriteTxnMarkers, or because the directory was Kafka's: given up for that, the marker
// would leave a transaction open for ever whose commit was answered. It is written with the epoch found.
func (k sink) Marker(tp coord.TP, m batch.Marker, redo bool, done func(error)) {
	k.e.WriteMarker(tp, m, redo, func(err error) {
		if errors.Is(err, pidmap.ErrCoordFenced) {
			m.CoordEpoch = k.coordEpoch(tp, m)
			k.e.WriteMarker(tp, m, redo, func(err error) { done(outcome(err)) })
			return
		}
		done(outcome(err))
	})
}

// coordEpoch is the coordinator epoch that the partition asks for.
func (k sink) coordEpoch(tp coord.TP, m batch.Marker) int32 {
	l, err := k.e.st.Partition(store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition})
	if err != nil {
		return m.CoordEpoch
	}
	return max(m.CoordEpoch, l.CoordEpoch(m.PID))
}

// outcome is an error of WriteMarker as the coordinator knows it.
func outcome(err error) error {
	switch {
	case errors.Is(err, pidmap.ErrFenced):
		return errors.Join(coord.ErrFenced, err)
	case errors.Is(err, store.ErrUnknownTopicID), errors.Is(err, store.ErrUnknownTopic),
		errors.Is(err, store.ErrUnknownPartition), errors.Is(err, plog.ErrDeleted):
		return errors.Join(coord.ErrGone, err)
	}
	return err
}

// marking is one marker whose flush is waited for.
type marking struct {
	waiter plog.Waiter
	e      *Engine
	tp     coord.TP
	m      batch.Marker
	at     int64
	done   func(error)
}

// WriteMarker appends a marker to a partition and calls done once it is durable, and the groups know of it where the
// partition is one of __consumer_offsets: from here on what it decided is visible (I11, I12). redo: it may have been
// written before; then it is not written twice. done may run before WriteMarker returns and on any goroutine; it must
// not block. Errors are those of store.Partition and plog.AppendMarker: after any but the refusals of the producer map
// (pidmap.ErrFenced, pidmap.ErrCoordFenced) and those of a topic that is gone, the marker may be sent again with redo.
func (e *Engine) WriteMarker(tp coord.TP, m batch.Marker, redo bool, done func(error)) {
	l, err := e.st.Partition(store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition})
	if err != nil {
		done(err)
		return
	}
	out, err := l.AppendMarker(m, redo)
	if err != nil {
		done(err)
		return
	}
	k := &marking{e: e, tp: tp, m: m, at: out.Until - 1, done: done}
	k.waiter.Fn = k.durable
	l.AfterDurable(out.Until, &k.waiter)
}

// durable is the end of the wait.
func (k *marking) durable(err error) {
	if err == nil && k.tp.Topic == OffsetsTopic {
		k.e.groups.OnMarker(k.tp.Partition, k.at, k.m)
	}
	k.done(err)
}
