package batch

import "math"

// walker goes over the records of one batch. The bytes lie in buf from pos on; where the batch is compressed and larger
// than the window, more of them replace what was read.
type walker struct {
	buf  []byte
	pos  int
	src  *stream // nil: buf is all there is
	last bool    // nothing comes behind buf

	err error // of src

	// What a record is held against, and what was found.
	limits   Limits
	baseTime int64
	next     int64 // lowest offset delta that may come
	top      int64 // highest
	exact    bool  // it must be next
	picky    bool  // every record needs check
	calm     int64 // lowest time that does not need it
	found    Checked
	noKey    int32 // first record without a key where one is needed, else -1
}

// walk checks every record (spec/batch.md 8).
func (v View) walk(l *Limits) (Checked, error) {
	codec := v.Attrs().Codec()
	switch {
	case codec == None || v.Count() == 0 && len(v) == HeaderLen:
		return v.walkFrom(nil, l)
	case codec > Zstd:
		return Checked{}, ErrCodec
	}
	limit := l.DecodedMax
	if limit <= 0 {
		limit = DecodedMax
	}
	s := open(codec, v[HeaderLen:], limit)
	defer s.close()
	return v.walkFrom(s, l)
}

// walkFrom walks what s decompresses, or, where s is nil, the records as they lie in the batch.
func (v View) walkFrom(s *stream, l *Limits) (Checked, error) {
	w := walker{
		buf: v[HeaderLen:], src: s, last: true,
		limits: *l, baseTime: v.BaseTime(), top: int64(v.LastOffsetDelta()), exact: !l.Stored,
		picky: l.Stored || l.RequireKey, calm: math.MinInt64,
		found: Checked{-1, 0}, noKey: -1,
	}
	if l.timed {
		w.calm = l.timeMin
		w.picky = w.picky || l.timeMax < w.found.MaxTime
	}
	if s != nil {
		var err error
		if w.buf, w.last, err = s.first(); err != nil {
			return Checked{}, err
		}
	}
	if err := w.run(v.Count()); err != nil {
		return Checked{}, err
	}
	if w.noKey >= 0 {
		return Checked{}, &RecordError{w.noKey, codeInvalid, textKey}
	}
	if v.Attrs().AppendTime() {
		w.found = Checked{v.MaxTime(), v.LastOffsetDelta()}
	}
	return w.found, nil
}

func (w *walker) run(count int32) error {
	var f fields
	buf, pos := w.buf, w.pos // the loop's own: they are read for every byte of a record
	for i := range count {
		var n int32
		at := pos + 1
		if pos < len(buf) && buf[pos] < 0x80 {
			n = int32(buf[pos]>>1) ^ -int32(buf[pos]&1)
		} else {
			n, at = vintSlow(buf, pos)
		}
		if at < 0 || n < 0 || int(n) > len(buf)-at {
			w.pos = pos
			var err error
			if n, at, err = w.more(i); err != nil {
				return err
			}
			buf = w.buf
			if int(n) > len(buf)-at { // larger than the window
				w.pos = at
				if err := w.big(int(n), i); err != nil {
					return err
				}
				buf, pos = w.buf, w.pos
				continue
			}
		}
		pos = at + int(n)
		if !split(buf[at:pos], &f) {
			return &RecordError{i, codeInvalid, textStructure}
		}
		// A record in its place that is no later than those before it needs no further look.
		if t := w.baseTime + f.time; f.offset != i || t > w.found.MaxTime || t < w.calm || w.picky {
			if err := w.check(i, f.offset, f.time, f.part[0].n); err != nil {
				return err
			}
		}
	}
	w.pos = pos
	if w.pos == len(w.buf) && !w.refill() {
		return w.err
	}
	if w.pos != len(w.buf) {
		return ErrTrailing
	}
	return nil
}

// check holds a well-formed record against the rules.
func (w *walker) check(i, offset int32, delta int64, keyLen int) error {
	if w.exact && offset != i {
		return &RecordError{i, codeInvalid, textOffset}
	}
	if o := int64(offset); o < w.next || o > w.top {
		return &RecordError{i, codeInvalid, textHole}
	}
	w.next = int64(offset) + 1
	t := w.baseTime + delta
	if t > w.found.MaxTime {
		w.found = Checked{t, offset}
	}
	if l := &w.limits; l.timed && t != -1 && (t < l.timeMin || t > l.timeMax) {
		return &RecordError{i, codeTimestamp, textTime}
	}
	if keyLen < 0 && w.limits.RequireKey && w.noKey < 0 {
		w.noKey = i
	}
	return nil
}

// more brings in bytes until record i lies in the window or the window is full, and reads its length.
func (w *walker) more(i int32) (n int32, at int, err error) {
	if !w.refill() {
		return 0, 0, w.err
	}
	n, at = vint(w.buf, w.pos)
	switch {
	case at < 0 && w.pos == len(w.buf):
		return 0, 0, &RecordError{i, codeInvalid, textMissing}
	case at < 0, n < 0, w.last && int(n) > len(w.buf)-at:
		return 0, 0, &RecordError{i, codeInvalid, textStructure}
	}
	return n, at, nil
}

// refill moves the unread bytes to the front of the window and fills it, where more can come. After false, err says
// why it failed.
func (w *walker) refill() bool {
	if w.last {
		return true
	}
	win := w.src.win
	k := copy(win, w.buf[w.pos:])
	n, eof, err := w.src.fill(win[k:])
	w.buf, w.pos, w.last, w.err = win[:k+n], 0, eof, err
	return err == nil
}

// big checks a record of n bytes that is larger than the window, at pos, without ever holding all of it.
func (w *walker) big(n int, i int32) error {
	b := bigRecord{w: w, left: n}
	b.skip(1) // attributes
	delta := b.vlong()
	offset := b.vint()
	keyLen := b.part(true)
	b.part(true)
	headers := b.vint()
	if headers < 0 || int(headers) > b.left {
		b.fail()
	}
	for ; headers > 0 && !b.bad; headers-- {
		b.part(false)
		b.part(true)
	}
	if w.err != nil {
		return w.err
	}
	if b.bad || b.left != 0 {
		return &RecordError{i, codeInvalid, textStructure}
	}
	return w.check(i, offset, delta, keyLen)
}

// bigRecord reads the fields of one record across windows. After a failure it reads nothing more.
type bigRecord struct {
	w    *walker
	left int // bytes of the record still to read
	bad  bool
}

func (b *bigRecord) fail() { b.bad = true }

// need makes at least n bytes of the window readable, or all there are.
func (b *bigRecord) need(n int) {
	if w := b.w; !b.bad && len(w.buf)-w.pos < n && !w.refill() {
		b.fail()
	}
}

// took counts a number that ended at the position at.
func (b *bigRecord) took(at int) bool {
	if n := at - b.w.pos; at < 0 || n > b.left {
		b.fail()
	} else {
		b.w.pos, b.left = at, b.left-n
	}
	return !b.bad
}

func (b *bigRecord) vint() int32 {
	if b.need(10); b.bad {
		return 0
	}
	n, at := vint(b.w.buf, b.w.pos)
	if !b.took(at) {
		return 0
	}
	return n
}

func (b *bigRecord) vlong() int64 {
	if b.need(10); b.bad {
		return 0
	}
	n, at := vlong(b.w.buf, b.w.pos)
	if !b.took(at) {
		return 0
	}
	return n
}

// part reads a length and skips as many bytes.
func (b *bigRecord) part(null bool) int {
	n := int(b.vint())
	if n < 0 && !null {
		b.fail()
	}
	b.skip(max(n, 0))
	return n
}

func (b *bigRecord) skip(n int) {
	if n > b.left {
		b.fail()
	}
	for n > 0 && !b.bad {
		b.need(1)
		k := min(n, len(b.w.buf)-b.w.pos)
		if k == 0 {
			b.fail()
			return
		}
		b.w.pos += k
		b.left -= k
		n -= k
	}
}
