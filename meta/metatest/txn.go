package metatest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sekali/meta"
)

func open(t *testing.T, h Harness) meta.MetadataStore {
	t.Helper()
	s := h.Open(t)
	t.Cleanup(func() { h.Close(t, s) })
	return s
}

// put applies one unconditional transaction of key, value pairs and returns its revision.
func put(t *testing.T, s meta.MetadataStore, kv ...string) meta.Rev {
	t.Helper()
	var ops []meta.Op
	for i := 0; i < len(kv); i += 2 {
		ops = append(ops, meta.Op{Key: kv[i], Value: []byte(kv[i+1])})
	}
	out, err := s.Txn(t.Context(), nil, ops)
	if err != nil || !out.Applied {
		t.Fatalf("put %v: %+v, %v", kv, out, err)
	}
	return out.Rev
}

func snapshot(t testing.TB, s meta.MetadataStore) (*meta.State, meta.Rev) {
	t.Helper()
	state, rev, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state, rev
}

func testConditions(t *testing.T, h Harness) {
	s := open(t, h)
	a := put(t, s, "a", "1")
	b := put(t, s, "b", "")
	if b != a+1 {
		t.Fatalf("revisions %d, %d are not dense", a, b)
	}
	for _, c := range []struct {
		conds   []meta.Cond
		applied bool
	}{
		{[]meta.Cond{{Key: "a", Rev: a}}, true},
		{[]meta.Cond{{Key: "a", Rev: b}}, false},
		{[]meta.Cond{{Key: "a", Rev: 0}}, false},
		{[]meta.Cond{{Key: "b", Rev: 0}}, false},
		{[]meta.Cond{{Key: "missing", Rev: 0}}, true},
		{[]meta.Cond{{Key: "missing", Rev: a}}, false},
		{[]meta.Cond{{Key: "a", Rev: a}, {Key: "b", Rev: b}, {Key: "missing"}}, true},
		{[]meta.Cond{{Key: "a", Rev: a}, {Key: "b", Rev: a}}, false},
	} {
		_, before := snapshot(t, s)
		out, err := s.Txn(t.Context(), c.conds, []meta.Op{{Key: "hit", Value: []byte{1}}})
		if err != nil || out.Applied != c.applied {
			t.Errorf("%v: applied %v, %v; want %v", c.conds, out.Applied, err, c.applied)
		}
		state, after := snapshot(t, s)
		if want := before + 1; c.applied && (after != want || out.Rev != want) || !c.applied && after != before {
			t.Errorf("%v: revision %d to %d, outcome %d", c.conds, before, after, out.Rev)
		}
		if it, ok := state.Get("hit"); c.applied && (!ok || it.Rev != out.Rev) {
			t.Errorf("%v: item %+v of revision %d", c.conds, it, out.Rev)
		}
	}
}

func testRefusal(t *testing.T, h Harness) {
	s := open(t, h)
	a := put(t, s, "a", "one", "c", "three")
	conds := []meta.Cond{{Key: "c", Rev: a + 7}, {Key: "none", Rev: a}, {Key: "a", Rev: a}}
	out, err := s.Txn(t.Context(), conds, []meta.Op{{Key: "a"}, {Key: "x", Value: []byte("y")}})
	if err != nil || out.Applied || out.Rev != a {
		t.Fatalf("%+v, %v", out, err)
	}
	var got []string
	for _, it := range out.Now {
		got = append(got, fmt.Sprintf("%s=%s@%d", it.Key, it.Value, it.Rev))
	}
	if want := []string{fmt.Sprintf("c=three@%d", a), fmt.Sprintf("a=one@%d", a)}; !slices.Equal(got, want) {
		t.Fatalf("current values %v, want %v", got, want)
	}
	state, rev := snapshot(t, s)
	if _, ok := state.Get("x"); ok || rev != a || state.Len() != 2 {
		t.Fatal("a refused transaction left something")
	}
}

func testTestOnly(t *testing.T, h Harness) {
	s := open(t, h)
	a := put(t, s, "a", "1")
	for _, c := range []struct {
		rev     meta.Rev
		applied bool
	}{{a, true}, {a + 1, false}} {
		out, err := s.Txn(t.Context(), []meta.Cond{{Key: "a", Rev: c.rev}}, nil)
		if err != nil || out.Applied != c.applied || out.Rev != a {
			t.Fatalf("condition %d: %+v, %v", c.rev, out, err)
		}
	}
	if b := put(t, s, "a", "2"); b != a+1 {
		t.Fatalf("a test took a revision: %d after %d", b, a)
	}
}

func testLimits(t *testing.T, h Harness) {
	s := h.Open(t)
	defer func() { h.Close(t, s) }()
	big := make([]byte, meta.ValueBytesMax+1)
	for name, ops := range map[string][]meta.Op{
		"empty key":   {{Key: "", Value: big[:1]}},
		"long key":    {{Key: strings.Repeat("k", meta.KeyBytesMax+1), Value: big[:1]}},
		"large value": {{Key: "k", Value: big}},
		"twice":       {{Key: "k", Value: big[:1]}, {Key: "l"}, {Key: "k"}},
		"many":        make([]meta.Op, meta.OpsMax+1),
	} {
		if out, err := s.Txn(t.Context(), nil, ops); !errors.Is(err, meta.ErrInvalid) || out.Applied {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	if _, rev := snapshot(t, s); rev != 0 {
		t.Fatalf("refused transactions moved the revision to %d", rev)
	}
	key := strings.Repeat("k", meta.KeyBytesMax)
	if _, err := s.Txn(t.Context(), nil, []meta.Op{{Key: key, Value: big[1:]}}); err != nil {
		t.Fatal(err)
	}
	s = h.Reopen(t, s)
	state, _ := snapshot(t, s)
	if it, ok := state.Get(key); !ok || len(it.Value) != meta.ValueBytesMax {
		t.Fatal("the largest key and value did not survive")
	}
}

func testIsolation(t *testing.T, h Harness) {
	s := open(t, h)
	value := []byte("one")
	ops := []meta.Op{{Key: "a", Value: value}}
	if _, err := s.Txn(t.Context(), nil, ops); err != nil {
		t.Fatal(err)
	}
	old, _ := snapshot(t, s)
	copy(value, "two")
	ops[0].Key = "b"
	put(t, s, "a", "three", "z", "last")
	if _, err := s.Txn(t.Context(), nil, []meta.Op{{Key: "a"}}); err != nil {
		t.Fatal(err)
	}
	if it, ok := old.Get("a"); !ok || string(it.Value) != "one" || old.Len() != 1 {
		t.Fatalf("an old state changed: %q, %d keys", it.Value, old.Len())
	}
	now, _ := snapshot(t, s)
	if _, ok := now.Get("a"); ok || now.Len() != 1 {
		t.Fatal("the deleted key is still there")
	}
}

func testRange(t *testing.T, h Harness) {
	s := open(t, h)
	want := map[string]bool{}
	for i := range 700 {
		k := fmt.Sprintf("p/%03d", (i*37)%700)
		want[k] = true
		put(t, s, k, "v")
	}
	put(t, s, "p", "", "p.", "", "p0", "", "o/zzz", "", "q", "")
	state, _ := snapshot(t, s)
	var got []string
	state.Range("p/", func(it meta.Item) bool { got = append(got, it.Key); return true })
	if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("%d keys of 700, or out of order", len(got))
	}
	n := 0
	state.Range("p/1", func(meta.Item) bool { n++; return n < 10 })
	if n != 10 {
		t.Fatalf("stopped after %d, want 10", n)
	}
	state.Range("p/7", func(it meta.Item) bool { t.Errorf("%s is not under p/7", it.Key); return true })
}

// step is one random transaction of testModel.
func step(t *rapid.T, model map[string]meta.Item) (conds []meta.Cond, ops []meta.Op) {
	key := rapid.SampledFrom([]string{"a", "b", "c/1", "c/2", "d"})
	for _, k := range rapid.SliceOfNDistinct(key, 0, 2, rapid.ID).Draw(t, "conds") {
		rev := model[k].Rev
		if rapid.IntRange(0, 4).Draw(t, "wrong") == 0 {
			rev++
		}
		conds = append(conds, meta.Cond{Key: k, Rev: rev})
	}
	for _, k := range rapid.SliceOfNDistinct(key, 0, 3, rapid.ID).Draw(t, "ops") {
		op := meta.Op{Key: k}
		if rapid.Bool().Draw(t, "put") {
			op.Value = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value")
			if op.Value == nil {
				op.Value = []byte{}
			}
		}
		ops = append(ops, op)
	}
	return conds, ops
}

// testModel runs random transactions beside a map, reopens in between, and compares all of it each time.
func testModel(t *testing.T, h Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		s := h.Open(t)
		defer func() { h.Close(t, s) }()
		model, rev := map[string]meta.Item{}, meta.Rev(0)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if rapid.IntRange(0, 7).Draw(rt, "reopen") == 0 {
				s = h.Reopen(t, s)
			}
			conds, ops := step(rt, model)
			hold := !slices.ContainsFunc(conds, func(c meta.Cond) bool { return model[c.Key].Rev != c.Rev })
			out, err := s.Txn(t.Context(), conds, ops)
			if err != nil || out.Applied != hold {
				rt.Fatalf("%v %v: %+v, %v; want applied %v", conds, ops, out, err, hold)
			}
			if hold && len(ops) > 0 {
				rev++
				for _, op := range ops {
					if op.Value == nil {
						delete(model, op.Key)
					} else {
						model[op.Key] = meta.Item{Key: op.Key, Value: op.Value, Rev: rev}
					}
				}
			}
			compare(rt, s, model, rev)
		}
	})
}

func compare(t *rapid.T, s meta.MetadataStore, model map[string]meta.Item, rev meta.Rev) {
	state, at, err := s.Snapshot(t.Context())
	if err != nil || at != rev || state.Len() != len(model) {
		t.Fatalf("revision %d, %d keys, %v; want %d and %d", at, state.Len(), err, rev, len(model))
	}
	state.Range("", func(it meta.Item) bool {
		w, ok := model[it.Key]
		if !ok || w.Rev != it.Rev || !bytes.Equal(w.Value, it.Value) {
			t.Fatalf("%+v, want %+v", it, w)
		}
		return true
	})
}

// testContention lets many goroutines raise one counter by compare and swap: every success counts exactly once.
func testContention(t *testing.T, h Harness) {
	s := open(t, h)
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				state, _, err := s.Snapshot(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				it, _ := state.Get("n")
				next := append(append([]byte{}, it.Value...), 'x')
				out, err := s.Txn(t.Context(), []meta.Cond{{Key: "n", Rev: it.Rev}}, []meta.Op{{Key: "n", Value: next}})
				if err != nil {
					t.Error(err)
					return
				}
				if out.Applied {
					done++
				}
			}
		})
	}
	wg.Wait()
	state, rev := snapshot(t, s)
	it, _ := state.Get("n")
	if len(it.Value) != workers*each || rev != workers*each {
		t.Fatalf("counted %d at revision %d, want %d", len(it.Value), rev, workers*each)
	}
}
