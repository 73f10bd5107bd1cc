package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sekali/internal/vfs"
)

// Close ends the store in order: housekeeping and rounds stop, every log is flushed, completed and closed, the
// offset files are written, and the clean-shutdown file comes last. It is not written if anything failed or a
// partition was offline: the next start then scans. If ctx ends first Close returns its error; the closing goes on,
// and the directory is in no worse state than after a crash. Nothing else of the store may be used any more.
func (s *Store) Close(ctx context.Context) error {
	if !s.closing.CompareAndSwap(false, true) {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() { done <- s.close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("store: closing: %w", ctx.Err())
	}
}

func (s *Store) close() error {
	s.stopWatch()
	close(s.stop)
	s.admin.Lock() // an administrative call at work ends first
	defer s.admin.Unlock()
	s.mu.Lock() // and no reopening begins after this
	s.mu.Unlock()
	s.loops.Wait()
	if s.load.Short.Load() && s.lend() {
		defer s.takeBack()
	}

	var all []*part
	s.parts(func(p *part) { all = append(all, p) })
	s.sync.keepOut(all...)
	err := s.closeAll(all)
	s.closeHidden()
	close(s.sync.work)
	s.helpers.Wait()

	s.marks.Lock()
	for _, p := range all {
		p.seen = p.durable.Load()
	}
	s.marks.Unlock()
	if ferr := s.fileOffsets(); ferr != nil {
		return errors.Join(err, ferr)
	}
	if err != nil {
		return err
	}
	if s.c.Written {
		if err := s.fileEnds(all); err != nil {
			return err
		}
	}
	return s.markClean()
}

// markClean writes the file that lets the next start trust everything.
func (s *Store) markClean() error {
	if err := vfs.WriteFileAtomic(s.c.FS, s.c.Dir, CleanFile, []byte(`{"version":0,"brokerEpoch":-1}`)); err != nil {
		return fmt.Errorf("store: %s: %w", CleanFile, err)
	}
	return nil
}

// closeAll closes the logs, a few at a time. A partition that is offline is an error: the next start must look at it.
func (s *Store) closeAll(all []*part) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for range min(s.c.threads(), len(all)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				errs[i] = s.closePart(all[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeHidden closes the logs of topics whose creation or deletion has not ended; the next start settles them.
func (s *Store) closeHidden() {
	s.mu.Lock()
	var hidden []*part
	for _, parts := range s.prepared {
		hidden = append(hidden, parts...)
	}
	for _, l := range s.leaving {
		hidden = append(hidden, l.topic.parts...)
	}
	s.mu.Unlock()
	s.sync.keepOut(hidden...)
	for _, p := range hidden {
		p.chore.Lock()
		if l := p.log.Load(); l != nil {
			s.report("closing a partition that is not in the catalog", l.Close())
		}
		p.chore.Unlock()
	}
}

func (s *Store) closePart(p *part) error {
	p.chore.Lock()
	defer p.chore.Unlock()
	l := p.log.Load()
	if l == nil {
		return &OfflineError{TP: p.tp, Err: s.faultOf(p)}
	}
	if err := l.Err(); err != nil {
		return errors.Join(&OfflineError{TP: p.tp, Err: err}, l.Close())
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("store: closing %s: %w", p.tp, err)
	}
	return nil
}

// fileEnds notes the ends of the closed logs: after a clean stop nothing is to be told as lost.
func (s *Store) fileEnds(all []*part) error {
	o := Offsets{}
	for _, p := range all {
		o[p.place()] = p.durable.Load()
	}
	return WriteOffsets(s.c.FS, s.c.Dir, HighFile, o)
}
