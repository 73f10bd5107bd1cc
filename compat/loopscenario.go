package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// loopScenarios are those of the read-process-write loop, in their order. Those that kill the broker need one of ours.
var loopScenarios = []struct {
	name string
	ours bool
	run  func(b *bench, ctx context.Context, c *client) (string, error)
}{
	{"loop-abort", false, (*bench).loopAbort},
	{"loop-fencing", false, (*bench).loopFencing},
	{"loop-rebalances", false, (*bench).loopRebalances},
	{"loop-client-kills", false, (*bench).loopClientKills},
	{"loop-broker-kills", true, (*bench).loopBrokerKills},
}

// steps are the steps of one transaction. A client that commits offsets together with the end has no step "offsets".
func (c *client) steps() []string {
	if c.endsAtOnce {
		return []string{"first", "sent"}
	}
	return []string{"first", "sent", "offsets"}
}

// loopAbort aborts a transaction at each of its steps, and commits the next.
func (b *bench) loopAbort(ctx context.Context, c *client) (string, error) {
	j, err := b.begin(ctx, c, "abort", 40)
	if err != nil {
		return "", err
	}
	s, err := c.loop(ctx, b.ref.bootstrap, j.args)
	if err != nil {
		return "", err
	}
	todo := c.steps()
	err = j.drive(ctx, s, func(e event) (string, error) {
		if len(todo) > 0 && e.name == todo[0] && j.commits >= len(c.steps())-len(todo) {
			todo = todo[1:]
			return "abort", nil
		}
		return "go", nil
	})
	if err != nil {
		return "", err
	}
	o, err := j.check(ctx)
	switch {
	case err != nil:
		return "", err
	case len(todo) > 0 || j.aborts < len(c.steps()):
		return "", fmt.Errorf("%d transactions aborted, not at %v", j.aborts, todo)
	case len(o.all) <= len(o.committed):
		return "", errors.New("no record of an aborted transaction is in the log")
	case len(j.retries)+len(j.again) > 0:
		return "", fmt.Errorf("without a fault: retries %q, new producers %q", j.retries, j.again)
	}
	if err := c.generation(o, j); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d transactions committed, %d aborted, %d records once, %d aborted", j.commits, j.aborts,
		len(o.committed), len(o.all)-len(o.committed)), nil
}

// generation says whether the client used the generation of the protocol that it should: the second raises the epoch
// with each transaction, the first does not.
func (c *client) generation(o *output, j *journey) error {
	if c.second != (len(o.sessions) >= j.commits) {
		return fmt.Errorf("%d producer epochs for %d transactions: protocol %v", len(o.sessions), j.commits, c.second)
	}
	return nil
}

// loopFencing stops an instance in the middle of a transaction; another with the same transactional.id does all the
// work. The first one wakes up and has to find that it is fenced, and nothing of it may be seen.
func (b *bench) loopFencing(ctx context.Context, c *client) (string, error) {
	j, err := b.begin(ctx, c, "fencing", 20)
	if err != nil {
		return "", err
	}
	first, err := c.loop(ctx, b.ref.bootstrap, j.args)
	if err != nil {
		return "", err
	}
	defer first.kill()
	hold := c.steps()[len(c.steps())-1]
	err = j.drive(ctx, first, func(e event) (string, error) {
		if e.name == hold && e.count == 2 {
			return "", errPause
		}
		return "go", nil
	})
	if !errors.Is(err, errPause) {
		return "", fmt.Errorf("the first instance: %w", err)
	}
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	args := j.args
	if args.instance != "" {
		args.instance += "-2"
	}
	second, err := c.loop(ctx, b.ref.bootstrap, args)
	if err != nil {
		return "", err
	}
	if err := j.drive(ctx, second, gone); err != nil {
		return "", fmt.Errorf("the second instance: %w", err)
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	if err := first.answer("go"); err != nil {
		return "", err
	}
	if status, err := first.wait(); status != fencedStatus {
		return "", fmt.Errorf("the first instance is not fenced but ended with status %d: %w", status, err)
	}
	_, err = j.check(ctx)
	return j.note(fmt.Sprintf("%d transactions committed, the first instance fenced", j.commits)), err
}

// killAt is a place where something is killed: after a step is done, or late after the client was told to go on to the
// next.
type killAt struct {
	step string
	late time.Duration // -1: before it goes on
}

// killPlan is every step of the loop, and three moments of a commit. A client that differs from another one by the protocol
// of its group only is killed at three of them.
func (c *client) killPlan() (all []killAt) {
	if c.protocol != "" {
		return []killAt{{"sent", -1}, {"committed", -1}, {"offsets", 0}}
	}
	for _, s := range append(append([]string{"polled"}, c.steps()...), "committed") {
		all = append(all, killAt{s, -1})
	}
	last := c.steps()[len(c.steps())-1]
	return append(all, killAt{last, 0}, killAt{last, 2 * time.Millisecond}, killAt{last, 5 * time.Millisecond})
}

const killRecords = 100 // of a partition: more than the kills hit

// loopClientKills kills the client at each step of the loop, each time in another transaction, and starts another one.
func (b *bench) loopClientKills(ctx context.Context, c *client) (string, error) {
	j, err := b.begin(ctx, c, "client-kills", killRecords)
	if err != nil {
		return "", err
	}
	plan := c.killPlan()
	kills := len(plan)
	for {
		s, err := c.loop(ctx, b.ref.bootstrap, j.args)
		if err != nil {
			return "", err
		}
		err = j.drive(ctx, s, func(e event) (string, error) {
			if len(plan) == 0 || e.name != plan[0].step {
				return "go", nil
			}
			if plan[0].late >= 0 {
				if err := s.answer("go"); err != nil {
					return "", err
				}
				time.Sleep(plan[0].late)
			}
			plan = plan[1:]
			return "", errKill
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errKill) {
			return "", err
		}
	}
	if len(plan) > 0 {
		return "", fmt.Errorf("the input was done before the kills at %v", plan)
	}
	o, err := j.check(ctx)
	if err != nil {
		return "", err
	}
	return j.note(fmt.Sprintf("%d records once, %d times kill -9 of the client", len(o.committed), kills)), nil
}

// loopBrokerKills kills the broker at each step of the loop, each time in another transaction, and starts it again.
func (b *bench) loopBrokerKills(ctx context.Context, c *client) (string, error) {
	j, err := b.begin(ctx, c, "broker-kills", killRecords)
	if err != nil {
		return "", err
	}
	s, err := c.loop(ctx, b.ref.bootstrap, j.args)
	if err != nil {
		return "", err
	}
	plan, last := c.killPlan(), -1
	kills := len(plan)
	err = j.drive(ctx, s, func(e event) (string, error) {
		if len(plan) == 0 || e.name != plan[0].step || j.commits == last {
			return "go", nil
		}
		late := plan[0].late
		plan, last = plan[1:], j.commits
		if late >= 0 {
			if err := s.answer("go"); err != nil {
				return "", err
			}
			time.Sleep(late)
		}
		b.daemon.kill()
		time.Sleep(downTime)
		if err := b.daemon.start(); err != nil || late >= 0 {
			return "", err
		}
		return "go", nil
	})
	if err != nil {
		return "", err
	}
	if len(plan) > 0 {
		return "", fmt.Errorf("the input was done before the kills at %v", plan)
	}
	o, err := j.check(ctx)
	if err != nil {
		return "", err
	}
	return j.note(fmt.Sprintf("%d records once, %d times kill -9 of the broker", len(o.committed), kills)), nil
}

const (
	rebalanceRecords = 120 // of a partition
	rebalanceWait    = 400 * time.Millisecond
	secondCommits    = 3 // transactions of the second instance, which then leaves
)

// loopRebalances lets a second instance, with a transactional.id of its own, join the group while the first is at work,
// and leave it again: partitions move twice between two producers, and each record is there once and in order.
func (b *bench) loopRebalances(ctx context.Context, c *client) (string, error) {
	j, err := b.begin(ctx, c, "rebalances", rebalanceRecords)
	if err != nil {
		return "", err
	}
	first, err := c.loop(ctx, b.ref.bootstrap, j.args)
	if err != nil {
		return "", err
	}
	other := &journey{b: b, c: c, args: j.args, want: j.want, ends: j.ends}
	other.args.id += "-2"
	if other.args.instance != "" {
		other.args.instance += "-2"
	}
	left := make(chan error, 1)
	var came atomic.Bool
	joined := false
	join := func() error {
		second, err := c.loop(ctx, b.ref.bootstrap, other.args)
		if err != nil {
			return err
		}
		go func() {
			err := other.drive(ctx, second, func(e event) (string, error) {
				if e.name == "committed" {
					came.Store(true)
					if e.count == secondCommits {
						return "", errPause
					}
				}
				return "go", nil
			})
			if errors.Is(err, errPause) {
				_, err = second.end() // in order: it leaves the group
			}
			left <- err
		}()
		return nil
	}
	err = j.drive(ctx, first, func(e event) (string, error) {
		if e.name == "polled" && e.count == 2 {
			if err := join(); err != nil {
				return "", err
			}
			joined = true
		}
		if e.name == "polled" && e.count >= 2 && !came.Load() {
			time.Sleep(rebalanceWait) // there has to be something left for the second
		}
		return "go", nil
	})
	if !joined {
		return "", fmt.Errorf("the first instance: %w", errors.Join(err, errors.New("ended before the second began")))
	}
	if err := errors.Join(err, <-left); err != nil {
		return "", fmt.Errorf("%w, second instance: %q", err, other.trouble())
	}
	if other.commits == 0 {
		return "", errors.New("the second instance got nothing to do")
	}
	o, err := j.check(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d records once, %d transactions of one instance and %d of the other, %d done again",
		len(o.committed), j.commits, other.commits, len(j.retries)+len(other.retries)), nil
}
