package coord

import (
	"encoding/binary"
	"fmt"
)

// Snapped is one record of a snapshot: the last one of its id below the snapshot's offset.
type Snapped struct {
	Offset int64 // in the journal
	Record Record
}

// DecodeSnapshot reads what Snapshots.Save was given for a shard, for tools, in the order of the journal. An error
// tells that a load would not use it; the slices alias b. Any number of callers may overlap.
func DecodeSnapshot(b []byte, shard int, asOf int64) ([]Snapped, error) {
	if _, err := parseSnapshot(b, shard, asOf); err != nil {
		return nil, err
	}
	all := make([]Snapped, binary.BigEndian.Uint32(b[snapshotHeader-4:]))
	rest := b[snapshotHeader:]
	for i := range all {
		all[i].Offset = int64(binary.BigEndian.Uint64(rest))
		all[i].Record.Key, rest, _ = counted(rest[16:])
		all[i].Record.Value, rest, _ = counted(rest)
	}
	return all, nil
}

// Fate is what a start does about an open transaction that it finds in a partition (spec/transactions.md 8).
type Fate uint8

// The fates.
const (
	Owned      Fate = iota // its id knows of it
	Registered             // it belongs to the present transaction of its id or, behind a decided one, to the next
	Joined                 // it belongs to the decided transaction of its id, which does not know the partition
	Finished               // its id has ended it: the partition's marker is missing
	Hanging                // nobody will ever end it: aborted
)

// Judge tells the fate of an open transaction by the last record of the id that has, had or will have its producer id,
// nil: no id has. It is the rule that Recover goes by, for tools.
func Judge(o OpenTxn, owner *Logged) Fate {
	var t *txn
	if owner != nil {
		t = owner.txn()
	}
	switch f := reconcile(o, t, true); {
	case f.do == leaveOpen:
		return Owned
	case f.do == register:
		return Registered
	case f.do == join:
		return Joined
	case t != nil && (t.state == CompleteCommit || t.state == CompleteAbort) && ended(o, t):
		return Finished
	}
	return Hanging
}

// Legal reports whether a record of an id in state to may follow one in state from in the journal: a transition of
// spec/transactions.md 4, or a record written again to keep the journal short.
func Legal(from, to State) bool {
	if from == to {
		return true
	}
	switch to {
	case Empty:
		return from == CompleteCommit || from == CompleteAbort
	case Ongoing:
		return from == Empty || from == CompleteCommit || from == CompleteAbort
	case PrepareCommit:
		return from == Ongoing
	case PrepareAbort:
		return from != PrepareCommit && from <= CompleteAbort
	case CompleteCommit:
		return from == PrepareCommit
	case CompleteAbort:
		return from == PrepareAbort
	}
	return false
}

// String is the record in one line.
func (l Logged) String() string {
	if l.Deleted {
		return fmt.Sprintf("%q is forgotten", l.TxnID)
	}
	return fmt.Sprintf("%q is %s, producer %d epoch %d", l.TxnID, l.State, l.PID, l.Epoch)
}
