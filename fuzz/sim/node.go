package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing/synctest"

	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
	"sekali/store"
)

const dataDir = "/data"

// node is one process: a store and what a broker holds beside it. The driver owns it; the store's goroutines come in
// through the rules of the injector.
type node struct {
	mem    *vfs.Mem
	inj    *vfs.Injector
	clk    *clock.Sim
	lock   io.Closer
	meta   meta.MetadataStore
	metaC  io.Closer
	shared *plog.Shared
	store  *store.Store

	goOn chan struct{} // lets the flush at the gate go on

	mu     sync.Mutex // everything below
	open   bool       // the gate lets everything through
	parked int        // flushes at the gate
	mine   int        // changes of files until the process dies; 0: it does not
	plan   *vfs.CrashPlan
	next   *vfs.Mem // what the next process finds; nil while this one lives
}

// changes are the operations on files after which a disk may look different.
var changes = []string{
	"rename", "remove", "mkdirall", "syncdir", "syncall", "writeat", "writevat", "truncate", "allocate", "datasync",
}

func newNode(m *vfs.Mem, wall int64) *node {
	n := &node{mem: m, inj: vfs.Inject(m), clk: clock.NewSim(wall), goOn: make(chan struct{}), open: true}
	n.inj.Add(vfs.Rule{Op: "datasync", Match: "*.log", Do: n.gate})
	n.inj.Add(vfs.Rule{Op: "syncall", Do: n.gate})
	for _, op := range changes {
		n.inj.Add(vfs.Rule{Op: op, Do: n.change})
	}
	return n
}

// change counts a change of a file; the process may die before it.
func (n *node) change() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mine > 0 && n.next == nil {
		if n.mine--; n.mine == 0 {
			n.die(n.plan)
		}
	}
}

// die ends the process: alone, or with the power of the machine; under mu.
func (n *node) die(plan *vfs.CrashPlan) {
	if plan == nil {
		n.next = n.mem.Kill()
	} else {
		n.next = n.mem.Crash(*plan)
	}
}

// end ends the process now; one that is dead already stays as it is.
func (n *node) end(plan *vfs.CrashPlan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.plan = plan
		n.die(plan)
	}
}

// gate stops the flush of a commit round until it is let through. Flushes the driver waits for pass.
func (n *node) gate() {
	if !inRound() {
		return
	}
	n.mu.Lock()
	if n.open || n.next != nil {
		n.mu.Unlock()
		return
	}
	n.parked++
	n.mu.Unlock()
	<-n.goOn
	n.mu.Lock()
	n.parked--
	n.mu.Unlock()
}

// inRound reports whether the caller is the store's own goroutine that does commit rounds.
func inRound() bool {
	var pcs [40]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "store.(*syncer).run") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (n *node) dead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next != nil
}

func (n *node) atGate() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.parked
}

func (n *node) setOpen(open bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = open
}

// rest waits until no goroutine of the process can do anything.
func (n *node) rest() { synctest.Wait() }

// pass lets up to count flushes through the gate, one after the other; negative: all there are. It returns how many.
func (n *node) pass(count int) (passed int) {
	for n.rest(); passed != count && n.atGate() > 0; n.rest() {
		n.goOn <- struct{}{}
		passed++
	}
	return passed
}

// through runs fn, which flushes in the driver's goroutine, with the gate open and no round under way.
func (n *node) through(fn func()) {
	n.pass(-1)
	n.setOpen(true)
	fn()
	n.rest()
	n.setOpen(false)
}

// config is what a start of the store needs; dice are for its ids.
func (n *node) config(s *Setup, dice *rand.Rand) store.Config {
	return store.Config{
		Dir: dataDir, Syncers: 1, SyncFS: s.SyncFS, Written: s.Written, FS: n.inj, Clock: n.clk, RecoveryThreads: 1,
		ProducerExpire: s.Expire, Rand: &source{dice},
	}
}

// start does what a broker does to open its data directory. What an error leaves open is let go of by stop.
func (n *node) start(c store.Config) (err error) {
	if n.lock, err = store.Lock(c); err != nil {
		return err
	}
	if n.meta, n.metaC, err = meta.Open(c.Dir, c.FS, c.Clock); err != nil {
		return err
	}
	if c.Epoch, err = store.RaiseEpoch(context.Background(), c, n.meta); err != nil {
		return err
	}
	if n.shared, err = plog.NewShared(1<<20, 8, buf.New(16<<20)); err != nil {
		return err
	}
	c.Meta, c.Shared = n.meta, n.shared
	n.store, err = store.Open(c)
	n.rest()
	if err == nil {
		n.setOpen(false)
	}
	return err
}

// stop closes whatever is open, and returns the error of the store. Of a dead process nothing reaches the disk.
func (n *node) stop() (err error) {
	n.pass(-1)
	n.setOpen(true)
	if n.store != nil {
		err = n.store.Close(context.Background())
	}
	if n.shared != nil {
		n.shared.Close()
	}
	if n.metaC != nil {
		err = errors.Join(err, n.metaC.Close())
	}
	if n.lock != nil {
		err = errors.Join(err, n.lock.Close())
	}
	n.rest()
	return err
}

// source makes ids that are equal in equal runs.
type source struct{ r *rand.Rand }

// Read fills p.
func (s *source) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.r.Uint32())
	}
	return len(p), nil
}
