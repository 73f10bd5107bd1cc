// Command compat runs one script through seven Kafka client libraries against a broker and compares all that they
// write, read and are told. run.sh builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	library "sekali/compat/client"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "client" {
		if err := library.Main(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	failed, err := matrix(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// matrix runs every scenario of every client and gives the number of those that failed.
func matrix(ctx context.Context) (failed int, err error) {
	binary := flag.String("sekali", "", "the daemon to start, kill and stop")
	bootstrap := flag.String("bootstrap", "", "HOST:PORT of a broker that runs already, in place of -sekali")
	dir := flag.String("dir", "", "folder for data and files; the caller removes it")
	home := flag.String("home", ".", "folder that holds java/ and node/")
	only := flag.String("run", "", "regular expression: only these scenarios (CLIENT/SCENARIO)")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return 0, err
	}
	if *dir == "" || (*binary == "") == (*bootstrap == "") {
		return 0, fmt.Errorf("give -dir, and one of -sekali and -bootstrap")
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	b := &bench{dir: *dir, topics: "compat", run: strconv.FormatInt(time.Now().UnixMilli(), 36)}
	if *binary != "" {
		if b.daemon, err = startDaemon(*binary, *dir); err != nil {
			return 0, err
		}
		defer func() { // an orderly stop, or the run has failed
			if stopped := b.daemon.stop(); err == nil && stopped != nil {
				err = fmt.Errorf("the daemon did not stop in order: %w", stopped)
			}
		}()
		*bootstrap = b.daemon.addr
		if b.guarded, err = startGuarded(ctx, *binary, filepath.Join(*dir, "guarded"), b.run); err != nil {
			return 0, err
		}
		defer func() {
			if stopped := b.guarded.stop(); err == nil && stopped != nil {
				err = fmt.Errorf("the guarded daemon did not stop in order: %w", stopped)
			}
		}()
	}
	if b.ref, err = newReference(*bootstrap); err != nil {
		return 0, err
	}
	defer b.ref.close()
	if b.transactions, err = b.ref.transactions(ctx); err != nil {
		return 0, err
	}
	if !b.transactions {
		if b.daemon != nil {
			return 0, errors.New("the daemon offers no transactions or no groups")
		}
		fmt.Println("the broker has no transactions: no scenario with the loop is run")
	}
	return b.all(ctx, clients(self, *home), *home, chosen)
}

// all prints a line for each scenario and the closing line.
func (b *bench) all(ctx context.Context, clients []client, home string, chosen *regexp.Regexp) (failed int, err error) {
	passed := 0
	for i := range clients {
		c := &clients[i]
		scenarios := map[string]func() (string, error){}
		names := append([]string(nil), codecs...)
		if c.onlyLoops {
			names = nil
		}
		for _, codec := range names {
			scenarios[codec] = func() (string, error) { return b.roundTrip(ctx, c, codec, c.idempotent) }
		}
		if c.idempotent && !c.onlyLoops {
			// What kafkajs and sarama do unless told otherwise, and everyone who has switched it off.
			names = append(names, "plain")
			scenarios["plain"] = func() (string, error) { return b.roundTrip(ctx, c, "lz4", false) }
		}
		if b.daemon != nil && !c.onlyLoops {
			names = append(names, "restarts")
			scenarios["restarts"] = func() (string, error) { return b.restarts(ctx, c) }
		}
		if b.guarded != nil && !c.onlyLoops {
			for _, w := range ways {
				names = append(names, w.name)
				scenarios[w.name] = func() (string, error) { return b.guarded.through(ctx, c, w) }
			}
			names = append(names, "denied")
			scenarios["denied"] = func() (string, error) { return b.guarded.denied(ctx, c) }
		}
		for _, l := range loopScenarios {
			if c.loops && b.transactions && (b.daemon != nil || !l.ours) && (c.shares || l.name != "loop-rebalances") {
				names = append(names, l.name)
				scenarios[l.name] = func() (string, error) { return l.run(b, ctx, c) }
			}
		}
		if c.readme && b.transactions {
			names = append(names, "loop")
			scenarios["loop"] = func() (string, error) { return b.readme(ctx, home) }
		}
		if c.words && b.transactions {
			names = append(names, "words")
			scenarios["words"] = func() (string, error) { return b.words(ctx, c) }
		}
		for _, name := range names {
			full, began := c.name+"/"+name, time.Now()
			if !chosen.MatchString(full) {
				continue
			}
			note, err := scenarios[name]()
			if ctx.Err() != nil {
				return failed, ctx.Err()
			}
			took := time.Since(began).Seconds()
			if err != nil {
				failed++
				fmt.Printf("FAIL %s (%.1f s) %v\n", full, took, err)
				continue
			}
			passed++
			if c.note != "" && !strings.HasPrefix(name, "loop") && name != "denied" {
				note += "; " + c.note
			}
			fmt.Printf("ok   %s (%.1f s) %s\n", full, took, note)
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if passed+failed == 0 {
		return 0, fmt.Errorf("no scenario chosen")
	}
	return failed, nil
}
