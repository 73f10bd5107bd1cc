package pidmap

// modulus is the arithmetic of sequence numbers modulo M = modulus + 1, a power of two. Every comparison of sequence
// numbers goes through it; a plain < breaks at the wrap after 2^31 records (spec: producer state, section 2).
type modulus uint32

// noSequence marks the writes of a coordinator, which are not numbered.
const noSequence = -1

// holds reports whether s is a sequence number, 0..M-1.
func (q modulus) holds(s int32) bool { return uint32(s) <= uint32(q) }

// next is the number after last; after -1 (nothing yet) it is 0.
func (q modulus) next(last int32) int32 { return int32((uint32(last) + 1) & uint32(q)) }

// behind is how far s lies before last: 0 for last itself. It means something below half of M.
func (q modulus) behind(last, s int32) uint32 { return (uint32(last) - uint32(s)) & uint32(q) }

// delta is the last offset delta of a batch that uses first..last: its count of numbers less one.
func (q modulus) delta(first, last int32) uint32 { return (uint32(last) - uint32(first)) & uint32(q) }

// first is the first number of a batch that ends with last.
func (q modulus) first(last, delta int32) int32 {
	return int32((uint32(last) - uint32(delta)) & uint32(q))
}

// after reports whether s comes later than t, by less than half of M.
func (q modulus) after(t, s int32) bool {
	d := (uint32(s) - uint32(t)) & uint32(q)
	return d != 0 && d <= q.spanMax()
}

// spanMax is where a span saturates, M/2-1: farther back, behind and ahead cannot be told apart.
func (q modulus) spanMax() uint32 { return uint32(q) >> 1 }

// grown is span lengthened by a batch with the given delta, saturating.
func (q modulus) grown(span, delta uint32) uint32 {
	return uint32(min(uint64(span)+uint64(delta)+1, uint64(q.spanMax())))
}
