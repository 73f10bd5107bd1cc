//go:build !sekali_smallseq

package batch

// seqMask is the largest sequence number. The build tag sekali_smallseq makes it 63, here and in package pidmap, so
// that tests wrap after a few batches.
const seqMask = 1<<31 - 1
