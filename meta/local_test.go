package meta_test

import (
	"fmt"
	"io"
	"testing"

	"go.uber.org/goleak"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/meta/metatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// places remembers where a store of the harness lives.
type place struct {
	fs     vfs.FS
	dir    string
	closer io.Closer
}

func harness(newFS func(t *testing.T) (vfs.FS, string)) metatest.Harness {
	places := map[meta.MetadataStore]place{}
	open := func(t *testing.T, p place) meta.MetadataStore {
		s, c, err := meta.Open(p.dir, p.fs, clock.Real())
		if err != nil {
			t.Fatal(err)
		}
		p.closer = c
		places[s] = p
		return s
	}
	closeStore := func(t *testing.T, s meta.MetadataStore) {
		if err := places[s].closer.Close(); err != nil {
			t.Error(err)
		}
	}
	return metatest.Harness{
		Open: func(t *testing.T) meta.MetadataStore {
			fs, dir := newFS(t)
			return open(t, place{fs: fs, dir: dir})
		},
		Close: closeStore,
		Reopen: func(t *testing.T, s meta.MetadataStore) meta.MetadataStore {
			closeStore(t, s)
			return open(t, places[s])
		},
		Forget: func(t *testing.T, s meta.MetadataStore) {
			value := make([]byte, meta.ValueBytesMax)
			for i := range 40 {
				value[0] = byte(i)
				if _, err := s.Txn(t.Context(), nil, []meta.Op{{Key: "filler", Value: value}}); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func TestConformanceMem(t *testing.T) {
	metatest.Run(t, harness(func(t *testing.T) (vfs.FS, string) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/d", 0o755); err != nil {
			t.Fatal(err)
		}
		return fs, "/d"
	}))
}

func TestConformanceDisk(t *testing.T) {
	n := 0
	metatest.Run(t, harness(func(t *testing.T) (vfs.FS, string) {
		n++
		dir := fmt.Sprintf("%s/%d", t.TempDir(), n)
		if err := vfs.OS().MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return vfs.OS(), dir
	}))
}
