package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// ReadFile reads a whole file. One above 1 GiB is refused with io.ErrShortBuffer.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	b, err := readAll(f, name)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return b, nil
}

func readAll(f File, name string) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > readFileMax {
		return nil, pathErr("read", name, io.ErrShortBuffer)
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}

// WriteFileAtomic replaces dir/name by data, or leaves what was there: temporary file name.tmp, sync, rename, sync
// of the directory. When it returns nil the new content is durable; after an error either is there, also after a
// crash. One caller at a time per name.
func WriteFileAtomic(fsys FS, dir, name string, data []byte) error {
	to := path.Join(dir, name)
	tmp := to + ".tmp"
	if err := writeSynced(fsys, tmp, data); err != nil {
		return errors.Join(err, ignoreMissing(fsys.Remove(tmp)))
	}
	if err := fsys.Rename(tmp, to); err != nil {
		return errors.Join(err, ignoreMissing(fsys.Remove(tmp)))
	}
	return fsys.SyncDir(dir)
}

func writeSynced(fsys FS, name string, data []byte) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}

// Exists reports whether something bears the name. Only "does not exist" is false; another error is returned.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MkdirAllSync makes dir and the missing directories above it and syncs every directory that got a new entry, so that
// they are there after a crash.
func MkdirAllSync(fsys FS, dir string, perm os.FileMode) error {
	var parents []string
	for d := path.Clean(dir); ; d = path.Dir(d) {
		ok, err := Exists(fsys, d)
		if err != nil {
			return err
		}
		if ok || d == path.Dir(d) {
			break
		}
		parents = append(parents, path.Dir(d))
	}
	if err := fsys.MkdirAll(dir, perm); err != nil {
		return err
	}
	for i := len(parents) - 1; i >= 0; i-- {
		if err := fsys.SyncDir(parents[i]); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll removes a file, or a directory with all it holds; a missing name is no error. Nothing is synced.
func RemoveAll(fsys FS, name string) error {
	st, err := fsys.Stat(name)
	if err != nil {
		return ignoreMissing(err)
	}
	if st.IsDir {
		names, err := fsys.ReadDir(name)
		if err != nil {
			return ignoreMissing(err)
		}
		for _, n := range names {
			if err := RemoveAll(fsys, path.Join(name, n)); err != nil {
				return err
			}
		}
	}
	return ignoreMissing(fsys.Remove(name))
}

// syncDirFile is SyncDir of an open directory; a file is refused.
func syncDirFile(f File, name string) error {
	if !isDir(f) {
		return pathErr("syncdir", name, syscall.ENOTDIR)
	}
	return f.Datasync()
}

func isDir(f File) bool {
	switch f := f.(type) {
	case *osFile:
		return f.dir
	case *memFile:
		return f.n.dir
	}
	return false
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
