package main

import (
	"fmt"
	"strings"
)

// Marks around the table in docs/protocol.md.
const (
	tableBegin = "<!-- differences: written by compat/kafka -table -->"
	tableEnd   = "<!-- end of differences -->"
)

// differencesTable is the list of expectations as a table, in groups of one reason.
func differencesTable() string {
	var b strings.Builder
	var order []string
	groups := map[string][]expectation{}
	for _, e := range expectations() {
		if groups[e.reason] == nil {
			order = append(order, e.reason)
		}
		groups[e.reason] = append(groups[e.reason], e)
	}
	b.WriteString(tableBegin + "\n")
	for i, reason := range order {
		fmt.Fprintf(&b, "\n**%d.** %s\n\n| script: steps | Apache Kafka 4.4.0 | sekali | steps |\n|---|---|---|---|\n", i+1, reason)
		for _, e := range groups[reason] {
			fmt.Fprintf(&b, "| %s: %s | %s | %s | %d |\n", e.script, cell(strings.Join(e.steps, "; ")), cell(e.kafka),
				cell(e.sekali), e.count)
		}
	}
	b.WriteString("\n" + tableEnd + "\n")
	return b.String()
}

// cell escapes what has a meaning in a table.
func cell(s string) string {
	if s == "" {
		return "(none)"
	}
	return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s)
}
