package main

import (
	"fmt"
	"testing"

	"sekali/batch"
	"sekali/internal/vfs"
)

// fillTable writes a compacted topic: idempotent and plain producers, transactions of both outcomes, all codecs.
func (h *home) fillTable(from int) error {
	for i := from; i < from+90; i++ {
		pid, attrs := int64(i%4)-1, batch.Attrs(i%5)
		if i%3 == 0 {
			pid, attrs = 70+int64(i%2), attrs|batch.AttrTransactional
		}
		if _, err := h.put("table", 0, pid, 0, attrs, values(fmt.Sprint("t", i), 1+i%6)...); err != nil {
			return err
		}
		if i%6 == 3 {
			for pid := int64(70); pid < 72; pid++ {
				if err := h.end("table", 0, pid, 0, i%4 == 1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// TestCheckCompacted: check finds nothing to say of a log that was compacted again and again, its markers and
// tombstones gone in part, after a clean stop and after a process death.
func TestCheckCompacted(t *testing.T) {
	m := vfs.NewMem()
	h := mustOpenHome(t, m)
	set := map[string]string{"cleanup.policy": "compact", "internal.segment.bytes": "4096", "index.interval.bytes": "400",
		"delete.retention.ms": "1000", "min.cleanable.dirty.ratio": "0"}
	if err := h.create("table", 1, set); err != nil {
		t.Fatal(err)
	}
	cleaned := 0
	for round := range 4 {
		if err := h.fillTable(round * 90); err != nil {
			t.Fatal(err)
		}
		h.tick(70)
		for h.s.CleanDirtiest() {
			cleaned++
		}
	}
	l, err := h.log("table", 0)
	if err != nil {
		t.Fatal(err)
	}
	if size := l.Size(); cleaned < 4 || size > 40<<10 {
		t.Fatalf("%d times compacted, %d bytes are left", cleaned, size)
	}
	dead := m.Kill()
	h.abandon()
	if d := damages(checkHome(t, dead)); len(d) > 0 {
		t.Errorf("after a process death: %+v", d)
	}
	mustOpenHome(t, dead).mustClose(t)
	if d := damages(checkHome(t, dead)); len(d) > 0 {
		t.Errorf("after a clean stop: %+v", d)
	}
}
