package vfs

// faultyFile is an open file of an Injector.
type faultyFile struct {
	in   *Injector
	f    File
	name string
}

// syncFailer is a File that can lose what a flush was to make durable.
type syncFailer interface{ failSync(err error) }

func (f *faultyFile) failSync(err error) {
	if s, ok := f.f.(syncFailer); ok {
		s.failSync(err)
	}
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if x := f.in.at("readat", f.name); x.err != nil {
		if x.short == 0 {
			return 0, x.err
		}
		n, err := f.f.ReadAt(p[:min(x.short, len(p))], off)
		if err == nil {
			err = x.err
		}
		return n, err
	}
	return f.f.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if x := f.in.at("writeat", f.name); x.err != nil {
		return f.partly(x, [][]byte{p}, off)
	}
	return f.f.WriteAt(p, off)
}

func (f *faultyFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if x := f.in.at("writevat", f.name); x.err != nil {
		return f.partly(x, bufs, off)
	}
	return f.f.WritevAt(bufs, off)
}

// partly lets the beginning of a write through.
func (f *faultyFile) partly(x fault, bufs [][]byte, off int64) (n int, err error) {
	for _, b := range bufs {
		b = b[:min(len(b), x.short-n)]
		if len(b) == 0 {
			continue
		}
		k, err := f.f.WriteAt(b, off+int64(n))
		if n += k; err != nil {
			return n, err
		}
	}
	return n, x.err
}

func (f *faultyFile) Size() (int64, error) {
	if x := f.in.at("size", f.name); x.err != nil {
		return 0, x.err
	}
	return f.f.Size()
}

func (f *faultyFile) Truncate(size int64) error {
	if x := f.in.at("truncate", f.name); x.err != nil {
		return x.err
	}
	return f.f.Truncate(size)
}

func (f *faultyFile) Allocate(size int64) error {
	if x := f.in.at("allocate", f.name); x.err != nil {
		return x.err
	}
	return f.f.Allocate(size)
}

func (f *faultyFile) StartWriteback(off, n int64) error {
	if x := f.in.at("startwriteback", f.name); x.err != nil {
		return x.err
	}
	return f.f.StartWriteback(off, n)
}

func (f *faultyFile) Datasync() error {
	if x := f.in.at("datasync", f.name); x.err != nil {
		f.failSync(x.err)
		return x.err
	}
	return f.f.Datasync()
}

func (f *faultyFile) Uncache(off, n int64) error {
	if x := f.in.at("uncache", f.name); x.err != nil {
		return x.err
	}
	return f.f.Uncache(off, n)
}

func (f *faultyFile) Map(size int64) (*Mapping, error) {
	if x := f.in.at("map", f.name); x.err != nil {
		return nil, x.err
	}
	return f.f.Map(size)
}

// Close fails with an injected error only after it has closed, as close(2) does.
func (f *faultyFile) Close() error {
	x := f.in.at("close", f.name)
	if err := f.f.Close(); err != nil {
		return err
	}
	return x.err
}
