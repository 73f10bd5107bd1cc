// Command kafka holds this daemon against Apache Kafka: the same requests to both, with every difference accounted for;
// Kafka's own tools against the daemon; and Kafka's dump tool over its files. run-kafka.sh builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	lib, dir, binary, clients string
	phases, scripts           *regexp.Regexp
	verbose                   bool
}

func main() {
	lib := flag.String("lib", "", "folder with Kafka's jars")
	dir := flag.String("dir", "", "empty folder for data and files; the caller removes it")
	binary := flag.String("sekali", "", "the daemon")
	clients := flag.String("clients", "", "program that runs the client scripts against BOOTSTRAP")
	phases := flag.String("phases", "", "regular expression: only these of differential, clients, compared, tools, dump")
	scripts := flag.String("run", "", "regular expression: only these scripts of the differential")
	verbose := flag.Bool("v", false, "print what Apache Kafka shows at every step")
	table := flag.Bool("table", false, "print the table of differences for docs/protocol.md, and nothing else")
	flag.Parse()
	if *table {
		fmt.Print(differencesTable())
		return
	}
	o := options{lib: *lib, dir: *dir, binary: *binary, clients: *clients, verbose: *verbose}
	var err1, err2 error
	o.phases, err1 = regexp.Compile(*phases)
	o.scripts, err2 = regexp.Compile(*scripts)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	err := errors.Join(err1, err2)
	if err == nil {
		err = o.all(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat-kafka:", err)
		os.Exit(1)
	}
}

// all runs the phases. The daemon of the dump phase is one of its own.
func (o *options) all(ctx context.Context) error {
	if o.lib == "" || o.dir == "" || o.binary == "" {
		return errors.New("give -lib, -dir and -sekali")
	}
	j := java{lib: o.lib, dir: o.dir}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	sekali, err := startDaemon(o.binary, o.dir, "sekali-data", ports[0], groupSettings...)
	if err != nil {
		return err
	}
	defer sekali.kill()
	var kafka *process
	if o.phases.MatchString("differential") || o.phases.MatchString("clients") || o.phases.MatchString("compared") {
		began := time.Now()
		if kafka, err = j.startKafka(ctx); err != nil {
			return err
		}
		defer kafka.kill()
		fmt.Printf("Apache Kafka serves on %s after %.1f s, sekali on %s\n", kafka.addr, time.Since(began).Seconds(),
			sekali.addr)
	}
	for _, p := range []struct {
		name string
		run  func() error
	}{
		{"differential", func() error { return o.differential(kafka.addr, sekali.addr) }},
		{"clients", func() error { return o.scriptsOn(ctx, kafka.addr) }},
		{"compared", func() error { return o.comparedTools(ctx, j, kafka.addr) }},
		{"tools", func() error {
			if err := j.tools(ctx, sekali.addr); err != nil {
				return err
			}
			return o.securedTools(ctx, j)
		}},
		{"dump", func() error { return o.dump(ctx, j) }},
	} {
		if !o.phases.MatchString(p.name) || ctx.Err() != nil {
			continue
		}
		fmt.Println("==", p.name)
		began := time.Now()
		if err := p.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("   %s passed in %.1f s\n", p.name, time.Since(began).Seconds())
		if kafka != nil && p.name == "compared" {
			kafka.kill() // the rest is about the daemon alone
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := sekali.stop(); err != nil {
		return fmt.Errorf("the daemon did not stop in order: %w", err)
	}
	if !o.phases.MatchString("tools") || !o.phases.MatchString("dump") {
		return nil
	}
	fmt.Println("== dump of what the other phases left")
	if err := j.dump(ctx, filepath.Join(o.dir, "sekali-data")); err != nil {
		return fmt.Errorf("dump of what the other phases left: %w", err)
	}
	return nil
}

// differential compares both brokers and holds the differences against the list of those that are meant.
func (o *options) differential(kafka, sekali string) error {
	found, steps, err := differential(kafka, sekali, o.scripts.MatchString, o.verbose)
	if err != nil {
		return err
	}
	wrong := judge(found, expectations(), o.scripts.MatchString)
	for _, w := range wrong {
		fmt.Println(w)
	}
	fmt.Printf("   %d steps compared, %d equal, %d different and meant\n", steps, steps-len(found), len(found))
	if len(wrong) > 0 {
		return fmt.Errorf("%d differences that are not as the list has them", len(wrong))
	}
	return nil
}

// scriptsOn runs the client scripts of the daemon against Apache Kafka.
func (o *options) scriptsOn(ctx context.Context, addr string) error {
	if o.clients == "" {
		return errors.New("give -clients")
	}
	c := exec.CommandContext(ctx, o.clients)
	c.Env = append(os.Environ(), "BOOTSTRAP="+addr)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	return c.Run()
}

// comparedTools runs tools against Kafka and a daemon of its own: both take batches of transactions that no coordinator
// knows, so that there is one that hangs.
func (o *options) comparedTools(ctx context.Context, j java, kafka string) error {
	if err := letHanging(kafka); err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	settings := append(groupSettings[:len(groupSettings):len(groupSettings)],
		"transaction.partition.verification.enable=false")
	sekali, err := startDaemon(o.binary, o.dir, "compared-data", ports[0], settings...)
	if err != nil {
		return err
	}
	defer sekali.kill()
	if err := j.compareTools(ctx, kafka, sekali.addr); err != nil {
		return err
	}
	if err := sekali.stop(); err != nil {
		return err
	}
	return j.compareDecoded(ctx, filepath.Join(o.dir, "kafka-data"), filepath.Join(o.dir, "compared-data"))
}

// dump fills a directory and runs the dump tool over all of it.
func (o *options) dump(ctx context.Context, j java) error {
	began := time.Now()
	data, err := fillDirectory(o.binary, o.dir)
	if err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(data, "*", "*.log"))
	if err != nil {
		return err
	}
	fmt.Printf("   %d partitions with %d segments in %.1f s\n", len(fillings), len(names), time.Since(began).Seconds())
	return j.dump(ctx, data)
}
