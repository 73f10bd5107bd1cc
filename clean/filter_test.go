package clean

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sekali/batch"
	"sekali/index"
)

const now = 1_700_000_000_000

// step is a batch of a log: its records "key=value", "key=" for a tombstone, "=value" without a key; or a marker.
type step struct {
	pid     int64
	attrs   batch.Attrs
	records string
	marker  string // commit or abort
	horizon int64  // 0: none
}

// build makes a log of steps.
func build(steps []step) (log []batch.View) {
	base := int64(0)
	for _, s := range steps {
		var v batch.View
		if s.marker != "" {
			v = batch.AppendMarker(nil, base, 1, batch.Marker{PID: s.pid, Commit: s.marker == "commit", Time: now})
		} else {
			b := batch.Builder{BaseTime: now}
			for _, r := range strings.Fields(s.records) {
				key, value, _ := strings.Cut(r, "=")
				rec := batch.Record{}
				if key != "" {
					rec.Key = []byte(key)
				}
				if value != "" {
					rec.Value = []byte(value)
				}
				b.Add(rec)
			}
			v = b.Done(s.attrs, s.pid, 0, 0)
			v.Stamp(base, 1)
		}
		if s.horizon > 0 {
			v, _ = v.Rewrite(nil, all, s.horizon)
		}
		log, base = append(log, v), v.LastOffset()+1
	}
	return log
}

// show is a batch as the tests write it down.
func show(v batch.View) string {
	if v == nil {
		return "-"
	}
	var out []string
	if m, err := batch.ParseMarker(v); err == nil {
		out = append(out, map[bool]string{true: "commit", false: "abort"}[m.Commit])
	} else {
		v.Records(func(r batch.Record) error {
			out = append(out, fmt.Sprintf("%d:%s=%s", v.BaseOffset()+int64(r.OffsetDelta), r.Key, r.Value))
			return nil
		})
	}
	if v.Count() == 0 {
		out = append(out, "empty")
	}
	if v.Attrs().Horizon() {
		out = append(out, fmt.Sprintf("until %+d", v.BaseTime()-now))
	}
	return strings.Join(out, " ")
}

// TestFilter: what stays of a log, batch by batch. The horizon is 50 ms.
func TestFilter(t *testing.T) {
	const txn = batch.AttrTransactional
	for name, c := range map[string]struct {
		log     []step
		aborted []index.AbortedTxn
		end     int64 // 0: all of it was looked at
		live    []int // batches that the producer state counts on
		last    bool  // the header of the last batch is asked for
		want    string
	}{
		"the newest of each key": {
			log:  []step{{records: "a=1 b=1 c=1"}, {records: "a=2"}, {records: "b=2 b=3"}},
			want: "2:c=1 | 3:a=2 | 5:b=3",
		},
		"nothing of a batch": {log: []step{{records: "a=1"}, {records: "a=2"}}, want: "- | 1:a=2"},
		"a live header":      {log: []step{{records: "a=1"}, {records: "a=2"}}, live: []int{0}, want: "empty | 1:a=2"},
		"the last header": {
			log: []step{{records: "=1"}}, last: true, want: "empty",
		},
		"a tombstone is given its time": {
			log: []step{{records: "a=1"}, {records: "a= b=1"}}, want: "- | 1:a= 2:b=1 until +50",
		},
		"a tombstone keeps its time": {
			log: []step{{records: "a= b=1", horizon: now + 7}}, want: "0:a= 1:b=1 until +7",
		},
		"a tombstone whose time has come": {log: []step{{records: "a= b=1", horizon: now}}, want: "1:b=1 until +0"},
		"no key":                          {log: []step{{records: "=1 a=1"}}, want: "1:a=1"},
		"not looked at": {
			log: []step{{records: "a=1"}, {records: "a=2"}, {records: "a=3"}}, end: 2, want: "- | 1:a=2 | 2:a=3",
		},
		"committed": {
			log:  []step{{pid: 7, attrs: txn, records: "a=1"}, {pid: 7, marker: "commit"}, {records: "b=1"}},
			want: "0:a=1 | commit | 2:b=1",
		},
		"committed, its data superseded": {
			log:  []step{{pid: 7, attrs: txn, records: "a=1"}, {pid: 7, marker: "commit"}, {records: "a=2"}},
			want: "- | commit | 2:a=2",
		},
		"aborted": {
			log:     []step{{records: "a=0"}, {pid: 7, attrs: txn, records: "a=1"}, {pid: 7, marker: "abort"}},
			aborted: []index.AbortedTxn{{PID: 7, First: 1, Last: 2}}, want: "0:a=0 | - | abort",
		},
		"aborted, then committed": {
			log: []step{{pid: 7, attrs: txn, records: "a=1"}, {pid: 7, marker: "abort"},
				{pid: 7, attrs: txn, records: "a=2"}, {pid: 7, marker: "commit"}},
			aborted: []index.AbortedTxn{{PID: 7, First: 0, Last: 1}}, want: "- | abort | 2:a=2 | commit",
		},
		"aborted, its marker further on": {
			log:     []step{{pid: 7, attrs: txn, records: "a=1"}, {records: "b=1"}},
			aborted: []index.AbortedTxn{{PID: 7, First: 0, Last: 9}}, want: "- | 1:b=1",
		},
		"a marker without data": {log: []step{{pid: 7, marker: "commit"}}, want: "commit until +50"},
		"a marker without data, its time": {
			log: []step{{pid: 7, marker: "abort", horizon: now + 1}}, want: "abort until +1",
		},
		"a marker whose time has come": {log: []step{{pid: 7, marker: "abort", horizon: now}}, want: "-"},
		"a marker that counts": {
			log: []step{{pid: 7, marker: "abort", horizon: now}}, live: []int{0}, want: "abort until +0",
		},
		"an empty batch holds its marker": {
			log: []step{{pid: 7, attrs: txn}, {pid: 7, marker: "abort", horizon: now}}, want: "- | abort until +0",
		},
		"an empty batch nobody counts on": {log: []step{{pid: 7}, {records: "a=1"}}, want: "- | 1:a=1"},
		"compressed": {
			log: []step{{attrs: batch.Attrs(batch.Zstd), records: "a=1 b=1"}, {records: "a=2"}}, want: "1:b=1 | 2:a=2",
		},
		"compressed, the tombstone's time": {
			log: []step{{attrs: batch.Attrs(batch.Gzip), records: "a= b=1"}}, want: "0:a= 1:b=1 until +50",
		},
		"the marker of another one": {
			log: []step{{pid: 7, attrs: txn, records: "a=1"}, {pid: 8, marker: "commit", horizon: now},
				{pid: 7, marker: "commit"}},
			want: "0:a=1 | - | commit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := build(c.log)
			end := log[len(log)-1].LastOffset() + 1
			if c.end > 0 {
				end = c.end
			}
			keys := NewKeys(100, c.aborted)
			for _, v := range log {
				if v.BaseOffset() < end {
					if err := keys.Look(v); err != nil {
						t.Fatal(err)
					}
				}
			}
			f := NewFilter(Options{Keys: keys, End: end, Now: now, HorizonMs: 50, Aborted: c.aborted,
				Live: func(v batch.View) bool {
					i := slices.IndexFunc(log, func(x batch.View) bool { return x.BaseOffset() == v.BaseOffset() })
					return slices.Contains(c.live, i)
				}})
			var got []string
			for i, v := range log {
				b, same, err := f.Batch(nil, v, c.last && i+1 == len(log))
				if err != nil {
					t.Fatal(err)
				}
				if same != slices.Equal(b, v) {
					t.Errorf("batch %d: said to be the same: %v", i, same)
				}
				out := batch.View(nil)
				if len(b) > 0 {
					out = b
					if _, err := out.Validate(batch.Limits{Deep: true, Stored: true}); err != nil {
						t.Errorf("batch %d: %v", i, err)
					}
					if out.BaseOffset() != v.BaseOffset() || out.LastOffset() != v.LastOffset() {
						t.Errorf("batch %d: offsets %d..%d became %d..%d", i, v.BaseOffset(), v.LastOffset(), out.BaseOffset(),
							out.LastOffset())
					}
				}
				got = append(got, show(out))
			}
			if s := strings.Join(got, " | "); s != c.want {
				t.Errorf("stays %s\nwant  %s", s, c.want)
			}
		})
	}
}

// TestKeysAreFull: what has no room is left to the next turn.
func TestKeysAreFull(t *testing.T) {
	k := NewKeys(2, nil)
	for i, v := range build([]step{{records: "a=1"}, {records: "a=2"}, {records: "b=1"}}) {
		if k.Full() {
			t.Fatalf("full before batch %d", i)
		}
		if err := k.Look(v); err != nil {
			t.Fatal(err)
		}
	}
	if !k.Full() {
		t.Fatal("not full with two keys")
	}
}
