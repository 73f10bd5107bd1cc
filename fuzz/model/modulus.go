//go:build !sekali_smallseq

package model

// Modulus is the number of sequence numbers: 2147483647 is followed by 0. The build tag sekali_smallseq makes it 64,
// here and in the daemon, so that numbers wrap all the time.
const Modulus = 1 << 31
