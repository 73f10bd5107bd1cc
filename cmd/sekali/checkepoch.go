package main

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/segment"
)

// epochCheck holds leader-epoch-checkpoint against the batches: from the log start on, each batch bears the epoch of
// the last entry at or below it, and an entry begins with a batch.
type epochCheck struct {
	list   []epochLine
	i      int // entry that covers the batch before; -1: none
	told   int // entry a finding was made for; -2: none yet
	agreed int // entry that a batch agreed with; -1: none
	doubt  *epochDoubt
	blind  bool // offsets before could not be read: where an epoch began is not known
	found  []epochLine
}

func (e *epochCheck) lose() { e.blind = true }

// loadEpochs reads the file.
func (p *partCheck) loadEpochs() error {
	e := &p.epochs
	e.i, e.told, e.agreed = -1, -2, -1
	b, err := vfs.ReadFile(p.k.fs, path.Join(p.dir, epochName))
	if errors.Is(err, iofs.ErrNotExist) {
		e.told = -1
		for _, s := range p.segs {
			if s.size > 0 && p.k.ours {
				p.damage(epochName, -1, -1, ruleEpoch, "there is none", "the next start makes it anew from the batches")
				p.plan().epochs = true
				break
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	var fault *textFault
	if e.list, fault = decodeEpochLines(b); fault != nil {
		p.damage(epochName, fault.pos, -1, ruleFormat, fault.why, "the next start makes it anew from the batches")
		p.plan().epochs = true
		e.list, e.told = nil, -1
	}
	return nil
}

// leaderEpoch checks the epoch of one batch.
func (p *partCheck) leaderEpoch(pos int64, v batch.View) {
	e, base, epoch := &p.epochs, v.BaseOffset(), v.LeaderEpoch()
	if p.k.epoch >= 0 && int64(epoch) > p.k.epoch {
		if p.newer == nil {
			p.segDamage(pos, base, ruleEpoch, fmt.Sprintf("leader epoch %d, but the metadata has handed out no more than %d",
				epoch,
				p.k.epoch),
				"if the metadata is older than the log put the newer one back, or consumers may miss that a log was cut")
		}
		p.newer = &spot{p.at, pos, base}
		return
	}
	p.newer = nil
	if epoch < 0 {
		return
	}
	if n := len(e.found); n == 0 || e.found[n-1].epoch < epoch {
		e.found = append(e.found, epochLine{epoch: epoch, start: base})
	}
	for e.i+1 < len(e.list) && e.list[e.i+1].start <= base {
		e.i++
		if at := e.list[e.i].start; at < base && at > p.start && at > p.segs[0].base && !e.blind && !p.holes {
			p.epochDamage(at, fmt.Sprintf("epoch %d is said to begin at offset %d, where no batch begins", e.list[e.i].epoch,
				at))
		}
	}
	e.blind = false
	switch {
	case base < p.start || e.told == e.i:
	case e.i < 0:
		p.epochDamage(base, fmt.Sprintf("no entry covers offset %d, whose batch is of epoch %d", base, epoch))
	case e.list[e.i].epoch == epoch:
		e.agreed = e.i
		p.settleDoubt()
	case e.agreed == e.i && e.doubt == nil: // batches before it agree with the entry: what does the next one say?
		e.doubt = &epochDoubt{p.at, pos, base, epoch, e.list[e.i].epoch}
	default:
		if e.doubt != nil {
			base, epoch, e.doubt = e.doubt.base, e.doubt.epoch, nil
		}
		p.epochDamage(base, fmt.Sprintf("offset %d is said to be of epoch %d, its batch is of epoch %d", base,
			e.list[e.i].epoch, epoch))
	}
}

// epochDoubt is a batch whose leader epoch is not that of the entry that covers it and the batches before.
type epochDoubt struct {
	seg        int
	pos, base  int64
	epoch, say int32
}

// settleDoubt blames a batch that stands alone against an entry its neighbours agree with.
func (p *partCheck) settleDoubt() {
	d := p.epochs.doubt
	if d == nil {
		return
	}
	p.epochs.doubt = nil
	s := &p.segs[d.seg]
	p.damage(segment.Name(s.base, segment.LogSuffix+s.suffix), d.pos, d.base, ruleEpoch, fmt.Sprintf(
		"leader epoch %d, but %s says %d for this offset", d.epoch, epochName, d.say), p.logHelp())
}

// epochDamage tells of the entry that covers, once.
func (p *partCheck) epochDamage(offset int64, what string) {
	e := &p.epochs
	if e.told == e.i {
		return
	}
	e.told = e.i
	pos := int64(0)
	if e.i >= 0 {
		pos = e.list[e.i].pos
	}
	p.damage(epochName, pos, offset, ruleEpoch, what, "remove the file, and the next start makes it anew; or: "+
		p.k.repairCommand())
	p.plan().epochs = true
}
