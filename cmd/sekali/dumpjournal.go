package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/store"
)

// decoder reads the records of the internal topic that a .log belongs to by the name of its directory; nil: none.
func (d *dumper) decoder() func(key, value []byte) ([]field, error) {
	name, err := filepath.Abs(d.name)
	if err != nil {
		name = d.name
	}
	tp, _, ok := store.ParseDir(filepath.Base(filepath.Dir(name)))
	if !ok {
		return nil
	}
	prefix, _ := internal(tp.Topic)
	return decoderOf(prefix)
}

// decoderOf reads the records of which the snapshots with a prefix are made; nil: none are.
func decoderOf(prefix string) func(key, value []byte) ([]field, error) {
	switch prefix {
	case engine.TxnSnapshotPrefix:
		return txnFields
	case engine.GroupSnapshotPrefix:
		return groupFields
	}
	return nil
}

// txnFields is a record of __transaction_state as fields.
func txnFields(key, value []byte) ([]field, error) {
	l, err := coord.DecodeRecord(coord.Record{Key: key, Value: value})
	if err != nil {
		return nil, err
	}
	fields := []field{{"transactional_id", l.TxnID}}
	if l.Deleted {
		return append(fields, field{"deleted", true}), nil
	}
	parts := make([]string, 0, len(l.TPs))
	for _, tp := range l.TPs {
		parts = append(parts, tp.Topic+"-"+strconv.Itoa(int(tp.Partition)))
	}
	return append(fields, field{"state", l.State.String()}, field{"producer_id", l.PID}, field{"producer_epoch", l.Epoch},
		field{"partitions", parts}, field{"timeout_ms", l.TimeoutMs}, field{"start_timestamp", l.StartedMs},
		field{"update_timestamp", l.UpdatedMs}, field{"client_transaction_version", l.ClientTV},
		field{"previous_producer_id", l.PrevPID}, field{"next_producer_id", l.NextPID},
		field{"last_producer_epoch", l.LastEpoch}, field{"next_producer_epoch", l.NextEpoch},
		field{"remaining_ms", l.RemainingMs}), nil
}

var groupTypes = map[int16]string{0: "offset", 1: "offset", 2: "group", 3: "epoch", 4: "partition_metadata",
	5: "member", 6: "target_epoch", 7: "target", 8: "assignment", 16: "regex"}

// groupFields is a record of __consumer_offsets as fields. One of a kind that is not interpreted stays as it is.
func groupFields(key, value []byte) ([]field, error) {
	l, err := group.DecodeRecord(group.Record{Key: key, Value: value})
	if err != nil {
		return nil, err
	}
	name, ok := groupTypes[l.Type]
	if !ok {
		name = "type-" + strconv.Itoa(int(l.Type))
	}
	fields := []field{{"record", name}}
	if !l.Interpreted() {
		return appendBytes(appendBytes(fields, "key", key), "value", value), nil
	}
	fields = append(fields, field{"group", l.Group})
	switch {
	case l.Type <= 1:
		fields = append(fields, field{"topic", l.Topic}, field{"partition", l.Partition})
	case l.Type == 16:
		fields = append(fields, field{"regex", l.Name})
	case l.Name != "":
		fields = append(fields, field{"member", l.Name})
	}
	if value == nil {
		return append(fields, field{"deleted", true}), nil
	}
	for _, f := range l.Fields() {
		fields = append(fields, field{f.Name, f.Value})
	}
	return fields, nil
}

// coordSnapshot shows the records of a snapshot file of a coordinator or of groups.
func (d *dumper) coordSnapshot(prefix, number string) error {
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%s is no file of a data directory by its name", d.name)
	}
	file, err := vfs.ReadFile(d.fs, d.name)
	if err != nil {
		return err
	}
	asOf, body, err := engine.DecodeSnapshot(prefix, int(n), file)
	if err != nil {
		return d.damage(0, err.Error())
	}
	var recs []coord.Snapped
	if prefix == engine.TxnSnapshotPrefix {
		recs, err = coord.DecodeSnapshot(body, int(n), asOf)
	} else {
		var all []group.Snapped
		all, err = group.DecodeSnapshot(body, int32(n), asOf)
		for _, s := range all {
			recs = append(recs, coord.Snapped{Offset: s.Offset, Record: coord.Record(s.Record)})
		}
	}
	if err != nil {
		return d.damage(0, err.Error())
	}
	if err = d.line(field{"as_of", asOf}, field{"records", len(recs)}); err != nil {
		return err
	}
	decode := decoderOf(prefix)
	bad := ""
	for _, s := range recs {
		fields, err := decode(s.Record.Key, s.Record.Value)
		if err != nil {
			bad = fmt.Sprintf("record of offset %d: %v", s.Offset, err)
			fields = appendBytes(appendBytes(nil, "key", s.Record.Key), "value", s.Record.Value)
		}
		if err := d.line(append([]field{{"offset", s.Offset}}, fields...)...); err != nil {
			return err
		}
	}
	if bad != "" {
		return d.damage(0, bad)
	}
	return nil
}
