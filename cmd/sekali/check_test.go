package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sekali/internal/vfs"
	"sekali/store"
)

// TestCheckClean: a directory that was closed in order is clean, checking it changes nothing, and so is one that was
// started and closed again.
func TestCheckClean(t *testing.T) {
	m := vfs.NewMem()
	h := mustOpenHome(t, m)
	if err := h.furnish(); err != nil {
		t.Fatal(err)
	}
	h.mustClose(t)
	for range 2 {
		before := sum(files(t, m, homeDir))
		rep := checkHome(t, m)
		if rep.Damage > 0 || !rep.CleanStop || rep.TailBytes > 0 {
			t.Fatalf("%+v\n%s", rep, said(rep))
		}
		if sum(files(t, m, homeDir)) != before {
			t.Fatal("the check has changed something")
		}
		mustOpenHome(t, m).mustClose(t)
	}
}

// TestCheckCommand is the command as scripts use it, on a real disk: refused while a daemon runs, clean when it has
// stopped, damage after a byte has changed, repaired after a yes, and then the daemon serves what is left.
func TestCheckCommand(t *testing.T) {
	dir := t.TempDir()
	words := []string{"--data", dir, "--listen", "127.0.0.1:0", "--admin", "none"}
	d := startDaemon(t, words...)
	for i := range 5 {
		lines := fmt.Sprintf("a%d\nb%d\n", i, i)
		if code, _, errs := command(lines, "produce", "orders", "-p", "0", "--bootstrap", d.addr); code != exitOK {
			t.Fatal(errs)
		}
	}
	if code, out, errs := command("", "check", dir); code != exitUsage || out != "" || !strings.Contains(errs, "in use") {
		t.Errorf("beside a running daemon: status %d, %s%s", code, out, errs)
	}
	d.stop(t)
	code, out, errs := command("", "check", dir)
	if code != exitOK || !strings.Contains(out, "orders-0") || !strings.Contains(out, "clean") || errs != "" {
		t.Fatalf("after a stop: status %d, %s%s", code, out, errs)
	}
	log := filepath.Join(dir, "orders-0", "00000000000000000000.log")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-3] ^= 4 // in the last batch
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ = command("", "check", "--json", dir)
	var rep checkReport
	if err := json.Unmarshal([]byte(out), &rep); err != nil || code != exitFailed || rep.Damage == 0 || !rep.CleanStop {
		t.Fatalf("damaged: status %d, %v, %s", code, err, out)
	}
	f := rep.Partitions[0].Findings[0]
	if f.Path != log || f.Position <= 0 || f.Offset < 8 || f.Rule != "I2" || !strings.Contains(f.Help,
		"check --repair "+dir) {
		t.Errorf("%+v", f)
	}
	unlocked := func() [32]byte {
		all := files(t, vfs.OS(), dir)
		delete(all, filepath.Join(dir, store.LockFile)) // a repair holds it as a daemon does
		return sum(all)
	}
	before := unlocked()
	for _, answer := range []string{"", "no\n", "y\n"} {
		if code, out, _ = command(answer, "check", "--repair", dir); code != exitFailed {
			t.Errorf("answer %q: status %d, %s", answer, code, out)
		}
		if !strings.Contains(out, "LOST: ") || !strings.Contains(out, "Nothing was changed") {
			t.Errorf("answer %q: %s", answer, out)
		}
	}
	if unlocked() != before {
		t.Error("a repair that was not confirmed has changed something")
	}
	if code, out, errs = command("yes\n", "check", "--repair", dir); code != exitOK || !strings.Contains(out, "clean") {
		t.Fatalf("repair: status %d, %s%s", code, out, errs)
	}
	if code, out, _ = command("", "check", dir); code != exitOK {
		t.Errorf("after the repair: status %d, %s", code, out)
	}
	d = startDaemon(t, words...)
	defer d.stop(t)
	out = ""
	if code, out, errs = command("", "consume", "orders", "-e", "--bootstrap", d.addr); code != exitOK ||
		!strings.HasPrefix(out, "a0\nb0\n") || strings.Contains(out, "b4") {
		t.Errorf("what is left: status %d, %q %s", code, out, errs)
	}
}

// TestCheckCannotRun: what keeps the check from looking at all is status 2.
func TestCheckCannotRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words []string
		says  string
	}{
		{[]string{filepath.Join(dir, "none")}, "no such file"},
		{[]string{dir}, "does not look like a data directory"},
		{[]string{file}, "is no directory"},
		{[]string{"--config", file + ".none", dir}, "no such file"},
		{[]string{"--set", "nonsense=1", dir}, "unknown setting"},
		{[]string{}, "dir"},
	} {
		code, out, errs := command("", append([]string{"check"}, c.words...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%v: status %d, %s%s", c.words, code, out, errs)
		}
	}
}
