package pidmap

import (
	"cmp"
	"fmt"
	"slices"

	"sekali/internal/check"
)

// loader fills a map from a snapshot file. Transactions are entered at the end, in the order of their first offsets.
type loader struct {
	m    *Map
	open []loadedTxn
}

type loadedTxn struct {
	first int64
	no    uint32
}

// Load replaces what the map holds by a snapshot file, without the producers that had expired at a reading of the
// monotonic clock (ms). The idle time a file keeps goes on where it was. After an error, which wraps ErrSnapshot, the
// map is empty. No snapshot may run.
func (m *Map) Load(file []byte, touch int64) error {
	m.clear()
	m.observe(touch)
	l := loader{m: m}
	_, err := decode(file, m.seq, l.producer)
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		m.clear()
	}
	return err
}

// clear forgets everything but the options, the clock and the guards.
func (m *Map) clear() {
	check.That(!m.copying, "snapshot running while the map is loaded")
	m.drop()
	m.n, m.txns, m.doubts = 0, txns{}, nil
	m.evicted, m.early = 0, false
}

// pendingTxn stands for the transaction of a producer until finish gives it its number; it keeps the entry.
const pendingTxn = 1<<32 - 1

func (l *loader) producer(p *Producer) error {
	m := l.m
	touch := clamp(int64(m.now) + p.Touch/100)
	if p.TxnFirst < 0 && m.expire > 0 && m.expired(touch) {
		return nil
	}
	h := hash(p.PID)
	if _, e := m.lookup(p.PID, h); e != nil {
		return fmt.Errorf("%w: producer %d twice", ErrSnapshot, p.PID)
	}
	no, e := m.insert(p.PID, h)
	if e == nil {
		return fmt.Errorf("%w: more than %d producers with open transactions", ErrSnapshot, m.limit)
	}
	e.epoch, e.coordEpoch, e.lastTime, e.touch = p.Epoch, p.CoordEpoch, p.LastTime, touch
	for i := range int(p.N) {
		s := p.Stamps[i]
		e.lastSeq[i], e.delta[i], e.last[i], e.time[i], e.crc[i] = s.LastSeq, s.Delta, s.Last, s.Time, s.CRC
	}
	if p.N > 0 {
		e.n, e.head, e.span = p.N, p.N-1, p.Span
	}
	if p.TxnFirst >= 0 {
		e.txn = pendingTxn
		l.open = append(l.open, loadedTxn{p.TxnFirst, no})
	} else {
		m.lower(no, e)
	}
	return nil
}

func (l *loader) finish() error {
	slices.SortFunc(l.open, func(a, b loadedTxn) int { return cmp.Compare(a.first, b.first) })
	for i, t := range l.open {
		e := l.m.at(t.no)
		if i > 0 && l.open[i-1].first == t.first {
			return fmt.Errorf("%w: producer %d: another transaction from %d", ErrSnapshot, e.pid, t.first)
		}
		e.txn = l.m.txns.begin(e.pid, t.first, -1)
	}
	return nil
}
