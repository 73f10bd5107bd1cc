package plog

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"sort"

	"sekali/batch"
	"sekali/pidmap"
	"sekali/segment"
)

// errMisplaced: a producer snapshot that is sound, but of another offset than its name says.
var errMisplaced = errors.New("plog: producer snapshot is of another offset")

// misplaced reports whether a snapshot that claims to reflect exactly what lies below offset at proves not to: it knows
// of something at or above, or a batch below is newer than all its producer's entry knows of the same epoch. The file
// itself does not say its offset, and one copied over a newer one would make retries new. Only a proof counts; what
// cannot be read proves nothing.
func (r *recovery) misplaced(m *pidmap.Map, at int64) bool {
	recent := map[int64]recentBatch{}
	r.before(at, func(h batch.View) {
		if pid, epoch := h.Producer(); pid >= 0 && !h.Attrs().Control() {
			recent[pid] = recentBatch{epoch, h.LastOffset()}
		}
	})
	proof := false
	for next := 0; next >= 0; {
		next = m.Each(next, func(p pidmap.Producer) {
			last := int64(-1)
			if p.N > 0 {
				last = p.Stamps[p.N-1].Last
			}
			b, ok := recent[p.PID]
			proof = proof || last >= at || p.TxnFirst >= at || ok && p.N > 0 && p.Epoch == b.epoch && last < b.last
		})
	}
	return proof
}

// recentBatch is the last data batch of a producer among those looked at.
type recentBatch struct {
	epoch int16
	last  int64
}

// epochsAgree reports whether the leader epoch checkpoint agrees with the batches in front of the scan. It has no
// checksum, and the scan refuses batches whose epoch falls: a wrong digit would make whole batches look torn.
func (r *recovery) epochsAgree() bool {
	agree := true
	r.before(r.from, func(h batch.View) {
		n := sort.Search(len(r.cached), func(i int) bool { return r.cached[i].start > h.BaseOffset() })
		if n > 0 || len(r.cached) == 0 || h.BaseOffset() >= r.start {
			agree = agree && n > 0 && r.cached[n-1].epoch == h.LeaderEpoch()
		}
	})
	return agree
}

// before calls fn with the headers of some of the last batches below an offset, which are on disk and were checked when
// they were written: from the last index entry on, at most misplacedHeadersMax. Where the batches found there do not
// lead up to the offset the index is wrong, and the first of the segment are taken. What cannot be read ends it.
func (r *recovery) before(offset int64, fn func(h batch.View)) {
	i, _ := slices.BinarySearch(r.bases, offset)
	if i == 0 {
		return
	}
	base := r.bases[i-1]
	f, err := r.o.FS.OpenFile(path.Join(r.o.Dir, segment.Name(base, segment.LogSuffix)), os.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return
	}
	pos := r.below(base, size, offset)
	list, next := headers(f, pos, size, offset)
	if pos > 0 && next != offset && len(list) < misplacedHeadersMax {
		list, _ = headers(f, 0, size, offset)
	}
	for _, h := range list {
		fn(h)
	}
}

// headers reads the headers of batches that follow one another from a position on and lie below an offset, at most
// misplacedHeadersMax, and tells the offset behind the last.
func headers(f io.ReaderAt, pos, size, offset int64) (list []batch.View, next int64) {
	next = -1
	for len(list) < misplacedHeadersMax && pos+batch.HeaderLen <= size {
		h := make(batch.View, batch.HeaderLen)
		if _, err := f.ReadAt(h, pos); err != nil || h.BaseOffset() >= offset {
			return list, next
		}
		length := int64(int32(binary.BigEndian.Uint32(h[8:])))
		if length < batch.HeaderLen-12 || next >= 0 && h.BaseOffset() < next || h.LastOffset() < h.BaseOffset() {
			return list, -1
		}
		list, next = append(list, h), h.LastOffset()+1
		pos += 12 + length
	}
	return list, next
}
