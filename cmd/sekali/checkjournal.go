package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	iofs "io/fs"
	"path"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/batch"
	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/internal/vfs"
)

// fact is what one record of a journal says: where it lies, and a sum of what it means.
type fact struct {
	offset  int64
	sum     uint64
	written int64 // ms; 0: not told
}

// ledger is what the records of one transactional id say.
type ledger struct {
	last     coord.Logged
	prepared decided // the last one; id "": none was read
}

// journalCheck follows the records of a partition of an internal topic as its coordinator would, and holds its snapshot
// file against them (I14). Owner: its partCheck.
type journalCheck struct {
	p      *partCheck
	prefix string
	live   map[string]fact           // by key
	staged map[int64]map[string]fact // by producer, of open transactions

	ids       map[string]*ledger // __transaction_state
	decisions recent[decided]
	skipped   int // records of a kind that is not known

	file  string // the snapshot; "": none that can be used
	asOf  int64
	snap  map[string]fact
	met   map[string]bool // keys of the snapshot whose record was read
	stale bool            // a difference was told: one is enough
}

// openJournal begins with a partition of an internal topic.
func (p *partCheck) openJournal() error {
	prefix, ok := internal(p.out.Topic)
	if !ok {
		return nil
	}
	p.journal = &journalCheck{p: p, prefix: prefix, live: map[string]fact{}, staged: map[int64]map[string]fact{},
		ids: map[string]*ledger{}, met: map[string]bool{}}
	p.journal.decisions.most = p.txns.markers.most
	return p.journal.snapshot()
}

// snapshot reads the snapshot file of the partition.
func (j *journalCheck) snapshot() error {
	p, n := j.p, int(j.p.out.Partition)
	name := path.Join(p.k.dir, j.prefix+strconv.Itoa(n))
	file, err := vfs.ReadFile(p.k.fs, name)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	asOf, facts, err := j.snapped(n, file)
	if err != nil {
		j.file = name
		j.tell(0, -1, err.Error())
		j.file = ""
		return nil
	}
	j.file, j.asOf, j.snap = name, asOf, facts
	return nil
}

// snapped are the facts of a snapshot file.
func (j *journalCheck) snapped(n int, file []byte) (asOf int64, facts map[string]fact, err error) {
	asOf, body, err := engine.DecodeSnapshot(j.prefix, n, file)
	if err != nil {
		return 0, nil, err
	}
	facts = map[string]fact{}
	add := func(offset int64, key, value []byte) error {
		sum, written, err := j.sum(key, value)
		facts[string(key)] = fact{offset, sum, written}
		return err
	}
	if j.prefix == engine.TxnSnapshotPrefix {
		all, derr := coord.DecodeSnapshot(body, n, asOf)
		for i := range all {
			err = errors.Join(err, add(all[i].Offset, all[i].Record.Key, all[i].Record.Value))
		}
		return asOf, facts, errors.Join(derr, err)
	}
	all, err := group.DecodeSnapshot(body, int32(n), asOf)
	for i := range all {
		err = errors.Join(err, add(all[i].Offset, all[i].Record.Key, all[i].Record.Value))
	}
	return asOf, facts, err
}

// tell is a difference of the snapshot.
func (j *journalCheck) tell(pos, offset int64, what string) {
	if j.stale {
		return
	}
	j.stale = true
	j.p.finds.add(finding{levelDamage, j.file, pos, offset, "I14", what,
		"remove it: the next start reads the whole of " + j.p.out.name()})
}

var sumSeed = maphash.MakeSeed()

// sum stands for what a record means, without what changes when it is written again: how much time is left, and since
// when, which is written in ms and only grows; 0 for records of groups.
func (j *journalCheck) sum(key, value []byte) (sum uint64, written int64, err error) {
	if j.prefix == engine.TxnSnapshotPrefix {
		l, err := coord.DecodeRecord(coord.Record{Key: key, Value: value})
		return sumOf(&l), l.UpdatedMs, err
	}
	l, err := group.DecodeRecord(group.Record{Key: key, Value: value})
	if v, ok := l.Value.(*kmsg.OffsetCommitValue); ok {
		says := fmt.Sprint(v.Offset, v.LeaderEpoch, v.CommitTimestamp, v.ExpireTimestamp, v.Metadata)
		return maphash.String(sumSeed, says), 0, err
	}
	return maphash.Bytes(sumSeed, value), 0, err
}

func sumOf(l *coord.Logged) uint64 {
	names := make([]string, 0, len(l.TPs))
	for _, tp := range l.TPs {
		names = append(names, tp.Topic+"-"+strconv.Itoa(int(tp.Partition)))
	}
	return maphash.String(sumSeed, fmt.Sprint(l.PID, l.Epoch, l.State, l.TimeoutMs, l.StartedMs, names))
}

// batch takes the records of one batch that lies at pos.
func (j *journalCheck) batch(pos int64, v batch.View) {
	pid, _ := v.Producer()
	if !v.Attrs().Transactional() {
		pid = -1
	}
	_ = v.Records(func(r batch.Record) error { // whether they can be walked was checked
		if offset := v.BaseOffset() + int64(r.OffsetDelta); offset >= j.p.start {
			j.record(pos, offset, pid, r.Key, r.Value)
		}
		return nil
	})
}

// record takes one record.
func (j *journalCheck) record(pos, offset, pid int64, key, value []byte) {
	var err error
	if j.prefix == engine.TxnSnapshotPrefix {
		err = j.transaction(pos, offset, key, value)
	} else {
		err = j.group(pos, offset, key, value)
	}
	if errors.Is(err, coord.ErrKey) {
		j.skipped++
		return
	}
	if err != nil {
		j.p.segDamage(pos, offset, ruleFormat, err.Error(), "the coordinator cannot load this partition and refuses what "+
			"belongs to it; put the file back from a copy")
		return
	}
	sum, written, _ := j.sum(key, value)
	f := fact{offset, sum, written}
	if s, ok := j.snap[string(key)]; ok {
		j.compare(string(key), s, f, pid, value == nil)
	}
	if pid >= 0 {
		keys := j.staged[pid]
		if keys == nil {
			keys = map[string]fact{}
			j.staged[pid] = keys
		}
		keys[string(key)] = f
		return
	}
	if value == nil {
		delete(j.live, string(key))
		for _, keys := range j.staged {
			delete(keys, string(key))
		}
		return
	}
	j.live[string(key)] = f
}

// compare holds a record against what the snapshot has for its key.
func (j *journalCheck) compare(key string, s, f fact, pid int64, gone bool) {
	switch {
	case s.offset == f.offset:
		j.met[key] = true
		if gone || s.sum != f.sum || s.written < f.written {
			j.tell(0, f.offset, fmt.Sprintf("it has another record for offset %d than %s", f.offset, j.p.out.name()))
		}
	case pid < 0 && s.offset < f.offset && f.offset < j.asOf:
		j.tell(0, f.offset, fmt.Sprintf("as of offset %d it has the record of offset %d, but one of the same key follows at "+
			"offset %d", j.asOf, s.offset, f.offset))
	}
}

// marker ends the transaction of a producer.
func (j *journalCheck) marker(pid int64, commit bool) {
	for key, f := range j.staged[pid] {
		if old, ok := j.live[key]; commit && (!ok || old.offset < f.offset) {
			j.live[key] = f
		}
	}
	delete(j.staged, pid)
}

// transaction checks a record of __transaction_state.
func (j *journalCheck) transaction(pos, offset int64, key, value []byte) error {
	l, err := coord.DecodeRecord(coord.Record{Key: key, Value: value})
	if err != nil {
		return err
	}
	p := j.p
	j.placed(pos, offset, l.TxnID, coord.Partition)
	if l.Deleted {
		delete(j.ids, l.TxnID)
		return nil
	}
	led := j.ids[l.TxnID]
	if led == nil {
		led = &ledger{}
		j.ids[l.TxnID] = led
	} else if !coord.Legal(led.last.State, l.State) {
		p.segDamage(pos, offset, "I10", fmt.Sprintf("transactional id %s, after %s", l, led.last.State), "its transaction "+
			"skips the decision, or has two outcomes; please report it")
	}
	switch l.State {
	case coord.PrepareCommit, coord.PrepareAbort:
		led.prepared = decided{id: l.TxnID, pid: l.PID, epoch: l.Epoch, commit: l.State == coord.PrepareCommit,
			alone: l.ClientTV == 2, tps: l.TPs, file: path.Join(p.dir, p.holding(offset)), offset: offset}
		if led.last.State != l.State {
			j.decisions.add(led.prepared)
		}
	case coord.CompleteCommit, coord.CompleteAbort:
		led.prepared.done = led.prepared.id != ""
	default:
		led.prepared = decided{}
	}
	led.last = l
	return nil
}

// group checks a record of __consumer_offsets.
func (j *journalCheck) group(pos, offset int64, key, value []byte) error {
	l, err := group.DecodeRecord(group.Record{Key: key, Value: value})
	if err == nil && l.Interpreted() {
		j.placed(pos, offset, l.Group, group.Partition)
	}
	return err
}

// placed: a record lies in the partition that its id belongs to, where it is known how many there are.
func (j *journalCheck) placed(pos, offset int64, id string, of func(id string, partitions int32) int32) {
	p := j.p
	if p.peers <= 0 {
		return
	}
	if want := of(id, p.peers); want != p.out.Partition {
		p.segDamage(pos, offset, ruleFormat, fmt.Sprintf("the record is of %q, which belongs to partition %d", clip(id),
			want), "nobody finds it here; put the file back from a copy")
	}
}

// end holds the snapshot against the whole journal, which ends at an offset.
func (j *journalCheck) end(end int64) {
	p := j.p
	if j.skipped > 0 {
		p.note(p.lastName(), ruleFormat, fmt.Sprintf("%d records of a kind that is not known, left alone", j.skipped), "")
	}
	if j.file == "" || p.unsure() {
		return
	}
	switch {
	case j.asOf < p.start:
		p.finds.add(finding{levelNote, j.file, -1, j.asOf, "I14", fmt.Sprintf("it is as of offset %d, below the log start "+
			"%d: not used", j.asOf, p.start), ""})
		return
	case j.asOf > end:
		level := levelDamage
		if !p.k.clean && p.k.written() {
			level = levelNote
		}
		p.finds.add(finding{level, j.file, 0, j.asOf, "I14", fmt.Sprintf("it is as of offset %d, above the end of the log %d",
			j.asOf, end), "the next start removes it"})
		return
	}
	for key, f := range j.live {
		if s, ok := j.snap[key]; f.offset < j.asOf && (!ok || s.offset != f.offset) {
			j.tell(0, f.offset, fmt.Sprintf("as of offset %d it does not have the record of offset %d", j.asOf, f.offset))
		}
	}
	for key, s := range j.snap {
		if s.offset >= p.start && !j.met[key] {
			j.tell(0, s.offset, fmt.Sprintf("it has a record of offset %d that is not in %s", s.offset, p.out.name()))
		}
	}
}
