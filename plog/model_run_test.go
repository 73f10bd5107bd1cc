package plog

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/index"
)

var errIO = fmt.Errorf("injected: %w", syscall.EIO)

// markerValue is how readAll shows the control record of a marker of coordinator epoch 1.
const markerValue = "\x00\x00\x00\x00\x00\x01"

func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.checks": "50", "rapid.steps": "60"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			f.Value.Set(value)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// TestAgainstList drives a log through random schedules of everything that can happen to it and compares it with a list
// after every step. It asserts I1, I4, I6, I7, I11, I14 and I15.
func TestAgainstList(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"small segments": func(o *Options) { o.Config.SegmentBytes = 700 },
		"large segments": func(o *Options) { o.Config.IndexInterval = 300 },
		"compacted":      func(o *Options) { o.Config.SegmentBytes, o.Config.Compact = 700, true },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				m := &model{rig: newRig(t, change), t: rt}
				rt.Repeat(map[string]func(*rapid.T){
					"":              m.check,
					"append":        m.append,
					"append2":       m.append,
					"gather":        m.gather,
					"retry":         m.retry,
					"txn":           m.txnAppend,
					"marker":        m.marker,
					"beginRound":    m.beginRound,
					"endRound":      m.endRound,
					"endRound2":     m.endRound,
					"tick":          m.tick,
					"tick2":         m.tick,
					"deleteRecords": m.deleteRecords,
					"retention":     m.retention,
					"restart":       m.restart,
					"kill":          m.kill,
					"crash":         m.crash,
					"failFlush":     m.failFlush,
				})
				if m.pending != nil {
					m.endRound(rt)
				}
				m.rig.close()
			})
		})
	}
}

// consume reads a log as a read_committed consumer does: it drops batches of producers whose transaction is listed as
// aborted, from the first offset listed to their abort marker.
func consume(l *Log) ([]string, error) {
	var f Fetch
	defer f.Release()
	var out []string
	from := l.Offsets().Start
	for {
		if err := l.Read(ReadIn{From: from, BytesMax: 500, Committed: true, AtLeast1: true, Copy: true}, &f); err != nil {
			return nil, err
		}
		if len(f.Parts) == 0 {
			return out, nil
		}
		if !slices.IsSortedFunc(f.Aborted, func(a, b index.AbortedTxn) int { return cmp.Compare(a.First, b.First) }) {
			return nil, errors.New("aborted transactions are not sorted")
		}
		pending := slices.Clone(f.Aborted)
		dropping := map[int64]bool{}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err != nil {
					return nil, err
				}
				part = rest
				for len(pending) > 0 && pending[0].First <= v.LastOffset() {
					dropping[pending[0].PID] = true
					pending = pending[1:]
				}
				pid, _ := v.Producer()
				if v.Attrs().Control() {
					if mk, err := batch.ParseMarker(v); err == nil && !mk.Commit {
						delete(dropping, pid)
					}
				} else if !(v.Attrs().Transactional() && dropping[pid]) {
					err = v.Records(func(rec batch.Record) error {
						if o := v.BaseOffset() + int64(rec.OffsetDelta); o >= from {
							out = append(out, fmt.Sprintf("%d=%s", o, rec.Value))
						}
						return nil
					})
				}
				if err != nil {
					return nil, err
				}
				from = v.LastOffset() + 1
			}
		}
	}
}
