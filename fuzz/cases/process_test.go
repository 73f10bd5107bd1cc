package cases

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sekali/internal/vfs"
)

// program is the program under test in the full size, as make builds it.
const program = "../../sekali"

// folderVar names a folder on a real disk for the data directories; without it they lie in the temporary folder.
const folderVar = "SEKALI_CASES_DIR"

// fullSizePossible tests what the full size needs: nothing is skipped for lack of it.
func fullSizePossible() error {
	if os.Geteuid() != 0 {
		return errors.New("it mounts a file system and must run as root")
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("it needs the binary, run make build: %w", err)
	}
	kind, err := vfs.OS().Kind(folder())
	if err != nil {
		return err
	}
	if kind == "tmpfs" {
		return fmt.Errorf("%s is no disk but %s: set %s to a folder on a disk", folder(), kind, folderVar)
	}
	for _, tool := range []string{"mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

func folder() string {
	if d := os.Getenv(folderVar); d != "" {
		return d
	}
	return os.TempDir()
}

// process is a broker that runs as a process of its own on a real disk.
type process struct {
	t     *testing.T
	o     options
	top   string // folder of this case
	mount string // the file system of options.disk, empty without
	admin string
	cmd   *exec.Cmd
	ended chan error
	lines *lines
	addr  string
}

func newProcess(t *testing.T, o options) *process {
	t.Helper()
	top, err := os.MkdirTemp(folder(), "sekali-case-")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, o: o, top: top, lines: new(lines)}
	t.Cleanup(p.clear)
	if o.disk > 0 {
		p.mount = filepath.Join(top, "disk")
		if err := os.Mkdir(p.mount, 0o755); err != nil {
			t.Fatal(err)
		}
		size := "nr_inodes=4096,size=" + strconv.FormatInt(o.disk, 10)
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", size, "tmpfs", p.mount).CombinedOutput(); err != nil {
			p.mount = ""
			t.Fatalf("mount: %v: %s", err, out)
		}
	}
	return p
}

func (p *process) clear() {
	if p.cmd != nil {
		p.kill()
	}
	if p.mount != "" {
		if out, err := exec.Command("umount", p.mount).CombinedOutput(); err != nil {
			p.t.Errorf("umount: %v: %s", err, out)
		}
	}
	if err := os.RemoveAll(p.top); err != nil {
		p.t.Error(err)
	}
}

func (p *process) dir() string {
	if p.mount != "" {
		return filepath.Join(p.mount, "data")
	}
	return filepath.Join(p.top, "store", "data")
}

func (p *process) replace() {
	if err := os.RemoveAll(p.dir()); err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(p.dir(), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

var readyLine = regexp.MustCompile(` is ready on ([0-9.:]+) `)

func (p *process) start() error {
	args := []string{"serve", "--data", p.dir(), "--listen", "127.0.0.1:0", "--admin", "none"}
	if p.o.counters {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		p.admin = ln.Addr().String()
		args[len(args)-1] = p.admin
		if err := ln.Close(); err != nil {
			return err
		}
	}
	if p.o.advertise != "" {
		args = append(args, "--advertise", p.o.advertise)
	}
	for k, v := range p.o.settings {
		args = append(args, "--set", k+"="+v)
	}
	p.lines = new(lines)
	p.cmd = exec.Command(program, args...)
	p.cmd.Stderr = p.lines
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SEKALI_") { // those are settings of the broker
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	ready, ended := make(chan string, 1), make(chan error, 1)
	p.ended = ended
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if m := readyLine.FindStringSubmatch(s.Text()); m != nil {
				ready <- m[1]
			}
		}
		ended <- p.cmd.Wait()
	}()
	select {
	case p.addr = <-ready:
		return nil
	case err := <-ended:
		ended <- err
		return fmt.Errorf("ended before it was ready: %w", err)
	case <-time.After(60 * time.Second):
		return errors.New("not ready after a minute")
	}
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		return err
	case <-time.After(60 * time.Second):
		p.kill()
		return errors.New("still running a minute after SIGTERM")
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
	p.cmd = nil
}

func (p *process) alive() error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("the process has ended: %w", err)
	default:
		return nil
	}
}

func (p *process) address() string      { return p.addr }
func (p *process) files() vfs.FS        { return vfs.OS() }
func (p *process) log() string          { return p.lines.String() }
func (p *process) now() int64           { return time.Now().UnixMilli() }
func (p *process) pass(d time.Duration) { time.Sleep(d) }

// leave sizes a file beside the data directory so that the given space is left.
func (p *process) leave(bytes int64) error {
	f, err := os.OpenFile(filepath.Join(p.mount, "ballast"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if bytes < 0 {
		return f.Truncate(0)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, usable, err := vfs.OS().Free(p.mount)
	if err != nil {
		return err
	}
	size := info.Size() + usable - bytes
	if usable <= bytes {
		return f.Truncate(max(size, 0) &^ 4095)
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; {
		n, err := f.WriteAt(zeros[:min(size-at, int64(len(zeros)))], at)
		at += int64(n)
		if err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return nil // the broker took some of it meanwhile
			}
			return err
		}
	}
	return nil
}

// freeze takes every inode there is, or gives them back.
func (p *process) freeze(on bool) error {
	folder := filepath.Join(p.mount, "inodes")
	if !on {
		return os.RemoveAll(folder)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(folder, strconv.Itoa(i)))
		if errors.Is(err, syscall.ENOSPC) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// heap is what /proc says of memory that is not the page cache's.
func (p *process) heap() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

var allocLine = regexp.MustCompile(`(?m)^go_memstats_alloc_bytes_total (\S+)$`)

func (p *process) allocs() uint64 {
	r, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	m := allocLine.FindSubmatch(b)
	if m == nil {
		p.t.Fatal("no go_memstats_alloc_bytes_total among the metrics")
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return uint64(v)
}

// clockTick is the unit of /proc/PID/stat, the same on every Linux.
const clockTick = 10 * time.Millisecond

func (p *process) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	// The fields behind the name, which is in brackets and may hold anything; user and system time are the 12th and 13th.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(user+system) * clockTick
}
