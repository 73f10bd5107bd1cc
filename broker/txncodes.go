package broker

import (
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
)

// txnSince says from which version of a request on its clients know two codes (spec/transactions.md 5.0).
type txnSince struct {
	fenced    int16 // PRODUCER_FENCED [90] (KIP-588); below: INVALID_PRODUCER_EPOCH [47]
	abortable int16 // TRANSACTION_ABORTABLE [120] (KIP-890); below: INVALID_TXN_STATE [48]
	loading   int16 // COORDINATOR_LOAD_IN_PROGRESS [14]; below: COORDINATOR_NOT_AVAILABLE [15]
}

// never: no version of the request.
const never = 1<<15 - 1

// txnCodes is the one table of the codes that depend on the version of a request. The group partition itself gives
// TxnOffsetCommit 47 where others say 90; what the coordinator says is turned into it here.
var txnCodes = map[int16]txnSince{
	wire.KeyInitProducerID:     {fenced: 4, abortable: 5},
	wire.KeyAddPartitionsToTxn: {fenced: 2, abortable: 4}, // Kafka answers 120 to brokers of version 4, too
	wire.KeyAddOffsetsToTxn:    {fenced: 2, abortable: 4},
	wire.KeyEndTxn:             {fenced: 2, abortable: 4},
	wire.KeyTxnOffsetCommit:    {fenced: never, abortable: 4, loading: 2},
	wire.KeyWriteTxnMarkers:    {fenced: never, abortable: never},
}

// txnCode is what a request of a key and version is told where coordinator or groups say code; nil is 0.
func txnCode(key, version int16, code *kerr.Error) int16 {
	if code == nil {
		return 0
	}
	since := txnCodes[key]
	switch {
	case code == kerr.ProducerFenced && version < since.fenced:
		code = kerr.InvalidProducerEpoch
	case code == kerr.TransactionAbortable && version < since.abortable:
		code = kerr.InvalidTxnState
	case code == kerr.CoordinatorLoadInProgress && version < since.loading:
		code = kerr.CoordinatorNotAvailable
	}
	return code.Code
}
