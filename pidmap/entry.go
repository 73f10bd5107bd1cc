package pidmap

// entry is one producer: 176 bytes without a pointer, so that a million of them cost the collector nothing. What Check
// reads comes first and lies together. Slots fill upwards from 0 and then go round; head is the newest.
type entry struct {
	pid        int64 // freePID: the number is free, and span names the next free one
	epoch      int16
	n, head    uint8 // slots in use; top bit of n: left by Refuse
	span       uint32
	txn        uint32 // number in the list of open transactions; 0: none
	touch      int32  // tenths of a second, monotonic; negative: before this start
	coordEpoch int32
	lastSeq    [Window]int32
	delta      [Window]int32
	crc        [Window]uint32
	lastTime   int64
	last       [Window]int64 // while n is 0, last[0] is the offset of the last append, which numbers nothing
	time       [Window]int64
}

const (
	freePID = -1
	refused = 0x80 // bit of entry.n
)

// fresh is an entry nothing was written for.
func fresh(pid int64, touch int32) entry {
	e := entry{pid: pid, epoch: -1, coordEpoch: -1, touch: touch, head: Window - 1}
	e.last[0] = -1
	return e
}

// stored reports whether the entry stands for something in the log: it is neither free nor left by Refuse.
func (e *entry) stored() bool { return e.pid >= 0 && e.n&refused == 0 }

// restart empties the window for an epoch in which nothing is numbered yet. An open transaction stays.
func (e *entry) restart(epoch int16) {
	e.epoch = epoch
	e.n, e.head, e.span = 0, Window-1, 0
}

// newest is the last offset the entry vouches for, -1 if there is none.
func (e *entry) newest() int64 {
	if e.n == 0 {
		return e.last[0]
	}
	return e.last[e.head]
}

// oldest is the index of the oldest slot; there is one.
func (e *entry) oldest() int {
	if e.n < Window {
		return 0
	}
	return int(e.head+1) % Window
}

// slot is the stamp at an index of the window.
func (e *entry) slot(i int) Stamp {
	return Stamp{LastSeq: e.lastSeq[i], Delta: e.delta[i], Last: e.last[i], Time: e.time[i], CRC: e.crc[i]}
}

// follows reports whether f is the number the next batch of this epoch must begin with.
func (e *entry) follows(q modulus, f int32) bool {
	if e.n&^refused == 0 {
		return f == 0
	}
	return f == q.next(e.lastSeq[e.head])
}

// find returns the slot that used exactly the numbers f..l, the newest such, or -1.
func (e *entry) find(q modulus, f, l int32) int {
	delta := int32(q.delta(f, l))
	i := int(e.head)
	for range e.n &^ refused {
		if e.lastSeq[i] == l && e.delta[i] == delta {
			return i
		}
		if i--; i < 0 {
			i = Window - 1
		}
	}
	return -1
}

// covers reports whether every number of f..l is proven written in this epoch. Only then may a batch be called a
// duplicate: after lost state an older retry may never have arrived.
func (e *entry) covers(q modulus, f, l int32) bool {
	if e.span == 0 {
		return false
	}
	last := e.lastSeq[e.head]
	from, to := q.behind(last, f), q.behind(last, l)
	return from < e.span && to <= from // a batch that would go all round the numbers has its end before its beginning
}

// push makes a written batch the newest slot. Numbers that do not follow the last one (a hole left by compaction)
// prove only themselves.
func (e *entry) push(q modulus, b *Batch, at At) {
	delta := q.delta(b.FirstSeq, b.LastSeq)
	if e.n == 0 || b.FirstSeq != q.next(e.lastSeq[e.head]) {
		e.span = 0
	}
	e.span = q.grown(e.span, delta)
	if e.head++; e.head == Window {
		e.head = 0
	}
	i := e.head
	e.lastSeq[i], e.delta[i], e.crc[i] = b.LastSeq, int32(delta), b.CRC
	e.last[i], e.time[i] = at.Last, at.Time
	e.n = min(e.n+1, Window)
}
