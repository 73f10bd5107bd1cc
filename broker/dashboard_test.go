package broker

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	metricName = regexp.MustCompile(`\b(?:sekali|process|go)_[a-z_]+\b`)
	selector   = regexp.MustCompile(`\b(sekali_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z]+)="([^"$]*)"`)
	grouping   = regexp.MustCompile(`\bby \(([a-z, ]*)\)`)
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	ruleExpr   = regexp.MustCompile(`(?m)^\s+expr: (.*)$`)
)

// exposed is what one scrape shows: the labels of every sample, by the name of its metric.
type exposed map[string][]map[string]string

// busyMetrics scrapes the admin port of a node that has stored batches, an open transaction and a group.
func busyMetrics(t *testing.T) exposed {
	t.Helper()
	n := startNode(t, func(c *Config) { c.Admin = "127.0.0.1:0" })
	c := n.dial()
	made := c.makeTopic("t", 1)
	c.produce("t", 0, -1, -1, 1000, 3)
	if err := n.engine.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.openTxn("t", 0, 7, 1)
	n.openAges.look()
	committed := make(chan *kerr.Error, 1)
	n.engine.Groups().Commit(group.CommitIn{Member: group.Member{Group: "g", Generation: -1}, Version: 8, PID: -1,
		RetainMs: -1, TPs: []group.TP{{Topic: "t", ID: made.TopicID}}, Offsets: []group.Offset{{Offset: 1, LeaderEpoch: -1}},
	}, func(codes []*kerr.Error, _ uint64) { committed <- codes[0] })
	if code := <-committed; code != nil {
		t.Fatal(code)
	}
	ask[*kmsg.ApiVersionsResponse](c, minimal(18, 3))
	status, body := get(t, "http://"+n.adminAddr().String()+"/metrics")
	if status != 200 {
		t.Fatalf("metrics: %d", status)
	}
	all := exposed{}
	for _, m := range sampleLine.FindAllStringSubmatch(body, -1) {
		labels := map[string]string{}
		for _, l := range labelPair.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		all[m[1]] = append(all[m[1]], labels)
	}
	return all
}

// check reports what an expression asks for that no sample has: a metric, a label of a selector with its value, a label
// to group by. instance is added by Prometheus.
func (e exposed) check(expr string) (missing []string) {
	names := metricName.FindAllString(expr, -1)
	for _, name := range names {
		if len(e[name]) == 0 {
			missing = append(missing, name)
		}
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if m[1] != "instance" && !slices.ContainsFunc(e[s[1]], func(l map[string]string) bool { return l[m[1]] == m[2] }) {
				missing = append(missing, s[1]+" with "+m[0])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			has := func(name string) bool {
				return slices.ContainsFunc(e[name], func(l map[string]string) bool { _, ok := l[label]; return ok })
			}
			if label != "instance" && !slices.ContainsFunc(names, has) {
				missing = append(missing, "label "+label)
			}
		}
	}
	return missing
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every metric and label that the alert rules, the dashboard and the manual name is there in a running node.
func TestDashboardAndAlertsNameWhatThereIs(t *testing.T) {
	e := busyMetrics(t)
	rules := ruleExpr.FindAllStringSubmatch(read(t, "../docs/alerts.yml"), -1)
	if len(rules) < 15 {
		t.Errorf("%d rules found", len(rules))
	}
	for _, r := range rules {
		for _, m := range e.check(r[1]) {
			t.Errorf("alert %s: no %s", r[1], m)
		}
	}
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../docs/grafana/sekali.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	exprs := 0
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs++
			for _, m := range e.check(target.Expr) {
				t.Errorf("panel %s: %s: no %s", p.Title, target.Expr, m)
			}
		}
	}
	if exprs < 50 {
		t.Errorf("%d expressions found", exprs)
	}
	for _, name := range metricName.FindAllString(read(t, "../docs/operating.md"), -1) {
		if len(e[name]) == 0 && len(e[name+"_count"]) == 0 {
			t.Errorf("operating.md: no %s", name)
		}
	}
	for _, s := range selector.FindAllString(read(t, "../docs/operating.md"), -1) {
		if strings.Contains(s, "=") {
			for _, m := range e.check(s) {
				t.Errorf("operating.md: %s: no %s", s, m)
			}
		}
	}
}

// What the check is for: names and labels that are not there are found.
func TestDashboardCheckFinds(t *testing.T) {
	e := exposed{"sekali_a_total": {{"op": "x"}}}
	for expr, want := range map[string][]string{
		`sum by (instance, op) (rate(sekali_a_total{op="x"}[5m]))`: nil,
		`sum by (why) (rate(sekali_a_total{instance="i"}[5m]))`:    {"label why"},
		`sekali_a_total{op="y"} > 0`:                               {`sekali_a_total with op="y"`},
		`sekali_b_total > 0`:                                       {"sekali_b_total"},
	} {
		if got := e.check(expr); !slices.Equal(got, want) {
			t.Errorf("%s: missing %q, want %q", expr, got, want)
		}
	}
}
