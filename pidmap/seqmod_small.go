//go:build sekali_smallseq

package pidmap

// seqMod is the modulus of sequence numbers in test builds; see seqmod.go.
const seqMod = 64
