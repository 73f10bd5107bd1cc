package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Numbers of the codecs in the attributes.
const (
	codecGzip   = 1
	codecSnappy = 2
	codecLZ4    = 3
	codecZstd   = 4
)

// packers are the forms in which clients send the records of a batch, and some in which they should not.
var packers = map[string]struct {
	codec int16
	pack  func([]byte) []byte
}{
	"gzip":                       {codecGzip, packGzip},
	"gzip of two members":        {codecGzip, halves(packGzip)},
	"gzip with bytes behind it":  {codecGzip, behind(packGzip)},
	"gzip cut short":             {codecGzip, short(packGzip)},
	"snappy raw":                 {codecSnappy, packSnappy},
	"snappy xerial":              {codecSnappy, packXerial},
	"snappy two xerial streams":  {codecSnappy, halves(packXerial)},
	"snappy framing format":      {codecSnappy, packFramed},
	"snappy cut short":           {codecSnappy, short(packSnappy)},
	"snappy declares 2 GiB":      {codecSnappy, func([]byte) []byte { return []byte("\xff\xff\xff\xff\x07\x00a") }},
	"lz4 as Java":                {codecLZ4, packLZ4(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))},
	"lz4 as pierrec":             {codecLZ4, packLZ4()},
	"lz4 with block checksums":   {codecLZ4, packLZ4(lz4.BlockChecksumOption(true))},
	"lz4 with content size":      {codecLZ4, sizedLZ4},
	"lz4 with wrong checksum":    {codecLZ4, wrongEnd(packLZ4())},
	"lz4 with bytes behind it":   {codecLZ4, behind(packLZ4())},
	"lz4 two frames":             {codecLZ4, halves(packLZ4())},
	"lz4 cut short":              {codecLZ4, short(packLZ4(lz4.ChecksumOption(false)))},
	"lz4 dependent blocks":       {codecLZ4, dependentLZ4},
	"zstd":                       {codecZstd, packZstd},
	"zstd two frames":            {codecZstd, halves(packZstd)},
	"zstd with bytes behind it":  {codecZstd, behind(packZstd)},
	"zstd cut short":             {codecZstd, short(packZstd)},
	"none of the codec's format": {codecZstd, func(b []byte) []byte { return b }},
}

func packGzip(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	finish(w, p)
	return b.Bytes()
}

func packSnappy(p []byte) []byte { return snappy.Encode(nil, p) }

// packXerial is the stream of snappy-java: a header, then chunks with their lengths.
func packXerial(p []byte) []byte {
	b := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	for len(p) > 0 {
		n := min(len(p), 32<<10)
		c := packSnappy(p[:n])
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(c))), c...)
		p = p[n:]
	}
	return b
}

// packFramed is the framing format, which Kafka does not use.
func packFramed(p []byte) []byte {
	var b bytes.Buffer
	finish(s2.NewWriter(&b, s2.WriterSnappyCompat()), p)
	return b.Bytes()
}

func packLZ4(options ...lz4.Option) func([]byte) []byte {
	return func(p []byte) []byte {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		if err := w.Apply(options...); err != nil {
			panic(err)
		}
		finish(w, p)
		return b.Bytes()
	}
}

func sizedLZ4(p []byte) []byte { return packLZ4(lz4.SizeOption(uint64(len(p))))(p) }

// dependentLZ4 clears the bit of independent blocks, as package lz4js does; the checksum of the header follows suit.
func dependentLZ4(p []byte) []byte {
	b := packLZ4(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))(p)
	b[4] &^= 0x20
	b[6] = headerSum(b[4:6])
	return b
}

func packZstd(p []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(p, nil)
}

func finish(w io.WriteCloser, p []byte) {
	if _, err := w.Write(p); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
}

// halves packs the two halves by themselves, one behind the other.
func halves(pack func([]byte) []byte) func([]byte) []byte {
	return func(p []byte) []byte { return append(pack(p[:len(p)/2]), pack(p[len(p)/2:])...) }
}

func behind(pack func([]byte) []byte) func([]byte) []byte {
	return func(p []byte) []byte { return append(pack(p), "behind"...) }
}

func short(pack func([]byte) []byte) func([]byte) []byte {
	return func(p []byte) []byte { b := pack(p); return b[:len(b)-3] }
}

// wrongEnd damages the last byte.
func wrongEnd(pack func([]byte) []byte) func([]byte) []byte {
	return func(p []byte) []byte { b := pack(p); b[len(b)-1] ^= 1; return b }
}

// headerSum is the checksum of an LZ4 frame's descriptor: the second byte of its xxHash32 (here of fewer than four
// bytes, the only case there is).
func headerSum(p []byte) byte {
	const p2, p3, p5 = 2246822519, 3266489917, 374761393
	const p1 = 2654435761
	h := uint32(p5) + uint32(len(p))
	for _, c := range p {
		h += uint32(c) * p5
		h = (h<<11 | h>>21) * p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	h ^= h >> 16
	return byte(h >> 8)
}
