package batch

import "encoding/binary"

// MarkerLen is the size in bytes of a marker batch.
const MarkerLen = 78

const (
	controlAbort  = 0
	controlCommit = 1
	controlKeyLen = 4
	controlMinLen = 6 // of a marker's value; later versions may be longer
)

// Marker ends a producer's transaction on one partition: the control record a coordinator has written there.
type Marker struct {
	PID        int64
	Epoch      int16
	CoordEpoch int32
	Version    int8 // transaction version; 2: the epoch must lie above the stored one. Not part of the batch
	Commit     bool
	Time       int64 // milliseconds
}

// AppendMarker appends the control batch of m to dst, MarkerLen bytes (spec/batch.md 3).
func AppendMarker(dst []byte, base int64, leaderEpoch int32, m Marker) []byte {
	kind := byte(controlAbort)
	if m.Commit {
		kind = controlCommit
	}
	at := len(dst)
	dst = append(dst, make([]byte, HeaderLen)...)
	dst = append(dst,
		32, 0, 0, 0, // length 16, attributes, time delta, offset delta
		2*controlKeyLen, 0, 0, 0, kind,
		2*controlMinLen, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.CoordEpoch))
	dst = append(dst, 0) // no headers
	v := View(dst[at:])
	v.Stamp(base, leaderEpoch)
	v[posMagic] = magic
	binary.BigEndian.PutUint16(v[posAttrs:], uint16(AttrTransactional|AttrControl))
	binary.BigEndian.PutUint64(v[posBaseTime:], uint64(m.Time))
	binary.BigEndian.PutUint64(v[posMaxTime:], uint64(m.Time))
	binary.BigEndian.PutUint64(v[posPID:], uint64(m.PID))
	binary.BigEndian.PutUint16(v[posPEpoch:], uint16(m.Epoch))
	binary.BigEndian.PutUint32(v[posSequence:], 1<<32-1)
	binary.BigEndian.PutUint32(v[posCount:], 1)
	v.seal()
	return dst
}

// ParseMarker reads the marker of a control batch that Validate has found intact. Version is 0. It returns ErrNoMarker
// for a control batch that carries no marker, be it empty after compaction or of another type, which readers skip; and
// an ErrCorrupt for what is no control batch or is malformed. Values longer than known and of later versions are read
// as far as they are known.
func ParseMarker(v View) (Marker, error) {
	a := v.Attrs()
	if !a.Control() || a.Codec() != None {
		return Marker{}, ErrCorrupt
	}
	if v.Count() == 0 {
		return Marker{}, ErrNoMarker
	}
	var f fields
	n, i := vint(v, HeaderLen)
	if i < 0 || n < 0 || int(n) > len(v)-i || !split(v[i:i+int(n)], &f) {
		return Marker{}, ErrCorrupt
	}
	key, value := f.part[0].cut(v[i:]), f.part[1].cut(v[i:])
	if len(key) < controlKeyLen || int16(binary.BigEndian.Uint16(key)) < 0 {
		return Marker{}, ErrCorrupt
	}
	kind := binary.BigEndian.Uint16(key[2:])
	if kind != controlAbort && kind != controlCommit {
		return Marker{}, ErrNoMarker
	}
	if len(value) < controlMinLen || int16(binary.BigEndian.Uint16(value)) < 0 {
		return Marker{}, ErrCorrupt
	}
	m := Marker{
		CoordEpoch: int32(binary.BigEndian.Uint32(value[2:])),
		Commit:     kind == controlCommit,
		Time:       v.BaseTime() + f.time,
	}
	m.PID, m.Epoch = v.Producer()
	return m, nil
}
