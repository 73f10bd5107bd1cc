package store

import (
	"errors"
	"fmt"
	"io"
	"path"

	"sekali/internal/vfs"
	"sekali/meta"
)

// Lock makes the data directory c.Dir if it is missing, takes its lock and checks file system and format, before
// anything in it is opened. Of c it uses Dir, FS, UnsafeFS and Notice. A network or user-space file system is
// refused with ErrFileSystem unless UnsafeFS is set; overlay gives a notice. A directory that another process holds
// is an error that is vfs.ErrLocked. What was reserved for a full disk is there for the start from then on. The lock
// lasts until Close, or until the process ends.
func Lock(c Config) (io.Closer, error) {
	if err := vfs.MkdirAllSync(c.FS, c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("store: data directory: %w", err)
	}
	if err := checkKind(c); err != nil {
		return nil, err
	}
	l, err := c.FS.LockFile(path.Join(c.Dir, LockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("store: the data directory %s is in use: %w", c.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("store: lock of the data directory %s: %w", c.Dir, err)
	}
	if err := checkOurs(c); err != nil {
		_ = l.Close() // nothing was written; the first error is the one to tell
		return nil, err
	}
	if err := ignoreMissing(c.FS.Remove(path.Join(c.Dir, ReserveFile))); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	return l, nil
}

func checkKind(c Config) error {
	kind, err := c.FS.Kind(c.Dir)
	if err != nil {
		return fmt.Errorf("store: file system of %s: %w", c.Dir, err)
	}
	switch kind {
	case "nfs", "fuse", "smb", "9p", "ceph":
		if c.UnsafeFS {
			c.notice(Notice{Kind: NoticeFileSystem, Path: c.Dir,
				Text: "the data directory is on " + kind + ", acknowledged data may be lost"})
			return nil
		}
		return fmt.Errorf("%w: %s is on %s, where a flush may promise what it does not keep; "+
			"sekali.unsafe.fs=true opens it all the same", ErrFileSystem, c.Dir, kind)
	case "overlay":
		c.notice(Notice{Kind: NoticeFileSystem, Path: c.Dir,
			Text: "the data directory is on overlay: put it on a volume, or it goes with the container"})
	}
	return nil
}

// checkOurs refuses a newer format, and a directory of ours that has lost its metadata: without it every partition
// would look like a stranger's and be set aside.
func checkOurs(c Config) error {
	version, err := readFormat(c.FS, c.Dir)
	if err != nil || version == 0 {
		return err
	}
	ok, err := vfs.Exists(c.FS, path.Join(c.Dir, meta.LogName))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !ok {
		return fmt.Errorf("%w: %s is missing beside %s", ErrFormat, path.Join(c.Dir, meta.LogName), FormatFile)
	}
	return nil
}
