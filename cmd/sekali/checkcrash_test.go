package main

import (
	"errors"
	"fmt"
	"testing"

	"sekali/internal/vfs"
)

var errDead = errors.New("the process is dead")

// TestCheckCrash: whatever a dying process or a power cut leaves is no damage, in directories that go through
// everything a store does to them: the check must say so before the next start, and after it.
func TestCheckCrash(t *testing.T) {
	for _, c := range []struct {
		plan   vfs.CrashPlan
		kill   bool
		stride int
	}{
		{vfs.CrashPlan{KeepUnsynced: 0}, false, 331},
		{vfs.CrashPlan{KeepUnsynced: 50, Garble: true}, false, 211},
		{vfs.CrashPlan{}, true, 401},
	} {
		steps := 0
		for step := 1; ; step += c.stride {
			c.plan.Seed = uint64(step)
			done, err := crashAndCheck(t, step, c.plan, c.kill)
			if err != nil {
				t.Fatalf("plan %+v, kill %v, file operation %d: %v", c.plan, c.kill, step, err)
			}
			if steps++; done {
				break
			}
		}
		if steps < 5 {
			t.Errorf("the run has only %d steps", steps)
		}
	}
}

// crashAndCheck is one run that dies before a file operation; done: it came to its end before that.
func crashAndCheck(t *testing.T, step int, plan vfs.CrashPlan, kill bool) (done bool, err error) {
	m := vfs.NewMem()
	h, err := openHome(vfs.Inject(m, vfs.Rule{Nth: step, Times: -1, Err: errDead}))
	if err == nil {
		err = h.furnish()
		if cerr := h.close(); err == nil {
			err = cerr
		}
	}
	done = err == nil
	after := m
	if kill {
		after = m.Kill()
	} else {
		after = m.Crash(plan)
	}
	if there, err := vfs.Exists(after, homeDir+"/meta.properties"); err != nil || !there {
		return done, err // it died before there was anything to check
	}
	if rep := checkHome(t, after); rep.Damage > 0 {
		return done, fmt.Errorf("after the crash: %s", said(rep))
	}
	if h, err = openHome(after); err != nil {
		return done, fmt.Errorf("start: %w", err)
	}
	if r := h.s.Recovery(); r.Offline > 0 {
		return done, fmt.Errorf("%d partitions are offline", r.Offline)
	}
	if err := h.close(); err != nil {
		return done, fmt.Errorf("stop: %w", err)
	}
	if rep := checkHome(t, after); rep.Damage > 0 {
		return done, fmt.Errorf("after a start and a stop: %s", said(rep))
	}
	return done, nil
}
