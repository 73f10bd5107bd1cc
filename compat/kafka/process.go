package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// freePorts finds so many ports that nobody listens on.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// process is a broker that this program started. It dies with this program, however that ends.
type process struct {
	addr   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error
}

// spawn starts a program whose output goes to a file; ready decides when it serves.
func spawn(addr, log string, cmd *exec.Cmd, ready func() bool) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{addr: addr, cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended at once: %w: %s", filepath.Base(cmd.Path), p.err, tail(log))
		default:
		}
		if ready() {
			return p, nil
		}
		if time.Since(began) > 2*time.Minute {
			p.kill()
			return nil, fmt.Errorf("%s does not serve: %s", filepath.Base(cmd.Path), tail(log))
		}
	}
}

func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop is the orderly end, within a minute.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return p.err
	case <-time.After(time.Minute):
		p.kill()
		return errors.New("not stopped within a minute")
	}
}

// accepts tells whether somebody listens.
func accepts(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// groupSettings are those that both brokers are given so that groups can be looked at without waiting.
var groupSettings = []string{"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500",
	"group.consumer.session.timeout.ms=1500", "group.consumer.heartbeat.interval.ms=300"}

// startDaemon serves dir/name with these settings on a port, and waits for the line that says so.
func startDaemon(binary, dir, name, port string, settings ...string) (*process, error) {
	addr := "127.0.0.1:" + port
	args := []string{"serve", "--data", filepath.Join(dir, name), "--listen", addr, "--admin", "none"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	log := filepath.Join(dir, name+".log")
	began, _ := os.ReadFile(log)
	return spawn(addr, log, exec.Command(binary, args...), func() bool {
		b, err := os.ReadFile(log)
		return err == nil && bytes.Contains(b[len(began):], []byte("is ready on"))
	})
}

// java is a Java with Kafka's libraries.
type java struct {
	lib string // directory of the libraries
	dir string // for files
}

// command is a call of one of Kafka's programs. What such a program does is short: the simple compiler and collector
// start fastest.
func (j java) command(ctx context.Context, class string, args ...string) *exec.Cmd {
	flags := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-cp", filepath.Join(j.lib, "*"), class}
	c := exec.CommandContext(ctx, "java", append(flags, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

const toolLimit = 90 * time.Second // of one run of a tool

// run runs a program to its end and returns all that it printed; an end with another status than 0 is an error.
func (j java) run(ctx context.Context, input, class string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	c := j.command(ctx, class, args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", class, err, out)
	}
	return string(out), nil
}

// startKafka formats a directory and starts a broker with a controller of its own on it.
func (j java) startKafka(ctx context.Context) (*process, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	addr, controller := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	config := filepath.Join(j.dir, "server.properties")
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	for _, line := range []string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller,
		"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(j.dir, "kafka-data"), "offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "offsets.topic.num.partitions=1",
		"transaction.state.log.num.partitions=1", "group.consumer.min.session.timeout.ms=500",
		"group.consumer.min.heartbeat.interval.ms=100", strings.Join(groupSettings, "\n"),
	} {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, text.Bytes(), 0o644); err != nil {
		return nil, err
	}
	const cluster = "c2VrYWxpLWNvbXBhdC0xMg"
	if _, err := j.run(ctx, "", "kafka.tools.StorageTool", "format", "-t", cluster, "-c", config); err != nil {
		return nil, err
	}
	server := exec.Command("java", "-Xmx768m", "-XX:+UseSerialGC", "-cp", filepath.Join(j.lib, "*"), "kafka.Kafka", config)
	return spawn(addr, filepath.Join(j.dir, "kafka.log"), server, func() bool { return accepts(addr) })
}
