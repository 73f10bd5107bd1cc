package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stepper is a running program of the read-process-write loop: it names each step when it is done and goes on when it
// is answered.
type stepper struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed when the program has closed its output
	ctx    context.Context
	cancel func()
	errors *strings.Builder
}

const (
	fencedStatus = 3                      // of a program that another instance has fenced
	quiet        = 300 * time.Millisecond // after which the offsets are looked at
)

// loopArgs is what a program of the loop is told.
type loopArgs struct{ in, out, group, id, instance, protocol string }

// loop starts the program. It is killed when its time is over.
func (c *client) loop(ctx context.Context, bootstrap string, a loopArgs) (*stepper, error) {
	return c.spawn(ctx, "loop", bootstrap, a.in, a.out, a.group, a.id, a.instance, a.protocol)
}

// spawn starts a program that is told to go on by its input.
func (c *client) spawn(ctx context.Context, args ...string) (*stepper, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	args = append(c.command[1:len(c.command):len(c.command)], args...)
	s := &stepper{cmd: exec.CommandContext(ctx, c.command[0], args...), lines: make(chan string, 100), ctx: ctx,
		cancel: cancel, errors: &strings.Builder{}}
	s.cmd.Stderr = s.errors
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.WaitDelay = time.Second
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		s.in, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(s.lines)
		for b := bufio.NewScanner(out); b.Scan(); {
			s.lines <- b.Text()
		}
	}()
	return s, nil
}

// errEnded means that the program has ended.
var errEnded = errors.New("the program ended")

// next waits for the next line; "" when there is none for a while.
func (s *stepper) next() (string, error) {
	select {
	case line, ok := <-s.lines:
		if !ok {
			return "", errEnded
		}
		return line, nil
	case <-time.After(quiet):
		return "", s.ctx.Err()
	}
}

// answer lets the program go on.
func (s *stepper) answer(text string) error {
	_, err := io.WriteString(s.in, text+"\n")
	return err
}

// kill is kill -9.
func (s *stepper) kill() {
	_ = s.cmd.Process.Kill()
	_, _ = s.end()
}

// end tells the program to end, and waits for that.
func (s *stepper) end() (status int, err error) {
	_ = s.in.Close()
	return s.wait()
}

// wait waits for the end of the program and gives its status. What it still says is left out.
func (s *stepper) wait() (status int, err error) {
	defer s.cancel()
	for range s.lines {
	}
	err = s.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	if err != nil {
		said := strings.Join(strings.Fields(s.errors.String()), " ")
		err = fmt.Errorf("%w: %s", err, said[:min(len(said), 500)])
	}
	return status, err
}

// journey is one pair of topics with all that runs the loop between them.
type journey struct {
	b       *bench
	c       *client
	args    loopArgs
	want    []loopRecord // of the output, by partition and order
	ends    []int64      // of the input: behind the last record of each partition
	retries []string     // what the programs had to do again
	again   []string     // what made them begin anew
	commits int          // transactions that a program said are committed
	aborts  int
	unread  error // of the last look at the committed offsets
}

// event is a step that a program has done; act says what is done then, and what is answered. An answer "" is not sent.
type event struct {
	name  string
	count int // of this step, from 1
}

// What act says to leave a program where it is, and to kill it.
var (
	errPause = errors.New("paused")
	errKill  = errors.New("killed")
)

// drive answers the program until everything is committed and it has ended in order, or act returns an error, which
// kills the program unless it is errPause.
func (j *journey) drive(ctx context.Context, s *stepper, act func(e event) (string, error)) error {
	seen := map[string]int{}
	for {
		line, err := s.next()
		switch {
		case errors.Is(err, errEnded):
			if _, err = s.end(); s.ctx.Err() != nil {
				err = s.ctx.Err()
			}
			return fmt.Errorf("%w after %v, %q: %w", errEnded, seen, j.trouble(), err)
		case err != nil:
			s.kill()
			return fmt.Errorf("after %v, %q: %w", seen, j.trouble(), err)
		}
		name, rest, _ := strings.Cut(line, " ")
		answer := ""
		switch name {
		case "retry":
			j.retries = append(j.retries, rest)
		case "again":
			j.again = append(j.again, rest)
		case "fenced":
			_, err := s.end()
			return fmt.Errorf("%w: fenced: %s: %w", errEnded, rest, err)
		case "":
		default:
			seen[name]++
			j.count(name)
			answer, err = act(event{name, seen[name]})
			switch {
			case errors.Is(err, errPause):
				return err
			case err != nil:
				s.kill()
				return err
			}
		}
		if name == "" || name == "committed" {
			if j.done(ctx) {
				_, err := s.end()
				return err
			}
		}
		if answer != "" {
			if err := s.answer(answer); err != nil {
				return err
			}
		}
	}
}

func (j *journey) count(name string) {
	switch name {
	case "committed":
		j.commits++
	case "aborted":
		j.aborts++
	}
}

// gone lets the program go on.
func gone(event) (string, error) { return "go", nil }

// note tells what the programs did.
func (j *journey) note(text string) string {
	if len(j.retries) > 0 {
		text += fmt.Sprintf("; %d transactions aborted by the client and done again", len(j.retries))
	}
	if len(j.again) > 0 {
		text += fmt.Sprintf("; %d times a new producer", len(j.again))
	}
	return text
}

// trouble is what the programs said that they had to do again.
func (j *journey) trouble() []string {
	return append(j.retries[:len(j.retries):len(j.retries)], j.again...)
}
