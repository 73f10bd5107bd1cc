package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Levels of a finding. Damage is a broken rule; a note is worth knowing and no damage, like a tail that the next start
// will cut after an unclean stop.
const (
	levelDamage = "damage"
	levelNote   = "note"
)

// findingsMax is how many findings of one partition, or of the directory, are listed; the rest is counted.
const findingsMax = 100

// finding is one thing check has to say.
type finding struct {
	Level    string `json:"level"`
	Path     string `json:"path"`
	Position int64  `json:"position"` // byte in the file; -1: the file as a whole
	Offset   int64  `json:"offset"`   // record offset; -1: none
	Rule     string `json:"rule"`     // number of the invariant, or the subject where there is no number
	What     string `json:"what"`
	Help     string `json:"help,omitempty"`
}

// Rules that bear no number.
const (
	ruleFormat  = "format"
	ruleCatalog = "catalog"
	ruleEpoch   = "epoch"
	ruleFiles   = "files"
	ruleTxn     = "transactions"
)

// findings gathers findings of one partition or of the directory. One goroutine owns it.
type findings struct {
	list          []finding
	damage, notes int // all of them, also those that are not listed
}

func (f *findings) add(x finding) {
	if x.Level == levelDamage {
		f.damage++
	} else {
		f.notes++
	}
	if len(f.list) < findingsMax {
		f.list = append(f.list, x)
	}
}

// checkedPartition is what check found out about one partition. Offsets that end something are exclusive.
type checkedPartition struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	ID        string    `json:"id,omitempty"`
	Start     int64     `json:"log_start_offset"`
	Mark      int64     `json:"durable_mark"` // below it nothing may be missing
	Recovery  int64     `json:"recovery_point"`
	End       int64     `json:"end_offset"`
	Segments  int       `json:"segments"`
	Batches   int64     `json:"batches"`
	Records   int64     `json:"records"`
	Bytes     int64     `json:"bytes"`      // of the log, without index files
	TailBytes int64     `json:"tail_bytes"` // behind the end, cut by the next start
	Damage    int       `json:"damage"`
	Notes     int       `json:"notes"`
	Findings  []finding `json:"findings,omitempty"`

	fix *repair // what --repair would do; nil: nothing
}

func (p *checkedPartition) name() string { return p.Topic + "-" + strconv.Itoa(int(p.Partition)) }

// checkReport is the answer of check.
type checkReport struct {
	Dir        string              `json:"dir"`
	CleanStop  bool                `json:"clean_stop"`
	Damage     int                 `json:"damage"`
	Notes      int                 `json:"notes"`
	Batches    int64               `json:"batches"`
	Records    int64               `json:"records"`
	Bytes      int64               `json:"bytes"`
	TailBytes  int64               `json:"tail_bytes"`
	Findings   []finding           `json:"findings,omitempty"` // of the directory's own files
	Partitions []*checkedPartition `json:"partitions"`
}

// sum adds up what the parts say.
func (r *checkReport) sum(own *findings) {
	r.Damage, r.Notes, r.Findings = own.damage, own.notes, own.list
	for _, p := range r.Partitions {
		r.Damage += p.Damage
		r.Notes += p.Notes
		r.Batches += p.Batches
		r.Records += p.Records
		r.Bytes += p.Bytes
		r.TailBytes += p.TailBytes
	}
}

// show writes the report in one of its two forms.
func (r *checkReport) show(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	return r.print(w)
}

// print writes the report as a table of partitions, the findings, and one line that sums up.
func (r *checkReport) print(w io.Writer) error {
	rows := make([][]string, 0, len(r.Partitions))
	for _, p := range r.Partitions {
		n := func(v int64) string { return strconv.FormatInt(v, 10) }
		rows = append(rows, []string{p.name(), n(p.Start), n(p.Mark), n(p.End), strconv.Itoa(p.Segments), n(p.Batches),
			n(p.Records), n(p.Bytes), verdict(p.Damage, p.Notes)})
	}
	head := []string{"PARTITION", "START", "MARK", "END", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "FOUND"}
	if err := printTable(w, head, rows); err != nil {
		return err
	}
	list(w, "", r.Findings, r.Damage+r.Notes)
	for _, p := range r.Partitions {
		list(w, p.name(), p.Findings, p.Damage+p.Notes)
	}
	stop := "stopped in order"
	if !r.CleanStop {
		stop = "not stopped in order"
		if r.TailBytes > 0 {
			stop += ", tails of " + strconv.FormatInt(r.TailBytes, 10) + " bytes will be cut at the next start"
		}
	}
	_, err := fmt.Fprintf(w, "\n%s: %s; %d partitions, %d batches, %d records, %d bytes; %s\n", r.Dir,
		verdict(r.Damage, r.Notes), len(r.Partitions), r.Batches, r.Records, r.Bytes, stop)
	return err
}

// verdict puts two counts into words.
func verdict(damage, notes int) string {
	var words []string
	if damage > 0 {
		words = append(words, strconv.Itoa(damage)+" damage")
	}
	if notes == 1 {
		words = append(words, "1 note")
	} else if notes > 1 {
		words = append(words, strconv.Itoa(notes)+" notes")
	}
	if damage == 0 {
		words = append([]string{"clean"}, words...)
	}
	return strings.Join(words, ", ")
}

// list writes findings; all is how many there were.
func list(w io.Writer, partition string, found []finding, all int) {
	for _, f := range found {
		fmt.Fprintf(w, "\n%s: ", f.Level)
		if partition != "" {
			fmt.Fprintf(w, "%s: ", partition)
		}
		fmt.Fprintf(w, "%s%s: %s (%s)\n", f.Path, place(f.Position, f.Offset), f.What, f.Rule)
		if f.Help != "" {
			fmt.Fprintf(w, "  help: %s\n", f.Help)
		}
	}
	if partition != "" && all > len(found) {
		fmt.Fprintf(w, "\n%s: %d more are not listed\n", partition, all-len(found))
	}
}

// place names a position and an offset where they are known.
func place(position, offset int64) string {
	s := ""
	if position >= 0 {
		s += ", position " + strconv.FormatInt(position, 10)
	}
	if offset >= 0 {
		s += ", offset " + strconv.FormatInt(offset, 10)
	}
	return s
}
