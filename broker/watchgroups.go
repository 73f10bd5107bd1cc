package broker

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"sekali/group"
	"sekali/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupCollector asks the groups at the time of a scrape: how many there are in which state, their members, and how far
// behind the last stable offset what they committed lies. It implements prometheus.Collector.
type groupCollector struct {
	groups *group.Manager
	store  *store.Store

	states, members, lag, behind *prometheus.Desc
}

// watchGroups shows the groups from now on; it is called once.
func (m *metrics) watchGroups(g *group.Manager, s *store.Store) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.reg.MustRegister(&groupCollector{
		groups: g, store: s,
		states:  desc("sekali_groups", "Groups by protocol and state.", "type", "state"),
		members: desc("sekali_group_members", "Members of all groups, by protocol.", "type"),
		lag: desc("sekali_group_lag", "Offsets between what a group committed and the last stable offset, summed over "+
			"the partitions it committed for; told for the 500 groups of the largest lag.", "group"),
		behind: desc("sekali_groups_behind", "Groups whose committed offsets lie below the last stable offset."),
	})
}

// Describe implements prometheus.Collector.
func (c *groupCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.states, c.members, c.lag, c.behind} {
		ch <- d
	}
}

// groupLag is one group with the offsets it has not committed.
type groupLag struct {
	id  string
	lag int64
}

// Collect implements prometheus.Collector. While the groups are being loaded it tells nothing.
func (c *groupCollector) Collect(ch chan<- prometheus.Metric) {
	type answer struct {
		infos []group.Info
		code  *kerr.Error
	}
	listed := make(chan answer, 1)
	c.groups.List(nil, nil, func(infos []group.Info, code *kerr.Error) { listed <- answer{infos, code} })
	a := <-listed
	if a.code != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	states := map[[2]string]int{}
	members := map[string]int{group.TypeClassic: 0, group.TypeConsumer: 0}
	for _, in := range a.infos {
		states[[2]string{in.Type, in.State}]++
		members[in.Type] += in.Size
	}
	for s, n := range states {
		gauge(c.states, float64(n), s[0], s[1])
	}
	for kind, n := range members {
		gauge(c.members, float64(n), kind)
	}
	lags := c.lags(a.infos)
	behind := 0
	for _, g := range lags {
		if g.lag > 0 {
			behind++
		}
	}
	gauge(c.behind, float64(behind))
	seen := map[string]bool{}
	for _, g := range lags[:min(len(lags), groupSeriesMax)] {
		if name := labelText(g.id); !seen[name] {
			seen[name] = true
			gauge(c.lag, float64(g.lag), name)
		}
	}
}

// lags computes the lag of every group that committed something, the largest first.
func (c *groupCollector) lags(infos []group.Info) []groupLag {
	type fetched struct {
		id  string
		all map[group.TP]group.Fetched
	}
	answers := make(chan fetched, len(infos))
	for _, in := range infos {
		c.groups.Fetch(group.FetchIn{Member: group.Member{Group: in.Group, Generation: -1}},
			func(all map[group.TP]group.Fetched, _ *kerr.Error) { answers <- fetched{in.Group, all} })
	}
	catalog := c.store.Catalog()
	var out []groupLag
	for range infos {
		f := <-answers
		if len(f.all) == 0 {
			continue
		}
		g := groupLag{id: f.id}
		for tp, at := range f.all {
			g.lag += behind(catalog, tp, at.Offset.Offset)
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b groupLag) int {
		return cmp.Or(cmp.Compare(b.lag, a.lag), strings.Compare(a.id, b.id))
	})
	return out
}

// behind is how many offsets a reader at this one has yet to read; what lies below the log start is gone.
func behind(c *store.Catalog, tp group.TP, offset int64) int64 {
	t := c.ByName[tp.Topic]
	if t == nil || int(tp.Partition) >= len(t.Partitions) || offset < 0 {
		return 0
	}
	l := t.Partitions[tp.Partition]
	if l == nil || l.Err() != nil {
		return 0
	}
	at := l.Offsets()
	return max(at.Stable-max(offset, at.Start), 0)
}

// labelText makes a label of a text that a client chose: valid UTF-8 and not too long.
func labelText(s string) string {
	if len(s) > labelTextMax {
		s = s[:labelTextMax]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "?")
}
