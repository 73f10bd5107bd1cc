package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// daemon is the broker when it is ours to kill. It dies with this process, however this process ends.
type daemon struct {
	binary string
	dir    string // its data, and its log beside it
	addr   string
	flags  []string // of serve: where it listens, and what else is its own
	cmd    *exec.Cmd
}

// loopSettings let the sessions of groups be as short as those of the loop's programs, which are killed often.
var loopSettings = []string{"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500",
	"group.consumer.session.timeout.ms=1500", "group.consumer.heartbeat.interval.ms=300"}

const startLimit = 30 * time.Second

// startDaemon serves an empty directory below dir on a free port.
func startDaemon(binary, dir string) (*daemon, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	d := &daemon{binary: binary, dir: dir, addr: addrs[0], flags: []string{"--listen", addrs[0]}}
	return d, d.start()
}

// freeAddrs are n addresses at which nobody listens now.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at once, or one would be given out twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func (d *daemon) start() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "sekali.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"serve", "--data", filepath.Join(d.dir, "data"), "--admin", "none"}, d.flags...)
	for _, setting := range loopSettings {
		args = append(args, "--set", setting)
	}
	cmd := exec.Command(d.binary, args...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd = cmd
	ready := make(chan error, 1)
	go func() { // it says one line when it is ready
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-time.After(startLimit):
		err = errors.New("not ready in time")
	}
	if err != nil {
		d.kill()
		return fmt.Errorf("%s does not serve: %w, see %s", d.binary, err, log.Name())
	}
	return nil
}

// kill is kill -9.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// killAfterWrite is kill -9 in the moment in which a log file of the topic has grown, so that most likely some records
// are written and not yet acknowledged. After a second without growth it kills all the same.
func (d *daemon) killAfterWrite(topic string) error {
	defer d.kill()
	logs, err := filepath.Glob(filepath.Join(d.dir, "data", topic+"-*", "*.log"))
	if err != nil || len(logs) == 0 {
		return fmt.Errorf("no log files of %s: %w", topic, err)
	}
	before := make([]int64, len(logs))
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		for i, log := range logs {
			info, err := os.Stat(log)
			if err != nil {
				return err
			}
			if before[i] != 0 && info.Size() > before[i] {
				return nil
			}
			before[i] = info.Size()
		}
	}
	return nil
}

// stop is the orderly end, which must be with status 0.
func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}
