package fuzz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
	"sekali/segment"
)

const recoverDir = "/log"

// FuzzRecover gives Recover an arbitrary .log behind a log of whole batches, and arbitrary index files. Properties: no
// panic; the whole batches below the durable mark are kept or the error is a CorruptError; what is kept is a prefix of
// the file, made of batches that pass every check one by one; after Seal the index files are those of a fresh build; a
// second recovery changes nothing.
func FuzzRecover(f *testing.F) {
	b := logOf(40)
	f.Add(uint8(3), uint8(2), b[:200], []byte{}, []byte{}, []byte{}, int64(0), false)
	f.Add(uint8(5), uint8(9), make([]byte, 300), []byte{0, 0, 0, 4, 0, 0, 0x10, 0x40}, make([]byte, 12), make([]byte, 34),
		int64(3), true)
	f.Add(uint8(0), uint8(0), b, []byte{1}, []byte{2}, []byte{3}, int64(7), true)
	f.Fuzz(func(t *testing.T, whole, mark uint8, tail, offset, time, txn []byte, from int64, holes bool) {
		log := append(logOf(int(whole%40)), resum(slices.Clone(tail))...)
		fs := vfs.NewMem()
		noError(t, fs.MkdirAll(recoverDir, 0o755))
		for suffix, content := range map[string][]byte{
			segment.LogSuffix: log, segment.IndexSuffix: offset, segment.TimeSuffix: time, segment.TxnSuffix: txn,
		} {
			noError(t, vfs.WriteFileAtomic(fs, recoverDir, segment.Name(0, suffix), content))
		}
		sc := segment.Scan{From: from, Mark: int64(mark % 64), Last: true}
		if holes {
			sc.Holes = math.MaxInt64
		}
		s := recoverOnce(t, fs, sc, whole%40, log)
		if s == nil {
			return
		}
		size, next := s.Size(), s.NextOffset()
		noError(t, s.Sync())
		noError(t, s.Seal())
		kept := logBytes(t, fs)
		if int64(len(kept)) != size || !bytes.Equal(kept, log[:size]) {
			t.Fatalf("%d bytes kept of %d are no prefix", len(kept), len(log))
		}
		walkLog(t, kept, next, holes)
		if from <= 0 {
			freshIndex(t, fs, kept)
		}
		s.Retire(false)
		again, cut, err := segment.Recover(recoverDir, segment.ID{}, segmentOptions(fs),
			segment.Scan{Mark: next, Holes: sc.Holes, Last: true})
		if err != nil || cut != (segment.Cut{}) || again.Size() != size || again.NextOffset() != next {
			t.Fatalf("a second recovery: %v, %+v", err, cut)
		}
		again.Retire(false)
	})
}

// recoverOnce recovers as the owner of a log does: from the offset wished for, and where the index files are bad,
// from the base. nil: the log is damaged below the mark.
func recoverOnce(t *testing.T, fs vfs.FS, sc segment.Scan, whole uint8, log []byte) *segment.Segment {
	s, cut, err := segment.Recover(recoverDir, segment.ID{}, segmentOptions(fs), sc)
	if _, is := errors.AsType[*segment.IndexError](err); is {
		if sc.From <= 0 {
			t.Fatalf("index files counted from the base: %v", err)
		}
		sc.From = 0
		s, cut, err = segment.Recover(recoverDir, segment.ID{}, segmentOptions(fs), sc)
	}
	if err != nil {
		if _, is := errors.AsType[*segment.CorruptError](err); !is {
			t.Fatalf("neither a log nor a CorruptError: %v", err)
		}
		if sc.From <= 0 && sc.Mark <= int64(whole) {
			t.Fatalf("every batch below the mark is whole: %v", err)
		}
		if !bytes.Equal(logBytes(t, fs), log) {
			t.Fatal("a damaged log was changed")
		}
		return nil
	}
	if next := s.NextOffset(); next < sc.Mark || next < int64(whole) {
		t.Fatalf("next offset %d, mark %d, %d whole batches", next, sc.Mark, whole)
	}
	if cut.Bytes > 0 && s.Size()+cut.Bytes != int64(len(log)) {
		t.Fatalf("%+v of %d bytes leaves %d", cut, len(log), s.Size())
	}
	if cut.Copy != "" {
		if c, err := vfs.ReadFile(fs, cut.Copy); err != nil || !bytes.Equal(c, log[s.Size():]) {
			t.Fatalf("the copy of the cut: %v", err)
		}
	}
	return s
}

// walkLog checks what recovery kept by the rules of the batch package, batch by batch.
func walkLog(t *testing.T, kept []byte, next int64, holes bool) {
	expected := int64(0)
	for rest := kept; len(rest) > 0; {
		v, after, err := batch.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		if v.BaseOffset() < expected || v.BaseOffset() > expected && !holes {
			t.Fatalf("base offset %d, expected %d", v.BaseOffset(), expected)
		}
		expected, rest = v.LastOffset()+1, after
	}
	if expected != next {
		t.Fatalf("batches end at %d, next offset is %d", expected, next)
	}
}

func freshIndex(t *testing.T, fs vfs.FS, kept []byte) {
	offsets, times, err := segment.Reindex(bytes.NewReader(kept), 0, int64(len(kept)), 0)
	noError(t, err)
	for suffix, want := range map[string][]byte{segment.IndexSuffix: offsets, segment.TimeSuffix: times} {
		got, err := vfs.ReadFile(fs, recoverDir+"/"+segment.Name(0, suffix))
		noError(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s is not that of a fresh build", suffix)
		}
	}
	noError(t, index.CheckTimeIndex(times))
}

// logOf is a log of n batches of one record each, offsets from 0.
func logOf(n int) (log []byte) {
	for i := range n {
		b := batch.Builder{BaseTime: int64(1000 + i/3)}
		b.Add(batch.Record{Value: bytes.Repeat([]byte{byte(i)}, 20*(i%30))})
		v := b.Done(0, -1, -1, -1)
		v.Stamp(int64(i), 1)
		log = append(log, v...)
	}
	return slices.Clip(log)
}

// resum puts right the checksums of what looks like batches, so that mutations reach the checks behind them; every
// third is left as it is.
func resum(tail []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	rest := tail
	for i := 1; ; i++ {
		v, after, err := batch.Next(rest)
		if err != nil {
			return tail
		}
		if i%3 != 0 {
			binary.BigEndian.PutUint32(v[17:], crc32.Checksum(v[21:], table))
		}
		rest = after
	}
}

func segmentOptions(fs vfs.FS) segment.Options { return segment.Options{Size: 64 << 10, FS: fs} }

func logBytes(t *testing.T, fs vfs.FS) []byte {
	b, err := vfs.ReadFile(fs, recoverDir+"/"+segment.Name(0, segment.LogSuffix))
	noError(t, err)
	return b
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
