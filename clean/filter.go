package clean

import (
	"errors"

	"sekali/batch"
	"sekali/index"
)

// Options of a Filter.
type Options struct {
	Keys *Keys
	End  int64 // exclusive: batches from here on were not looked at and stay as they are
	// Now is wall milliseconds; HorizonMs is delete.retention.ms: how long tombstones, and markers whose data are gone,
	// stay after the first cleaning that met them.
	Now, HorizonMs int64
	Aborted        []index.AbortedTxn // that touch the log below End, sorted by First
	// Live reports whether the producer state of the partition still counts on the header of this batch: one of the
	// batches it remembers, or a marker of a producer of which it remembers no batch.
	Live func(v batch.View) bool
}

// Filter takes the batches of a log from its first one on, in order, and gives back what stays of each. One goroutine
// uses it.
type Filter struct {
	// Removed counts records that are gone, markers included.
	Removed int64

	o     Options
	gone  aborts
	data  map[int64]bool // producers whose current transaction has a batch in the log
	keep  []bool         // of the records of one batch
	ended index.AbortedTxn
	abort bool
}

// NewFilter returns a Filter at the beginning of a log.
func NewFilter(o Options) *Filter {
	return &Filter{o: o, gone: newAborts(o.Aborted), data: map[int64]bool{}}
}

// Ended is the aborted transaction that the batch given back last ends; false: it ends none. It belongs into the
// transaction index of what is written.
func (f *Filter) Ended() (index.AbortedTxn, bool) { return f.ended, f.abort }

// Batch appends to dst what stays of v: nothing, the batch as it is, or a new one. last asks for its header at least:
// behind it the offsets go on without a hole. same tells that v stays byte for byte. Errors are those of
// batch.View.Records; dst then comes back as it was.
func (f *Filter) Batch(dst []byte, v batch.View, last bool) (out []byte, same bool, err error) {
	f.abort = false
	aborted := f.gone.holds(v)
	control := v.Attrs().Control()
	if control {
		f.ended, f.abort = f.gone.ends[v.LastOffset()]
	}
	switch {
	case v.BaseOffset() >= f.o.End:
		return append(dst, v...), true, nil
	case control:
		return f.marker(dst, v, last)
	}
	if pid, _ := v.Producer(); v.Attrs().Transactional() {
		f.data[pid] = true
	}
	if aborted {
		return f.rewrite(dst, v, last, none, -1)
	}
	return f.records(dst, v, last)
}

// marker keeps the marker of a transaction that has a batch in the log, even an empty one. Without any it is given a
// horizon, and goes once that has passed.
func (f *Filter) marker(dst []byte, v batch.View, last bool) (out []byte, same bool, err error) {
	pid, _ := v.Producer()
	data := f.data[pid]
	delete(f.data, pid)
	_, err = batch.ParseMarker(v)
	switch {
	case err != nil && !errors.Is(err, batch.ErrNoMarker):
		return dst, false, err
	case err != nil || data || last || f.o.Live(v):
		return append(dst, v...), true, nil
	case !v.Attrs().Horizon():
		return f.rewrite(dst, v, last, all, f.o.Now+f.o.HorizonMs)
	case f.o.Now < v.BaseTime():
		return append(dst, v...), true, nil
	}
	f.Removed += int64(v.Count())
	f.abort = false
	return dst, false, nil
}

// records keeps the newest record of each key, and tombstones until their horizon. A record without a key means nothing
// in a compacted log.
func (f *Filter) records(dst []byte, v batch.View, last bool) (out []byte, same bool, err error) {
	expired := v.Attrs().Horizon() && f.o.Now >= v.BaseTime()
	base, tombstones := v.BaseOffset(), false
	f.keep = f.keep[:0]
	err = v.Records(func(r batch.Record) error {
		stays := r.Key != nil && !(r.Value == nil && expired) && !f.o.Keys.superseded(r.Key, base+int64(r.OffsetDelta))
		tombstones = tombstones || stays && r.Value == nil
		f.keep = append(f.keep, stays)
		return nil
	})
	if err != nil {
		return dst, false, err
	}
	horizon := int64(-1)
	if tombstones && !v.Attrs().Horizon() {
		horizon = f.o.Now + f.o.HorizonMs
	}
	i := 0
	return f.rewrite(dst, v, last, func(batch.Record) bool { i++; return f.keep[i-1] }, horizon)
}

func none(batch.Record) bool { return false }
func all(batch.Record) bool  { return true }

// rewrite makes the batch of the records that keep keeps. One that is empty goes too, unless its header counts.
func (f *Filter) rewrite(
	dst []byte, v batch.View, last bool, keep func(batch.Record) bool, horizon int64,
) (out []byte, same bool, err error) {
	n := 0
	out, err = v.Rewrite(dst, func(r batch.Record) bool {
		stays := keep(r)
		if stays {
			n++
		}
		return stays
	}, horizon)
	if err != nil {
		return dst, false, err
	}
	f.Removed += int64(v.Count()) - int64(n)
	if n == 0 && !last && !f.o.Live(v) {
		return dst, false, nil
	}
	return out, n == int(v.Count()) && horizon < 0, nil
}
