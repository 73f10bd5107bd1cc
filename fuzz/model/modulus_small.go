//go:build sekali_smallseq

package model

// Modulus is the number of sequence numbers of this test build: 63 is followed by 0.
const Modulus = 64
