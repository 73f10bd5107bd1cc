package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	library "sekali/compat/client"
)

const (
	wordLines = 400 // of three words each
	wordKinds = 7
	wordKills = 2 // of the program, and of the broker if it is ours
)

// words lets Kafka Streams count words while lines come in, and kills it and the broker. Read committed, the counts of
// each word must be 1, 2, 3, ... up to the number of its occurrences: none lost, none counted twice.
func (b *bench) words(ctx context.Context, c *client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	base := strings.Join([]string{"words", b.run}, "-")
	args := []string{"words", b.ref.bootstrap, base + "-in", base + "-out", base, filepath.Join(b.dir, base)}
	if _, err := b.ref.admin.CreateTopics(ctx, loopPartitions, 1, nil, args[2], args[3]); err != nil {
		return "", err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.ref.bootstrap), kgo.DefaultProduceTopic(args[2]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	want := map[string]int{}
	write := func(from, to int) error {
		for i := from; i < to; i++ {
			var line []string
			for k := range 3 {
				word := fmt.Sprintf("word%d", (i*(k+1)+k)%wordKinds)
				line = append(line, word)
				want[word]++
			}
			r := &kgo.Record{Partition: int32(i % loopPartitions), Value: []byte(strings.Join(line, " "))}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	}
	app, err := c.spawn(ctx, args...)
	if err != nil {
		return "", err
	}
	defer func() { app.kill() }()
	kills, written := 0, 0
	share := wordLines / (2*wordKills + 1)
	for kill := range 2 * wordKills {
		if err := write(written, written+share); err != nil {
			return "", err
		}
		written += share
		// It is in the middle of them when it has begun to write counts of this share.
		if err := b.counted(ctx, args[3], (written-share)*3+1); err != nil {
			return "", fmt.Errorf("before kill %d: %w: %v", kill+1, err, app.said())
		}
		switch {
		case kill%2 == 0:
			app.kill()
			if app, err = c.spawn(ctx, args...); err != nil {
				return "", err
			}
			kills++
		case b.daemon != nil:
			b.daemon.kill()
			time.Sleep(downTime)
			if err := b.daemon.start(); err != nil {
				return "", err
			}
			kills++
		}
	}
	if err := write(written, wordLines); err != nil {
		return "", err
	}
	if err := b.counted(ctx, args[3], wordLines*3); err != nil {
		return "", fmt.Errorf("%w: %v", err, app.said())
	}
	if _, err := app.end(); err != nil {
		return "", err
	}
	total, err := b.checkCounts(ctx, args[3], want)
	return fmt.Sprintf("%d words counted once, %d times kill -9 of program and broker", total, kills), err
}

// readCounts reads the counts written so far, by word and in order.
func (b *bench) readCounts(ctx context.Context, topic string) (map[string][]string, int, error) {
	got, total := map[string][]string{}, 0
	err := library.ReadAll(ctx, b.ref.bootstrap, topic, kgo.ReadCommitted(), func(r *kgo.Record) {
		got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
		total++
	})
	return got, total, err
}

// counted waits for so many counts.
func (b *bench) counted(ctx context.Context, topic string, n int) error {
	for {
		_, total, err := b.readCounts(ctx, topic)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%d of %d counts: %w", total, n, errors.Join(ctx.Err(), err))
		case err == nil && total >= n:
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// checkCounts says which word was not counted 1, 2, 3, ... up to its number.
func (b *bench) checkCounts(ctx context.Context, topic string, want map[string]int) (total int, err error) {
	got, total, err := b.readCounts(ctx, topic)
	if err != nil {
		return total, err
	}
	for word, n := range want {
		if len(got[word]) != n {
			return total, fmt.Errorf("%s was counted %d times, want %d", word, len(got[word]), n)
		}
		for i, count := range got[word] {
			if count != strconv.Itoa(i+1) {
				return total, fmt.Errorf("count %d of %s is %s", i+1, word, count)
			}
		}
	}
	return total, nil
}

// said is the end of what the program has printed and nobody has read.
func (s *stepper) said() (all []string) {
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return all
			}
			all = append(all, line[:min(len(line), 200)])
		default:
			return all
		}
	}
}
