package batch

import "math"

// Limits says what Validate demands. The zero value demands an intact frame and nothing else.
type Limits struct {
	// BytesMax is the largest size in bytes of a batch as it stands, compressed; 0: no limit.
	BytesMax int
	// AllowZstd accepts zstd from a client: Produce version 7 and above.
	AllowZstd bool
	// Deep decompresses and walks the records, and holds the header against the rules for clients (spec/batch.md 7,
	// rows 5, 6 and 13 to 23): on for every client append.
	Deep bool
	// Stored, with Deep, walks a batch that lies in a log: the rules for clients do not hold, offset deltas may have
	// holes, and no record may be left.
	Stored bool
	// DecodedMax is the number of bytes the records may decompress to; 0: the constant DecodedMax.
	DecodedMax int
	// RequireKey refuses records with a null key: compacted topics.
	RequireKey bool

	timed            bool
	timeMin, timeMax int64
}

// Times returns l with bounds for the time of every record that has one (is not -1), in milliseconds:
// message.timestamp.before.max.ms and message.timestamp.after.max.ms around the broker's clock, none of the three
// negative; math.MaxInt64 is no bound. Topics with LogAppendTime have none.
func (l Limits) Times(nowMs, beforeMaxMs, afterMaxMs int64) Limits {
	l.timed = true
	l.timeMin, l.timeMax = nowMs-beforeMaxMs, nowMs+afterMaxMs
	if beforeMaxMs == math.MaxInt64 {
		l.timeMin = math.MinInt64
	}
	if l.timeMax < nowMs || afterMaxMs == math.MaxInt64 { // the sum may not fit
		l.timeMax = math.MaxInt64
	}
	return l
}

// Checked is what the walk found. Without Deep it repeats the header.
type Checked struct {
	// MaxTime is the largest time of a record, -1 if none is above that; it may differ from the header's, which
	// StampMaxTime then corrects. With the append time bit it is the header's.
	MaxTime int64
	// MaxTimeDelta is the offset delta of the first record that holds MaxTime.
	MaxTimeDelta int32
}

// Validate checks that the batch is intact: length, magic, counts and CRC-32C; with Deep also the rules for clients and
// every record, decompressed as a stream that stops at the limit. It changes nothing and takes no lock; calls may
// overlap. The decompressors are pooled: nothing is allocated for none, lz4 and zstd while the records fit 256 KiB.
// At most four batches that need more memory are decompressed at once, the others wait.
//
// Errors are the faults of this package and *RecordError; Code gives what a client is told. Of a message that is no
// batch of magic 2 nothing else is believed. A codec not known here passes without Deep: its bytes are served as
// stored.
func (v View) Validate(l Limits) (Checked, error) {
	client := l.Deep && !l.Stored
	if err := v.frame(&l, client); err != nil {
		return Checked{}, err
	}
	if client {
		if err := v.clientHeader(); err != nil {
			return Checked{}, err
		}
	} else if d, n := v.LastOffsetDelta(), v.Count(); d < 0 {
		return Checked{}, ErrDelta
	} else if n < 0 || int64(n) > int64(d)+1 {
		return Checked{}, ErrCount
	}
	if !l.Deep {
		return Checked{v.MaxTime(), v.LastOffsetDelta()}, nil
	}
	return v.walk(&l)
}

// frame is rows 5, 6 and 12 to 15 of spec/batch.md 7.
func (v View) frame(l *Limits, client bool) error {
	if len(v) <= posMagic {
		return ErrCorrupt
	}
	if err := checkMagic(v[posMagic]); err != nil {
		return err
	}
	if len(v) < HeaderLen {
		return ErrCorrupt
	}
	if client && v.Attrs().Codec() == Zstd && !l.AllowZstd {
		return ErrZstdVersion
	}
	if client && v.BaseOffset() != 0 {
		return ErrBaseOffset
	}
	if l.BytesMax > 0 && len(v) > l.BytesMax {
		return ErrTooLarge
	}
	if int64(v.i32(posLength)) != int64(len(v)-lengthEnd) {
		return ErrCorrupt
	}
	if v.CRC() != v.checksum() {
		return ErrCRC
	}
	return nil
}

// clientHeader is rows 16 to 22 of spec/batch.md 7 and the append time bit of section 8, but for what row 22 says of
// epoch and sequence without a producer id: franz-go, sarama and kafkajs set one or both to 0 when idempotence is off,
// and Kafka stores them. They mean nothing, and nothing reads them.
func (v View) clientHeader() error {
	a, delta, count := v.Attrs(), v.LastOffsetDelta(), v.Count()
	pid, epoch := v.Producer()
	seq := v.i32(posSequence)
	switch {
	case a.Codec() > Zstd:
		return ErrCodec
	case delta < 0:
		return ErrDelta
	case count <= 0 || int64(delta)+1 != int64(count):
		return ErrCount
	case a.Control():
		return ErrControl
	case pid >= 0 && seq < 0:
		return ErrSequence
	case pid < -1, pid >= 0 && epoch < 0:
		return ErrProducer
	case pid == -1 && a.Transactional():
		return ErrProducer
	case a.Horizon():
		return ErrHorizon
	case a.AppendTime():
		return ErrAppendTime
	}
	return nil
}
