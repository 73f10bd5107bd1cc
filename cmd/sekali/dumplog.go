package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// segmentFile shows a file whose name begins with a base offset.
func (d *dumper) segmentFile(base int64, kind string) error {
	if kind == snapshotSuffix {
		b, err := vfs.ReadFile(d.fs, d.name)
		if err != nil {
			return err
		}
		return d.snapshot(b)
	}
	f, err := d.fs.OpenFile(d.name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		switch kind {
		case segment.IndexSuffix:
			err = d.entries(f, size, index.OffsetEntryLen, func(e []byte) error { return d.offsetEntry(e, base) })
		case segment.TimeSuffix:
			err = d.entries(f, size, index.TimeEntryLen, func(e []byte) error { return d.timeEntry(e, base) })
		case segment.TxnSuffix:
			err = d.entries(f, size, index.TxnEntryLen, d.txnEntry)
		default:
			err = d.log(f, base, size)
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// entries shows an index file entry by entry.
func (d *dumper) entries(f vfs.File, size, width int64, show func([]byte) error) error {
	c := cursor{name: d.name, f: f, size: size, width: width}
	for e := c.peek(); e != nil; e = c.peek() {
		if err := show(e); err != nil {
			return err
		}
		c.take()
	}
	if c.err == nil && size%width != 0 {
		return d.damage(c.pos(), fmt.Sprintf("the file ends with %d bytes of an entry", size%width))
	}
	return c.err
}

func (d *dumper) offsetEntry(e []byte, base int64) error {
	offset, pos := index.OffsetAt(e, 0, base)
	return d.line(field{"offset", offset}, field{"position", pos})
}

func (d *dumper) timeEntry(e []byte, base int64) error {
	ms, offset := index.TimeAt(e, 0, base)
	return d.line(field{"timestamp", ms}, field{"offset", offset})
}

func (d *dumper) txnEntry(e []byte) error {
	version, t := index.TxnAt(e, 0)
	return d.line(field{"version", version}, field{"producer_id", t.PID}, field{"first_offset", t.First},
		field{"last_offset", t.Last}, field{"last_stable_offset", t.Stable})
}

// log shows the batches of a segment, or of what was cut from one. A batch whose checksum is wrong is shown all the
// same, and what follows it; anything else that is wrong ends the walk.
func (d *dumper) log(f vfs.File, base, size int64) error {
	r := segment.NewReader(f, base, size)
	r.Holes, r.Epoch = math.MaxInt64, math.MinInt32
	var first error
	for {
		pos := r.Pos
		v, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return first
		case err != nil && !isReason(err):
			return err
		case err != nil:
			if first == nil {
				first = d.damage(pos, reasonText(err))
			}
			if !errors.Is(err, segment.ErrChecksum) {
				return first
			}
			head := make(batch.View, batch.HeaderLen)
			if n, err := f.ReadAt(head, pos); n < len(head) {
				return err
			}
			r.Pos += 12 + int64(binary.BigEndian.Uint32(head[8:]))
			if err := d.header(pos, head, r.Pos-pos, false); err != nil {
				return err
			}
			continue
		}
		if err := d.header(pos, v, int64(len(v)), true); err != nil {
			return err
		}
		if !d.records {
			continue
		}
		if err := d.batchRecords(v); err != nil {
			if first == nil {
				first = d.damage(pos, err.Error())
			}
		}
	}
}

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7"}

func (d *dumper) header(pos int64, v batch.View, size int64, sound bool) error {
	pid, epoch := v.Producer()
	first, last := v.Sequence()
	a := v.Attrs()
	return d.line(field{"position", pos}, field{"base_offset", v.BaseOffset()}, field{"last_offset", v.LastOffset()},
		field{"count", v.Count()}, field{"size", size}, field{"leader_epoch", v.LeaderEpoch()},
		field{"producer_id", pid}, field{"producer_epoch", epoch}, field{"base_sequence", first},
		field{"last_sequence", last}, field{"max_timestamp", v.MaxTime()}, field{"codec", codecNames[a.Codec()]},
		field{"append_time", a.AppendTime()}, field{"transactional", a.Transactional()}, field{"control", a.Control()},
		field{"horizon", a.Horizon()}, field{"crc", fmt.Sprintf("%08x", v.CRC())}, field{"valid", sound})
}

// batchRecords shows the records of one batch: those of the internal topics by what they mean. One that means nothing
// is shown as it is, and is the error.
func (d *dumper) batchRecords(v batch.View) error {
	if m, err := batch.ParseMarker(v); err == nil {
		return d.line(field{"offset", v.BaseOffset()}, field{"producer_id", m.PID}, field{"producer_epoch", m.Epoch},
			field{"marker", []string{"abort", "commit"}[btoi(m.Commit)]},
			field{"coordinator_epoch", m.CoordEpoch}, field{"timestamp", m.Time})
	}
	decode := d.decoder()
	var bad error
	err := v.Records(func(r batch.Record) error {
		fields := []field{{"offset", v.BaseOffset() + int64(r.OffsetDelta)}, {"timestamp", v.Time(r)}}
		more, err := []field(nil), errors.ErrUnsupported
		if decode != nil {
			if more, err = decode(r.Key, r.Value); err != nil && bad == nil {
				bad = fmt.Errorf("offset %d: %w", v.BaseOffset()+int64(r.OffsetDelta), err)
			}
		}
		if err != nil {
			more = appendBytes(appendBytes(nil, "key", r.Key), "value", r.Value)
		}
		fields = append(fields, more...)
		for _, h := range r.Headers {
			fields = appendBytes(fields, "header."+h.Key, h.Value)
		}
		return d.line(fields...)
	})
	return errors.Join(err, bad)
}

// appendBytes adds bytes as text, or as base64 under a name that says so; null is left out.
func appendBytes(fields []field, name string, b []byte) []field {
	text, b64 := toText(b)
	switch {
	case text != nil:
		return append(fields, field{name, *text})
	case b64 != nil:
		return append(fields, field{name + "_base64", *b64})
	}
	return fields
}

// snapshot shows the producers of a snapshot file, each with its batches, oldest first.
func (d *dumper) snapshot(b []byte) error {
	var list []pidmap.Producer
	trailer, err := pidmap.Decode(b, func(p *pidmap.Producer) error {
		list = append(list, *p)
		return nil
	})
	if err != nil {
		return d.damage(snapshotFault(err, b), err.Error())
	}
	if err := d.line(field{"producers", len(list)}, field{"trailer", trailer}); err != nil {
		return err
	}
	for _, p := range list {
		var window []string
		for _, s := range p.Stamps[:p.N] {
			window = append(window, fmt.Sprintf("%d-%d@%d-%d/%d/%08x", s.FirstSeq(), s.LastSeq, s.Base(), s.Last, s.Time, s.CRC))
		}
		err := d.line(field{"producer_id", p.PID}, field{"producer_epoch", p.Epoch}, field{"coordinator_epoch", p.CoordEpoch},
			field{"last_timestamp", p.LastTime}, field{"txn_first_offset", p.TxnFirst}, field{"idle_ms", -p.Touch},
			field{"span", p.Span}, field{"batches", window})
		if err != nil {
			return err
		}
	}
	return nil
}
