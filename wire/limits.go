package wire

// Defaults of Limits, bytes.
const (
	ProduceBytesDefault     = 100 << 20 // socket.request.max.bytes
	OtherBytesDefault       = 8 << 20   // sekali.request.other.max.bytes
	BeforeLoginBytesDefault = 512 << 10 // sasl.server.max.receive.size
)

// smallBytesMax is the cap of the keys that list no topics, groups, members or offsets.
const smallBytesMax = 1 << 20

// elementsMax bounds what one request may list, arrays of all levels and unknown tagged fields counted together. It
// keeps what kmsg allocates for one request below about 8 MiB beside the strings, which are no longer than the frame.
const elementsMax = 1 << 16

// decodedMax is the most a body that Decode accepts takes on the heap beyond its own size.
const decodedMax = 8 << 20

// decodedFactor is the most bytes one byte of a body can become: an array element of two or three bytes.
const decodedFactor = 32

// stringMax is Kafka's limit for a string on the wire.
const stringMax = 1<<15 - 1

// FirstBytes is how much of a frame, or all of a shorter one, has to have arrived before anything is taken for it.
const FirstBytes = 4 << 10

// firstPiece is the least a frame begins with, unless it is shorter; from there the buffer doubles with the bytes.
const firstPiece = 2 * FirstBytes

// piecesMax is the most pieces one writev takes (IOV_MAX); net.Buffers cuts a longer list into several calls.
const piecesMax = 1024

// copyBytes is what SendCopy gathers before it writes.
const copyBytes = 64 << 10

// headBytes is what a response head is made with; larger ones grow.
const headBytes = 512

// headKeep is the largest response head that is kept for another response.
const headKeep = 64 << 10

// Limits in bytes, checked before anything is allocated: Produce, all others, anything before login.
type Limits struct{ Produce, Other, BeforeLogin int }

// Defaults fills what is zero.
func (l Limits) Defaults() Limits {
	if l.Produce == 0 {
		l.Produce = ProduceBytesDefault
	}
	if l.Other == 0 {
		l.Other = OtherBytesDefault
	}
	if l.BeforeLogin == 0 {
		l.BeforeLogin = BeforeLoginBytesDefault
	}
	return l
}

// Cap is the frame limit of one key once logged in: Produce has its own, keys that list topics or partitions may use
// the whole of Other, all others (unknown ones among them) at most 1 MiB.
func (l Limits) Cap(key int16) int {
	a := lookup(key)
	switch {
	case key == KeyProduce:
		return l.Produce
	case a != nil && a.large:
		return l.Other
	default:
		return min(l.Other, smallBytesMax)
	}
}

// Charge is what a frame of this key costs the in-flight budget beyond its own bytes while it is decoded. A Produce
// body is sliced in place; of any other kmsg makes objects.
func Charge(key int16, size int) int {
	if key == KeyProduce {
		return 0
	}
	return min((decodedFactor-1)*size, decodedMax)
}
