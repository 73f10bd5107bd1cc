package batch

import "encoding/binary"

// Rewrite appends the batch to dst without the records keep refuses, as compaction needs it. Base offset, last offset
// delta, leader epoch, producer fields and codec stay, offsets are never renumbered, the largest time is that of the
// records kept (with the append time bit: it stays) and the CRC is redone. horizonMs >= 0 makes it the delete horizon:
// BaseTime holds it from then on and the time deltas count from it (KIP-534). Where every record stays and there is no
// new horizon, the bytes stay too. A batch left without records is its header alone, uncompressed, without a horizon,
// with BaseTime -1 and the largest time as before.
//
// keep is called once per record, in order, and keeps nothing of what it is given. Errors are those of Records; dst
// then comes back as it was.
func (v View) Rewrite(dst []byte, keep func(Record) bool, horizonMs int64) ([]byte, error) {
	w := rewriter{horizon: horizonMs, base: v.BaseTime(), maxTime: -1}
	var r Record
	seen := int32(0)
	err := v.each(func(raw, body []byte, f *fields) error {
		seen++
		if r.fill(body, f); keep(r) {
			w.add(raw, body, f)
		}
		return nil
	})
	if err != nil {
		return dst, err
	}
	if w.count == seen && horizonMs < 0 {
		return append(dst, v...), nil
	}
	at := len(dst)
	dst = append(dst, v[:HeaderLen]...)
	a := v.Attrs() & attrUsed
	if w.count == 0 {
		a &^= AttrCodec | AttrHorizon
		w.base, w.maxTime = -1, v.MaxTime()
	} else {
		dst = Compress(dst, a.Codec(), w.out)
	}
	if w.count > 0 && horizonMs >= 0 {
		a |= AttrHorizon
		w.base = horizonMs
	}
	if a.AppendTime() {
		w.maxTime = v.MaxTime()
	}
	n := View(dst[at:])
	binary.BigEndian.PutUint16(n[posAttrs:], uint16(a))
	binary.BigEndian.PutUint64(n[posBaseTime:], uint64(w.base))
	binary.BigEndian.PutUint64(n[posMaxTime:], uint64(w.maxTime))
	binary.BigEndian.PutUint32(n[posCount:], uint32(w.count))
	n.seal()
	return dst, nil
}

// rewriter gathers the records kept.
type rewriter struct {
	horizon, base int64
	out           []byte
	count         int32
	maxTime       int64
}

// add copies a record; under a new horizon only its time delta changes.
func (w *rewriter) add(raw, body []byte, f *fields) {
	w.count++
	t := w.base + f.time
	w.maxTime = max(w.maxTime, t)
	if w.horizon < 0 {
		w.out = append(w.out, raw...)
		return
	}
	delta := t - w.horizon
	w.out = appendVarint(w.out, int64(1+varintLen(delta)+len(body)-f.rest))
	w.out = append(w.out, body[0])
	w.out = appendVarint(w.out, delta)
	w.out = append(w.out, body[f.rest:]...)
}
