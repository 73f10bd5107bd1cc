package meta

import (
	"errors"
	"fmt"
	"path"

	"sekali/internal/vfs"
)

// Log is what a log file holds, for the store and for tools that read it.
type Log struct {
	Base    Rev // the changes begin after it
	Changes []Change
	End     int64 // position behind the last whole record
	Torn    error // why the bytes at End are no record; nil: there are none
}

// DecodeLog reads the bytes of a log file; path is for errors alone. Each record was synced before the next was
// begun, so only the last one can be torn: a bad record with a whole one anywhere behind it, or a gap in the
// revisions, is a *CorruptError. What it returns shares no memory with raw.
func DecodeLog(path string, raw []byte) (Log, error) {
	base, err := decodeLogHeader(raw)
	if err != nil {
		return Log{}, &CorruptError{Path: path, Err: err}
	}
	l := Log{Base: base, End: logHeaderLen}
	last := base
	for l.End < int64(len(raw)) {
		c, n, err := decodeRecord(raw[l.End:], l.End)
		switch {
		case err == nil && c.Rev != last+1:
			return l, &CorruptError{Path: path, Pos: l.End, Err: fmt.Errorf("revision %d follows %d", c.Rev, last)}
		case errors.Is(err, errVersion), errors.Is(err, errFormat):
			return l, &CorruptError{Path: path, Pos: l.End, Err: err}
		case err != nil:
			if at, ok := wholeBehind(raw, l.End); ok {
				return l, &CorruptError{Path: path, Pos: l.End,
					Err: fmt.Errorf("%w, and a whole record follows at byte %d", err, at)}
			}
			l.Torn = err
			return l, nil
		}
		l.Changes = append(l.Changes, c)
		l.End += int64(n)
		last = c.Rev
	}
	return l, nil
}

// DecodeSnapshot reads the bytes of a snapshot file; path is for errors alone.
func DecodeSnapshot(path string, raw []byte) (*State, Rev, error) {
	s, rev, err := decodeSnapshot(raw)
	if err != nil {
		return nil, 0, &CorruptError{Path: path, Err: err}
	}
	return s, rev, nil
}

// wholeBehind looks for a whole record above pos. Positions are part of the checksum, so a record inside a value does
// not count.
func wholeBehind(raw []byte, pos int64) (int64, bool) {
	for p := pos + 1; p+recordHeaderLen <= int64(len(raw)); p++ {
		if raw[p] != recordMagic[0] || raw[p+1] != recordMagic[1] {
			continue
		}
		if _, _, err := decodeRecord(raw[p:], p); err == nil {
			return p, true
		}
	}
	return 0, false
}

// Read gives the content of the local store in dir without a lock and without changing anything: for tools, beside a
// stopped or a running process. A torn last record is left out. A directory without a store is empty.
func Read(dir string, fs vfs.FS) (*State, Rev, error) {
	// The log first: a snapshot that a running process puts there meanwhile covers what a new log leaves out.
	logName, snapName := path.Join(dir, LogName), path.Join(dir, SnapshotName)
	raw, found, err := readFile(fs, logName)
	if err != nil {
		return nil, 0, err
	}
	var log Log
	if found {
		if log, err = DecodeLog(logName, raw); err != nil {
			return nil, 0, err
		}
	}
	state, rev := &State{}, Rev(0)
	raw, snap, err := readFile(fs, snapName)
	if err != nil {
		return nil, 0, err
	}
	if snap {
		if !found {
			return nil, 0, errNoLog(logName)
		}
		if state, rev, err = DecodeSnapshot(snapName, raw); err != nil {
			return nil, 0, err
		}
	}
	if state, rev, err = log.over(state, rev); err != nil {
		return nil, 0, &CorruptError{Path: snapName, Err: err}
	}
	return state, rev, nil
}

func errNoLog(name string) error {
	return &CorruptError{Path: name, Err: errors.New("the log is missing beside its snapshot")}
}

// over applies the log to a snapshot at rev; without one that is the empty state at 0.
func (l *Log) over(state *State, rev Rev) (*State, Rev, error) {
	if l.Base > rev {
		return nil, 0, fmt.Errorf("ends at revision %d, the log begins after %d", rev, l.Base)
	}
	for _, c := range l.Changes {
		if c.Rev > rev {
			state, rev = state.apply(c.Ops, c.Rev), c.Rev
		}
	}
	return state, rev, nil
}

// last is the revision of the last record, or the base.
func (l *Log) last() Rev { return l.Base + Rev(len(l.Changes)) }
