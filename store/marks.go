package store

import (
	"fmt"

	"sekali/plog"
)

// persist stores what a log says about itself (plog.Options.Persist). A recovery point that rises is filed with all
// the others at the end of the Tick: until then a crash costs a longer scan. But when a log start was told, also one
// that is known, the recovery points are in the file, so that segments and snapshots may go: what is left of the
// producers of those segments is the snapshot that the recovery point vouches for. One that falls is filed at once,
// since it must never lead.
func (p *part) persist(kind plog.MarkKind, offset int64) error {
	switch kind {
	case plog.MarkDurable:
		if offset >= p.durable.Load() {
			raise(&p.durable, offset)
			return nil
		}
		return p.s.lowerMark(p, offset)
	case plog.MarkRecovery:
		if p.recovery.Swap(offset) > offset {
			return p.s.recoveryFile.write(p.s.recoveryPoints)
		}
		p.s.risen.Add(1)
		return nil
	case plog.MarkStart:
		return p.s.needed(func() error { return p.raiseStart(offset) }) // it is how a full disk gets room again
	case plog.MarkClean:
		p.cleaned.Store(offset)
		return p.s.cleanerFile.write(p.s.cleanerOffsets)
	}
	return fmt.Errorf("store: mark of kind %d", kind)
}

func (p *part) raiseStart(offset int64) error {
	if err := p.s.filePoints(); err != nil || offset <= p.start.Load() {
		return err
	}
	old := p.start.Swap(offset)
	err := p.s.startFile.write(p.s.logStarts)
	if err != nil {
		p.start.Store(old) // a log opened from here on must not begin where the disk may not say it does
	}
	return err
}

// filePoints returns when the recovery points that rose before the call are in the file.
func (s *Store) filePoints() error {
	risen := s.risen.Load()
	if s.filed.Load() >= risen {
		return nil
	}
	if err := s.recoveryFile.write(s.recoveryPoints); err != nil {
		return err
	}
	raise(&s.filed, risen)
	return nil
}

func (p *part) place() Place { return Place{p.tp.Topic, p.tp.Partition} }

func (s *Store) recoveryPoints() Offsets {
	o := Offsets{}
	s.parts(func(p *part) { o[p.place()] = p.recovery.Load() })
	return o
}

// logStarts leaves out the partitions whose start was never raised.
func (s *Store) logStarts() Offsets {
	o := Offsets{}
	s.parts(func(p *part) {
		if at := p.start.Load(); at > 0 {
			o[p.place()] = at
		}
	})
	return o
}

func (s *Store) cleanerOffsets() Offsets {
	o := Offsets{}
	s.parts(func(p *part) {
		if at := p.cleaned.Load(); at > 0 {
			o[p.place()] = at
		}
	})
	return o
}

// fileMarks writes the durable marks of a second ago, if any of them differs from the file, and looks at those of
// now for the next call.
func (s *Store) fileMarks() error {
	s.marks.Lock()
	defer s.marks.Unlock()
	moved := false
	s.parts(func(p *part) { moved = moved || p.seen != p.filed })
	var err error
	if moved {
		err = s.writeMarks()
	}
	s.parts(func(p *part) { p.seen = p.durable.Load() })
	return err
}

// writeMarks writes what is seen; under marks. A partition that came into the catalog meanwhile is at 0.
func (s *Store) writeMarks() error {
	o := Offsets{}
	var held []*part
	s.parts(func(p *part) {
		o[p.place()] = p.seen
		held = append(held, p)
	})
	if err := WriteOffsets(s.c.FS, s.c.Dir, MarkFile, o); err != nil {
		return err
	}
	for _, p := range held {
		p.filed = o[p.place()]
	}
	return nil
}

// lowerMark takes the mark of a partition back before its log is cut; it returns when that is durable.
func (s *Store) lowerMark(p *part, offset int64) error {
	s.marks.Lock()
	defer s.marks.Unlock()
	p.durable.Store(offset)
	p.seen = min(p.seen, offset)
	return s.writeMarks()
}

// fileOffsets writes recovery points, log starts and marks, whatever they are: what is no longer in the catalog is
// gone from the files when it returns, so that a topic created anew under an old name inherits nothing.
func (s *Store) fileOffsets() error {
	if err := s.recoveryFile.write(s.recoveryPoints); err != nil {
		return err
	}
	if err := s.startFile.write(s.logStarts); err != nil {
		return err
	}
	if err := s.cleanerFile.write(s.cleanerOffsets); err != nil {
		return err
	}
	s.marks.Lock()
	defer s.marks.Unlock()
	return s.writeMarks()
}

// fileHighs stores the high watermarks of durability=written: what a power loss may take is told from them.
func (s *Store) fileHighs() error {
	s.marks.Lock() // one writer at a time: they would share the file beside the old one
	defer s.marks.Unlock()
	o := Offsets{}
	s.parts(func(p *part) {
		if l := p.log.Load(); l != nil {
			o[p.place()] = l.Offsets().High
		}
	})
	return WriteOffsets(s.c.FS, s.c.Dir, HighFile, o)
}
