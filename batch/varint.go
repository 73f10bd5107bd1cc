package batch

// Zig-zag numbers of 32 and 64 bits in groups of seven bits, lowest first, as Kafka writes them. The readers take a
// position and return the one behind the number, -1 if there is none: bytes are missing, there are more than 5 or 10
// of them, or the value does not fit. A position of -1 gives -1, so that a chain of fields needs one check at its end.

func vint(b []byte, i int) (int32, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int32(b[i]>>1) ^ -int32(b[i]&1), i + 1
	}
	return vintSlow(b, i)
}

func vintSlow(b []byte, i int) (int32, int) {
	if i < 0 {
		return 0, -1
	}
	if i+1 < len(b) && b[i+1] < 0x80 { // two bytes, the usual case here
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		return int32(u>>1) ^ -int32(u&1), i + 2
	}
	var u uint32
	for s := 0; s < 35 && i < len(b); s += 7 {
		c := b[i]
		i++
		if c < 0x80 {
			if s == 28 && c > 0x0f {
				return 0, -1
			}
			u |= uint32(c) << s
			return int32(u>>1) ^ -int32(u&1), i
		}
		u |= uint32(c&0x7f) << s
	}
	return 0, -1
}

func vlong(b []byte, i int) (int64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int64(b[i]>>1) ^ -int64(b[i]&1), i + 1
	}
	return vlongSlow(b, i)
}

func vlongSlow(b []byte, i int) (int64, int) {
	if i < 0 {
		return 0, -1
	}
	if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint64(b[i]&0x7f) | uint64(b[i+1])<<7
		return int64(u>>1) ^ -int64(u&1), i + 2
	}
	var u uint64
	for s := 0; s < 70 && i < len(b); s += 7 {
		c := b[i]
		i++
		if c < 0x80 {
			if s == 63 && c > 1 {
				return 0, -1
			}
			u |= uint64(c) << s
			return int64(u>>1) ^ -int64(u&1), i
		}
		u |= uint64(c&0x7f) << s
	}
	return 0, -1
}

func appendVarint(dst []byte, x int64) []byte {
	u := uint64(x)<<1 ^ uint64(x>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// varintLen is the number of bytes appendVarint adds.
func varintLen(x int64) int {
	u := uint64(x)<<1 ^ uint64(x>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
