package coord

import (
	"math"
	"time"
)

// FoundPIDsBelow bounds the producer ids that count as found in use: those at or above it are nobody's of this node,
// but were made up by a client. Half of all ids are left however high the rest is; a counter gets there after 146 years
// of a thousand million a second, or by one made-up id.
const FoundPIDsBelow = 1 << 62

const (
	// maxClientEpoch is the highest epoch a producer is ever told; from it on the producer id is replaced
	// (spec/transactions.md 4.1).
	maxClientEpoch = math.MaxInt16 - 1
	// neverMs is the transaction timeout that never fires (two-phase commit).
	neverMs = math.MaxInt32

	// answerAfter bounds the wait of an EndTxn for its markers, counted from the durable Prepare. With a Tick every 100
	// ms the answer leaves within the 1 s of D5.
	answerAfter = 900 * time.Millisecond

	// markersAtOnce bounds how many markers of one transaction a shard sends before it looks after others.
	markersAtOnce = 32

	// retryFirst and retryMost bound the pause before a marker, or a record that must be written, is tried again.
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second

	// keepLeast and keepShare: the time an Ongoing transaction has left is written down again whenever another share of
	// its timeout is used up, not more often than keepLeast.
	keepLeast = time.Second
	keepShare = 8
)
