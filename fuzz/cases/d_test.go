package cases

import "testing"

// D2. Nothing to read: empty, no error, and watermarks that are right. (A log that holds only an open transaction comes
// with transactions.)
func TestD2NothingToRead(t *testing.T) {
	n := launch(t, options{})
	check := func(what string, p tp, at int64) {
		t.Helper()
		for _, level := range []int8{committed, uncommitted} {
			f := n.F(p, at, level)
			if f.ErrorCode != 0 || len(f.RecordBatches) != 0 || f.HighWatermark != at || f.LastStableOffset != at ||
				f.LogStartOffset != at || len(f.AbortedTransactions) != 0 {
				t.Errorf("%s, isolation %d: code %d, %d bytes, high watermark %d, last stable offset %d, log start %d; "+
					"want none and all at %d", what, level, f.ErrorCode, len(f.RecordBatches), f.HighWatermark,
					f.LastStableOffset, f.LogStartOffset, at)
			}
			if got := n.offset(p, -1, level); got != at {
				t.Errorf("%s, isolation %d: ListOffsets says end %d, want %d", what, level, got, at)
			}
		}
		if got := n.logStart(p); got != at {
			t.Errorf("%s: ListOffsets says start %d, want %d", what, got, at)
		}
	}
	fresh := n.topic("d2-new", 1)
	check("a new topic", fresh, 0)
	p, who := n.topic("d2-emptied", 1), n.init()
	n.want("s=0..6", n.P(p, who, 0, 7), codeNone, 0)
	if code, low := n.deleteRecords(p, -1); code != 0 || low != 7 {
		t.Fatalf("DeleteRecords: code %d, low watermark %d", code, low)
	}
	check("an emptied topic", p, 7)
	n.restart("KILL")
	check("a new topic after KILL", fresh, 0)
	check("an emptied topic after KILL", p, 7)
	n.want("s=7", n.P(p, who, 7, 1), codeNone, 7)
	n.want("s=0 of a new topic", n.P(fresh, n.init(), 0, 1), codeNone, 0)
}
