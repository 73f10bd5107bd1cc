package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"

	"sekali/broker"
	"sekali/internal/vfs"
	"sekali/store"
)

// checkCmd verifies the data directory of a stopped daemon: every checksum, offset, sequence, index and checkpoint. It
// changes nothing, unless --repair is given and confirmed.
type checkCmd struct {
	Dir    string   `arg:"" name:"dir" help:"Data directory of a stopped daemon."`
	Only   []string `name:"only" placeholder:"TOPIC-N" help:"Look at this partition alone; may be repeated."`
	Config string   `name:"config" placeholder:"FILE" help:"${check_config}"`
	Set    []string `name:"set" sep:"none" placeholder:"NAME=VALUE" help:"One setting, over the file; may be repeated."`
	Repair bool     `name:"repair" help:"${check_repair}"`
	Yes    bool     `name:"yes" short:"y" help:"Repair without asking."`
	JSON   bool     `name:"json" help:"JSON instead of a table."`
}

// Run checks the directory. Its exit codes are 0 clean, 1 damage, 2 could not run.
func (c *checkCmd) Run(io streams) error {
	code, err := c.run(io)
	if err != nil {
		fmt.Fprintln(io.err, "sekali: check:", err)
		code = exitUsage
	}
	if code == exitOK {
		return nil
	}
	return exitError{code}
}

func (c *checkCmd) run(s streams) (code int, err error) {
	conf, err := c.settings()
	if err != nil {
		return 0, err
	}
	fs := vfs.OS()
	st, err := fs.Stat(c.Dir)
	if err != nil {
		return 0, err
	}
	if !st.IsDir {
		return 0, fmt.Errorf("%s is no directory; sekali dump shows a file", c.Dir)
	}
	hold, err := holdDir(fs, c.Dir, c.Repair)
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	judge := func() (*checkReport, error) {
		k := checker{fs: fs, dir: path.Clean(c.Dir), conf: conf.Config, only: c.Only, bar: newMeter(s.err)}
		return k.check()
	}
	rep, err := judge()
	if err == nil {
		err = rep.show(s.out, c.JSON)
	}
	if err != nil {
		return 0, err
	}
	if c.Repair {
		return c.repair(s, fs, rep, judge)
	}
	return exitOfReport(rep), nil
}

func exitOfReport(rep *checkReport) int {
	if rep.Damage > 0 {
		return exitFailed
	}
	return exitOK
}

// settings are those of the daemon, as far as its files and the command line tell: defaults of topic settings, and when
// producers are forgotten.
func (c *checkCmd) settings() (*configured, error) {
	file, err := fileLayer(c.Config)
	if err != nil {
		return nil, err
	}
	env, _ := envLayer(os.Environ())
	set, err := pairs(c.Set)
	if err != nil {
		return nil, fmt.Errorf("--set: %w", err)
	}
	return resolveConfig(file, env, layer{"--set", set})
}

// repair says what it would do, asks, does it, and checks again.
func (c *checkCmd) repair(
	s streams, fs vfs.FS, rep *checkReport, judge func() (*checkReport, error),
) (code int, err error) {
	var plans []*repair
	for _, p := range rep.Partitions {
		if p.fix != nil {
			plans = append(plans, p.fix)
		}
	}
	say := s.out
	if c.JSON {
		say = s.err
	}
	if len(plans) == 0 {
		if rep.Damage > 0 {
			fmt.Fprintln(say, "\nNothing that a repair could do: see the help of each finding.")
		}
		return exitOfReport(rep), nil
	}
	fmt.Fprintln(say, "\nThe repair would do this:")
	for _, r := range plans {
		r.describe(say)
	}
	if !c.Yes && !confirmed(s.in, say) {
		fmt.Fprintln(say, "Nothing was changed.")
		return exitFailed, nil
	}
	for i, r := range plans {
		if err := r.apply(fs, path.Clean(c.Dir)); err != nil {
			return 0, fmt.Errorf("repair of %s (%d of %d, those before are done): %w", r.part.name(), i+1, len(plans), err)
		}
		fmt.Fprintf(say, "repaired %s\n", r.part.name())
	}
	if rep, err = judge(); err != nil {
		return 0, err
	}
	if rep.Damage > 0 {
		fmt.Fprintln(say, "\nWhat is left:")
		err = rep.print(say)
	} else {
		fmt.Fprintln(say, "Checked again: clean.")
	}
	return exitOfReport(rep), err
}

// confirmed asks for a yes on the input; the end of the input is a no.
func confirmed(in io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "\nDo all of this? Type yes: ")
	line, _ := bufio.NewReader(in).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "yes")
}

// holdDir keeps a daemon from starting on the directory meanwhile, and refuses one that runs. Shared, it takes the lock
// of the file that is there and changes nothing; where there is none, no daemon has been here. Exclusive is for a
// repair.
func holdDir(fs vfs.FS, dir string, exclusive bool) (io.Closer, error) {
	name := path.Join(dir, store.LockFile)
	if exclusive {
		l, err := fs.LockFile(name)
		return l, inUse(dir, err)
	}
	f, err := os.Open(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			held := &vfs.LockedError{Path: name}
			if b, rerr := io.ReadAll(io.LimitReader(f, 32)); rerr == nil {
				held.PID, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			}
			err = held
		}
		return nil, errors.Join(inUse(dir, err), f.Close())
	}
	return f, nil
}

func inUse(dir string, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("the data directory %s is in use, stop the daemon first: %w", dir, err)
	}
	return err
}

// meter shows progress on a terminal, in bytes. A nil one shows nothing. Any goroutine may add.
type meter struct {
	bar *progressbar.ProgressBar
	w   io.Writer
}

// newMeter is nil unless w is a terminal.
func newMeter(w io.Writer) *meter {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &meter{w: w}
}

func (m *meter) begin(total int64) {
	if m != nil {
		m.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(m.w), progressbar.OptionShowBytes(true),
			progressbar.OptionSetDescription("checking"), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
	}
}

func (m *meter) add(n int64) {
	if m != nil {
		_ = m.bar.Add64(n) // it only draws
	}
}

func (m *meter) end() {
	if m != nil {
		_ = m.bar.Finish()
	}
}

// checker is one check of one directory. Its fields are settled before the partitions are looked at, which a few
// goroutines do.
type checker struct {
	fs   vfs.FS
	dir  string
	conf broker.Config
	only []string
	bar  *meter

	own     findings // of the directory's own files
	ours    bool     // the format marker is there: the directory is not, or no longer, Kafka's
	clean   bool     // the last stop was clean
	catalog bool     // the metadata could be read
	dropped bool     // some transactions were not held against each other
	epoch   int64    // start epoch that the metadata says; -1: unknown
	topics  []store.TopicInfo

	// As the next start will read them; nil: cannot be read.
	recovery, starts, marks, cleaned, highs store.Offsets
	lines                                   map[string]map[store.Place]int64 // positions of their entries
}

// check looks at everything. An error says that it could not be done, not that something is wrong.
func (k *checker) check() (*checkReport, error) {
	names, err := k.fs.ReadDir(k.dir)
	if err != nil {
		return nil, err
	}
	if !k.recognised(names) {
		return nil, fmt.Errorf("%s does not look like a data directory", k.dir)
	}
	if err := k.ownFiles(names); err != nil {
		return nil, err
	}
	parts, err := k.partitions(names)
	if err != nil {
		return nil, err
	}
	total, err := k.size(parts)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		p.txns.markers.most = max(markersShare, markersMax/len(parts))
	}
	k.bar.begin(total)
	err = k.each(parts)
	k.bar.end()
	if err != nil {
		return nil, err
	}
	k.transactions(parts)
	rep := &checkReport{Dir: k.dir, CleanStop: k.clean, Partitions: []*checkedPartition{}}
	for _, p := range parts {
		rep.Partitions = append(rep.Partitions, p.out)
	}
	rep.sum(&k.own)
	return rep, nil
}

// each checks the partitions, a few at a time: the codecs and the checksums take the processor, not the disk.
func (k *checker) each(parts []*partCheck) error {
	const workersMax = 4
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(parts))
	for range min(workersMax, runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				if errs[i] = parts[i].run(); errs[i] != nil {
					next.Store(int64(len(parts)))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// size is how many bytes of log there are to read.
func (k *checker) size(parts []*partCheck) (total int64, err error) {
	for _, p := range parts {
		names, err := k.fs.ReadDir(p.dir)
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return 0, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".log") {
				st, err := k.fs.Stat(path.Join(p.dir, name))
				if err != nil {
					return 0, err
				}
				total += st.Size
			}
		}
	}
	return total, nil
}

// chosen tells whether a partition is to be looked at.
func (k *checker) chosen(name string) bool { return len(k.only) == 0 || slices.Contains(k.only, name) }

// changed are the settings made at run time that a state of the metadata holds, those for this node over those for all.
func (k *checker) changed(servers map[string]map[string]string, node int32) {
	all := maps.Clone(servers[""])
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, servers[strconv.Itoa(int(node))])
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := k.conf.Set(name, all[name]); err != nil {
			k.own.add(finding{levelNote, k.dir, -1, -1, ruleCatalog,
				fmt.Sprintf("stored setting %s=%s is left out: %v", name, all[name], err), ""})
		}
	}
}
