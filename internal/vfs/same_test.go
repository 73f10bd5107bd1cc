package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// pair runs every call against both implementations and compares what they say.
type pair struct {
	t     *rapid.T
	fs    [2]FS
	root  [2]string
	files []*openPair
}

type openPair struct {
	name   string
	f      [2]File
	mapped [2]*Mapping
}

// reason is the comparable part of an error.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.Is(err, os.ErrClosed):
		return "closed"
	}
	return err.Error()
}

// both runs fn on either side; fn returns a printable outcome and an error.
func (p *pair) both(what string, fn func(i int) (string, error)) (ok bool) {
	a, errA := fn(0)
	b, errB := fn(1)
	if a != b || reason(errA) != reason(errB) {
		p.t.Fatalf("%s\ndisk: %s, %v\nmem:  %s, %v", what, a, errA, b, errB)
	}
	return errA == nil
}

func (p *pair) at(i int, name string) string { return path.Join(p.root[i], name) }

func (p *pair) name() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/a/a", "c/a/b"}).Draw(p.t, "name")
}

func (p *pair) open() {
	name := p.name()
	flag := rapid.SampledFrom([]int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDONLY | os.O_CREATE,
		os.O_RDWR | os.O_CREATE | os.O_EXCL, os.O_RDWR | os.O_TRUNC, os.O_RDWR | os.O_CREATE | os.O_TRUNC,
		os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDONLY | os.O_TRUNC}).Draw(p.t, "flag")
	o := &openPair{name: name}
	ok := p.both(fmt.Sprintf("open %s %#x", name, flag), func(i int) (string, error) {
		f, err := p.fs[i].OpenFile(p.at(i, name), flag, 0o644)
		o.f[i] = f
		return "", err
	})
	if ok {
		p.files = append(p.files, o)
	}
}

func (p *pair) names() {
	switch name, to := p.name(), p.name(); rapid.IntRange(0, 5).Draw(p.t, "call") {
	case 0:
		p.both("mkdir "+name, func(i int) (string, error) { return "", p.fs[i].MkdirAll(p.at(i, name), 0o755) })
	case 1:
		p.both("remove "+name, func(i int) (string, error) { return "", p.fs[i].Remove(p.at(i, name)) })
	case 2:
		p.both("rename "+name+" "+to, func(i int) (string, error) {
			return "", p.fs[i].Rename(p.at(i, name), p.at(i, to))
		})
	case 3:
		p.both("readdir "+name, func(i int) (string, error) {
			names, err := p.fs[i].ReadDir(p.at(i, name))
			return strings.Join(names, " "), err
		})
	case 4:
		p.both("stat "+name, func(i int) (string, error) {
			st, err := p.fs[i].Stat(p.at(i, name))
			return fmt.Sprint(st), err
		})
	case 5:
		p.both("syncdir "+name, func(i int) (string, error) { return "", p.fs[i].SyncDir(p.at(i, name)) })
	}
}

func (p *pair) offset() int64 {
	return rapid.SampledFrom([]int64{0, 1, 100, 511, 512, 4095, 4096, 10_000, pieceSize - 3, pieceSize, 40_000, -1}).
		Draw(p.t, "off")
}

func (p *pair) content() {
	if len(p.files) == 0 {
		return
	}
	k := rapid.IntRange(0, len(p.files)-1).Draw(p.t, "file")
	o, off := p.files[k], p.offset()
	n := rapid.IntRange(0, 3*pieceSize).Draw(p.t, "n")
	data := pattern(n, byte(n))
	call := func(what string, fn func(f File) (string, error)) {
		p.both(fmt.Sprintf("%s %s off %d n %d", what, o.name, off, n), func(i int) (string, error) { return fn(o.f[i]) })
	}
	switch rapid.IntRange(0, 9).Draw(p.t, "op") {
	case 0, 1:
		call("write", func(f File) (string, error) { k, err := f.WriteAt(data, off); return fmt.Sprint(k), err })
	case 2:
		cut := n / 3
		call("writev", func(f File) (string, error) {
			k, err := f.WritevAt([][]byte{data[:cut], nil, data[cut:]}, off)
			return fmt.Sprint(k), err
		})
	case 3, 4:
		call("read", func(f File) (string, error) {
			b := make([]byte, n)
			k, err := f.ReadAt(b, off)
			return fmt.Sprintf("%d %x", k, b[:k]), err
		})
	case 5:
		call("truncate", func(f File) (string, error) { return "", f.Truncate(off) })
	case 6:
		call("allocate", func(f File) (string, error) { return "", f.Allocate(off) })
	case 7:
		call("size", func(f File) (string, error) { k, err := f.Size(); return fmt.Sprint(k), err })
	case 8:
		call("datasync", func(f File) (string, error) { return "", f.Datasync() })
	case 9:
		call("close", func(f File) (string, error) { return "", f.Close() })
		if rapid.Bool().Draw(p.t, "forget") {
			p.files = append(p.files[:k], p.files[k+1:]...)
		}
	}
}

// mapping maps, or compares what a mapping shows within the file's length.
func (p *pair) mapping() {
	if len(p.files) == 0 {
		return
	}
	o := rapid.SampledFrom(p.files).Draw(p.t, "file")
	if o.mapped[0] == nil {
		size := rapid.SampledFrom([]int64{0, 5000, 100_000}).Draw(p.t, "size")
		p.both("map "+o.name, func(i int) (string, error) {
			m, err := o.f[i].Map(size)
			o.mapped[i] = m
			return "", err
		})
		return
	}
	p.both("mapped "+o.name, func(i int) (string, error) {
		size, err := o.f[i].Size()
		b := o.mapped[i].Bytes()
		return fmt.Sprintf("%x", b[:min(size, int64(len(b)))]), err
	})
	if rapid.Bool().Draw(p.t, "unmap") {
		p.both("unmap "+o.name, func(i int) (string, error) { return "", o.mapped[i].Unmap() })
		o.mapped = [2]*Mapping{}
	}
}

// everything compares whole trees.
func (p *pair) everything() {
	p.both("tree", func(i int) (string, error) {
		var b bytes.Buffer
		err := dump(&b, p.fs[i], p.root[i], "")
		return b.String(), err
	})
}

func dump(b *bytes.Buffer, fsys FS, root, name string) error {
	full := path.Join(root, name)
	st, err := fsys.Stat(full)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s %v\n", name, st)
	if !st.IsDir {
		data, err := ReadFile(fsys, full)
		fmt.Fprintf(b, "%x\n", data)
		return err
	}
	names, err := fsys.ReadDir(full)
	for _, n := range names {
		err = errors.Join(err, dump(b, fsys, root, path.Join(name, n)))
	}
	return err
}

// Mem answers as the machine's file system does, errors included.
func TestMemIsLikeTheMachine(t *testing.T) {
	base, k := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		k++
		p := &pair{t: t, fs: [2]FS{OS(), NewMem()}, root: [2]string{fmt.Sprintf("%s/%d", base, k), "/r"}}
		p.both("root", func(i int) (string, error) { return "", p.fs[i].MkdirAll(p.root[i], 0o755) })
		defer func() {
			for _, o := range p.files {
				for i := range 2 {
					if o.mapped[i] != nil {
						_ = o.mapped[i].Unmap()
					}
					_ = o.f[i].Close()
				}
			}
			_ = os.RemoveAll(p.root[0])
		}()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1, 2:
				p.names()
			case 3, 4:
				p.open()
			case 5, 6, 7, 8:
				p.content()
			case 9:
				p.mapping()
			}
		}
		p.everything()
	})
}
