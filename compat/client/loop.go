package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// errFenced means that another instance has taken over: whoever sees it has to end.
var errFenced = errors.New("fenced")

const (
	fencedStatus   = 3  // of a program that ends for errFenced
	perTransaction = 10 // records at most
	sessionTime    = 1500 * time.Millisecond
	beatTime       = 300 * time.Millisecond
	pollTime       = 100 * time.Millisecond
)

// looper runs the read-process-write loop until it is told to stop.
type looper interface {
	loop(ctx context.Context, l loopJob, s *steps) error
}

var loopers = map[string]looper{"franz-go": franz{}, "sarama": saramaLib{}, "librdkafka": confluent{}}

// loopJob is what one run of the loop has to do: LIBRARY loop BOOTSTRAP IN OUT GROUP ID INSTANCE PROTOCOL.
type loopJob struct {
	bootstrap, in, out, group string
	id                        string // transactional.id
	instance                  string // of a static member, or ""
}

// steps tells the one who started the program which step is done, and waits for the answer.
type steps struct {
	mu      sync.Mutex // steps of several goroutines come one after the other
	answers chan string
	stop    chan struct{} // closed with the input
}

func newSteps(in io.Reader) *steps {
	s := &steps{answers: make(chan string), stop: make(chan struct{})}
	go func() {
		defer close(s.stop)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			s.answers <- lines.Text()
		}
	}()
	return s
}

// at names a step that is done. It says whether to go on; else the transaction is to be aborted.
func (s *steps) at(name string) (proceed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Println(name)
	select {
	case answer := <-s.answers:
		return answer == "go"
	case <-s.stop:
		return false
	}
}

// say tells of something that needs no answer.
func (s *steps) say(what string, err error) { fmt.Printf("%s %v\n", what, err) }

func (s *steps) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// looping runs the loop of a library again and again until it ends without an error or is fenced.
func looping(ctx context.Context, lib looper, l loopJob) error {
	s := newSteps(os.Stdin)
	for {
		err := lib.loop(ctx, l, s)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, errFenced):
			s.say("fenced", err)
			os.Exit(fencedStatus)
		}
		s.say("again", err)
		time.Sleep(pollTime)
	}
}
