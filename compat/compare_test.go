package main

import (
	"strings"
	"testing"

	"sekali/compat/corpus"
	"sekali/compat/record"
)

func plain(items []corpus.Item) []record.Record {
	out, next := make([]record.Record, len(items)), map[int32]int64{}
	for i, it := range items {
		out[i] = it.Record
		out[i].Offset = next[it.Partition]
		next[it.Partition]++
	}
	return out
}

func TestCorpusIsTheSameEachTime(t *testing.T) {
	a, b := plain(corpus.Fidelity()), plain(corpus.Fidelity())
	if err := compareAll(a, b); err != nil {
		t.Fatal(err)
	}
	if len(a) != 4*5*8+5000+3+300 {
		t.Fatalf("%d records", len(a))
	}
}

// Every kind of damage a broker could do must be seen by the comparison.
func TestCompareSeesDamage(t *testing.T) {
	written := plain(corpus.Fidelity())
	find := func(ok func(r record.Record) bool) int {
		for i, r := range written {
			if ok(r) {
				return i
			}
		}
		t.Fatal("no such record in the corpus")
		return 0
	}
	any := func(record.Record) bool { return true }
	withHeaders := func(r record.Record) bool { return len(r.Headers) > 1 }
	noKey := func(r record.Record) bool { return r.Key == nil }
	emptyValue := func(r record.Record) bool { return r.Value != nil && len(r.Value) == 0 }
	largeValue := func(r record.Record) bool { return len(r.Value) > 800_000 }
	header := func(r *record.Record, h record.Header) {
		r.Headers = append([]record.Header{h}, r.Headers[1:]...)
	}
	damage := map[string]struct {
		at   int
		do   func(r *record.Record)
		want string
	}{
		"time":        {find(any), func(r *record.Record) { r.Time++ }, "timestamp"},
		"offset":      {find(any), func(r *record.Record) { r.Offset++ }, "has offset"},
		"partition":   {find(any), func(r *record.Record) { r.Partition = 4 }, "records, want"},
		"null key":    {find(noKey), func(r *record.Record) { r.Key = []byte{} }, "key is"},
		"empty value": {find(emptyValue), func(r *record.Record) { r.Value = nil }, "value is null"},
		"value byte": {find(largeValue), func(r *record.Record) {
			r.Value = append([]byte{^r.Value[0]}, r.Value[1:]...)
		}, "value is"},
		"header lost": {find(withHeaders), func(r *record.Record) { r.Headers = r.Headers[1:] }, "headers, want"},
		"header value": {find(withHeaders), func(r *record.Record) {
			header(r, record.Header{Key: r.Headers[0].Key, Value: []byte("x")})
		}, "header 0 is"},
		"header name": {find(withHeaders), func(r *record.Record) {
			header(r, record.Header{Key: "x", Value: r.Headers[0].Value})
		}, "is called"},
	}
	for name, d := range damage {
		got := plain(corpus.Fidelity())
		d.do(&got[d.at])
		if err := compareAll(written, got); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: %v, want %q", name, err, d.want)
		}
	}
	swapped := plain(corpus.Fidelity())
	n := find(func(r record.Record) bool { return r.Partition == 1 })
	swapped[n], swapped[n+1] = swapped[n+1], swapped[n]
	swapped[n].Offset, swapped[n+1].Offset = swapped[n+1].Offset, swapped[n].Offset
	if err := compareAll(written, swapped); err == nil {
		t.Error("two records changed places, not seen")
	}
	if err := compareAll(written, written[:len(written)-1]); err == nil {
		t.Error("the last record is lost, not seen")
	}
	if err := compareAll(written, append(written[:len(written):len(written)], written[0])); err == nil {
		t.Error("a record is doubled, not seen")
	}
}

func TestCompareAcks(t *testing.T) {
	written := plain(corpus.Numbered(40))
	good := func() (acks []record.Ack) {
		for i, r := range written {
			acks = append(acks, record.Ack{Index: i, Offset: r.Offset})
		}
		return acks
	}
	if err := compareAcks(written, written, good()); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]struct {
		do   func(acks []record.Ack) []record.Ack
		want string
	}{
		"lost":         {func(a []record.Ack) []record.Ack { return a[1:] }, "39 acknowledgements"},
		"twice":        {func(a []record.Ack) []record.Ack { return append(a, a[0]) }, "twice"},
		"other offset": {func(a []record.Ack) []record.Ack { a[3].Offset++; return a }, "but there"},
		"no record":    {func(a []record.Ack) []record.Ack { a[3].Offset = -1; return a }, "where nothing is"},
		"index":        {func(a []record.Ack) []record.Ack { a[3].Index = 40; return a }, "not there"},
	} {
		if err := compareAcks(written, written, d.do(good())); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: %v, want %q", name, err, d.want)
		}
	}
}

func TestFirstOnly(t *testing.T) {
	written := plain(corpus.Numbered(40))
	twice := append(written[:20:20], written[12:]...)
	got, repeated := firstOnly(twice)
	if err := compareAll(written, got); err != nil || repeated != 8 {
		t.Fatalf("%v, %d repeated, want 8", err, repeated)
	}
}
