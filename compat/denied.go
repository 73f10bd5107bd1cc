package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	library "sekali/compat/client"
	"sekali/compat/corpus"
	"sekali/compat/record"
)

const (
	deniedLimit   = 40 * time.Second // less than any patience that the programs set: who only waits is too late
	deniedRecords = 3
	codecOfDenied = "none"

	// What the names of topics begin with: no rule is about the first. Users with a password may only write to the second,
	// those with a certificate only read it.
	closedTopics   = "closed"
	halfOpenTopics = "half-open"
)

// refusals are the library's own words for a wrong password and for what no rule allows, and how it deals with a topic
// that it may not even see.
type refusals struct {
	password, topic string
	unseen          string // the writer's words, if not those of topic
	silent          bool   // a reader that assigns itself is told nothing
}

// attempt is one run of a client that has to be refused.
type attempt struct {
	what  string
	topic string
	login library.Login
	reads bool
	says  string
}

// denied: a wrong password of each mechanism, and a right one without a rule for the topic, end with the library's own
// error in time, and nothing is written or read.
func (g *guarded) denied(ctx context.Context, c *client) (string, error) {
	attempts, err := g.attempts(c)
	if err != nil {
		return "", err
	}
	topics := map[string]bool{}
	var said []string
	for _, a := range attempts {
		if !topics[a.topic] {
			topics[a.topic] = true
			defer g.bench.clean(a.topic)
			if err := g.forbidden(ctx, a.topic); err != nil {
				return "", fmt.Errorf("topic %s: %w", a.topic, err)
			}
		}
		began := time.Now()
		if err := g.refused(ctx, c, a); err != nil {
			return "", fmt.Errorf("%s: %w", a.what, err)
		}
		said = append(said, fmt.Sprintf("%s: %q (%.1f s)", a.what, a.says, time.Since(began).Seconds()))
	}
	for topic := range topics {
		stored, err := g.bench.ref.read(ctx, topic)
		if err == nil && len(stored.records) != 1 {
			err = fmt.Errorf("%d records in %s, want the one that was there", len(stored.records), topic)
		}
		if err != nil {
			return "", err
		}
	}
	if c.refused.silent {
		said = append(said, "the library tells a reader that assigns itself nothing of a topic that it may not see")
	}
	if c.groupsOnly {
		said = append(said, "not asked to read: the library reads only in a group")
	}
	if c.refused.unseen != "" {
		said = append(said, "to the library's writer a topic that it may not see does not exist")
	}
	return strings.Join(said, "; "), nil
}

// attempts are all that the library can do and must not.
func (g *guarded) attempts(c *client) (all []attempt, err error) {
	closed := strings.Join([]string{closedTopics, g.bench.run, c.name}, "-")
	half := strings.Join([]string{halfOpenTopics, g.bench.run, c.name}, "-")
	for _, w := range ways {
		right, err := g.login(w)
		if err != nil {
			return nil, err
		}
		wrong := right
		wrong.Password = wrongPassword
		if w.protocol == "SASL_SSL" {
			all = append(all, attempt{w.name + ", wrong password", closed, wrong, false, c.refused.password})
		}
		switch w.name {
		case "scram-sha-512":
			all = append(all, attempt{"write without a rule", closed, right, false,
				cmp.Or(c.refused.unseen, c.refused.topic)})
			if c.groupsOnly {
				break
			}
			all = append(all, attempt{"wrong password, read", closed, wrong, true, c.refused.password},
				attempt{"read with a rule to write", half, right, true, c.refused.topic})
			if !c.refused.silent {
				all = append(all, attempt{"read without a rule", closed, right, true, c.refused.topic})
			}
		case "mtls":
			all = append(all, attempt{"mtls, write with a rule to read", half, right, false, c.refused.topic})
		}
	}
	return all, nil
}

// forbidden makes a topic and writes a record to it that a reader without the right would see.
func (g *guarded) forbidden(ctx context.Context, topic string) error {
	if err := g.bench.ref.create(ctx, topic); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.bench.ref.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("secret")}).FirstErr()
}

// refused runs the client, which has to end by itself and to say so.
func (g *guarded) refused(ctx context.Context, c *client, a attempt) error {
	in, err := g.with(c, "denied", a.login)
	if err != nil {
		return err
	}
	written, acked, got := g.bench.file(a.topic, "in"), g.bench.file(a.topic, "acks"), g.bench.file(a.topic, "read")
	if err := record.Write(written, c.able(corpus.Numbered(deniedRecords))); err != nil {
		return err
	}
	for _, path := range []string{acked, got} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
	}
	args := []string{"produce", in.bootstrap, a.topic, codecOfDenied, written, acked, "0"}
	if a.reads {
		args = []string{"consume", in.bootstrap, a.topic, "1" + strings.Repeat(",0", corpus.Partitions-1), got}
	}
	ctx, cancel := context.WithTimeout(ctx, deniedLimit)
	defer cancel()
	run := in.start(ctx, args...)
	err = run.wait()
	text := run.output.String()
	acks, err1 := record.Read[record.Ack](acked)
	read, err2 := record.Read[record.Record](got)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, ack := range acks {
		if ack.Error == "" {
			return fmt.Errorf("record %d was acknowledged", ack.Index)
		}
		text += "\n" + ack.Error
	}
	switch {
	case len(read) > 0:
		return fmt.Errorf("%d records were read", len(read))
	case ctx.Err() != nil:
		return fmt.Errorf("not refused within %v: %s", deniedLimit, text)
	case !strings.Contains(text, a.says):
		return fmt.Errorf("ended otherwise than by %q: %w: %s", a.says, err, text)
	}
	return nil
}
