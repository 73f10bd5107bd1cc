package sim

import "fmt"

// Stats counts what happened, to show that a run met what it is for.
type Stats struct {
	Steps, Stored, Acked, Duplicates, Old, Refused int64
	Kills, Cuts, Mines, Recovering, Restarts       int64
	Tails, Offline, Reopened, Full                 int64
	Reads, Deleted, Retained, Remade               int64
}

type counter struct {
	name string
	n    *int64
	per  int64 // seeds within which at least one must have been met
}

func (s *Stats) counters() []counter {
	return []counter{
		{"steps", &s.Steps, 1}, {"batches stored", &s.Stored, 1}, {"acknowledged", &s.Acked, 1},
		{"duplicates answered", &s.Duplicates, 5}, {"older ones", &s.Old, 20}, {"refused", &s.Refused, 5},
		{"process deaths", &s.Kills, 5}, {"power cuts", &s.Cuts, 5}, {"deaths inside an operation", &s.Mines, 10},
		{"during recovery", &s.Recovering, 20}, {"clean restarts", &s.Restarts, 5}, {"tails cut", &s.Tails, 20},
		{"went offline", &s.Offline, 20}, {"reopened", &s.Reopened, 50}, {"writes refused by a bad disk", &s.Full, 20},
		{"reads", &s.Reads, 1}, {"deletions", &s.Deleted, 10}, {"log starts raised by retention", &s.Retained, 20},
		{"topics made anew", &s.Remade, 10},
	}
}

// String is one line.
func (s *Stats) String() (line string) {
	for i, c := range s.counters() {
		if i > 0 {
			line += ", "
		}
		line += fmt.Sprintf("%d %s", *c.n, c.name)
	}
	return line
}

// add sums up.
func (s *Stats) add(o *Stats) {
	to, from := s.counters(), o.counters()
	for i := range to {
		*to[i].n += *from[i].n
	}
}

// missing names what so many seeds should have met and have not.
func (s *Stats) missing(seeds int) (names []string) {
	for _, c := range s.counters() {
		if *c.n < int64(seeds)/c.per {
			names = append(names, fmt.Sprintf("%s: %d", c.name, *c.n))
		}
	}
	return names
}
