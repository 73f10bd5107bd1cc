// Package client has the same small program for each Go client library: write these records, read those partitions.
// The clients of the other languages take the same arguments and files, see README.md.
package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sekali/compat/record"
)

// job is what one run of a client has to do.
type job struct {
	bootstrap string
	topic     string
	codec     string  // none, gzip, snappy, lz4 or zstd
	plain     bool    // without idempotence, as a program that says nothing of it has it with some of the clients
	pace      int     // ms to wait after ten records; 0: as fast as it goes, in batches as big as they get
	ends      []int64 // of a reader: for each partition the offset behind the last record
	login     Login
}

const (
	paceEvery   = 10                     // records
	paceAhead   = 100                    // records that may wait for their acknowledgement
	lingerFast  = 300 * time.Millisecond // long enough that all records of a partition meet in few batches
	lingerPaced = 5 * time.Millisecond
	batchBytes  = 1_000_000 // largest batch; the broker takes 1,048,588 bytes
	batchCount  = 5000      // records
	giveUp      = 60 * time.Second
)

// linger is how long the client may wait for more records before it sends a batch.
func (j *job) linger() time.Duration {
	if j.pace > 0 {
		return lingerPaced
	}
	return lingerFast
}

// pause keeps the pace behind record i: without a bound on what waits, a client would gather all that is left while the
// broker is down and write it in one go.
func (j *job) pause(ctx context.Context, i int, acks *record.Writer[record.Ack]) {
	if j.pace == 0 || i%paceEvery != paceEvery-1 {
		return
	}
	for again := true; again && ctx.Err() == nil; again = i-acks.Count() >= paceAhead {
		time.Sleep(time.Duration(j.pace) * time.Millisecond)
	}
}

// left is the number of records to read.
func (j *job) left() (n int64) {
	for _, end := range j.ends {
		n += end
	}
	return n
}

// library is one client library. write sends the records in order, each partition's in the order given, and puts an
// Ack for each one as it is answered. read reads each partition from offset 0 up to its end.
type library interface {
	write(ctx context.Context, j job, in []record.Record, acks *record.Writer[record.Ack]) error
	read(ctx context.Context, j job, out *record.Writer[record.Record]) error
}

var libraries = map[string]library{"franz-go": franz{}, "sarama": saramaLib{}, "kafka-go": kafkaGo{},
	"librdkafka": confluent{}}

// Main runs one of the libraries: NAME produce BOOTSTRAP TOPIC CODEC IN OUT PACE, or plain in place of produce for a
// producer that is not idempotent, NAME consume BOOTSTRAP TOPIC ENDS OUT with ENDS as 12,0,7, or NAME loop BOOTSTRAP IN
// OUT GROUP ID INSTANCE PROTOCOL. All but loop come in as the file says that LoginFile names.
func Main(ctx context.Context, args []string) error {
	if len(args) < 6 {
		return fmt.Errorf("too few arguments: %q", args)
	}
	login, err := readLogin()
	if err != nil {
		return err
	}
	lib, j := libraries[args[0]], job{bootstrap: args[2], topic: args[3], login: login}
	switch {
	case lib != nil && (args[1] == "produce" || args[1] == "plain") && len(args) == 8:
		j.plain = args[1] == "plain"
		if j.pace, err = strconv.Atoi(args[7]); err != nil {
			return err
		}
		j.codec = args[4]
		return produce(ctx, lib, j, args[5], args[6])
	case lib != nil && args[1] == "consume" && len(args) == 6:
		for s := range strings.SplitSeq(args[4], ",") {
			end, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return err
			}
			j.ends = append(j.ends, end)
		}
		return consume(ctx, lib, j, args[5])
	case loopers[args[0]] != nil && args[1] == "loop" && len(args) == 9:
		l := loopJob{bootstrap: args[2], in: args[3], out: args[4], group: args[5], id: args[6], instance: args[7]}
		return looping(ctx, loopers[args[0]], l)
	}
	return fmt.Errorf("no such client or job: %q", args)
}

func produce(ctx context.Context, lib library, j job, in, out string) error {
	records, err := record.Read[record.Record](in)
	if err != nil {
		return err
	}
	acks, err := record.Create[record.Ack](out)
	if err != nil {
		return err
	}
	if err := lib.write(ctx, j, records, acks); err != nil {
		return err
	}
	return acks.Close()
}

func consume(ctx context.Context, lib library, j job, out string) error {
	w, err := record.Create[record.Record](out)
	if err != nil {
		return err
	}
	if err := lib.read(ctx, j, w); err != nil {
		return err
	}
	return w.Close()
}
