package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	library "sekali/compat/client"
)

// The names that the programs of the README have in them.
const (
	readmeIn       = "payments"
	readmeOut      = "processed"
	readmeGroup    = "processors"
	readmeInstance = "processor-0"
	readmeShare    = 60 // records for each program and partition
)

// readmePrograms are the three programs of loop/, as the README starts them. run.sh builds the one in Go.
func readmePrograms(home string) (all []client) {
	java := javaCommand(home, "lib")
	java[len(java)-1] = filepath.Join(home, "loop/Loop.java")
	return []client{
		{name: "Loop.java", command: java},
		{name: "loop.go", command: []string{filepath.Join(home, "loop/target/loop")}},
		{name: "loop.js", command: []string{"env", "NODE_PATH=" + filepath.Join(home, "node/node_modules"), "node",
			filepath.Join(home, "loop/loop.js")}},
	}
}

// readme runs the programs of the README one after the other, each one killed and started again at its work. They share
// topics, group and transactional.id, so that each goes on where the last one of another language was killed.
func (b *bench) readme(ctx context.Context, home string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	made, err := b.ref.admin.CreateTopics(ctx, loopPartitions, 1, nil, readmeIn, readmeOut)
	if err == nil {
		err = made.Error() // it may be somebody else's topic: nothing is deleted here
	}
	if err != nil {
		return "", fmt.Errorf("create %s and %s: %w", readmeIn, readmeOut, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.ref.bootstrap), kgo.DefaultProduceTopic(readmeIn),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	j := &journey{b: b, args: loopArgs{out: readmeOut}}
	written := 0
	write := func() error {
		for range readmeShare / 2 {
			for p := range int32(loopPartitions) {
				r := &kgo.Record{Partition: p, Key: fmt.Appendf(nil, "%d", written), Value: fmt.Appendf(nil, "payment %d", written)}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
					return err
				}
				j.want = append(j.want, loopRecord{p, string(r.Key), strings.ToUpper(string(r.Value))})
			}
			written++
		}
		return nil
	}
	for _, c := range readmePrograms(home) {
		for range 2 {
			run, err := c.spawn(ctx, b.ref.bootstrap)
			if err != nil {
				return "", err
			}
			before := len(j.want)
			if err = write(); err == nil {
				err = b.processed(ctx, before+1)
			}
			if err == nil {
				err = write() // it is killed at these
			}
			run.kill()
			if err != nil {
				return "", fmt.Errorf("%s: %w: %s", c.name, err, run.errors)
			}
		}
		run, err := c.spawn(ctx, b.ref.bootstrap)
		if err != nil {
			return "", err
		}
		err = b.processed(ctx, len(j.want))
		run.kill()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", c.name, err, run.errors)
		}
		// The next one is another member: the static one that was killed would be waited for.
		leave := kadm.LeaveGroup(readmeGroup).InstanceIDs(readmeInstance)
		if _, err := b.ref.admin.LeaveGroup(ctx, leave); err != nil {
			return "", fmt.Errorf("remove the static member: %w", err)
		}
	}
	o, err := j.check(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Loop.java, loop.go, loop.js: %d records once, each program killed twice", len(o.committed)), nil
}

// processed waits for so many committed records in the output.
func (b *bench) processed(ctx context.Context, n int) error {
	for {
		got := 0
		err := library.ReadAll(ctx, b.ref.bootstrap, readmeOut, kgo.ReadCommitted(), func(*kgo.Record) { got++ })
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%d of %d records: %w, %w", got, n, ctx.Err(), err)
		case err == nil && got >= n:
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}
