package cases

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sekali/broker"
	"sekali/internal/clock"
	"sekali/internal/vfs"
)

// inMemory is a broker of this process on a simulated disk, by virtual time unless the case asks for the real one.
type inMemory struct {
	t     *testing.T
	o     options
	mem   *vfs.Mem
	full  *atomic.Bool // no new file
	sim   *clock.Sim   // nil: real time
	wall  int64        // at the next start
	srv   *broker.Server
	ended chan error
	lines *lines
	addr  string
}

func newInMemory(t *testing.T, o options) *inMemory {
	m := &inMemory{t: t, o: o, wall: 1_700_000_000_000, lines: new(lines), full: new(atomic.Bool)}
	m.replace()
	return m
}

func (m *inMemory) replace() {
	m.mem = vfs.NewMem()
	if err := m.mem.MkdirAll(m.dir(), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.mem.SetCapacity(m.o.disk)
}

func (m *inMemory) start() error {
	ln, err := net.Listen("tcp", cmp.Or(m.addr, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	if m.addr == "" {
		m.addr = ln.Addr().String()
	}
	c := broker.Defaults()
	for k, v := range m.o.settings {
		if err := c.Set(k, v); err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	m.lines = new(lines)
	c.Listeners = []broker.Listener{{Name: "PLAINTEXT", Ln: ln, Advertise: m.o.advertise}}
	c.Admin, c.Store.Dir, c.Store.FS = "", m.dir(), &frozen{m.mem, m.full}
	c.Log = slog.New(slog.NewTextHandler(m.lines, nil))
	if !m.o.realTime {
		m.sim = clock.NewSim(m.wall)
		c.Clock = m.sim
	}
	srv, err := broker.Open(context.Background(), c)
	if err != nil {
		return err
	}
	m.srv, m.ended = srv, make(chan error, 1)
	go func() { m.ended <- srv.Serve() }()
	return nil
}

// end takes the server down; the next start sees the disk as mem.
func (m *inMemory) end(wait time.Duration, mem func() *vfs.Mem) error {
	if m.sim != nil {
		m.wall = m.sim.Wall() + 1000
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := errors.Join(m.srv.Shutdown(ctx), <-m.ended)
	m.srv = nil
	if mem != nil {
		m.mem = mem()
	}
	return err
}

func (m *inMemory) stop() error { return m.end(20*time.Second, m.mem.Kill) }

// kill takes the disk away first, so that what the server does from then on never happened.
func (m *inMemory) kill() {
	m.mem = m.mem.Kill()
	_ = m.end(0, nil) // its disk is gone: errors are what is expected of it
}

func (m *inMemory) alive() error {
	select {
	case err := <-m.ended:
		m.ended <- err
		return errors.Join(errors.New("Serve has returned"), err)
	default:
		return nil
	}
}

func (m *inMemory) address() string { return m.addr }
func (m *inMemory) files() vfs.FS   { return m.mem }
func (m *inMemory) dir() string     { return "/store/data" }
func (m *inMemory) log() string     { return m.lines.String() }

func (m *inMemory) now() int64 {
	switch {
	case m.o.realTime:
		return time.Now().UnixMilli()
	case m.srv == nil:
		return m.wall
	}
	return m.sim.Wall()
}

// pass moves the clock in steps of a second and gives the housekeeping time to do what each step has made due: it is
// done when it has armed its timer again.
func (m *inMemory) pass(d time.Duration) {
	if m.sim == nil || m.srv == nil {
		time.Sleep(d)
		return
	}
	for ; d > 0; d -= time.Second {
		armed := m.sim.Pending()
		m.sim.Advance(min(d, time.Second))
		for range 100 {
			if m.sim.Pending() >= armed {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

func (m *inMemory) leave(bytes int64) error {
	if bytes < 0 {
		m.mem.SetCapacity(m.o.disk)
		return nil
	}
	m.mem.SetCapacity(max(m.mem.Used()+bytes, 4096))
	return nil
}

func (m *inMemory) freeze(on bool) error {
	m.full.Store(on)
	return nil
}

// frozen is a file system that may have no room for another file, as one without free inodes.
type frozen struct {
	vfs.FS
	on *atomic.Bool
}

// OpenFile makes no file while the file system is frozen.
func (f *frozen) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if f.on.Load() && flag&os.O_CREATE != 0 {
		if there, err := vfs.Exists(f.FS, name); err == nil && !there {
			return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
		}
	}
	return f.FS.OpenFile(name, flag, perm)
}

func (m *inMemory) heap() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

func (m *inMemory) allocs() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.TotalAlloc
}

func (m *inMemory) cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		m.t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
