package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sekali/internal/vfs"
)

// facts is what clients of a run were told, and what was under way when it died.
type facts struct {
	topics  map[string]TopicID  // acknowledged creations, not yet asked to be deleted
	open    map[string]bool     // names whose creation or deletion was begun and not answered
	parts   map[string]int32    // acknowledged numbers of partitions
	grown   map[string]int32    // numbers asked for and not answered
	records map[string][]string // acknowledged values by directory name, in order
	doubt   map[string]string   // the value that was under way
	epoch   int32
	pid     int64 // the first producer id that nobody was given
	steps   int   // how far the script came
}

func newFacts() *facts {
	return &facts{topics: map[string]TopicID{}, open: map[string]bool{}, parts: map[string]int32{},
		grown: map[string]int32{}, records: map[string][]string{}, doubt: map[string]string{}}
}

func (f *facts) create(n *node, name string, partitions int32) error {
	f.open[name] = true
	c, err := ParseTopic(map[string]string{"retention.ms": "-1"}, n.s.Defaults())
	if err != nil {
		return err
	}
	topics, err := n.s.CreateTopics(NewTopic{Name: name, Partitions: partitions, Config: c})
	if err != nil {
		return err
	}
	delete(f.open, name)
	f.topics[name], f.parts[name] = topics[0].ID, partitions
	return nil
}

func (f *facts) add(n *node, name string, total int32) error {
	f.grown[name] = total
	if err := n.s.AddPartitions(name, total); err != nil {
		return err
	}
	f.parts[name] = total
	return nil
}

func (f *facts) remove(n *node, name string) error {
	id := f.topics[name]
	f.open[name] = true
	delete(f.topics, name)
	for k := range f.records {
		if strings.HasPrefix(k, name+"-") {
			delete(f.records, k)
		}
	}
	told := false
	err := n.s.DeleteTopic(id, func(Topic) error { told = true; return nil })
	if err == nil && !told {
		return fmt.Errorf("the coordinators were not told")
	}
	if err == nil {
		delete(f.open, name)
	}
	return err
}

func (f *facts) append(n *node, name string, partition int32, value string) error {
	l, err := n.s.Partition(TP{Topic: name, Partition: partition})
	if err != nil {
		return err
	}
	dir := dirName(name, partition)
	f.doubt[dir] = value
	out, err := putDurable(l, oneBatch(5, int32(len(f.records[dir])), value))
	if err != nil {
		return err
	}
	delete(f.doubt, dir)
	if want := int64(len(f.records[dir])); out.Base != want || out.Duplicate {
		return fmt.Errorf("%s: %s acknowledged at %d, want %d", dir, value, out.Base, want)
	}
	f.records[dir] = append(f.records[dir], value)
	return nil
}

// script is the run that dies somewhere.
func (f *facts) script(n *node) error {
	ctx := context.Background()
	f.epoch = n.s.Epoch()
	for _, step := range []func() error{
		func() error { return f.create(n, "a", 2) },
		func() error { return f.append(n, "a", 0, "a1") },
		func() error { return f.append(n, "a", 1, "a2") },
		func() error { first, err := ReservePIDs(ctx, n.m, 100); f.pid = max(f.pid, first+100); return err },
		func() error { return f.create(n, "b", 1) },
		func() error { return f.append(n, "b", 0, "old") },
		func() error {
			return n.s.Update(f.topics["a"], func(set map[string]string) (map[string]string, error) {
				set["segment.ms"] = "5000"
				return set, nil
			})
		},
		func() error { n.tick(3); return nil },
		func() error { return f.add(n, "a", 3) },
		func() error { return f.append(n, "a", 2, "a3") },
		func() error { return f.remove(n, "b") },
		func() error { return f.create(n, "b", 1) },
		func() error { return f.append(n, "b", 0, "new") },
		func() error { n.tick(3); return nil },
		func() error { return f.append(n, "a", 0, "a4") },
	} {
		if err := step(); err != nil {
			return err
		}
		f.steps++
	}
	return nil
}

// verify holds a directory that was started again against the facts, and uses it.
func (f *facts) verify(n *node) error {
	cat := n.s.Catalog()
	for name, id := range f.topics {
		t := cat.ByName[name]
		if t == nil || t.ID != id {
			return fmt.Errorf("acknowledged topic %s is %+v", name, t)
		}
		most := max(f.parts[name], f.grown[name])
		if got := int32(len(t.Partitions)); got != f.parts[name] && got != most {
			return fmt.Errorf("%s has %d partitions, want %d or %d", name, got, f.parts[name], most)
		}
	}
	for name, t := range cat.ByName {
		if _, ok := f.topics[name]; !ok && !f.open[name] {
			return fmt.Errorf("topic %s was deleted", name)
		}
		for p := range t.Partitions {
			if _, err := t.Partition(int32(p)); err != nil {
				return err
			}
		}
	}
	for dir, want := range f.records {
		topic, p, _ := parseDir(dir)
		l, err := n.s.Partition(TP{Topic: topic, Partition: p})
		if err != nil {
			return err
		}
		got := readAll(l)
		if d, ok := f.doubt[dir]; ok && len(got) == len(want)+1 && got[len(want)] == d {
			f.records[dir], want = got, got // shown once, there for ever (I7)
			delete(f.doubt, dir)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s holds %v, acknowledged were %v; %+v", dir, got, want, l.Offsets())
		}
	}
	if n.s.Epoch() <= f.epoch {
		return fmt.Errorf("epoch %d after %d", n.s.Epoch(), f.epoch)
	}
	first, err := ReservePIDs(context.Background(), n.m, 1)
	if err != nil || first < f.pid {
		return fmt.Errorf("producer id %d, those below %d were given out: %w", first, f.pid, err)
	}
	f.pid = first + 1
	return f.goOn(n)
}

// goOn ends deletions that were begun, makes the name free, and checks that nothing is left lying about.
func (f *facts) goOn(n *node) error {
	for _, t := range n.s.Interrupted() {
		if !f.open[t.Name] {
			return fmt.Errorf("nobody deletes %s", t.Name)
		}
		if _, shown := n.s.Catalog().ByID[t.ID]; shown {
			return fmt.Errorf("%s is shown although its deletion has begun", t.Name)
		}
		if err := n.s.DeleteTopic(t.ID, func(Topic) error { return nil }); err != nil {
			return err
		}
	}
	for _, name := range []string{"a", "b"} {
		if t := n.s.Catalog().ByName[name]; t == nil {
			if err := newFacts().create(n, name, 1); err != nil {
				return fmt.Errorf("the name %s is not free: %w", name, err)
			}
			if err := newFacts().append(n, name, 0, "x"); err != nil {
				return fmt.Errorf("a new topic under an old name: %w", err)
			}
		}
	}
	n.tick(2)
	names, err := n.fs.ReadDir(dataDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		topic, p, kind := parseDir(name)
		t := n.s.Catalog().ByName[topic]
		if kind == dirForeign && ownName(name) || kind == dirLive && t != nil && int(p) < len(t.Partitions) {
			continue
		}
		return fmt.Errorf("%s lies about", name)
	}
	return nil
}

// TestCrashAtEveryStep stops the machine before its n-th file operation, for every n of a run that makes, fills,
// grows, alters, deletes and makes anew, and closes. What was acknowledged is there after the next start, and after
// the one following a clean stop. So it is, together with all that a start after a mere death of the process has
// shown, if the power fails after that.
func TestCrashAtEveryStep(t *testing.T) {
	for _, c := range []struct {
		plan   vfs.CrashPlan
		kill   bool
		stride int
	}{
		{vfs.CrashPlan{KeepUnsynced: 0}, false, 1},
		{vfs.CrashPlan{KeepUnsynced: 50, Garble: true}, false, 5},
		{vfs.CrashPlan{KeepUnsynced: 20, Garble: true}, true, 4},
	} {
		for step := 1; ; step += c.stride {
			c.plan.Seed = uint64(step)
			done, err := crashAt(step, c.plan, c.kill)
			if err != nil {
				t.Fatalf("plan %+v, kill %v, file operation %d: %v", c.plan, c.kill, step, err)
			}
			if done {
				if step < 150 {
					t.Fatalf("the run has only %d file operations", step)
				}
				break
			}
		}
	}
}

// crashAt is one run that ends before the given file operation; done: it came to its end before that.
func crashAt(step int, plan vfs.CrashPlan, kill bool) (done bool, err error) {
	m := vfs.NewMem()
	f := newFacts()
	n, err := start(vfs.Inject(m, vfs.Rule{Nth: step, Times: -1, Err: errDead}), nil)
	if err == nil {
		err = f.script(n)
		if cerr := n.close(); err == nil {
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
	if n, err = start(after, nil); err != nil {
		return done, fmt.Errorf("script step %d: first start: %w", f.steps, err)
	}
	if err = f.verify(n); err != nil {
		_ = n.close()
		return done, fmt.Errorf("script step %d: first start: %w", f.steps, err)
	}
	if kill {
		after = after.Crash(plan)
		_ = n.close()
	} else if err = n.close(); err != nil {
		return done, err
	}
	f.epoch = n.s.Epoch()
	f.open = map[string]bool{"a": true, "b": true} // goOn made what was missing
	if n, err = start(after, nil); err != nil {
		return done, fmt.Errorf("script step %d: second start: %w", f.steps, err)
	}
	if err = f.verify(n); err != nil {
		_ = n.close()
		return done, fmt.Errorf("script step %d: second start: %w", f.steps, err)
	}
	return done, n.close()
}
