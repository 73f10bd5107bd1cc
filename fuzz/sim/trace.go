package sim

import (
	"fmt"
	"io"
	"strings"

	"sekali/internal/vfs"
)

// Trace, if it is set before a run, gets what happens and how the partitions stand: for one seed at a time.
var Trace io.Writer

// tell writes a line to Trace, and the state of every partition with the files of its directory.
func (w *world) tell(format string, args ...any) {
	if Trace == nil {
		return
	}
	fmt.Fprintf(Trace, "%d "+format+" (at %v)\n", append(append([]any{w.step}, args...), w.now())...)
	for _, p := range w.parts {
		fmt.Fprintf(Trace, "    partition %d: model start %d end %d, on disk %d, told %+v, fragile %v;%s\n", p.n, p.m.Start,
			p.m.End(), p.m.Sure, p.last, p.fragile, listing(w.node.mem, fmt.Sprintf("%s/%s-%d", dataDir, topicName, p.n)))
	}
	fmt.Fprintf(Trace, "    %s;%s\n", dataDir, listing(w.node.mem, dataDir))
}

// listing is the files of a directory with their sizes, of offset files the content.
func listing(m *vfs.Mem, dir string) (text string) {
	names, err := m.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	for _, name := range names {
		full := dir + "/" + name
		if st, err := m.Stat(full); err == nil && !st.IsDir {
			text += fmt.Sprintf(" %s:%d", strings.TrimLeft(name, "0"), st.Size)
		}
		if b, err := vfs.ReadFile(m, full); err == nil && strings.HasSuffix(name, "offset-checkpoint") {
			text += fmt.Sprintf("%q", b)
		}
	}
	return text
}
