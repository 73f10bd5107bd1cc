package main

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"sekali/internal/vfs"
	"sekali/segment"
	"sekali/store"
)

const (
	epochName      = "leader-epoch-checkpoint"
	snapshotSuffix = ".snapshot"
)

// segFile is one segment as the next start will see it.
type segFile struct {
	base   int64
	size   int64  // of the .log
	suffix string // of its files: "", or ".swap" where the next start ends a swap
}

// partCheck is one partition under check. One goroutine owns it. It follows the rules by which plog recovers a log
// (spec/on-disk.md 7), but reads everything, and changes nothing.
type partCheck struct {
	finds findings
	k     *checker
	out   *checkedPartition
	dir   string
	id    store.TopicID
	cfg   store.TopicConfig
	holes bool // compaction, now or before, may have left holes between offsets

	cleaned bool // it has: snapshots and transaction indexes may know of batches that are gone

	segs   []segFile
	snaps  []int64 // offsets of the producer snapshots, ascending
	epochs epochCheck
	prods  producerCheck

	txns    txnFacts
	journal *journalCheck // of an internal topic
	peers   int32         // partitions of the topic; 0: not known

	// What the next start goes by. guarded: below it damage and loss are corruption.
	start, mark, recovery, guarded int64

	at      int   // segment that is read
	next    int64 // offset that must come next; -1: none has been read
	leader  int32 // lowest leader epoch that may follow
	tail    bool  // the rest is cut by the next start
	endless bool  // what cannot be read reaches to the end of the log
	newer   *spot // batch whose leader epoch lies above the metadata's, if it is the last one read
	fix     *repair
}

// spot is a place in the log.
type spot struct {
	seg       int
	pos, base int64
}

func (k *checker) part(tp store.TP, set map[string]string) *partCheck {
	cfg, err := store.ParseTopic(set, k.conf.Store.Topic)
	if err != nil {
		cfg, _ = store.ParseTopic(nil, k.conf.Store.Topic) // the store leaves out what it does not take, too
	}
	at := store.Place{Topic: tp.Topic, Partition: tp.Partition}
	p := &partCheck{
		k: k, dir: path.Join(k.dir, tp.String()), id: tp.ID, cfg: cfg, next: -1, leader: math.MinInt32,
		holes: cfg.Compact || k.cleaned[at] > 0, cleaned: k.cleaned[at] > 0,
		out: &checkedPartition{Topic: tp.Topic, Partition: tp.Partition, Start: -1, End: -1},
	}
	if tp.ID != (store.TopicID{}) {
		p.out.ID = tp.ID.String()
	}
	p.prods = producerCheck{p: p, expireMs: k.conf.Store.ProducerExpire.Milliseconds()}
	return p
}

// damage and note are findings in a file of the partition.
func (p *partCheck) damage(name string, position, offset int64, rule, what, help string) {
	p.finds.add(finding{levelDamage, path.Join(p.dir, name), position, offset, rule, what, help})
}

func (p *partCheck) note(name string, rule, what, help string) {
	p.finds.add(finding{levelNote, path.Join(p.dir, name), -1, -1, rule, what, help})
}

func (p *partCheck) place() store.Place {
	return store.Place{Topic: p.out.Topic, Partition: p.out.Partition}
}

// run checks the partition. An error says that it could not be done.
func (p *partCheck) run() error {
	names, err := p.k.fs.ReadDir(p.dir)
	if errors.Is(err, iofs.ErrNotExist) {
		p.damage("", -1, -1, ruleCatalog, "the partition's directory is missing",
			"put it back from a copy, or start the daemon and delete the topic")
		p.out.Damage, p.out.Findings = p.finds.damage, p.finds.list
		return nil
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return p.list(names) }, p.checkID, p.loadEpochs,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	p.marks()
	p.prods.begin(p.snaps)
	if err := p.openJournal(); err != nil {
		return err
	}
	for p.at = 0; p.at < len(p.segs) && !p.tail; p.at++ {
		if err := p.segment(); err != nil {
			return err
		}
	}
	if err := p.finish(); err != nil {
		return err
	}
	if p.fix != nil {
		p.fix.list = p.epochs.found
		p.out.fix = p.fix
	}
	p.out.Damage, p.out.Notes, p.out.Findings = p.finds.damage, p.finds.notes, p.finds.list
	return nil
}

// checkID holds the topic id that the directory bears against the metadata.
func (p *partCheck) checkID() error {
	name := path.Join(p.dir, store.TopicIDFile)
	b, err := vfs.ReadFile(p.k.fs, name)
	help := ""
	if p.id != (store.TopicID{}) {
		help = fmt.Sprintf("if the files are those of topic %s, it must hold two lines: version: 0 and topic_id: %s",
			p.out.Topic, p.id)
	}
	if errors.Is(err, iofs.ErrNotExist) {
		if p.k.ours {
			p.damage(store.TopicIDFile, -1, -1, ruleCatalog, "there is none", help)
		}
		return nil
	}
	if err != nil {
		return err
	}
	id, err := store.DecodePartitionID(b)
	switch {
	case err != nil:
		p.damage(store.TopicIDFile, 0, -1, ruleFormat, err.Error(), help)
	case p.id != (store.TopicID{}) && id != p.id:
		at := int64(bytes.Index(b, []byte(id.String())))
		p.damage(store.TopicIDFile, at, -1, ruleCatalog, fmt.Sprintf("the files are of topic id %s, the metadata has %s",
			id, p.id), "they belong to another topic of that name: put the right ones back from a copy")
	}
	return nil
}

// marks works out what the next start goes by, as store and plog do.
func (p *partCheck) marks() {
	k, at := p.k, p.place()
	first := int64(0)
	if len(p.segs) > 0 {
		first = p.segs[0].base
	}
	p.recovery = k.recovery[at]
	p.mark = p.recovery
	if k.ours {
		p.mark = max(p.mark, k.marks[at])
	}
	start, filed := k.starts[at]
	if p.start = start; !filed && (k.starts == nil || !k.ours) {
		p.start = first
	}
	p.mark = max(p.mark, p.start)
	p.out.Start, p.out.Mark, p.out.Recovery = p.start, p.mark, p.recovery
	if p.guarded = p.mark; p.mark == p.start {
		p.guarded = 0 // all that is vouched for lies below the log start
	}
	if first > p.start && p.mark > p.start {
		p.damage(segment.Name(first, segment.LogSuffix), 0, first, "I4", fmt.Sprintf("the log starts at %d but the first "+
			"segment begins at %d: offsets %d to %d are not there", p.start, first, p.start, first-1),
			"put the segments in front of it back from a copy, or accept the loss: "+p.k.repairCommand())
		p.plan().raiseStart(first)
		p.start = first
	}
	p.next = -1
}

// repairCommand is the command that helps where a log is damaged.
func (k *checker) repairCommand() string { return "sekali check --repair " + k.dir }

// list learns which files there are and puts them in the order in which the next start would (segment.List).
func (p *partCheck) list(names []string) error {
	swaps := map[int64]int64{} // base and end of the swaps that count
	void := int64(math.MaxInt64)
	for _, name := range names {
		if base, kind, rest, ok := segmentName(name); ok && rest == segment.CleanedSuffix && kind != "" {
			void = min(void, base)
		}
	}
	for _, name := range names {
		base, kind, rest, ok := segmentName(name)
		if !ok || kind != segment.LogSuffix || rest != segment.SwapSuffix || base >= void {
			continue
		}
		end, err := p.endOf(name, base)
		if err != nil {
			return err
		}
		swaps[base] = end
		p.note(name, ruleFiles, "compaction was cut short, the next start ends it", "")
	}
	covered := func(base int64) bool {
		for from, to := range swaps {
			if base >= from && base < to {
				return true
			}
		}
		return false
	}
	for _, name := range names {
		if err := p.file(name, covered, swaps); err != nil {
			return err
		}
	}
	slices.SortFunc(p.segs, func(a, b segFile) int { return int(a.base - b.base) })
	slices.Sort(p.snaps)
	p.out.Segments = len(p.segs)
	return nil
}

// file judges one name of the directory.
func (p *partCheck) file(name string, covered func(int64) bool, swaps map[int64]int64) error {
	base, kind, rest, ok := segmentName(name)
	_, swapped := swaps[base]
	switch {
	case !ok:
		p.foreign(name)
		return nil
	case kind == snapshotSuffix && rest == "":
		p.snaps = append(p.snaps, base)
		return nil
	case kind == segment.CutSuffix:
		p.note(name, ruleFiles, "what an earlier cut took off, kept for the administrator", "")
		return nil
	case kind == segment.LogSuffix && (rest == "" && !covered(base) || rest == segment.SwapSuffix && swapped):
		st, err := p.k.fs.Stat(path.Join(p.dir, name))
		if err != nil {
			return err
		}
		p.segs = append(p.segs, segFile{base: base, size: st.Size, suffix: rest})
		return nil
	case kind != segment.LogSuffix && rest == "" && !covered(base):
		if ok, err := vfs.Exists(p.k.fs, path.Join(p.dir, segment.Name(base, segment.LogSuffix))); ok || err != nil {
			return err
		}
		p.note(name, ruleFiles, "an index without its segment, the next start removes it", "")
		return nil
	case rest == segment.SwapSuffix && swapped:
		return nil
	case rest == "":
		return nil // covered by a swap
	}
	p.note(name, ruleFiles, "a leftover of work that was cut short, the next start removes it", "")
	return nil
}

// foreign judges a name that is none of a segment's.
func (p *partCheck) foreign(name string) {
	switch name {
	case epochName, store.TopicIDFile:
	case epochName + ".tmp", store.TopicIDFile + ".tmp":
		p.note(name, ruleFiles, "an unfinished file", "")
	default:
		p.note(name, ruleFiles, "not a file of the partition, left alone", "")
	}
}

// segmentName splits a name into base, kind (.log, .index, .timeindex, .txnindex, .snapshot, .cut) and what follows.
func segmentName(name string) (base int64, kind, rest string, ok bool) {
	base, suffix, ok := segment.ParseName(name)
	if !ok {
		return 0, "", "", false
	}
	for _, kind := range []string{
		segment.LogSuffix, segment.IndexSuffix, segment.TimeSuffix, segment.TxnSuffix, snapshotSuffix, segment.CutSuffix,
	} {
		if rest, ok := strings.CutPrefix(suffix, kind); ok && (rest == "" || rest[0] == '.') {
			return base, kind, rest, true
		}
	}
	return 0, "", "", false
}

// endOf is the offset behind the last whole batch of a file.
func (p *partCheck) endOf(name string, base int64) (end int64, err error) {
	f, size, err := p.open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := segment.NewReader(f, base, size)
	r.Holes, r.Epoch = math.MaxInt64, math.MinInt32
	for err == nil {
		_, err = r.Read()
	}
	if !isReason(err) {
		return 0, err
	}
	return r.Next, nil
}

// open opens a file of the partition for reading.
func (p *partCheck) open(name string) (f vfs.File, size int64, err error) {
	if f, err = p.k.fs.OpenFile(path.Join(p.dir, name), 0, 0); err != nil {
		return nil, 0, err
	}
	if size, err = f.Size(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// finish holds the end of the log against the marks, and what was left to be compared against the end.
func (p *partCheck) finish() error {
	if p.next < 0 {
		p.next = p.start
	}
	p.settleDoubt()
	end := p.next
	p.out.End = end
	if err := p.prods.end(end); err != nil {
		return err
	}
	switch {
	case end >= p.mark || p.endless:
	case p.guarded > 0:
		p.short(end)
	default:
		p.note(p.lastName(), "I1",
			fmt.Sprintf("the log ends at offset %d, below its start %d: the next start begins it anew "+
				"there", end, p.mark), "")
	}
	p.cleanStop(end)
	if p.journal != nil {
		p.journal.end(end)
	}
	if highs := p.k.highs[p.place()]; highs > end {
		what := fmt.Sprintf("%d records that had been visible are gone (durability=written)", highs-end)
		if p.k.clean {
			p.k.addTo(p, store.HighFile, "I1", what)
		} else {
			p.note(p.lastName(), "I1", what, "")
		}
	}
	return nil
}

// lastName is the name of the last segment's .log, "" where there is none.
func (p *partCheck) lastName() string {
	n := len(p.segs)
	if n == 0 {
		return ""
	}
	return segment.Name(p.segs[n-1].base, segment.LogSuffix+p.segs[n-1].suffix)
}

// short is the finding of a log that ends below what was acknowledged. After a clean stop two files and a producer
// snapshot say where the log was closed; if two of them agree with the log, the third is wrong.
func (p *partCheck) short(end int64) {
	help := "put the file back from a copy, or accept the loss: " + p.k.repairCommand()
	p.plan().short(end)
	name, at := p.whoSays()
	other := p.k.recovery
	if name == store.RecoveryFile {
		other = p.k.marks
	}
	if p.k.clean && (p.prods.seen == end || end == 0) && other[p.place()] == end {
		p.finds.add(finding{levelDamage, path.Join(p.k.dir, name), at, end, ruleFiles, fmt.Sprintf("%s: the entry says %d, "+
			"the log was closed at %d", p.out.name(), p.mark, end), "set it right with: " + p.k.repairCommand()})
		return
	}
	pos := int64(0)
	if n := len(p.segs); n > 0 {
		pos = p.segs[n-1].size
	}
	p.damage(p.lastName(), pos, end, "I7",
		fmt.Sprintf("the log ends at offset %d, but offsets below %d were acknowledged "+
			"(says %s)", end, p.mark, name), help)
}

// addTo is damage of a partition that shows in one of the directory's own files.
func (k *checker) addTo(p *partCheck, name, rule, what string) {
	at, ok := k.lines[name][p.place()]
	if !ok {
		at = -1
	}
	p.finds.add(finding{levelDamage, path.Join(k.dir, name), at, p.out.End, rule, p.out.name() + ": " + what,
		"the next start goes by what is there and writes it anew"})
}

// cleanStop holds the offset files against the end: after a clean stop both marks are the end.
func (p *partCheck) cleanStop(end int64) {
	if !p.k.clean || !p.k.ours || p.damageAt() {
		return
	}
	for _, f := range []struct {
		name string
		o    store.Offsets
	}{{store.RecoveryFile, p.k.recovery}, {store.MarkFile, p.k.marks}} {
		if at, ok := f.o[p.place()]; f.o != nil && (!ok || at != end) {
			what := fmt.Sprintf("the entry says %d, the log was closed at %d", at, end)
			if !ok {
				what = "there is no entry for it"
			}
			p.k.addTo(p, f.name, ruleFiles, what)
		}
	}
	if p.start > end {
		p.k.addTo(p, store.StartFile, "I1", fmt.Sprintf("the log start %d lies above the end %d", p.start, end))
	}
}

// damageAt tells whether the log itself is damaged, so that its end says nothing.
func (p *partCheck) damageAt() bool { return p.fix != nil && p.fix.cuts() || p.tail }

// whoSays names the file the mark comes from, and where its entry stands there.
func (p *partCheck) whoSays() (name string, pos int64) {
	switch p.mark {
	case p.k.marks[p.place()]:
		name = store.MarkFile
	case p.recovery:
		name = store.RecoveryFile
	default:
		name = store.StartFile
	}
	return name, p.k.lines[name][p.place()]
}

// plan is the repair of this partition.
func (p *partCheck) plan() *repair {
	if p.fix == nil {
		p.fix = newRepair(p)
	}
	return p.fix
}
