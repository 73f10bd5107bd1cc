package batch

// seqHalf is half the modulus of sequence numbers, which live in 0..seqMask and wrap to 0 (spec/producer-state.md 2).
const seqHalf = seqMask/2 + 1

// SeqAdd returns the number delta steps after seq. Both are taken modulo 2^31, so a negative delta steps back.
func SeqAdd(seq, delta int32) int32 { return int32((uint32(seq) + uint32(delta)) & seqMask) }

// SeqDistance returns how many steps lead from one number to another: 0 to 2^31-1.
func SeqDistance(from, to int32) int32 { return int32((uint32(to) - uint32(from)) & seqMask) }

// SeqAfter reports next == last+1 in Kafka's wrap (2147483647 is followed by 0). The last of an empty window is -1,
// so that 0 comes after it.
func SeqAfter(last, next int32) bool { return next >= 0 && SeqAdd(last, 1) == next }

// SeqBehind reports that first is last or one of the 2^30-1 numbers before it, the half of the range that counts as
// already passed; the numbers of the other half lie ahead. Both must be at least 0.
func SeqBehind(last, first int32) bool { return SeqDistance(first, last) < seqHalf }
