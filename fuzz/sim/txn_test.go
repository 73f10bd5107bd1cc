package sim

import (
	"flag"
	"fmt"
	"testing"
)

var txnSeedsFlag = flag.Int("txnseeds", 150, "how many seeds TestTransactions plays")

// playTxns runs operations in a bubble of its own.
func playTxns(t *testing.T, seed uint64, s TxnSetup, ops []TxnOp) (stats TxnStats, v *Violation) {
	inBubble(t, seed, func() *Violation {
		stats, v = RunTxns(seed, s, ops)
		return v
	})
	return stats, v
}

// TestTransactions plays seeds with transactions, -txnseeds of them or the one of -seed, on all processors, and stops
// at the first that finds something wrong.
func TestTransactions(t *testing.T) {
	if *seedFlag >= 0 {
		oneTxns(t, uint64(*seedFlag))
		return
	}
	var total TxnStats
	took, failed := campaign(t, *txnSeedsFlag, func(t *testing.T, seed uint64) (*Violation, func(), func(*testing.T)) {
		s, ops := TxnScript(seed)
		stats, v := playTxns(t, seed, s, ops)
		return v, func() { total.add(&stats) }, func(t *testing.T) { reportTxns(t, seed, s, ops, v) }
	})
	fmt.Printf("sim: transactions: %d seeds in %.1f s: %+v\n", *txnSeedsFlag, took, total)
	if !failed && *txnSeedsFlag >= 100 {
		for _, name := range total.missing() {
			t.Errorf("%d seeds, and none met: %s", *txnSeedsFlag, name)
		}
	}
}

func oneTxns(t *testing.T, seed uint64) {
	s, ops := TxnScript(seed)
	ops = kept(ops)
	stats, v := playTxns(t, seed, s, ops)
	if v != nil {
		reportTxns(t, seed, s, ops, v)
	}
	t.Logf("seed %d: %+v", seed, stats)
}

// reportTxns prints a violation of TestTransactions.
func reportTxns(t *testing.T, seed uint64, s TxnSetup, ops []TxnOp, v *Violation) {
	reportOf(t, "TestTransactions", seed, s, ops, v, func(ops []TxnOp) *Violation {
		_, v := playTxns(t, seed, s, ops)
		return v
	})
}
