package vfs

import (
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Rule is one fault. It fires on calls of the operation Op whose file matches Match, from the Nth matching call on.
//
// Op is one of openfile, rename, remove, mkdirall, readdir, stat, syncdir, syncall, kind, free, lockfile, readat,
// writeat, writevat, size, truncate, allocate, startwriteback, datasync, uncache, map, close; "" is all of them.
type Rule struct {
	Op    string
	Match string // pattern of path.Match for the path or its last element (rename: of either name); "" matches all
	Nth   int    // 1: the first matching call; 0: every one
	Times int    // how many calls from Nth on, if Nth is not 0; 0 is taken as 1, a negative number as all
	// Err is returned, wrapped with operation and path, and the call below is not made. Nil: the call goes through,
	// unless Short says otherwise.
	Err error
	// Short lets the first Short bytes of a writeat or writevat through before it fails with Err (io.ErrShortWrite
	// if that is nil), as a full disk does; of a readat, that many bytes are returned with Err (io.ErrUnexpectedEOF).
	Short int
	Delay time.Duration // waits before anything else, as a slow disk does
	Do    func()        // runs after Delay and before the call, without any lock held: to look, to kill, to block
}

// Injector is an FS with faults. Rules may be added and removed while it is in use; files that are open already follow
// them too. All methods may be called from any goroutine.
type Injector struct {
	fs FS

	mu    sync.RWMutex
	rules []*Active
	sleep func(time.Duration)
}

// Active is a rule in force.
type Active struct {
	in   *Injector
	r    Rule
	seen int // matching calls; under Injector.mu
	hits int
}

// Inject wraps fs with rules. If several fire on a call, all their delays and functions run and the last one's error
// counts. A datasync that is made to fail above a Mem loses there what it was to make durable, as Mem.FailSync does.
// A delay blocks its thread in the kernel, as a disk does; SetSleep puts another clock in its place.
func Inject(fs FS, rules ...Rule) *Injector {
	in := &Injector{fs: fs, sleep: sleepThread}
	for _, r := range rules {
		in.Add(r)
	}
	return in
}

func sleepThread(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&ts, &ts) == unix.EINTR {
	}
}

// Add puts a rule in force; its count of calls begins now.
func (in *Injector) Add(r Rule) *Active {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := &Active{in: in, r: r}
	in.rules = append(slices.Clip(in.rules), a)
	return a
}

// Clear removes all rules.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rules = nil
}

// SetSleep replaces what Delay waits with, before the injector is in use.
func (in *Injector) SetSleep(sleep func(time.Duration)) { in.sleep = sleep }

// Remove ends the rule.
func (a *Active) Remove() {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.in.rules = slices.DeleteFunc(slices.Clone(a.in.rules), func(b *Active) bool { return a == b })
}

// Hits is how often the rule has fired.
func (a *Active) Hits() int {
	a.in.mu.RLock()
	defer a.in.mu.RUnlock()
	return a.hits
}

// fault is what the rules make of one call.
type fault struct {
	err   error
	short int
}

// at runs the rules for one call; names are the paths it is about.
func (in *Injector) at(op string, names ...string) fault {
	in.mu.RLock()
	quiet := len(in.rules) == 0
	in.mu.RUnlock()
	if quiet {
		return fault{}
	}
	var fired []Rule
	in.mu.Lock()
	for _, a := range in.rules {
		if a.r.Op != "" && a.r.Op != op ||
			!slices.ContainsFunc(names, func(n string) bool { return matches(a.r.Match, n) }) {
			continue
		}
		if a.seen++; a.r.fires(a.seen) {
			a.hits++
			fired = append(fired, a.r)
		}
	}
	in.mu.Unlock()
	var f fault
	for _, r := range fired {
		if r.Delay > 0 {
			in.sleep(r.Delay)
		}
		if r.Do != nil {
			r.Do()
		}
		if r.Err == nil && r.Short == 0 {
			continue
		}
		f = fault{r.Err, r.Short}
		if r.Err == nil {
			f.err = io.ErrShortWrite
			if op == "readat" {
				f.err = io.ErrUnexpectedEOF
			}
		}
	}
	if f.err != nil {
		f.err = pathErr(op, names[0], f.err)
	}
	return f
}

func (r *Rule) fires(call int) bool {
	switch {
	case r.Nth == 0:
		return true
	case call < r.Nth:
		return false
	case r.Times < 0:
		return true
	}
	return call < r.Nth+max(r.Times, 1)
}

// OpenFile implements FS.
func (in *Injector) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	if f := in.at("openfile", name); f.err != nil {
		return nil, f.err
	}
	f, err := in.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{in: in, f: f, name: name}, nil
}

// Rename implements FS.
func (in *Injector) Rename(from, to string) error {
	if f := in.at("rename", from, to); f.err != nil {
		return f.err
	}
	return in.fs.Rename(from, to)
}

// Remove implements FS.
func (in *Injector) Remove(name string) error {
	if f := in.at("remove", name); f.err != nil {
		return f.err
	}
	return in.fs.Remove(name)
}

// MkdirAll implements FS.
func (in *Injector) MkdirAll(dir string, perm os.FileMode) error {
	if f := in.at("mkdirall", dir); f.err != nil {
		return f.err
	}
	return in.fs.MkdirAll(dir, perm)
}

// ReadDir implements FS.
func (in *Injector) ReadDir(dir string) ([]string, error) {
	if f := in.at("readdir", dir); f.err != nil {
		return nil, f.err
	}
	return in.fs.ReadDir(dir)
}

// Stat implements FS.
func (in *Injector) Stat(name string) (Info, error) {
	if f := in.at("stat", name); f.err != nil {
		return Info{}, f.err
	}
	return in.fs.Stat(name)
}

// SyncDir implements FS.
func (in *Injector) SyncDir(dir string) error {
	if f := in.at("syncdir", dir); f.err != nil {
		return f.err
	}
	return in.fs.SyncDir(dir)
}

// SyncAll implements FS. A failure injected here is that of a stranger's file: nothing is written, nothing lost.
func (in *Injector) SyncAll(dir string) error {
	if f := in.at("syncall", dir); f.err != nil {
		return f.err
	}
	return in.fs.SyncAll(dir)
}

// Kind implements FS.
func (in *Injector) Kind(dir string) (string, error) {
	if f := in.at("kind", dir); f.err != nil {
		return "", f.err
	}
	return in.fs.Kind(dir)
}

// Free implements FS.
func (in *Injector) Free(dir string) (total, usable int64, err error) {
	if f := in.at("free", dir); f.err != nil {
		return 0, 0, f.err
	}
	return in.fs.Free(dir)
}

// LockFile implements FS.
func (in *Injector) LockFile(name string) (io.Closer, error) {
	if f := in.at("lockfile", name); f.err != nil {
		return nil, f.err
	}
	return in.fs.LockFile(name)
}
