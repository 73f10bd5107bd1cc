package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// filling is how a partition of the directory for the dump tool comes about: 1 MiB segments, which is the smallest.
type filling struct {
	topic string
	set   []string
}

var fillings = []filling{
	{"dump-none", nil}, {"dump-gzip", nil}, {"dump-snappy raw", nil}, {"dump-snappy xerial", nil}, {"dump-lz4 as Java", nil},
	{"dump-lz4 as pierrec", nil}, {"dump-zstd", nil},
	{"dump-appendtime", []string{"message.timestamp.type", "LogAppendTime"}},
	{"dump-retention", []string{"retention.bytes", "2000000"}},
	{"dump-deleted", nil}, {"dump-backwards", nil}, {"dump-large", []string{"max.message.bytes", "1048576"}},
	{"dump-sparse", []string{"index.interval.bytes", "100000"}}, {"dump-dense", []string{"index.interval.bytes", "0"}},
}

// name is the name of the topic.
func (f filling) name() string { return strings.ReplaceAll(f.topic, " ", "-") }

// fill writes batches of two producers and of none in turn, until about 3.5 segments are full.
func (f filling) fill(s *side, seq *int32) {
	codec := strings.TrimPrefix(f.topic, "dump-")
	size, text := 30_000, strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 100)
	if codec == "large" {
		size = 900_000
	}
	for sent, i := 0, int64(0); sent < 1_200_000; i++ {
		base, step := wall(), i
		if codec == "backwards" {
			base, step = epochTime-i*1000, -i
		}
		var records []rec
		for n := 0; n < size; n += 2000 {
			// The value changes from record to record, so that compressed batches are not all alike.
			k := (n*7 + int(i)*13) % 1500
			r := rec{delta: int32(len(records)), time: step%7 + int64(len(records)%3), key: fmt.Appendf(nil, "%d", i),
				value: []byte(text[k : k+2000]), headers: []head{{[]byte("h"), nil}, {[]byte("i"), []byte("v")}}}
			if n == 4000 {
				r.value = nil
			}
			records = append(records, r)
		}
		m := of(records...)
		m.baseTime, m.maxTime = base, 0
		for _, r := range records {
			m.maxTime = max(m.maxTime, base+r.time)
		}
		if p, ok := packers[codec]; ok {
			m.packed(p.codec, p.pack)
		}
		if i%3 != 2 {
			m.pid, m.epoch, m.seq = 900+i%3, 0, *seq
		}
		if i%3 == 1 { // both producers have sent as much
			*seq += m.count
		}
		b := m.bytes()
		resp, ok := ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, f.name(), 0, b))
		if !ok || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			panic(broken{fmt.Errorf("%s: batch %d: %s %+v", f.topic, i, s.failure, resp)})
		}
		sent += max(len(b), size/2)
	}
}

// round fills every topic against a daemon.
func round(addr string, first bool, seqs map[string]*int32) (err error) {
	s, err := newSide(addr, "filling")
	if err != nil {
		return err
	}
	defer s.close()
	defer func() {
		if b, ok := recover().(broken); ok {
			err = b.err
		}
	}()
	for _, f := range fillings {
		if first {
			s.topic(f.name(), 1, append(slices.Clone(f.set), "segment.bytes", "1048576")...)
			seqs[f.topic] = new(int32)
		}
		f.fill(s, seqs[f.topic])
		if f.topic == "dump-deleted" { // in the middle of a batch of an older segment
			s.deleteRecords(fmt.Sprintf("delete to %d", s.end(f.name(), 0)/2), f.name(), 0, s.end(f.name(), 0)/2+1)
		}
	}
	return nil
}

// fillDirectory fills a data directory in three lives of a daemon: stopped in order, killed, stopped in order. The
// retention of bytes is seen to have deleted segments.
func fillDirectory(binary, dir string) (string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", err
	}
	const name = "dump-data"
	seqs := map[string]*int32{}
	for life := range 3 {
		d, err := startDaemon(binary, dir, name, ports[0], "log.retention.check.interval.ms=1000")
		if err != nil {
			return "", err
		}
		if err := round(d.addr, life == 0, seqs); err != nil {
			d.kill()
			return "", fmt.Errorf("life %d: %w", life+1, err)
		}
		if life == 1 {
			d.kill()
			continue
		}
		if life == 2 {
			if err := retained(d.addr); err != nil {
				d.kill()
				return "", err
			}
		}
		if err := d.stop(); err != nil {
			return "", fmt.Errorf("life %d: %w", life+1, err)
		}
	}
	return filepath.Join(dir, name), nil
}

// retained waits until segments have gone by retention.bytes.
func retained(addr string) error {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(200 * time.Millisecond) {
		s, err := newSide(addr, "retention")
		if err != nil {
			return err
		}
		resp, err := s.c.Call(listOffsets(7, "dump-retention", 0, -2))
		s.close()
		if err != nil {
			return err
		}
		if resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset > 0 {
			return nil
		}
	}
	return errors.New("retention.bytes deleted nothing in 30 s")
}

// dumpSuffixes are the files the dump tool knows.
var dumpSuffixes = []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}

// complaint is what the dump tool prints about a file that is not as it should be.
var complaint = regexp.MustCompile(`(?im)^.*(mismatch|out of order|offsets not found|not found|corrupt|trailing|exception|` +
	`non-consecutive|is followed by|no valid|sanity check failed|error|indexed offset|could not|isvalid: false).*$`)

// dump runs Kafka's dump tool over every file of a stopped data directory, in each of its modes.
func (j java) dump(ctx context.Context, data string) error {
	files := map[string][]string{}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Dir(path) != data {
			files[filepath.Ext(path)] = append(files[filepath.Ext(path)], path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, pass := range []struct {
		suffix string
		flags  []string
		line   string // printed once for a batch, an entry or a file
	}{
		{".log", []string{"--deep-iteration", "--print-data-log"}, `(?m)^baseOffset: `},
		{".log", nil, `(?m)^baseOffset: `},
		{".index", nil, `(?m)^offset: `},
		{".index", []string{"--index-sanity-check"}, `passed sanity check|is empty`},
		{".index", []string{"--verify-index-only"}, `(?m)^Dumping `},
		{".timeindex", nil, `(?m)^timestamp: `},
		{".timeindex", []string{"--index-sanity-check"}, `passed sanity check`},
		{".timeindex", []string{"--verify-index-only"}, `(?m)^Dumping `},
		{".txnindex", nil, `(?m)^Dumping `},
		{".snapshot", nil, `(?m)^producerId: `},
	} {
		if len(files[pass.suffix]) == 0 && pass.suffix != ".txnindex" {
			return fmt.Errorf("%s has no file *%s", data, pass.suffix)
		}
		if err := j.dumpPass(ctx, files[pass.suffix], pass.flags, pass.line); err != nil {
			return fmt.Errorf("%s %v: %w", pass.suffix, pass.flags, err)
		}
	}
	return nil
}

// dumpPass dumps files of one kind in one way; lines that the tool prints are counted.
func (j java) dumpPass(ctx context.Context, files, flags []string, line string) error {
	if len(files) == 0 {
		return nil
	}
	began := time.Now()
	args := append([]string{"--files", strings.Join(files, ",")}, flags...)
	out, err := j.run(ctx, "", "org.apache.kafka.tools.DumpLogSegments", args...)
	if err != nil {
		return err
	}
	if bad := complaint.FindAllString(words(out), 5); bad != nil {
		return fmt.Errorf("the tool complains:\n%s", strings.Join(bad, "\n"))
	}
	if n := strings.Count(out, "Dumping "); n != len(files) {
		return fmt.Errorf("%d of %d files dumped", n, len(files))
	}
	n := len(regexp.MustCompile(line).FindAllString(out, -1))
	if n == 0 {
		return fmt.Errorf("no line matches %s", line)
	}
	fmt.Printf("  $ kafka-dump-log %s --files %d x *%s   (%.1f s) %d lines of %q\n", strings.Join(flags, " "), len(files),
		filepath.Ext(files[0]), time.Since(began).Seconds(), n, strings.TrimPrefix(line, "(?m)^"))
	return nil
}

// words are the lines that are the tool's, without the payload of records. The tool holds the first offset of a file
// against -1, so it reports a gap there in every file that does not begin at 0; these reports are left out.
func words(out string) string {
	lines := strings.Split(payload.ReplaceAllString(out, ""), "\n")
	var kept []string
	for i := 0; i < len(lines); i++ {
		file, gaps := strings.CutPrefix(lines[i], "Non-consecutive offsets in ")
		if !gaps || i+1 == len(lines) {
			kept = append(kept, lines[i])
			continue
		}
		base := strings.TrimLeft(strings.TrimSuffix(filepath.Base(file), ".log"), "0")
		if lines[i+1] == "  -1 is followed by "+base && (i+2 == len(lines) || !strings.Contains(lines[i+2], "is followed by")) {
			i++
			continue
		}
		kept = append(kept, lines[i])
	}
	return strings.Join(kept, "\n")
}

var payload = regexp.MustCompile(` payload: .*`)
