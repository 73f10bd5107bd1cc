package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"

	"sekali/internal/vfs"
)

// Names of the small files of a data directory.
const (
	FormatFile     = "sekali.format"        // format marker: this directory is ours
	PropertiesFile = "meta.properties"      // identity, Kafka's form
	TopicIDFile    = "partition.metadata"   // in each partition directory, Kafka's form
	CleanFile      = ".kafka_cleanshutdown" // only between a clean stop and the next start
	LockFile       = ".lock"
)

// FormatVersion is the newest format of a data directory this program reads and the one it writes. It only rises.
const FormatVersion = 1

const formatMagic = "sekali-format"

// encodeFormat is the marker: magic, version and the CRC-32C of both, as one line of text.
func encodeFormat(version int) []byte {
	head := formatMagic + " " + strconv.Itoa(version)
	sum := crc32.Checksum([]byte(head), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s %08x\n", head, sum)
}

// readFormat returns the version of the directory, 0 if there is no marker. A newer or damaged one is an error that
// wraps ErrFormat.
func readFormat(fs vfs.FS, dir string) (int, error) {
	b, err := vfs.ReadFile(fs, path.Join(dir, FormatFile))
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	v, err := DecodeFormat(b)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %s is damaged", ErrFormat, path.Join(dir, FormatFile))
	case v > FormatVersion:
		return v, fmt.Errorf("%w: %s is of format %d, this program knows formats up to %d: use a newer one",
			ErrFormat, dir, v, FormatVersion)
	}
	return v, nil
}

// DecodeFormat reads the bytes of a format marker: the version of the directory, which may be newer than this program
// knows. Errors wrap ErrFormat.
func DecodeFormat(b []byte) (version int, err error) {
	f := strings.Fields(string(b))
	if len(f) == 3 && f[0] == formatMagic {
		v, err := strconv.Atoi(f[1])
		if err == nil && v > 0 && string(b) == string(encodeFormat(v)) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: the marker is damaged", ErrFormat)
}

// Identity is what meta.properties says.
type Identity struct {
	ClusterID   string // 22 characters of base64url
	NodeID      int32
	DirectoryID string
}

// encodeProperties writes Kafka's properties file of version 1.
func encodeProperties(id Identity) []byte {
	return fmt.Appendf(nil, "#\nversion=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n",
		id.ClusterID, id.NodeID, id.DirectoryID)
}

// decodeProperties reads versions 0 and 1; of version 0 it takes broker.id as the node's. Missing ids stay empty, a
// missing node is -1.
func decodeProperties(b []byte) (id Identity, err error) {
	id.NodeID = -1
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return id, fmt.Errorf("line %q", line)
		}
		m[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	if v := m["version"]; v != "0" && v != "1" {
		return id, fmt.Errorf("version %q", v)
	}
	id.ClusterID, id.DirectoryID = m["cluster.id"], m["directory.id"]
	node, ok := m["node.id"]
	if !ok {
		node, ok = m["broker.id"]
	}
	if ok {
		n, err := strconv.ParseUint(node, 10, 31)
		if err != nil {
			return id, fmt.Errorf("node.id: %w", err)
		}
		id.NodeID = int32(n)
	}
	return id, nil
}

// ReadIdentity reads the identity of a data directory; an error that is fs.ErrNotExist: it has none yet.
func ReadIdentity(fs vfs.FS, dir string) (Identity, error) {
	b, err := vfs.ReadFile(fs, path.Join(dir, PropertiesFile))
	if err != nil {
		return Identity{}, fmt.Errorf("store: %w", err)
	}
	id, err := decodeProperties(b)
	if err != nil {
		return id, fmt.Errorf("store: %s: %w", path.Join(dir, PropertiesFile), err)
	}
	return id, nil
}

func encodeTopicID(id TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// DecodeIdentity reads the bytes of meta.properties, of version 0 or 1. Missing ids are empty, a missing node is -1.
func DecodeIdentity(b []byte) (Identity, error) { return decodeProperties(b) }

// ReadPartitionID reads the topic id that a partition directory bears; an error that is fs.ErrNotExist: none.
func ReadPartitionID(fs vfs.FS, partitionDir string) (TopicID, error) {
	name := path.Join(partitionDir, TopicIDFile)
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		return TopicID{}, fmt.Errorf("store: %w", err)
	}
	id, err := DecodePartitionID(b)
	if err != nil {
		return TopicID{}, fmt.Errorf("store: %s is damaged", name)
	}
	return id, nil
}

// DecodePartitionID reads the bytes of partition.metadata.
func DecodePartitionID(b []byte) (TopicID, error) {
	var version, text string
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(k) {
		case "version":
			version = strings.TrimSpace(v)
		case "topic_id":
			text = strings.TrimSpace(v)
		}
	}
	if version != "0" {
		return TopicID{}, fmt.Errorf("store: version %q of a partition's metadata", version)
	}
	return ParseTopicID(text)
}

// newID draws a random uuid (version 4) whose text does not begin with '-', as Kafka's do not.
func newID(r io.Reader) (id TopicID, err error) {
	if r == nil {
		r = rand.Reader
	}
	for {
		if _, err := io.ReadFull(r, id[:]); err != nil {
			return id, fmt.Errorf("store: random id: %w", err)
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id, nil
		}
	}
}
