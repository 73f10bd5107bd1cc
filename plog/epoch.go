package plog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"sekali/internal/vfs"
)

// epochFile is Apache Kafka's leader epoch checkpoint (spec: on disk, 2).
const epochFile = "leader-epoch-checkpoint"

// epochStart is one entry of the leader epoch cache: the epoch and the offset of its first batch. Both rise strictly
// from entry to entry. A published slice of them is immutable.
type epochStart struct {
	epoch int32
	start int64
}

// addEpoch is list with a new last entry; entries with an epoch or a start at or above its own go.
func addEpoch(list []epochStart, epoch int32, start int64) []epochStart {
	n := sort.Search(len(list), func(i int) bool { return list[i].epoch >= epoch || list[i].start >= start })
	return append(slices.Clone(list[:n]), epochStart{epoch, start})
}

// cutEpochs is list without what lies outside [start, end): after a cut of the head the entry that covers start stays,
// moved there.
func cutEpochs(list []epochStart, start, end int64) []epochStart {
	n := sort.Search(len(list), func(i int) bool { return list[i].start >= end })
	list = list[:n]
	first := sort.Search(len(list), func(i int) bool { return list[i].start > start }) - 1
	if first < 0 {
		return list
	}
	list = slices.Clone(list[first:])
	list[0].start = start
	return list
}

// epochEnd answers OffsetForLeaderEpoch (KIP-101, KIP-320; spec: on disk, 7) for a log whose latest epoch, with an
// entry or without one yet, is latest and which ends at end.
func epochEnd(list []epochStart, latest int32, end int64, epoch int32) (int32, int64) {
	switch {
	case epoch == latest:
		return latest, end
	case epoch > latest || epoch < 0:
		return -1, -1
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].epoch > epoch })
	next := end
	if i < len(list) {
		next = list[i].start
	}
	if i == 0 {
		return epoch, next
	}
	return list[i-1].epoch, next
}

// EpochEnd returns the largest epoch at or below the given one that wrote here, and the offset behind its last batch;
// -1 and -1 if that is not defined. For the present epoch it is the end of the log.
func (l *Log) EpochEnd(epoch int32) (int32, int64) {
	list := *l.epochs.Load()
	return epochEnd(list, l.epoch, l.end.Load(), epoch)
}

// EpochAt is the leader epoch of the batch that holds offset, -1 if no entry covers it.
func (l *Log) EpochAt(offset int64) int32 {
	list := *l.epochs.Load()
	i := sort.Search(len(list), func(i int) bool { return list[i].start > offset })
	if i == 0 {
		return -1
	}
	return list[i-1].epoch
}

// enter puts this start's epoch into the cache and on disk before the first append; later calls cost one load. It runs
// in the appender, without Log.mu; no append of this start can have moved the end meanwhile, as each comes through
// here.
func (l *Log) enter() error {
	if l.entered.Load() {
		return nil
	}
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	if d := l.down.Load(); d != nil {
		return d.err
	}
	if l.entered.Load() {
		return nil
	}
	list := *l.epochs.Load()
	if n := len(list); n == 0 || list[n-1].epoch < l.epoch {
		if err := l.storeEpochs(addEpoch(list, l.epoch, l.end.Load())); err != nil {
			return err
		}
	}
	l.entered.Store(true)
	return nil
}

// follow enters the epoch of a replicated batch that begins at start, synced, before the batch is appended.
func (l *Log) follow(epoch int32, start int64) error {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	list := *l.epochs.Load()
	if n := len(list); n > 0 && list[n-1].epoch >= epoch {
		return nil
	}
	return l.storeEpochs(addEpoch(list, epoch, start))
}

// cutEpochHead takes out the epochs that ended below a new log start. The file follows with the next entry: a start
// cuts what it reads the same way.
func (l *Log) cutEpochHead(start int64) {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	list := cutEpochs(*l.epochs.Load(), start, math.MaxInt64)
	l.epochs.Store(&list)
}

// cutEpochCache takes back the epochs that began at or above a new end of the log, durably.
func (l *Log) cutEpochCache(end int64) error {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	l.entered.Store(false)
	return l.storeEpochs(cutEpochs(*l.epochs.Load(), l.lim.start.Load(), end))
}

// storeEpochs makes a list durable, then publishes it; under epochMu. A full disk leaves the log as it was; any other
// failure takes it offline, as every failed write does.
func (l *Log) storeEpochs(list []epochStart) error {
	list = cutEpochs(list, l.lim.start.Load(), math.MaxInt64)
	err := vfs.WriteFileAtomic(l.o.FS, l.o.Dir, epochFile, encodeEpochs(list))
	if vfs.IsNoSpace(err) {
		l.o.Events.Fault("leader epoch", err)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil {
		return l.fail("leader epoch", err)
	}
	l.epochs.Store(&list)
	return nil
}

func encodeEpochs(list []epochStart) []byte {
	b := append([]byte("0\n"), strconv.Itoa(len(list))...)
	b = append(b, '\n')
	for _, e := range list {
		b = strconv.AppendInt(b, int64(e.epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.start, 10)
		b = append(b, '\n')
	}
	return b
}

// errEpochs: a leader epoch checkpoint that cannot be read as one. It is made anew from the batches.
var errEpochs = errors.New("plog: leader epoch checkpoint is damaged")

// readEpochs reads the checkpoint of a directory; a missing file is an empty list and ok is false then.
func readEpochs(fsys vfs.FS, dir string) (list []epochStart, ok bool, err error) {
	name := path.Join(dir, epochFile)
	st, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if st.Size > epochFileMax {
		return nil, true, errEpochs
	}
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return nil, false, err
	}
	list, err = decodeEpochs(string(b))
	return list, true, err
}

func decodeEpochs(text string) ([]epochStart, error) {
	if text == "" {
		return nil, nil
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" || lines[1] != strconv.Itoa(len(lines)-2) {
		return nil, errEpochs
	}
	list := make([]epochStart, 0, len(lines)-2)
	for _, line := range lines[2:] {
		a, b, _ := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(a, 10, 32)
		start, err2 := strconv.ParseInt(b, 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, errEpochs
		}
		if n := len(list); n > 0 && (int32(epoch) <= list[n-1].epoch || start <= list[n-1].start) {
			return nil, errEpochs
		}
		list = append(list, epochStart{int32(epoch), start})
	}
	return list, nil
}
