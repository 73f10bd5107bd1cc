package vfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// osFS is the machine's file systems. It owns one descriptor: syncfs tells an error once per descriptor that was open
// before it happened, so the one used for SyncAll stays open from call to call.
type osFS struct {
	mu  sync.Mutex
	dir string
	all *osFile
}

// OS is the machine's file system. Each call returns its own; a process keeps one.
func OS() FS { return &osFS{} }

const flagsKnown = os.O_RDONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

// badFlags is common to all implementations, so that they refuse the same.
func badFlags(flag int) bool {
	return flag&^flagsKnown != 0 || flag&os.O_TRUNC != 0 && flag&os.O_RDWR == 0 ||
		flag&os.O_EXCL != 0 && flag&os.O_CREATE == 0
}

func (*osFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := openOS(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func openOS(name string, flag int, perm os.FileMode) (*osFile, error) {
	if badFlags(flag) {
		return nil, pathErr("open", name, unix.EINVAL)
	}
	fd, err := retryFd(func() (int, error) {
		return unix.Open(name, flag|unix.O_CLOEXEC|unix.O_LARGEFILE, uint32(perm.Perm()))
	})
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, pathErr("stat", name, errors.Join(err, unix.Close(fd)))
	}
	return &osFile{fd: fd, name: name, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

func (*osFS) Rename(from, to string) error {
	if err := retry(func() error { return unix.Rename(from, to) }); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (*osFS) Remove(name string) error { return os.Remove(name) }

func (*osFS) MkdirAll(dir string, perm os.FileMode) error { return os.MkdirAll(dir, perm) }

func (*osFS) ReadDir(dir string) ([]string, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(es))
	for i, e := range es {
		names[i] = e.Name()
	}
	return names, nil
}

func (*osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if st.IsDir() {
		return Info{IsDir: true}, nil
	}
	return Info{Size: st.Size()}, nil
}

func (*osFS) SyncDir(dir string) error {
	f, err := openOS(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(syncDirFile(f, dir), f.Close())
}

func (o *osFS) SyncAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.anchor(dir); err != nil {
		return err
	}
	if err := retry(func() error { return unix.Syncfs(o.all.fd) }); err != nil {
		return pathErr("syncfs", dir, err)
	}
	return nil
}

// anchor makes all a descriptor of the directory that now bears the name dir; under mu.
func (o *osFS) anchor(dir string) error {
	if o.all != nil && o.dir == dir && sameFile(o.all.fd, dir) {
		return nil
	}
	f, err := openOS(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	if o.all != nil {
		err = o.all.Close()
	}
	o.dir, o.all = dir, f
	return err
}

func sameFile(fd int, name string) bool {
	var a, b unix.Stat_t
	if unix.Fstat(fd, &a) != nil || unix.Stat(name, &b) != nil {
		return false
	}
	return a.Dev == b.Dev && a.Ino == b.Ino
}

func (*osFS) Kind(dir string) (string, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", pathErr("statfs", dir, err)
	}
	return kindName(int64(st.Type)), nil
}

func (*osFS) Free(dir string) (total, usable int64, err error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, 0, pathErr("statfs", dir, err)
	}
	return int64(st.Blocks) * st.Frsize, int64(st.Bavail) * st.Frsize, nil
}

func (*osFS) LockFile(name string) (io.Closer, error) {
	f, err := openOS(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(&LockedError{Path: name, PID: holder(f)}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(pathErr("flock", name, err), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	}
	if err != nil && !IsNoSpace(err) { // the id is a courtesy, the lock holds on a full disk too
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// holder reads the process id that the holder of a lock file left in it, 0 if there is none.
func holder(f *osFile) int {
	var b [lockTextBytes]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// retry runs a system call again while it is only interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func retryFd(call func() (int, error)) (fd int, err error) {
	err = retry(func() error {
		fd, err = call()
		return err
	})
	return fd, err
}
