package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sekali/coord"
	"sekali/engine"
	"sekali/segment"
)

// markersMax bounds the markers, and the decisions of the coordinator, that are held against each other, all partitions
// together; of each partition the newest are.
const (
	markersMax   = 1 << 20
	markersShare = 1 << 10 // at least, of one partition
)

// marked is one marker that ended an open transaction. With epoch one above the transaction's it belongs to that alone
// (KIP-890, and a fence): then all markers of the pair must agree. Else the epoch may have had many transactions.
type marked struct {
	pid    int64
	epoch  int16 // the marker's
	commit bool
	alone  bool
	file   string
	pos    int64
	offset int64
}

// decided is a Prepare record of the coordinator.
type decided struct {
	id     string
	pid    int64
	epoch  int16 // of the markers
	commit bool
	alone  bool // no other transaction of the producer has it
	tps    []coord.TP
	done   bool // a Complete record follows
	file   string
	offset int64
}

// recent keeps about the last most things of a sequence.
type recent[T any] struct {
	list    []T
	most    int
	dropped bool
}

func (r *recent[T]) add(x T) {
	if len(r.list) >= 2*r.most {
		r.list = append(r.list[:0], r.list[len(r.list)-r.most:]...)
		r.dropped = true
	}
	r.list = append(r.list, x)
}

// txnFacts is what one partition tells about transactions. Owner: its partCheck.
type txnFacts struct {
	markers recent[marked]
	last    map[int64]marked // of each producer
	open    []coord.OpenTxn  // at the end
}

// ended takes a marker that ended the transaction of an epoch.
func (p *partCheck) ended(m marked, ofEpoch int16) {
	m.alone = m.epoch == ofEpoch+1
	s := &p.segs[p.at]
	m.file = path.Join(p.dir, segment.Name(s.base, segment.LogSuffix+s.suffix))
	p.txns.markers.add(m)
	if p.txns.last == nil {
		p.txns.last = map[int64]marked{}
	}
	if _, ok := p.txns.last[m.pid]; ok || len(p.txns.last) < foldMax {
		p.txns.last[m.pid] = m
	}
}

// transactions holds what the partitions tell about transactions against each other and against the coordinator's
// records. It runs when all partitions were read.
func (k *checker) transactions(parts []*partCheck) {
	if len(k.only) > 0 {
		return
	}
	x := &crossCheck{k: k, parts: parts, byTP: map[coord.TP]*partCheck{}, byPair: map[pair]marked{},
		owners: map[int64]*coord.Logged{}, whole: true}
	for _, p := range parts {
		x.byTP[coord.TP{Topic: p.out.Topic, ID: p.id, Partition: p.out.Partition}] = p
		if p.out.Topic == engine.TxnTopic {
			x.coordinator = true
			x.whole = x.whole && !p.unsure()
		}
		if p.txns.markers.dropped || p.journal != nil && p.journal.decisions.dropped {
			k.dropped = true
		}
	}
	x.outcomes()
	x.decisions()
	if x.coordinator && x.whole {
		x.owned()
	}
	for _, p := range parts {
		p.out.Damage, p.out.Notes, p.out.Findings = p.finds.damage, p.finds.notes, p.finds.list
	}
	if k.dropped {
		k.note("", ruleTxn, "there are too many transactions to hold all of them against each other: the newest of each "+
			"partition were", "")
	}
}

// unsure: the log could not be read to its end, or not all of it.
func (p *partCheck) unsure() bool {
	return p.damageAt() && !p.tail || p.endless || p.fix != nil && p.fix.cuts()
}

type pair struct {
	pid   int64
	epoch int16
}

// crossCheck is the work of transactions.
type crossCheck struct {
	k           *checker
	parts       []*partCheck
	byTP        map[coord.TP]*partCheck
	byPair      map[pair]marked // first marker of each transaction that has its epoch alone
	owners      map[int64]*coord.Logged
	coordinator bool // there is a transaction log
	whole       bool // and all of it could be read
}

func outcomeOf(commit bool) string { return []string{"abort", "commit"}[btoi(commit)] }

// torn is a finding at a marker.
func (x *crossCheck) torn(p *partCheck, m marked, what string) {
	help := "a transaction has two outcomes: readers of committed data see a part of it; please report it"
	if p.out.Topic == engine.OffsetsTopic {
		help = "offsets of groups and the records they stand for went different ways; please report it"
	}
	p.finds.add(finding{levelDamage, m.file, m.pos, m.offset, "I10",
		fmt.Sprintf("the marker of producer %d epoch %d says %s, %s", m.pid, m.epoch, outcomeOf(m.commit), what), help})
}

// outcomes: all markers of one transaction say the same.
func (x *crossCheck) outcomes() {
	for _, p := range x.parts {
		for _, m := range p.txns.markers.list {
			if !m.alone {
				continue
			}
			at := pair{m.pid, m.epoch}
			first, ok := x.byPair[at]
			switch {
			case !ok:
				x.byPair[at] = m
			case first.commit != m.commit:
				x.torn(p, m, fmt.Sprintf("%s says %s at offset %d", first.file, outcomeOf(first.commit), first.offset))
			}
		}
	}
}

// decisions: every marker says what the coordinator decided.
func (x *crossCheck) decisions() {
	made := map[pair]decided{}
	for _, p := range x.parts {
		if p.journal == nil {
			continue
		}
		for _, d := range p.journal.decisions.list {
			if d.alone {
				made[pair{d.pid, d.epoch}] = d
			}
		}
		for _, l := range p.journal.ids {
			if !l.prepared.done || l.prepared.alone {
				continue
			}
			for _, tp := range l.prepared.tps {
				x.last(tp, l.prepared)
			}
		}
	}
	for _, p := range x.parts {
		for _, m := range p.txns.markers.list {
			if d, ok := made[pair{m.pid, m.epoch}]; ok && m.alone && d.commit != m.commit {
				x.torn(p, m, d.says())
			}
		}
	}
}

func (d decided) says() string {
	return fmt.Sprintf("transactional id %q decided to %s (%s, offset %d)", clip(d.id), outcomeOf(d.commit), d.file,
		d.offset)
}

// last holds the newest marker of a producer in a participant against the last decision of its id.
func (x *crossCheck) last(tp coord.TP, d decided) {
	p := x.byTP[tp]
	if p == nil {
		return // deleted, or without an id
	}
	if m, ok := p.txns.last[d.pid]; ok && m.epoch == d.epoch && !m.alone && m.commit != d.commit {
		x.torn(p, m, d.says())
	}
}

// owned: every open transaction is one that its id knows of.
func (x *crossCheck) owned() {
	for _, p := range x.parts {
		if p.journal == nil {
			continue
		}
		for _, l := range p.journal.ids {
			for _, pid := range [...]int64{l.last.PrevPID, l.last.NextPID} {
				if pid >= 0 && x.owners[pid] == nil {
					x.owners[pid] = &l.last
				}
			}
		}
	}
	for _, p := range x.parts {
		if p.journal == nil {
			continue
		}
		for _, l := range p.journal.ids {
			x.owners[l.last.PID] = &l.last
		}
	}
	for _, p := range x.parts {
		if p.unsure() {
			continue
		}
		for _, o := range p.txns.open {
			x.judge(p, o)
		}
	}
}

// judge tells of an open transaction whose id does not know of it. After an unclean stop a start finds some for good
// reasons, and sets them right.
func (x *crossCheck) judge(p *partCheck, o coord.OpenTxn) {
	owner, k := x.owners[o.PID], x.k
	fate := coord.Judge(o, owner)
	if fate == coord.Owned {
		return
	}
	who := "no transactional id has or had it"
	if owner != nil {
		who = "transactional id " + owner.String()
	}
	rule, help := "I8", "the next start aborts it"
	switch fate {
	case coord.Registered:
		who += ", and does not know this partition"
		help = "the next start registers it; its producer ends it, or its timeout"
	case coord.Joined:
		who += ", and does not know this partition"
		help = "the next start ends it with the outcome of the others"
	case coord.Finished:
		rule, help = "I10", "the next start ends it with that outcome; its marker was lost"
	}
	level := levelDamage
	crash := fate == coord.Registered || owner == nil // what a kill leaves
	if !k.ours || k.conf.VerifyOff || !k.clean && (crash || k.written()) {
		level = levelNote
	}
	p.finds.add(finding{level, path.Join(p.dir, p.holding(o.First)), -1, o.First, rule,
		fmt.Sprintf("the transaction of producer %d epoch %d is open: %s", o.PID, o.Epoch, who), help})
}

// written tells whether the last run had durability=written, as far as anybody can know.
func (k *checker) written() bool { return k.conf.Store.Written || len(k.highs) > 0 }

// holding is the name of the .log that holds an offset, "" for none.
func (p *partCheck) holding(offset int64) string {
	i, _ := slices.BinarySearchFunc(p.segs, offset+1, func(s segFile, o int64) int { return cmp.Compare(s.base, o) })
	if i == 0 {
		return ""
	}
	return segment.Name(p.segs[i-1].base, segment.LogSuffix+p.segs[i-1].suffix)
}

// internal tells of which kind of snapshots a topic is.
func internal(topic string) (prefix string, ok bool) {
	switch topic {
	case engine.TxnTopic:
		return engine.TxnSnapshotPrefix, true
	case engine.OffsetsTopic:
		return engine.GroupSnapshotPrefix, true
	}
	return "", false
}

// snapshotOf splits the name of a snapshot file of coordinators.
func snapshotOf(name string) (prefix, shard string, ok bool) {
	for _, prefix := range []string{engine.TxnSnapshotPrefix, engine.GroupSnapshotPrefix} {
		if shard, ok := strings.CutPrefix(name, prefix); ok {
			return prefix, shard, true
		}
	}
	return "", "", false
}
