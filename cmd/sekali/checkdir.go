package main

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/store"
)

// kraftDir is the directory Kafka keeps its own metadata in; it is no partition of ours.
const kraftDir = "__cluster_metadata-0"

// reserveName is a file without content that keeps blocks for the day the disk is full.
const reserveName = "sekali.reserve"

// Keys of the metadata that are held against other files.
const (
	metaEpoch   = "epoch"
	metaCluster = "cluster"
)

// damage and note are findings about the directory's own files.
func (k *checker) damage(name string, position int64, rule, what, help string) {
	k.own.add(finding{levelDamage, path.Join(k.dir, name), position, -1, rule, what, help})
}

func (k *checker) note(name, rule, what, help string) {
	k.own.add(finding{levelNote, path.Join(k.dir, name), -1, -1, rule, what, help})
}

// recognised tells whether the names in a directory are those of a data directory.
func (k *checker) recognised(names []string) bool {
	for _, name := range names {
		switch name {
		case store.FormatFile, store.PropertiesFile, meta.LogName, meta.SnapshotName, store.RecoveryFile:
			return true
		}
	}
	return false
}

// read reads one of the directory's own files; found is false where there is none.
func (k *checker) read(name string) (b []byte, found bool, err error) {
	b, err = vfs.ReadFile(k.fs, path.Join(k.dir, name))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// ownFiles checks the files at the top of the directory and learns from them what the next start would.
func (k *checker) ownFiles(names []string) error {
	k.ours, k.clean = slices.Contains(names, store.FormatFile), slices.Contains(names, store.CleanFile)
	node, cluster, err := k.identity()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		k.format, k.cleanFile, func() error { return k.metadata(names, node, cluster) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name string
		to   *store.Offsets
		help string
	}{
		{store.RecoveryFile, &k.recovery, "the next start scans every log whole and writes it anew"},
		{store.StartFile, &k.starts, "the next start takes the first segment as the log start; records that were " +
			"deleted from it come back"},
		{store.MarkFile, &k.marks, "the next start uses the recovery points in their place and writes it anew"},
		{store.CleanerFile, &k.cleaned, "the next start writes it anew"},
		{store.HighFile, &k.highs, "the next start writes it anew; it then cannot tell what a power cut took"},
	} {
		if *f.to, err = k.offsets(f.name, f.help); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) format() error {
	b, found, err := k.read(store.FormatFile)
	if err != nil {
		return err
	}
	if !found {
		level, help := levelNote, "the next start takes the directory over"
		if k.clean && k.hasMeta() {
			level, help = levelDamage, "without it the next start takes the directory for one that Apache Kafka wrote: "+
				"put it back from a copy"
		}
		k.own.add(finding{level, path.Join(k.dir, store.FormatFile), -1, -1, ruleFormat, "there is no format marker", help})
		return nil
	}
	v, err := store.DecodeFormat(b)
	if err != nil {
		k.damage(store.FormatFile, 0, ruleFormat, err.Error(), "put it back from a copy; this program writes: "+
			"sekali dump shows its form")
	} else if v > store.FormatVersion {
		return fmt.Errorf("%s is of format %d, this program knows formats up to %d: use a newer one", k.dir, v,
			store.FormatVersion)
	}
	return nil
}

func (k *checker) hasMeta() bool {
	ok, err := vfs.Exists(k.fs, path.Join(k.dir, meta.LogName))
	return ok && err == nil
}

// identity reads meta.properties.
func (k *checker) identity() (node int32, cluster string, err error) {
	b, found, err := k.read(store.PropertiesFile)
	if err != nil {
		return 0, "", err
	}
	if !found {
		k.note(store.PropertiesFile, ruleFormat, "there is none", "the next start writes it")
		return 1, "", nil
	}
	id, err := store.DecodeIdentity(b)
	switch {
	case err != nil:
		k.damage(store.PropertiesFile, 0, ruleFormat, err.Error(), "put it back from a copy, or remove it: the next start "+
			"writes it from the metadata")
		return 1, "", nil
	case k.ours && (id.ClusterID == "" || strings.ContainsFunc(id.ClusterID, unprintable) || !isID(id.DirectoryID) ||
		id.NodeID < 0):
		k.damage(store.PropertiesFile, 0, ruleFormat, fmt.Sprintf("cluster.id %q, directory.id %q, node.id %d",
			clip(id.ClusterID), clip(id.DirectoryID), id.NodeID), "put it back from a copy, or remove it")
	}
	return id.NodeID, id.ClusterID, nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// isID tells whether a text has Kafka's form of an id: 22 characters of base64url.
func isID(s string) bool {
	return len(s) == 22 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// cleanFile looks into the clean-shutdown file. A start goes by its presence alone.
func (k *checker) cleanFile() error {
	b, found, err := k.read(store.CleanFile)
	if err != nil || !found {
		return err
	}
	if !slices.Contains(cleanTexts, strings.TrimSpace(string(b))) && k.ours {
		k.damage(store.CleanFile, 0, ruleFormat, fmt.Sprintf("it holds %q", clip(string(b))),
			"remove it, and the next start scans")
	}
	return nil
}

// cleanTexts is what the clean-shutdown file may hold.
var cleanTexts = []string{`{"version":0,"brokerEpoch":-1}`}

// metadata checks sekali.meta and its snapshot, and reads the catalog.
func (k *checker) metadata(names []string, node int32, cluster string) error {
	k.epoch = -1
	raw, found, err := k.read(meta.LogName)
	if err != nil {
		return err
	}
	if !found && !k.ours && !slices.Contains(names, meta.SnapshotName) {
		return nil // Kafka's directory
	}
	const help = "put it back from a copy; the data of topics is not touched by this"
	if !found {
		k.damage(meta.LogName, -1, ruleCatalog, "there is none", help)
		return nil
	}
	log, err := meta.DecodeLog(path.Join(k.dir, meta.LogName), raw)
	switch {
	case err != nil:
		k.metaDamage(err, help)
		return nil
	case log.Torn != nil && k.clean:
		k.damage(meta.LogName, log.End, ruleCatalog, fmt.Sprintf("the last %d bytes are no record (%v) although the last "+
			"stop was clean", int64(len(raw))-log.End, log.Torn), "the next start cuts them: a change of topics or "+
			"settings that was made last may be gone")
	case log.Torn != nil:
		k.note(meta.LogName, ruleCatalog,
			fmt.Sprintf("the last %d bytes, from position %d on, are no record (%v): they will "+
				"be cut at the next start", int64(len(raw))-log.End, log.End, log.Torn), "")
	}
	state, _, err := meta.Read(k.dir, k.fs)
	if err != nil {
		k.metaDamage(err, help)
		return nil
	}
	topics, servers, err := store.ReadCatalog(state)
	if err != nil {
		k.damage(meta.LogName, -1, ruleCatalog, err.Error(), help)
		return nil
	}
	k.topics, k.catalog = topics, true
	k.changed(servers, node)
	if it, ok := state.Get(metaCluster); ok && cluster != "" && string(it.Value) != cluster {
		k.damage(store.PropertiesFile, 0, ruleFormat, fmt.Sprintf("cluster.id is %s, the metadata says %s", cluster,
			clip(string(it.Value))), "the directory is put together from two: the next start refuses it")
	}
	if it, ok := state.Get(metaEpoch); ok {
		if k.epoch, err = strconv.ParseInt(string(it.Value), 10, 32); err != nil {
			k.damage(meta.LogName, -1, ruleCatalog, fmt.Sprintf("key %s is %q", metaEpoch, clip(string(it.Value))), help)
			k.epoch = -1
		}
	}
	return nil
}

func (k *checker) metaDamage(err error, help string) {
	var c *meta.CorruptError
	if errors.As(err, &c) {
		k.own.add(finding{levelDamage, c.Path, c.Pos, -1, ruleCatalog, c.Err.Error(), help})
		return
	}
	k.damage(meta.LogName, -1, ruleCatalog, err.Error(), help)
}

// offsets reads one offset file as the next start will: a missing one is empty, nil cannot be read.
func (k *checker) offsets(name, help string) (store.Offsets, error) {
	b, found, err := k.read(name)
	if err != nil {
		return nil, err
	}
	if !found {
		if k.ours && k.clean && (name == store.RecoveryFile || name == store.MarkFile || name == store.StartFile) {
			k.damage(name, -1, ruleFiles, "there is none although the last stop was clean", help)
		}
		return store.Offsets{}, nil
	}
	lines, fault := decodeOffsetLines(b)
	o, err := store.DecodeOffsets(b)
	switch {
	case len(b) == 0 && k.ours:
		k.damage(name, 0, ruleFormat, "it is empty", help)
	case fault != nil:
		k.damage(name, fault.pos, ruleFormat, fault.why, help)
	case err != nil:
		k.damage(name, 0, ruleFormat, err.Error(), help)
	case len(lines) != len(o):
		k.damage(name, 0, ruleFormat, fmt.Sprintf("%d entries, %d of them different", len(lines), len(o)), help)
	}
	if err != nil {
		return nil, nil
	}
	at := make(map[store.Place]int64, len(lines))
	for _, l := range lines {
		at[store.Place{Topic: l.topic, Partition: l.partition}] = l.pos
	}
	if k.lines == nil {
		k.lines = map[string]map[store.Place]int64{}
	}
	k.lines[name] = at
	return o, nil
}

// partitions lists what is to be checked, sorted, and matches directories with the catalog.
func (k *checker) partitions(names []string) ([]*partCheck, error) {
	var parts []*partCheck
	known := map[string]bool{}
	gone := map[string]bool{} // topics in deletion
	for _, t := range k.topics {
		if t.Deleting {
			gone[t.Name] = true
			k.note(meta.LogName, ruleCatalog, "topic "+t.Name+" is being deleted, the next start ends that", "")
			continue
		}
		for n := range t.Partitions {
			tp := store.TP{Topic: t.Name, ID: t.ID, Partition: n}
			known[tp.String()] = true
			if k.chosen(tp.String()) {
				p := k.part(tp, t.Set)
				p.peers = t.Partitions
				parts = append(parts, p)
			}
		}
	}
	k.strangers(known, gone)
	for _, name := range names {
		if known[name] {
			continue
		}
		p, err := k.unlisted(name, gone)
		if err != nil {
			return nil, err
		}
		if p != nil && k.chosen(name) {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b *partCheck) int {
		if c := strings.Compare(a.out.Topic, b.out.Topic); c != 0 {
			return c
		}
		return int(a.out.Partition) - int(b.out.Partition)
	})
	for _, name := range k.only {
		if !slices.ContainsFunc(parts, func(p *partCheck) bool { return p.out.name() == name }) {
			return nil, fmt.Errorf("there is no partition %s in %s", name, k.dir)
		}
	}
	return parts, nil
}

// strangers tells of entries in the offset files for partitions that do not exist.
func (k *checker) strangers(known, gone map[string]bool) {
	if !k.catalog || !k.ours {
		return
	}
	level := levelNote
	if k.clean {
		level = levelDamage
	}
	for _, file := range slices.Sorted(maps.Keys(k.lines)) {
		at := k.lines[file]
		places := slices.SortedFunc(maps.Keys(at), func(a, b store.Place) int { return int(at[a] - at[b]) })
		for _, p := range places {
			name := store.TP{Topic: p.Topic, Partition: p.Partition}.String()
			if !known[name] && !gone[p.Topic] {
				k.own.add(finding{level, path.Join(k.dir, file), at[p], -1, ruleCatalog, fmt.Sprintf(
					"an entry for partition %q, which does not exist", clip(name)), "the next start writes the file anew"})
			}
		}
	}
}

// unlisted judges a name that is no partition of the catalog. Where there is no catalog, directories tell what the
// partitions are.
func (k *checker) unlisted(name string, gone map[string]bool) (*partCheck, error) {
	tp, moved, isPart := store.ParseDir(name)
	full := path.Join(k.dir, name)
	st, err := k.fs.Stat(full)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) { // a link that leads nowhere is just foreign
		return nil, err
	}
	switch {
	case topFile(name) && !st.IsDir:
		k.strangeSnapshot(name)
		return nil, nil
	case strings.HasSuffix(name, ".tmp") && topFile(strings.TrimSuffix(name, ".tmp")):
		k.note(name, ruleFiles, "an unfinished file, the next start removes it", "")
		return nil, nil
	case !st.IsDir || !isPart || name == kraftDir:
		k.note(name, ruleFiles, "not a part of the data directory, left alone", "")
		return nil, nil
	case moved == "-delete":
		k.note(name, ruleCatalog, "a deleted partition, the next start removes it", "")
		return nil, nil
	case moved != "":
		k.note(name, ruleCatalog, "a partition that was set aside", "remove it when nobody needs it any more")
		return nil, nil
	case gone[tp.Topic]:
		return nil, nil
	}
	if !k.catalog {
		if id, err := store.ReadPartitionID(k.fs, full); err == nil {
			tp.ID = id
		}
		return k.part(tp, nil), nil
	}
	bytes, err := k.logBytes(full)
	if err != nil {
		return nil, err
	}
	if bytes == 0 {
		k.note(name, ruleCatalog, "no topic has this partition, and it holds no record: the next start clears it away", "")
		return nil, nil
	}
	k.damage(name, -1, ruleCatalog, fmt.Sprintf("a partition with %d bytes of log, of no topic in the metadata", bytes),
		"the next start sets it aside as -stray; nothing of it is lost")
	return nil, nil
}

// strangeSnapshot tells of the snapshot of a coordinator's partition that does not exist.
func (k *checker) strangeSnapshot(name string) {
	prefix, shard, ok := snapshotOf(name)
	if !ok || !k.catalog {
		return
	}
	for _, t := range k.topics {
		n, err := strconv.ParseInt(shard, 10, 32)
		if of, ok := internal(t.Name); ok && of == prefix && err == nil && n >= 0 && n < int64(t.Partitions) {
			return
		}
	}
	k.note(name, ruleFiles, "a snapshot of a partition that does not exist: not used", "")
}

// logBytes is the size of the segments in a directory.
func (k *checker) logBytes(dir string) (total int64, err error) {
	names, err := k.fs.ReadDir(dir)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			st, err := k.fs.Stat(path.Join(dir, name))
			if err != nil {
				return 0, err
			}
			total += st.Size
		}
	}
	return total, err
}

// topFile knows the files at the top of a data directory.
func topFile(name string) bool {
	switch name {
	case store.FormatFile, store.PropertiesFile, store.CleanFile, store.LockFile, store.RecoveryFile, store.StartFile,
		store.MarkFile, store.CleanerFile, store.HighFile, meta.LogName, meta.SnapshotName, reserveName:
		return true
	}
	return strings.HasPrefix(name, "sekali.coord-") || strings.HasPrefix(name, "sekali.group-")
}
