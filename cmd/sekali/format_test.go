package main

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"sekali/internal/vfs"
)

// TestFormatPages: the samples of docs/format are what dump reads.
func TestFormatPages(t *testing.T) {
	for _, c := range []struct{ page, file, want string }{
		{"sekali-format", "sekali.format", "format=1\n"},
		{"sekali-meta", "sekali.meta", "base_revision=0\nposition=20 revision=1 key=epoch value=1\n"},
		{"offset-checkpoints", "sekali.high", "topic=t partition=0 offset=1\n"},
		{"partition-files", "partition.metadata", "topic_id=TF23b4lhTgWeiV_DVDf6uw\n"},
		{"snapshot", "00000000000000000001.snapshot", "producers=1 trailer=true\nproducer_id=0 producer_epoch=0 " +
			"coordinator_epoch=-1 last_timestamp=1796069600487 txn_first_offset=-1 idle_ms=2000 span=1 " +
			"batches=[0-0@0-0/1796069600487/69434e32]\n"},
	} {
		page, err := os.ReadFile("../../docs/format/" + c.page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(page), "```\n")
		sample, _, ok := strings.Cut(rest, "```")
		if !ok {
			t.Fatalf("%s has no sample", c.page)
		}
		b := []byte(sample)
		if strings.HasPrefix(sample, "00000000: ") {
			b = nil
			for line := range strings.Lines(sample) {
				_, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
				raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
				if err != nil {
					t.Fatal(err)
				}
				b = append(b, raw...)
			}
		}
		m := vfs.NewMem()
		if err := vfs.WriteFileAtomic(m, "/", c.file, b); err != nil {
			t.Fatal(err)
		}
		if got, err := dumped(m, "/"+c.file, false); err != nil || got != c.want {
			t.Errorf("%s: %v\n%s", c.page, err, got)
		}
	}
}
