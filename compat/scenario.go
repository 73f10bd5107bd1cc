package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sekali/compat/corpus"
	"sekali/compat/record"
)

const (
	runLimit   = 90 * time.Second // of one run of a client's program
	batchWant  = 1000             // records at least in the largest batch of a scenario
	killCount  = 3                // kills while a client writes
	killEvery  = 700              // acknowledgements
	killPace   = 10               // ms between groups of ten records
	killAmount = (killCount + 1) * killEvery
	killCodec  = "lz4"
	downTime   = 200 * time.Millisecond
)

// bench is what the scenarios run on.
type bench struct {
	ref     *reference
	daemon  *daemon  // nil: the broker is not ours
	guarded *guarded // nil as well
	dir     string   // files of the runs
	run     string   // makes the names of topics unique
	topics  string   // what they begin with

	transactions bool // the broker has them
}

// roundTrip writes the corpus with one codec, with an idempotent producer or with one that is not, reads it with the
// client itself and with franz-go, and compares all of it: contents, order, offsets, acknowledgements, and the form of
// the batches.
func (b *bench) roundTrip(ctx context.Context, c *client, codec string, idempotent bool) (string, error) {
	job := "produce"
	if c.idempotent && !idempotent {
		job = "plain"
	}
	topic := strings.Join([]string{b.topics, b.run, c.name, job, codec}, "-")
	written := c.able(corpus.Fidelity())
	in, acked, got := b.file(topic, "in"), b.file(topic, "acks"), b.file(topic, "read")
	defer b.clean(topic)
	if err := record.Write(in, written); err != nil {
		return "", err
	}
	if err := b.ref.create(ctx, topic); err != nil {
		return "", fmt.Errorf("create topic: %w", err)
	}
	bootstrap := cmp.Or(c.bootstrap, b.ref.bootstrap)
	if err := c.start(ctx, job, bootstrap, topic, codec, in, acked, "0").wait(); err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	stored, err := b.check(ctx, topic, written, acked)
	if err != nil {
		return "", err
	}
	if err := stored.check(codec, idempotent); err != nil {
		return "", err
	}
	if stored.largest < batchWant {
		return "", fmt.Errorf("the largest batch has %d records, want %d", stored.largest, batchWant)
	}
	note := fmt.Sprintf("%d records in %d batches, largest %d", len(written), stored.batches, stored.largest)
	if c.groupsOnly {
		return note, nil
	}
	if err := c.start(ctx, "consume", bootstrap, topic, stored.endsText(), got).wait(); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	read, err := record.Read[record.Record](got)
	if err != nil {
		return "", err
	}
	if err := compareAll(c.read(written), read); err != nil {
		return "", fmt.Errorf("as %s reads it: %w", c.name, err)
	}
	return note, nil
}

// check compares what is stored, as franz-go reads it, and the acknowledgements with what was written.
func (b *bench) check(ctx context.Context, topic string, written []record.Record, acked string) (*contents, error) {
	stored, acks, err := b.outcome(ctx, topic, acked)
	if err != nil {
		return nil, err
	}
	if err := compareAll(written, stored.records); err != nil {
		return nil, fmt.Errorf("as franz-go reads it: %w", err)
	}
	return stored, compareAcks(written, stored.records, acks)
}

// outcome is what is stored and what the client was told, which must not be an error.
func (b *bench) outcome(ctx context.Context, topic, acked string) (*contents, []record.Ack, error) {
	acks, err := record.Read[record.Ack](acked)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range acks {
		if a.Error != "" {
			return nil, nil, fmt.Errorf("record %d failed: %s", a.Index, a.Error)
		}
	}
	stored, err := b.ref.read(ctx, topic)
	if err != nil {
		return nil, nil, fmt.Errorf("read by franz-go: %w", err)
	}
	return stored, acks, nil
}

// restarts kills the broker with signal 9 three times while the client writes, and starts it again. With idempotence
// each record must be there once, in order, at its acknowledged offset; without it (kafka-go) each record at its
// acknowledged offset, in order, and repetitions are counted.
func (b *bench) restarts(ctx context.Context, c *client) (string, error) {
	topic := strings.Join([]string{b.topics, b.run, c.name, "restarts"}, "-")
	written := c.able(corpus.Numbered(killAmount))
	in, acked := b.file(topic, "in"), b.file(topic, "acks")
	defer b.clean(topic)
	if err := record.Write(in, written); err != nil {
		return "", err
	}
	if err := b.ref.create(ctx, topic); err != nil {
		return "", fmt.Errorf("create topic: %w", err)
	}
	run := c.start(ctx, "produce", b.ref.bootstrap, topic, killCodec, in, acked, fmt.Sprint(killPace))
	for kill := 1; kill <= killCount; kill++ {
		if err := run.waitLines(acked, kill*killEvery); err != nil {
			return "", fmt.Errorf("before kill %d: %w", kill, err)
		}
		if err := b.daemon.killAfterWrite(topic); err != nil {
			return "", fmt.Errorf("kill %d: %w", kill, err)
		}
		time.Sleep(downTime)
		if err := b.daemon.start(); err != nil {
			return "", fmt.Errorf("start after kill %d: %w", kill, err)
		}
	}
	if err := run.wait(); err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	note := fmt.Sprintf("%d records, %d times kill -9", len(written), killCount)
	if c.idempotent {
		_, err := b.check(ctx, topic, written, acked)
		return note, err
	}
	stored, acks, err := b.outcome(ctx, topic, acked)
	if err != nil {
		return "", err
	}
	first, repeated := firstOnly(stored.records)
	if err := compareAll(written, first); err != nil {
		return "", fmt.Errorf("as franz-go reads it, without repetitions: %w", err)
	}
	return fmt.Sprintf("%s, %d records written again", note, repeated), compareAcks(written, stored.records, acks)
}

func (b *bench) file(topic, kind string) string { return filepath.Join(b.dir, topic+"."+kind) }

func (b *bench) clean(topic string) {
	for _, kind := range []string{"in", "acks", "read"} {
		_ = os.Remove(b.file(topic, kind))
	}
}

// run is one run of a client's program.
type run struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ctx    context.Context
	done   chan struct{}
	err    error
}

// start starts the client's program. It is killed when its time is over.
func (c *client) start(ctx context.Context, args ...string) *run {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	args = append(c.command[1:len(c.command):len(c.command)], args...)
	r := &run{cmd: exec.CommandContext(ctx, c.command[0], args...), ctx: ctx, done: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), c.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.cmd.WaitDelay = time.Second
	go func() {
		defer cancel()
		r.err = r.cmd.Run()
		close(r.done)
	}()
	return r
}

// wait waits for the end of the program, which must be with status 0.
func (r *run) wait() error {
	<-r.done
	if r.err == nil {
		return nil
	}
	err := r.err
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done after %v", runLimit)
	}
	said := strings.Join(strings.Fields(r.output.String()), " ")
	if len(said) > 500 {
		said = said[:200] + " ... " + said[len(said)-300:]
	}
	return fmt.Errorf("%w: %s", err, said)
}

// waitLines waits until the program, still running, has written so many lines to a file.
func (r *run) waitLines(path string, n int) error {
	for {
		select {
		case <-r.done:
			return errors.Join(errors.New("the client ended too early"), r.wait())
		case <-time.After(10 * time.Millisecond):
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if bytes.Count(text, []byte("\n")) >= n {
			return nil
		}
	}
}
