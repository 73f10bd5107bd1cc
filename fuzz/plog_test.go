package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"sekali/batch"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/plog"
)

const plogDir = "/data/topic-0"

// closedLog is the directory of a log that was closed in order, and what a reader got from it before.
type closedLog struct {
	names     []string
	files     map[string][]byte
	records   []string
	committed []string
	end       int64
	shared    *plog.Shared
}

func plogOptions(fs vfs.FS, shared *plog.Shared) plog.Options {
	return plog.Options{
		Dir: plogDir, Epoch: 2, FS: fs, Clock: clock.NewSim(1_700_000_000_000), Shared: shared,
		Config: plog.Config{
			SegmentBytes: 900, SegmentMs: 1 << 40, RetainMs: -1, RetainBytes: -1, IndexInterval: 200, IndexBytesMax: 1 << 20,
		},
		Pids: pidmap.Options{ProducersMax: 1000},
	}
}

// closeLog makes a log of a few segments with idempotent and transactional producers, and closes it.
func closeLog(f *testing.F) *closedLog {
	c := &closedLog{files: map[string][]byte{}}
	var err error
	if c.shared, err = plog.NewShared(1<<20, 16, buf.New(16<<20)); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.shared.Close)
	mem := vfs.NewMem()
	l := c.open(f, mem, plogOptions(mem, c.shared))
	for i := range int32(20) {
		appendOne(f, l, int64(i%3), i/3*2, 2, 0)
		if i%4 == 3 {
			appendOne(f, l, 50, i/4, 1, batch.AttrTransactional)
			m := batch.Marker{PID: 50, CoordEpoch: 1, Commit: i%8 == 3, Time: 1_700_000_000_000}
			if _, err := l.AppendMarker(m, false); err != nil {
				f.Fatal(err)
			}
		}
		flush(l)
		l.Tick(1_700_000_000_000)
	}
	c.records, c.committed, c.end = readable(f, l, false), readable(f, l, true), l.Offsets().End
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	if c.names, err = mem.ReadDir(plogDir); err != nil {
		f.Fatal(err)
	}
	for _, n := range c.names {
		if c.files[n], err = vfs.ReadFile(mem, path.Join(plogDir, n)); err != nil {
			f.Fatal(err)
		}
	}
	return c
}

func (c *closedLog) open(t testing.TB, mem *vfs.Mem, o plog.Options) *plog.Log {
	if err := mem.MkdirAll(plogDir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, _, err := plog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	flush(l)
	return l
}

func flush(l *plog.Log) {
	var r plog.Round
	l.BeginSync(&r)
	l.EndSync(&r, errors.Join(r.StartWrite(), r.Datasync()))
}

func appendOne(t testing.TB, l *plog.Log, pid int64, seq int32, n int, a batch.Attrs) {
	b := batch.Builder{BaseTime: 1_700_000_000_000}
	for i := range n {
		b.Add(batch.Record{TimeDelta: int64(i), Value: fmt.Appendf(nil, "%d/%d", pid, seq+int32(i))})
	}
	v := b.Done(a, pid, 0, seq)
	checked, err := v.Validate(batch.Limits{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	ask := plog.AppendIn{Batch: v, Checked: checked, Version: 9}
	_, err = l.Append(ask)
	var rej *plog.RejectError
	if errors.As(err, &rej) && rej.Decision.Verdict == pidmap.TxnUnverified {
		ask.Guard = rej.Decision.Guard
		_, err = l.Append(ask)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readable is the records up to the limit of the isolation level as "offset=value", a read_committed reader's view
// without those of aborted transactions. A read that fails ends the list.
func readable(t testing.TB, l *plog.Log, committed bool) (out []string) {
	var f plog.Fetch
	defer f.Release()
	for from := l.Offsets().Start; ; {
		if err := l.Read(plog.ReadIn{From: from, BytesMax: 500, AtLeast1: true, Committed: committed}, &f); err != nil {
			return append(out, "error")
		}
		if len(f.Parts) == 0 {
			return out
		}
		aborted := map[int64]int64{}
		for _, a := range f.Aborted {
			aborted[a.First] = a.Last
		}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err != nil {
					t.Fatalf("served bytes that are no batch: %v", err)
				}
				if _, err := v.Validate(batch.Limits{Deep: true, Stored: true}); err != nil {
					return append(out, "error") // a client sees it
				}
				_, gone := aborted[v.BaseOffset()]
				err = v.Records(func(r batch.Record) error {
					if o := v.BaseOffset() + int64(r.OffsetDelta); !gone && !v.Attrs().Control() && o >= from {
						out = append(out, fmt.Sprintf("%d=%s", o, r.Value))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				from, part = v.LastOffset()+1, rest
			}
		}
	}
}

// damage changes one file as four bytes of the input say, and reports whether it was a log file.
func (c *closedLog) damage(t *testing.T, mem *vfs.Mem, op []byte) (inLog bool) {
	name := c.names[int(op[0])%len(c.names)]
	to := path.Join(plogDir, name)
	b, err := vfs.ReadFile(mem, to)
	if err != nil {
		return strings.HasSuffix(name, ".log") // removed by an earlier step
	}
	at := 0
	if len(b) > 0 {
		at = (int(op[2])<<8 | int(op[3])) % len(b)
	}
	switch op[1] % 8 {
	case 0:
		b = b[:at]
	case 1:
		clear(b[at:])
	case 2:
		b = append(slices.Clone(b[:at]), b[min(at+int(op[3]%64)+1, len(b)):]...)
	case 3:
		b = append(b, b[:at]...)
	case 4:
		other := c.names[int(op[2])%len(c.names)]
		if b, err = vfs.ReadFile(mem, path.Join(plogDir, other)); err != nil {
			return strings.HasSuffix(name, ".log")
		}
	case 5:
		if err := mem.Remove(to); err != nil {
			t.Fatal(err)
		}
		return strings.HasSuffix(name, ".log")
	default:
		if len(b) > 0 {
			b[at] ^= 1 << (op[1] >> 3 % 8)
		}
	}
	if err := vfs.WriteFileAtomic(mem, plogDir, name, b); err != nil {
		t.Fatal(err)
	}
	return strings.HasSuffix(name, ".log")
}

// FuzzLogOpen damages the directory of a closed log: bits, lengths, holes, zeros, swapped, doubled and missing files.
// Properties: Open does not panic. Where only files other than the logs are damaged it succeeds and every record is as
// before, for read_committed too unless a .txnindex was hit: Kafka's format has no checksum in it, and without one the
// file of a segment that has no aborted transactions is absent. Where a log is damaged, and the scan begins at its
// start, Open refuses or every record below the durable mark is as before; never is a record lost, moved or changed
// silently.
func FuzzLogOpen(f *testing.F) {
	c := closeLog(f)
	f.Add([]byte{1, 0, 0, 0, 9})
	f.Add([]byte{0, 3, 5, 0, 1, 4, 5, 0, 0})
	f.Add([]byte{1, 6, 6, 0, 40, 7, 1, 0, 0, 2, 4, 3, 0})
	f.Add([]byte{1, 1, 5, 0, 0})                // the first segment is missing
	f.Add([]byte{1, 3, 0, 75, 48, 5, 4, 10, 0}) // a snapshot of a higher offset in place of a lower one, and its use
	f.Add([]byte{0, 14, 6, 0, 4, 0, 0, 0, 0})   // another epoch in the leader epoch checkpoint
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) < 5 || len(input) > 41 {
			return
		}
		mem := vfs.NewMem()
		if err := mem.MkdirAll(plogDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.names {
			if err := vfs.WriteFileAtomic(mem, plogDir, n, c.files[n]); err != nil {
				t.Fatal(err)
			}
		}
		o := plogOptions(mem, c.shared)
		o.Clean, o.Mark, o.Recovery = input[0]&1 != 0, c.end, c.end
		logs := false
		for ops := input[1:]; len(ops) >= 4; ops = ops[4:] {
			logs = c.damage(t, mem, ops) || logs
		}
		if logs {
			o.Recovery = 0
		}
		l, _, err := plog.Open(o)
		if err != nil {
			if !logs {
				t.Fatalf("refused, with every log file whole: %v", err)
			}
			return
		}
		flush(l)
		c.verify(t, mem, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func (c *closedLog) verify(t *testing.T, mem *vfs.Mem, l *plog.Log) {
	if end := l.Offsets().End; end != c.end {
		t.Fatalf("the log ends at %d, the durable mark was %d", end, c.end)
	}
	if got := readable(t, l, false); !slices.Equal(got, c.records) {
		t.Fatalf("read_uncommitted\n%v\nwant\n%v", got, c.records)
	}
	for _, n := range c.names {
		if strings.HasSuffix(n, ".txnindex") {
			if b, err := vfs.ReadFile(mem, path.Join(plogDir, n)); err != nil || !bytes.Equal(b, c.files[n]) {
				return
			}
		}
	}
	if got := readable(t, l, true); !slices.Equal(got, c.committed) {
		t.Fatalf("read_committed\n%v\nwant\n%v", got, c.committed)
	}
}
