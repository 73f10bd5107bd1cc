package wire

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestVersionsDocumented: the table of requests in docs/protocol.md is the table of this package.
func TestVersionsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|`).FindAllStringSubmatch(string(text), -1)
	want := Versions()
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(rows), len(want))
	}
	for i, r := range rows {
		n := func(at int) int16 {
			v, err := strconv.ParseInt(r[at], 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			return int16(v)
		}
		if got := (Range{n(1), n(3), n(4)}); got != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, got, want[i])
		}
		// kmsg spells acronyms in capitals, and key 45 by an older name.
		name := strings.Replace(kmsg.NameForKey(want[i].Key), "PartitionAssignments", "PartitionReassignments", 1)
		if !strings.EqualFold(name, r[2]) {
			t.Errorf("key %d is called %s, want %s", want[i].Key, r[2], name)
		}
	}
}
