// Package corpus makes the records that every client writes: always the same ones, from a fixed seed.
package corpus

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"sekali/compat/record"
)

// Partitions of every topic; the last stays empty.
const Partitions = 5

// Feature is something a record may have that not every client can write.
type Feature uint

// What some client library cannot write.
const (
	NullHeader   Feature = 1 << iota // a header whose value is null
	MixedHeaders                     // a header name that comes again after another name
)

// Item is a record and what a client must be able to do to write it.
type Item struct {
	record.Record
	Needs Feature
}

const (
	bulkCount  = 5000      // small records in one go: one batch, where the client can make it
	largeSize  = 900_000   // bytes of a value that nearly fills a batch
	largeCount = 3         //
	mixedCount = 300       // records of all sizes over the partitions
	mixedSize  = 4096      // longest value of these
	epoch      = 1.7e12    // ms, November 2023: timestamps are given by the clients and lie in the past
	spread     = 1_000_000 // ms around epoch, in no order
)

// Fidelity is what a round trip has to keep: all combinations of null, empty, text and binary keys and values with
// header lists of every kind, 5,000 small records, values of 900,000 bytes, and a mix of sizes.
func Fidelity() []Item {
	rnd := rand.New(rand.NewPCG(4711, 15))
	out := edges(rnd)
	for i := range bulkCount {
		v := fmt.Appendf(nil, `{"payment":%d,"cents":%d,"to":"account-%04d"}`, i, rnd.IntN(1e6), rnd.IntN(1e4))
		out = append(out, item(1, rnd, fmt.Appendf(nil, "customer-%d", rnd.IntN(500)), v))
	}
	for i := range largeCount {
		out = append(out, item(2, rnd, fmt.Appendf(nil, "large-%d", i), large(rnd)))
	}
	for i := range mixedCount {
		it := item(int32(i%(Partitions-1)), rnd, noise(rnd, rnd.IntN(40)), noise(rnd, rnd.IntN(mixedSize)))
		for h := range rnd.IntN(4) {
			it.Headers = append(it.Headers, record.Header{Key: fmt.Sprint("h", h), Value: noise(rnd, rnd.IntN(60))})
		}
		out = append(out, it)
	}
	return out
}

// Numbered are n records whose keys are their numbers, over all partitions but the last.
func Numbered(n int) []Item {
	rnd := rand.New(rand.NewPCG(4711, 16))
	out := make([]Item, n)
	for i := range out {
		out[i] = item(int32(i%(Partitions-1)), rnd, fmt.Append(nil, i), noise(rnd, 32+rnd.IntN(128)))
	}
	return out
}

func edges(rnd *rand.Rand) []Item {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	keys := [][]byte{nil, {}, []byte("key"), binary}
	values := [][]byte{nil, {}, []byte("a value, größer: 価値"), binary, make([]byte, 300)}
	many := make([]record.Header, 50)
	for i := range many {
		many[i] = record.Header{Key: fmt.Sprint("name-", i), Value: binary[:i]}
	}
	headers := []struct {
		needs Feature
		list  []record.Header
	}{
		{0, nil},
		{0, []record.Header{{Key: "trace", Value: []byte("00-4bf9-01")}}},
		{0, []record.Header{{Key: "empty", Value: []byte{}}, {Key: "bytes", Value: binary}}},
		{0, []record.Header{{Key: "größe", Value: []byte("ü")}, {Key: "", Value: []byte("no name")}}},
		{0, []record.Header{{Key: "again", Value: []byte("1")}, {Key: "again", Value: []byte("2")}}},
		{0, many},
		{NullHeader, []record.Header{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}}},
		{MixedHeaders, []record.Header{{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte("2")},
			{Key: "b", Value: []byte("3")}}},
	}
	var out []Item
	for _, k := range keys {
		for _, v := range values {
			for _, h := range headers {
				it := item(0, rnd, k, v)
				it.Headers, it.Needs = h.list, h.needs
				out = append(out, it)
			}
		}
	}
	out[0].Time, out[1].Time = 1, 1<<31 // the shortest time that every client takes as given, and one of 1970
	return out
}

func item(partition int32, rnd *rand.Rand, key, value []byte) Item {
	t := int64(epoch) + rnd.Int64N(spread)
	return Item{Record: record.Record{Partition: partition, Time: t, Key: key, Value: value}}
}

// noise cannot be compressed.
func noise(rnd *rand.Rand, n int) []byte {
	out := make([]byte, 0, n+8)
	for len(out) < n {
		out = binary.LittleEndian.AppendUint64(out, rnd.Uint64())
	}
	return out[:n]
}

// large is noise and blanks in turn, so that it compresses to about half.
func large(rnd *rand.Rand) []byte {
	out := noise(rnd, largeSize)
	for i := range out {
		if i/1000%2 == 1 {
			out[i] = ' '
		}
	}
	return out
}
