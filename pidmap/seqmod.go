//go:build !sekali_smallseq

package pidmap

// seqMod is the modulus of sequence numbers: 2147483647 is followed by 0. The build tag sekali_smallseq shrinks it to
// 64, so that a simulation of the whole daemon wraps all the time.
const seqMod = 1 << 31
