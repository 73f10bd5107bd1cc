package main

import (
	"bytes"
	"fmt"

	"sekali/compat/corpus"
	"sekali/compat/record"
)

// byPartition splits records by partition and keeps their order.
func byPartition(records []record.Record) [][]record.Record {
	out := make([][]record.Record, corpus.Partitions)
	for _, r := range records {
		out[r.Partition] = append(out[r.Partition], r)
	}
	return out
}

// compareAll says what is wrong with the records read: they must be those written, in each partition in the order
// written, at the offsets 0, 1, 2, ....
func compareAll(want, got []record.Record) error {
	w, g := byPartition(want), byPartition(got)
	for p := range w {
		if len(w[p]) != len(g[p]) {
			return fmt.Errorf("partition %d: %d records, want %d", p, len(g[p]), len(w[p]))
		}
		for i := range w[p] {
			if g[p][i].Offset != int64(i) {
				return fmt.Errorf("partition %d: record %d has offset %d", p, i, g[p][i].Offset)
			}
			if err := compare(w[p][i], g[p][i]); err != nil {
				return fmt.Errorf("partition %d offset %d: %w", p, i, err)
			}
		}
	}
	return nil
}

// compare says what of a record is not as it was written; offset and partition are not looked at.
func compare(want, got record.Record) error {
	if want.Time != got.Time {
		return fmt.Errorf("timestamp %d, want %d", got.Time, want.Time)
	}
	if err := same("key", want.Key, got.Key); err != nil {
		return err
	}
	if err := same("value", want.Value, got.Value); err != nil {
		return err
	}
	if len(want.Headers) != len(got.Headers) {
		return fmt.Errorf("%d headers, want %d", len(got.Headers), len(want.Headers))
	}
	for i, h := range want.Headers {
		if h.Key != got.Headers[i].Key {
			return fmt.Errorf("header %d is called %q, want %q", i, got.Headers[i].Key, h.Key)
		}
		if err := same(fmt.Sprintf("header %d", i), h.Value, got.Headers[i].Value); err != nil {
			return err
		}
	}
	return nil
}

// same tells null from empty.
func same(what string, want, got []byte) error {
	if (want == nil) == (got == nil) && bytes.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("%s is %s, want %s", what, show(got), show(want))
}

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 24:
		return fmt.Sprintf("%x... (%d bytes)", b[:24], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// place is where a record is stored.
type place struct {
	partition int32
	offset    int64
}

// compareAcks says what is wrong with the acknowledgements: each record has exactly one, with the offset
// at which that record is stored.
func compareAcks(written, stored []record.Record, acks []record.Ack) error {
	at := make(map[place]record.Record, len(stored))
	for _, r := range stored {
		at[place{r.Partition, r.Offset}] = r
	}
	seen := make([]bool, len(written))
	for _, a := range acks {
		switch {
		case a.Index < 0 || a.Index >= len(written):
			return fmt.Errorf("acknowledgement for a record %d that is not there", a.Index)
		case seen[a.Index]:
			return fmt.Errorf("record %d acknowledged twice", a.Index)
		}
		seen[a.Index] = true
		w := written[a.Index]
		r, ok := at[place{w.Partition, a.Offset}]
		if !ok {
			return fmt.Errorf("record %d acknowledged at offset %d of partition %d, where nothing is", a.Index, a.Offset,
				w.Partition)
		}
		if err := compare(w, r); err != nil {
			return fmt.Errorf("record %d acknowledged at offset %d of partition %d, but there: %w", a.Index, a.Offset,
				w.Partition, err)
		}
	}
	if len(acks) != len(written) {
		return fmt.Errorf("%d acknowledgements for %d records", len(acks), len(written))
	}
	return nil
}

// firstOnly leaves out every record that repeats an earlier one of its partition, and counts them; what stays is
// numbered again. It is for clients that write again what was not acknowledged. Records are told apart by their keys.
func firstOnly(records []record.Record) (out []record.Record, repeated int) {
	seen, next := map[string]bool{}, map[int32]int64{}
	for _, r := range records {
		if seen[string(r.Key)] {
			repeated++
			continue
		}
		seen[string(r.Key)] = true
		r.Offset = next[r.Partition]
		next[r.Partition]++
		out = append(out, r)
	}
	return out, repeated
}
