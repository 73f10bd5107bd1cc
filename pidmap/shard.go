package pidmap

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// shard is a part of the index: open addressing with linear probing, at most three quarters full. A slot is 8 bits of
// hash above 24 bits of entry number + 1; 0 is empty. The position comes from the lowest bits of the hash, the 8 bits
// from 24..31, the directory from the highest.
type shard struct {
	slots []uint32
	n     uint32
	depth uint8 // leading bits of the hash that all its entries share
}

const numberMask = 1<<24 - 1

// secret keys the hash. Producer ids come from the wire, and without it one client could pile up collisions under the
// lock of a partition.
var secret = func() (s [16]byte) {
	_, _ = rand.Read(s[:]) // never fails: the runtime ends the process instead
	return s
}()

func hash(pid int64) uint64 {
	var b [24]byte
	copy(b[:8], secret[:8])
	binary.LittleEndian.PutUint64(b[8:], uint64(pid))
	copy(b[16:], secret[8:])
	return xxhash.Sum64(b[:])
}

// lookup returns the number and entry of a PID, nil if there is none.
func (m *Map) lookup(pid int64, h uint64) (uint32, *entry) {
	if len(m.dir) == 0 {
		return 0, nil
	}
	s := m.dir[h>>m.shift]
	mask := uint32(len(s.slots) - 1)
	tag := uint32(h) &^ numberMask
	for i := uint32(h) & mask; ; i = (i + 1) & mask {
		v := s.slots[i]
		if v == 0 {
			return 0, nil
		}
		if v&^numberMask == tag {
			no := v&numberMask - 1
			if e := m.at(no); e.pid == pid {
				return no, e
			}
		}
	}
}

// link enters the number of a PID that is not in the index.
func (m *Map) link(h uint64, no uint32) {
	if len(m.dir) == 0 {
		m.dir, m.shift = []*shard{{slots: make([]uint32, shardMin)}}, 64
	}
	for {
		s := m.dir[h>>m.shift]
		if int(s.n+1)*4 <= len(s.slots)*3 {
			s.put(h, uint32(h)&^numberMask|(no+1))
			s.n++
			return
		}
		if len(s.slots) < shardMax || s.depth >= dirDepthMax {
			m.grow(s)
		} else {
			m.split(s, h)
		}
	}
}

// put writes a slot value at the first empty place from its home on; there is one.
func (s *shard) put(h uint64, v uint32) {
	mask := uint32(len(s.slots) - 1)
	i := uint32(h) & mask
	for s.slots[i] != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = v
}

// home is the hash of the entry a slot names.
func (m *Map) home(v uint32) uint64 { return hash(m.at(v&numberMask - 1).pid) }

// grow doubles the slots of a shard.
func (m *Map) grow(s *shard) {
	old := s.slots
	s.slots = make([]uint32, 2*len(old))
	for _, v := range old {
		if v != 0 {
			s.put(m.home(v), v)
		}
	}
}

// split moves the entries of a full shard whose next bit of hash is set into a new shard, doubling the directory if
// the shard fills an entry of it alone. h is the hash of any PID that leads to s.
func (m *Map) split(s *shard, h uint64) {
	if s.depth == uint8(64-m.shift) {
		wide := make([]*shard, 2*len(m.dir))
		for i, d := range m.dir {
			wide[2*i], wide[2*i+1] = d, d
		}
		m.dir = wide
		m.shift--
	}
	s.depth++
	t := m.newShard(s.depth)

	// The directory names s in one run of 2^(its depth - s.depth) * 2 places; the upper half of them becomes t's.
	half := 1 << (uint8(64-m.shift) - s.depth)
	from := int(h>>m.shift) &^ (2*half - 1)
	for i := from + half; i < from+2*half; i++ {
		m.dir[i] = t
	}

	var moving [shardMax]uint32
	n := copy(moving[:], s.slots)
	clear(s.slots)
	s.n = 0
	for _, v := range moving[:n] {
		if v == 0 {
			continue
		}
		h := m.home(v)
		to := m.dir[h>>m.shift]
		to.put(h, v)
		to.n++
	}
}

// newShard carves a shard of full size from slabs that grow with the index.
func (m *Map) newShard(depth uint8) *shard {
	if len(m.shards) == 0 {
		n := max(1, min(slabShards, len(m.dir)/16))
		m.shards = make([]shard, n)
		m.slots = make([]uint32, n*shardMax)
	}
	s := &m.shards[0]
	s.slots, s.depth = m.slots[:shardMax:shardMax], depth
	m.shards, m.slots = m.shards[1:], m.slots[shardMax:]
	return s
}

// unlink removes a number from the index, closing the gap it leaves so that no marks of removed slots pile up.
func (m *Map) unlink(h uint64, no uint32) {
	s := m.dir[h>>m.shift]
	mask := uint32(len(s.slots) - 1)
	gap := uint32(h) & mask
	for s.slots[gap]&numberMask != no+1 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; s.slots[i] != 0; i = (i + 1) & mask {
		v := s.slots[i]
		if probe := uint32(m.home(v)) & mask; (i-probe)&mask >= (i-gap)&mask {
			s.slots[gap] = v
			gap = i
		}
	}
	s.slots[gap] = 0
	s.n--
}
