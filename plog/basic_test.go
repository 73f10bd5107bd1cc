package plog

import (
	"slices"
	"testing"
)

func TestAppendSyncReadReopen(t *testing.T) {
	r := newRig(t)
	for i := range int32(20) {
		out, err := r.log.Append(in(numbered(7, 0, i*3, 3)))
		if err != nil || out.Base != int64(i*3) || out.Until != int64(i*3+3) {
			t.Fatalf("append %d: %+v, %v", i, out, err)
		}
		if got := r.log.Offsets(); got.High != int64(i*3) || got.End != int64(i*3+3) {
			t.Fatalf("before the round: %+v", got)
		}
		r.sync()
		if got := r.log.Offsets(); got != (Offsets{0, int64(i*3 + 3), int64(i*3 + 3), int64(i*3 + 3)}) {
			t.Fatalf("after the round: %+v", got)
		}
	}
	want := r.stored()
	if len(want) != 60 || want[59] != "59=p7/0/59" {
		t.Fatalf("stored %v", want)
	}
	r.restart()
	if r.rep.Batches != 0 {
		t.Errorf("scanned %d batches after a clean stop", r.rep.Batches)
	}
	if got := r.stored(); !slices.Equal(got, want) {
		t.Fatalf("after a clean stop: %v", got)
	}
	if out, err := r.p(7, 0, 57, 3); err != nil || !out.Duplicate || out.Base != 57 {
		t.Fatalf("duplicate after a clean stop: %+v, %v", out, err)
	}
	if out, err := r.p(7, 0, 60, 1); err != nil || out.Base != 60 {
		t.Fatalf("next after a clean stop: %+v, %v", out, err)
	}
}
