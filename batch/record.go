package batch

// Header is one header of a record. A nil value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one decoded record. A nil key or value is null, which is not the same as an empty one. Where Records or
// Rewrite give it out, its slices are valid until the callback returns: they lie in the batch or in pooled memory.
type Record struct {
	Attrs       int8
	OffsetDelta int32 // offset less the batch's base offset
	TimeDelta   int64 // milliseconds to the batch's BaseTime; View.Time gives the time
	Key, Value  []byte
	Headers     []Header // reused between calls
}

// fields says where the parts of one encoded record lie in its body, the bytes behind the length.
type fields struct {
	time           int64
	offset         int32
	rest           int     // position behind the time delta
	part           [2]span // key and value
	headers, hdrAt int
}

// span is a position and a length; a negative length is a null.
type span struct{ at, n int }

// split finds the fields of the body p. It returns false unless p is exactly one well-formed record; no count or length
// is believed before it has been held against the bytes there are. The numbers of one byte, which most are, are read
// here: the readers of numbers are too large for the compiler to put in their place.
func split(p []byte, f *fields) bool {
	if len(p) < bodyMin {
		return false
	}
	i := 2
	if c := p[1]; c < 0x80 { // behind the attributes
		f.time = int64(c>>1) ^ -int64(c&1)
	} else if f.time, i = vlongSlow(p, 1); i < 0 {
		return false
	}
	f.rest = i
	if i < len(p) && p[i] < 0x80 {
		f.offset = int32(p[i]>>1) ^ -int32(p[i]&1)
		i++
	} else if f.offset, i = vintSlow(p, i); i < 0 {
		return false
	}
	var n int32
	for k := range 2 { // key and value
		if i < len(p) && p[i] < 0x80 {
			n = int32(p[i]>>1) ^ -int32(p[i]&1)
			i++
		} else if n, i = vintSlow(p, i); i < 0 {
			return false
		}
		f.part[k] = span{i, int(n)}
		if n > 0 {
			if int(n) > len(p)-i {
				return false
			}
			i += int(n)
		}
	}
	if i == len(p)-1 && p[i] == 0 { // no headers
		f.headers, f.hdrAt = 0, i+1
		return true
	}
	n, i = vint(p, i)
	if i < 0 || n < 0 || int(n) > len(p)-i {
		return false
	}
	f.headers, f.hdrAt = int(n), i
	for ; n > 0 && i >= 0; n-- {
		_, _, _, i = splitHeader(p, i)
	}
	return i == len(p)
}

// splitHeader finds the key and value of the header at i and the end of it, -1 if there is none. vn < 0 is a null.
func splitHeader(p []byte, i int) (key []byte, val, vn, end int) {
	n, i := vint(p, i)
	if i < 0 || n < 0 || int(n) > len(p)-i {
		return nil, 0, 0, -1
	}
	key = p[i : i+int(n)]
	m, i := vint(p, i+int(n))
	if i < 0 || int(m) > len(p)-i {
		return nil, 0, 0, -1
	}
	return key, i, int(m), i + max(int(m), 0)
}

// cut returns the part of p: nil for a null, never nil for an empty one.
func (s span) cut(p []byte) []byte {
	if s.n < 0 {
		return nil
	}
	return p[s.at : s.at+s.n : s.at+s.n]
}

// fill makes the record that split found in p.
func (r *Record) fill(p []byte, f *fields) {
	r.Attrs, r.OffsetDelta, r.TimeDelta = int8(p[0]), f.offset, f.time
	r.Key, r.Value = f.part[0].cut(p), f.part[1].cut(p)
	r.Headers = r.Headers[:0]
	i := f.hdrAt
	for range f.headers {
		key, val, vn, end := splitHeader(p, i)
		r.Headers = append(r.Headers, Header{string(key), span{val, vn}.cut(p)})
		i = end
	}
}

// append encodes the record with its length in front.
func (r *Record) append(dst []byte) []byte {
	dst = appendVarint(dst, int64(r.bodyLen()))
	dst = append(dst, byte(r.Attrs))
	dst = appendVarint(dst, r.TimeDelta)
	dst = appendVarint(dst, int64(r.OffsetDelta))
	dst = appendPart(dst, r.Key)
	dst = appendPart(dst, r.Value)
	dst = appendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = appendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendPart(dst, h.Value)
	}
	return dst
}

func (r *Record) bodyLen() int {
	n := 1 + varintLen(r.TimeDelta) + varintLen(int64(r.OffsetDelta)) + partLen(r.Key) + partLen(r.Value)
	n += varintLen(int64(len(r.Headers)))
	for _, h := range r.Headers {
		n += varintLen(int64(len(h.Key))) + len(h.Key) + partLen(h.Value)
	}
	return n
}

func appendPart(dst, p []byte) []byte {
	if p == nil {
		return append(dst, 1) // -1
	}
	dst = appendVarint(dst, int64(len(p)))
	return append(dst, p...)
}

func partLen(p []byte) int {
	if p == nil {
		return 1
	}
	return varintLen(int64(len(p))) + len(p)
}

// Records calls fn with every record of the batch in order, decompressing as needed, and returns the first error: fn's
// own, or that of a batch Validate would refuse for its records. The checksum is not looked at. At most 1 GiB is
// decompressed. Calls may overlap and nest.
func (v View) Records(fn func(Record) error) error {
	var r Record
	return v.each(func(_, p []byte, f *fields) error {
		r.fill(p, f)
		return fn(r)
	})
}

// each walks the records: raw with its length in front, its body, and the fields of the body.
func (v View) each(fn func(raw, body []byte, f *fields) error) error {
	p, s, err := v.plain()
	if err != nil {
		return err
	}
	if s != nil {
		defer s.close()
	}
	var f fields
	at := 0
	for i := range max(v.Count(), 0) {
		n, j := vint(p, at)
		if j < 0 && at == len(p) {
			return &RecordError{i, codeInvalid, textMissing}
		}
		if j < 0 || n < 0 || int(n) > len(p)-j || !split(p[j:j+int(n)], &f) {
			return &RecordError{i, codeInvalid, textStructure}
		}
		end := j + int(n)
		if err := fn(p[at:end], p[j:end], &f); err != nil {
			return err
		}
		at = end
	}
	if at != len(p) {
		return ErrTrailing
	}
	return nil
}

// plain returns the decompressed records section. It is valid until s is closed, where there is an s. A share of the
// memory for large batches has been given back: callbacks may want one.
func (v View) plain() (p []byte, s *stream, err error) {
	codec := v.Attrs().Codec()
	if codec == None || len(v) == HeaderLen && v.Count() == 0 {
		return v[HeaderLen:], nil, nil
	}
	if codec > Zstd {
		return nil, nil, ErrCodec
	}
	s = open(codec, v[HeaderLen:], recordsMax)
	p, eof, err := s.first()
	if err == nil && !eof {
		p, err = s.rest(append(make([]byte, 0, 4*len(p)), p...))
	}
	if err != nil || !eof {
		s.close()
		return p, nil, err
	}
	s.done()
	return p, s, nil
}

// rest appends to p what is still to come.
func (s *stream) rest(p []byte) ([]byte, error) {
	for {
		if len(p) == cap(p) {
			p = append(make([]byte, 0, 2*cap(p)), p...)
		}
		n, eof, err := s.fill(p[len(p):cap(p)])
		p = p[:len(p)+n]
		if eof || err != nil {
			return p, err
		}
	}
}
