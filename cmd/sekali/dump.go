package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/store"
)

// dumpCmd shows any file of a data directory as text.
type dumpCmd struct {
	File    string `arg:"" name:"file" help:"A file of a data directory; its name tells what it is."`
	Records bool   `name:"records" short:"r" help:"Records too, not only the batches of a .log."`
	JSON    bool   `name:"json" help:"One JSON object a line."`
}

// Run shows the file. Damage is told with its position on standard error, with status 1; 2: it could not be shown.
func (c *dumpCmd) Run(io streams) error {
	d := dumper{fs: vfs.OS(), name: c.File, out: io.out, records: c.Records, json: c.JSON}
	err := d.dump()
	switch damage := (*dumpDamage)(nil); {
	case err == nil:
		return nil
	case asDamage(err, &damage):
		fmt.Fprintf(io.err, "sekali: dump: %v\n", err)
		return exitError{exitFailed}
	}
	fmt.Fprintln(io.err, "sekali: dump:", err)
	return exitError{exitUsage}
}

// dumpDamage is a file that is not what its name says from a position on.
type dumpDamage struct {
	path string
	pos  int64
	what string
}

// Error names the file and the place.
func (e *dumpDamage) Error() string { return fmt.Sprintf("%s, position %d: %s", e.path, e.pos, e.what) }

func asDamage(err error, to **dumpDamage) (ok bool) {
	*to, ok = err.(*dumpDamage)
	return ok
}

// dumper shows one file. One goroutine owns it.
type dumper struct {
	fs      vfs.FS
	name    string
	out     io.Writer
	records bool
	json    bool
}

// field is one name and value of a line.
type field struct {
	name  string
	value any
}

// line writes one thing that the file holds.
func (d *dumper) line(fields ...field) error {
	if d.json {
		var b strings.Builder
		for i, f := range fields {
			v, err := json.Marshal(f.value)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s%q:%s", []string{",", "{"}[btoi(i == 0)], f.name, v)
		}
		_, err := fmt.Fprintf(d.out, "%s}\n", b.String())
		return err
	}
	words := make([]string, 0, len(fields))
	for _, f := range fields {
		value := f.value
		if s, ok := value.(string); ok && (s == "" || strings.ContainsFunc(s, unprintable)) {
			value = fmt.Sprintf("%q", s)
		}
		words = append(words, fmt.Sprintf("%s=%v", f.name, value))
	}
	_, err := fmt.Fprintln(d.out, strings.Join(words, " "))
	return err
}

func (d *dumper) damage(pos int64, what string) error { return &dumpDamage{d.name, pos, what} }

// dump finds out by the name what the file is. What a file was renamed or copied to (.tmp, .deleted, .cleaned, .swap)
// is shown as what it was.
func (d *dumper) dump() error {
	st, err := d.fs.Stat(d.name)
	if err != nil {
		return err
	}
	if st.IsDir {
		return fmt.Errorf("%s is a directory; sekali check verifies one", d.name)
	}
	base := path.Base(d.name)
	if at, kind, _, ok := segmentName(base); ok {
		return d.segmentFile(at, kind)
	}
	if prefix, shard, ok := snapshotOf(strings.TrimSuffix(base, ".tmp")); ok {
		return d.coordSnapshot(prefix, shard)
	}
	show, ok := map[string]func([]byte) error{
		store.FormatFile: d.format, store.PropertiesFile: d.properties, store.TopicIDFile: d.topicID,
		store.CleanFile: d.text, store.LockFile: d.text, reserveName: d.text, epochName: d.epochs,
		store.RecoveryFile: d.offsets, store.StartFile: d.offsets, store.MarkFile: d.offsets,
		store.CleanerFile: d.offsets, store.HighFile: d.offsets,
		meta.LogName: d.metaLog, meta.SnapshotName: d.metaSnapshot,
	}[strings.TrimSuffix(base, ".tmp")]
	if !ok {
		return fmt.Errorf("%s is no file of a data directory by its name", d.name)
	}
	b, err := vfs.ReadFile(d.fs, d.name)
	if err != nil {
		return err
	}
	return show(b)
}

// text shows a file that is one line of text, or nothing.
func (d *dumper) text(b []byte) error { return d.line(field{"text", strings.TrimSpace(string(b))}) }

func (d *dumper) format(b []byte) error {
	v, err := store.DecodeFormat(b)
	if err != nil {
		return d.damage(0, err.Error())
	}
	return d.line(field{"format", v})
}

func (d *dumper) properties(b []byte) error {
	id, err := store.DecodeIdentity(b)
	if err != nil {
		return d.damage(0, err.Error())
	}
	return d.line(field{"cluster.id", id.ClusterID}, field{"node.id", id.NodeID}, field{"directory.id", id.DirectoryID})
}

func (d *dumper) topicID(b []byte) error {
	id, err := store.DecodePartitionID(b)
	if err != nil {
		return d.damage(0, err.Error())
	}
	return d.line(field{"topic_id", id.String()})
}

func (d *dumper) offsets(b []byte) error {
	list, fault := decodeOffsetLines(b)
	for _, l := range list {
		err := d.line(field{"topic", l.topic}, field{"partition", l.partition}, field{"offset", l.offset})
		if err != nil {
			return err
		}
	}
	return d.faulty(fault)
}

func (d *dumper) epochs(b []byte) error {
	list, fault := decodeEpochLines(b)
	for _, l := range list {
		if err := d.line(field{"leader_epoch", l.epoch}, field{"start_offset", l.start}); err != nil {
			return err
		}
	}
	return d.faulty(fault)
}

func (d *dumper) faulty(fault *textFault) error {
	if fault == nil {
		return nil
	}
	return d.damage(fault.pos, fault.why)
}

// metaLog shows each change with the position of its record.
func (d *dumper) metaLog(b []byte) error {
	log, err := meta.DecodeLog(d.name, b)
	if damage, ok := err.(*meta.CorruptError); ok && len(log.Changes) == 0 {
		return d.damage(damage.Pos, damage.Err.Error())
	}
	if lerr := d.line(field{"base_revision", log.Base}); lerr != nil {
		return lerr
	}
	pos := int64(20) // behind the header
	for _, c := range log.Changes {
		for _, op := range c.Ops {
			value, _ := toText(op.Value)
			fields := []field{{"position", pos}, {"revision", c.Rev}, {"key", op.Key}}
			switch {
			case op.Value == nil:
				fields = append(fields, field{"deleted", true})
			case value != nil:
				fields = append(fields, field{"value", *value})
			default:
				fields = append(fields, field{"value", fmt.Sprintf("%x", op.Value)})
			}
			if err := d.line(fields...); err != nil {
				return err
			}
		}
		pos += 12 + int64(b[pos+4])<<24 + int64(b[pos+5])<<16 + int64(b[pos+6])<<8 + int64(b[pos+7])
	}
	if damage, ok := err.(*meta.CorruptError); ok {
		return d.damage(damage.Pos, damage.Err.Error())
	}
	if log.Torn != nil {
		return d.damage(log.End, "torn: "+log.Torn.Error())
	}
	return err
}

func (d *dumper) metaSnapshot(b []byte) error {
	state, rev, err := meta.DecodeSnapshot(d.name, b)
	if err != nil {
		return d.damage(0, err.Error())
	}
	if err = d.line(field{"revision", rev}, field{"keys", state.Len()}); err != nil {
		return err
	}
	state.Range("", func(it meta.Item) bool {
		value := fmt.Sprintf("%x", it.Value)
		if text, _ := toText(it.Value); text != nil {
			value = *text
		}
		err = d.line(field{"revision", it.Rev}, field{"key", it.Key}, field{"value", value})
		return err == nil
	})
	return err
}
