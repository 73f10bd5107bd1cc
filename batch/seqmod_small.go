//go:build sekali_smallseq

package batch

// seqMask is the largest sequence number of test builds.
const seqMask = 63
