package pidmap

import "testing"

// TestGet: one producer asked for is the one Each gives; what nobody wrote, or Refuse left, is not there.
func TestGet(t *testing.T) {
	p := newPartition(seqMod)
	known(p)
	p.send(p.batch(8, 1, 0, 3))
	p.mark(9, 4, 1, 1)
	p.Refuse(p.batch(10, 0, 0, 1))
	want := map[int64]Producer{}
	for next := 0; next >= 0; {
		next = p.Each(next, func(x Producer) { want[x.PID] = x })
	}
	for pid := range int64(12) {
		got, ok := p.Get(pid)
		w, there := want[pid]
		if ok != there || got != w {
			t.Errorf("producer %d: %+v %v, want %+v %v", pid, got, ok, w, there)
		}
	}
	if len(want) != 3 {
		t.Errorf("%d producers, want 3", len(want))
	}
}
