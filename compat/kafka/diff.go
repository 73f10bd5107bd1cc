package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// script is a fixed sequence of requests; it runs against both brokers, and what is seen of them is compared step by
// step.
type script struct {
	name string
	run  func(s *side)
}

// scripts is all of them, in their order. Each makes topics of its own names and runs once.
func scripts() []script {
	return []script{
		{"headers", validate(headerRows, "headers")},
		{"records", validate(recordRows, "records")},
		{"codecs", validate(codecRows, "codecs")},
		{"versions", versions},
		{"requests", requests},
		{"limits", limits},
		{"append-time", appendTime},
		{"producers", producers},
		{"describe-producers", described},
		{"pipelined", pipelined},
		{"init-producer-id", initProducer},
		{"list-offsets", listing},
		{"delete-records", deleting},
		{"leader-epochs", epochs},
		{"fetch-versions", fetchVersions},
		{"fetch-places", fetchPlaces},
		{"fetch-sizes", fetchSizes},
		{"fetch-sessions", sessions},
		{"topic-made-again", recreated},
		{"internal-topics", internal},
		{"create-topics", creating},
		{"create-partitions", growing},
		{"delete-topics", deletingTopics},
		{"describe-configs", describing},
		{"alter-configs", altering},
		{"api-versions", apiVersions},
		{"frames", frames},
		{"metadata", metadata},
		{"cluster", cluster},
		table("txn-init", false, initRows),
		table("txn-fence", true, fenceRows),
		table("txn-add", false, addRows),
		table("txn-write", false, writeRows),
		table("txn-sequence", true, sequenceRows),
		table("txn-offsets", false, txnOffsetRows),
		table("txn-end", false, endRows),
		table("txn-end-2", false, end2Rows()),
		table("txn-markers", false, markerRows),
		table("txn-tell", true, tellRows),
		{"txn-isolation", isolated},
		table("group-join", false, joinRows),
		table("group-sync", false, syncRows),
		table("group-offsets", false, offsetRows),
		table("group-admin", false, groupAdminRows),
		table("group-new", false, newRows),
	}
}

// wall is the time in milliseconds.
func wall() int64 { return time.Now().UnixMilli() }

// execute runs a script against one broker.
func (c script) execute(addr string) (s *side, err error) {
	if s, err = newSide(addr, c.name); err != nil {
		return s, err
	}
	defer s.close()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = r.err
		default:
			panic(r)
		}
	}()
	c.run(s)
	return s, nil
}

// difference is a step at which the two brokers show different things; a step that a broker did not reach shows nothing.
type difference struct{ script, step, kafka, sekali string }

// differential runs all scripts against both brokers at the same time and returns every difference, and the number of
// steps compared.
func differential(kafka, sekali string, chosen func(string) bool, verbose bool) (found []difference, steps int,
	err error) {
	for _, c := range scripts() {
		if !chosen(c.name) {
			continue
		}
		var sides [2]*side
		var errs [2]error
		var both sync.WaitGroup
		for i, addr := range []string{kafka, sekali} {
			both.Go(func() { sides[i], errs[i] = c.execute(addr) })
		}
		both.Wait()
		for i, name := range []string{"Apache Kafka", "sekali"} {
			if errs[i] != nil {
				last := "none"
				if n := len(sides[i].seen); n > 0 {
					last = sides[i].seen[n-1].step
				}
				return nil, 0, fmt.Errorf("script %s against %s, after step %q: %w", c.name, name, last, errs[i])
			}
		}
		for _, o := range sides[0].seen {
			if verbose {
				fmt.Printf("       %s = %s\n", o.step, o.value)
			}
		}
		d, n := compare(c.name, sides[0].seen, sides[1].seen)
		fmt.Printf("     %-20s %4d steps, %d different\n", c.name, n, len(d))
		found, steps = append(found, d...), steps+n
	}
	return found, steps, nil
}

// compare compares what two runs of a script showed.
func compare(name string, kafka, sekali []observation) (found []difference, steps int) {
	other := map[string]string{}
	for _, o := range sekali {
		other[o.step] = o.value
	}
	for _, o := range kafka {
		if v := other[o.step]; v != o.value {
			found = append(found, difference{name, o.step, o.value, v})
		}
		delete(other, o.step)
	}
	for _, o := range sekali {
		if _, alone := other[o.step]; alone {
			found = append(found, difference{name, o.step, "", o.value})
		}
	}
	return found, len(kafka) + len(other)
}

func (d difference) String() string {
	return strings.Join([]string{d.script + " / " + d.step, "    Kafka:  " + d.kafka, "    sekali: " + d.sekali}, "\n")
}
