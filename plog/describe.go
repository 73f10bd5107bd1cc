package plog

import "sekali/pidmap"

// Producers calls fn for every producer the log remembers, in no order, until it returns false. It takes Log.mu for one
// piece at a time; fn runs outside it. Producers that come or go meanwhile may be seen or not.
func (l *Log) Producers(fn func(pidmap.Producer) bool) {
	var piece []pidmap.Producer
	for next := 0; next >= 0; {
		piece = piece[:0]
		l.mu.Lock()
		next = l.pids.Each(next, func(p pidmap.Producer) { piece = append(piece, p) })
		l.mu.Unlock()
		for i := range piece {
			if !fn(piece[i]) {
				return
			}
		}
	}
}

// OpenTxns calls fn for every transaction that is open here, with its first offset and in the order of them, until it
// returns false. fn runs outside Log.mu.
func (l *Log) OpenTxns(fn func(pid int64, epoch int16, first int64) bool) {
	l.mu.Lock()
	open := l.pids.Open()
	l.mu.Unlock()
	for i := range open {
		if !fn(open[i].PID, open[i].Epoch, open[i].TxnFirst) {
			return
		}
	}
}

// MaxProducerID is the largest id of the producers the log remembers that lies below a bound, -1: there are none.
func (l *Log) MaxProducerID(below int64) int64 {
	largest := int64(-1)
	l.Producers(func(p pidmap.Producer) bool {
		if p.PID < below {
			largest = max(largest, p.PID)
		}
		return true
	})
	return largest
}
