package plog

import (
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
)

// timed is one record of the naive model.
type timed struct{ offset, time int64 }

// TestTimesAgainstList compares OffsetForTime and OffsetOfMaxTime with a list, to the record: out of order timestamps,
// compressed batches, rolls, a log start inside a batch, an unflushed tail, restarts.
func TestTimesAgainstList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, func(o *Options) {
			o.Config.SegmentBytes, o.Config.IndexInterval = 600, 150
			o.Config.AppendTime = rapid.Bool().Draw(rt, "appendTime")
		})
		var all []timed
		codecs := []batch.Attrs{0, 0, batch.Attrs(batch.LZ4), batch.Attrs(batch.Zstd), batch.Attrs(batch.Snappy)}
		for range rapid.IntRange(0, 30).Draw(rt, "batches") {
			b := batch.Builder{BaseTime: rapid.Int64Range(0, 50).Draw(rt, "base")}
			n := rapid.IntRange(1, 4).Draw(rt, "records")
			first := r.log.Offsets().End
			for i := range n {
				d := rapid.Int64Range(0, 20).Draw(rt, "delta")
				b.Add(batch.Record{TimeDelta: d, Value: []byte("v")})
				all = append(all, timed{first + int64(i), b.BaseTime + d})
			}
			r.clk.SetWall(rapid.Int64Range(0, 70).Draw(rt, "wall"))
			if r.o.Config.AppendTime {
				for i := range n {
					all[len(all)-1-i].time = r.clk.Wall()
				}
			}
			if _, err := r.log.Append(in(b.Done(rapid.SampledFrom(codecs).Draw(rt, "codec"), -1, -1, -1))); err != nil {
				rt.Fatal(err)
			}
			switch rapid.IntRange(0, 9).Draw(rt, "then") {
			case 0, 1, 2, 3:
				r.sync()
			case 4:
				r.restart()
			case 5:
				if err := r.log.DeleteBefore(rapid.Int64Range(0, r.log.Offsets().High).Draw(rt, "start")); err != nil {
					rt.Fatal(err)
				}
			}
			sameTimes(rt, r.log, all)
		}
	})
}

func sameTimes(rt *rapid.T, l *Log, all []timed) {
	o := l.Offsets()
	best := timed{-1, -1}
	for _, x := range all {
		if x.offset >= o.Start && x.offset < o.High && x.time > best.time {
			best = x
		}
	}
	if offset, ms, err := l.OffsetOfMaxTime(); err != nil || (timed{offset, ms}) != best {
		rt.Fatalf("OffsetOfMaxTime = %d, %d, %v; want %+v; %+v of %v", offset, ms, err, best, o, all)
	}
	for ms := int64(-1); ms <= 75; ms += 4 {
		want := timed{-1, -1}
		for _, x := range all {
			if x.offset >= o.Start && x.offset < o.High && x.time >= ms {
				want = x
				break
			}
		}
		if offset, at, err := l.OffsetForTime(ms); err != nil || (timed{offset, at}) != want {
			rt.Fatalf("OffsetForTime(%d) = %d, %d, %v; want %+v; %+v of %v", ms, offset, at, err, want, o, all)
		}
	}
}
