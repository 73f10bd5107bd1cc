package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var plantsFlag = flag.Int("plants", 1, "how many of the planted faults TestCanary tries")

// plant is a fault built into a copy of the product: texts of its source replaced, each of which stands there once.
type plant struct {
	name  string
	edits []edit
	finds string // what the simulator must say of it, as a regular expression
	seeds int    // within which it must be caught
	txns  bool   // by TestTransactions
}

type edit struct{ file, old, new string }

// lostData is said of a log that ends below what was shown or acknowledged: by the model, or by the product, which
// finds it short of its own durable mark.
const lostData = `the log ends at \d+, but everything below \d+ was on the disk|but offsets below \d+ were acknowledged`

// plants are faults this daemon must not have. The first ones are those it exists to avoid.
var plants = []plant{
	{
		name: "answers before the flush",
		edits: []edit{{
			"plog/wait.go", "if l.down.Load() == nil && l.lim.high.Load() >= end {",
			"if l.down.Load() == nil && l.end.Load() >= end {",
		}},
		finds: lostData, seeds: 100,
	},
	{
		name: "forgets producers at a restart",
		edits: []edit{
			{"plog/replay.go", "return m.Replay(&b, at), nil", "return false, nil"},
			{"plog/recover.go", "err = m.Load(b, r.touch)", "err = pidmap.New(r.o.Pids).Load(b, r.touch)"},
		},
		finds: `producer \d+ is forgotten|must be duplicate`, seeds: 100,
	},
	{
		name: "wraps numbers one too early",
		edits: []edit{{
			"pidmap/seq.go", "return int32((uint32(last) + 1) & uint32(q))", "return int32((uint32(last) + 1) % uint32(q))",
		}},
		finds: `answered as .*must be append|must be out of order|by the log`, seeds: 400,
	},
	{
		name: "shows an unflushed tail after a process death",
		edits: []edit{
			{"plog/settle.go", "if r.o.Clean || len(r.bases) == 0 {", "if r.o.Clean || len(r.bases) >= 0 {"},
			{"plog/recover.go", "if r.mark < end {\n", "if r.mark < 0 {\n"},
		},
		finds: lostData, seeds: 300,
	},
	{
		name:  "takes a failed flush for a good one",
		edits: []edit{{"store/syncer.go", "err = p.round.Datasync()", "_ = p.round.Datasync()"}},
		finds: lostData, seeds: 400,
	},
	{
		name:  "leaves the rolled segment out of the round",
		edits: []edit{{"plog/sync.go", "if err := s.Sync(); err != nil {", "if err := s.StartWrite(0, 0); err != nil {"}},
		finds: lostData, seeds: 300,
	},
	{
		name: "sends markers before the decision is durable",
		edits: []edit{
			{"coord/end.go", "s.change(e, st, nothing, func(code *kerr.Error) {", "s.change(e, st, func(code *kerr.Error) {"},
			{"coord/end.go", "s.complete(e, false, answer)\n\t\t})", "s.complete(e, false, answer)\n\t\t}, nothing)"},
		},
		finds: `I10|I12|is aborted|is committed|hangs`, seeds: 1500, txns: true,
	},
	{
		name: "shows one offset above the last stable one",
		edits: []edit{{
			"plog/offsets.go", "stable = spot{offset: offset, pos: pos}", "stable = spot{offset: offset + 1, pos: pos}",
		}},
		finds: `I11|stable offset`, seeds: 100, txns: true,
	},
	{
		name: "shows the offsets of a transaction before its marker",
		edits: []edit{{
			"group/txnoffsets.go", "s.apply(base+int64(i), pid, &recs[i])", "s.apply(base+int64(i), -1, &recs[i])",
		}},
		finds: `I12|staged`, seeds: 300, txns: true,
	},
	{
		name: "forgets to ask for the guard",
		edits: []edit{{
			"pidmap/guard.go", "if ok && b.Guard == g.id {", "if b.Guard != 0 {",
		}},
		finds: `I8|I10|hangs|never asked for it`, seeds: 2000, txns: true,
	},
	{
		name: "aborts with the same epoch at reconciliation",
		edits: []edit{{
			"coord/reconcile.go", "return finding{do: register}", "return finding{do: mark, epoch: o.Epoch}",
		}},
		finds: `I8|I10|is aborted`, seeds: 2000, txns: true,
	},
	{
		// The one alone costs its client the transaction: it is told so, and nothing is lost.
		name: "answers for a lost registration and aborts what lies behind a decided transaction",
		edits: []edit{
			{"coord/reconcile.go", "belongs = t.clientTV == 2 && follows(o, t)", "belongs = follows(o, t) && t == nil"},
			{"pidmap/guard.go", "e != nil && e.txn != 0 {", "e != nil && e.txn != 0 && pid < 0 {"},
		},
		finds: `I10|is aborted`, seeds: 2000, txns: true,
	},
}

// TestCanary builds the simulator over copies of the product with a fault in each, and wants every one to be found
// within a few hundred seeds. A fault whose text is no longer in the source fails too.
func TestCanary(t *testing.T) {
	began, caught := time.Now(), 0
	for _, p := range plants[:min(*plantsFlag, len(plants))] {
		t.Run(p.name, func(t *testing.T) {
			out := p.run(t)
			m := regexp.MustCompile(`(?m)^\s*campaign_test.go:\d+: seed \d+: .*$`).FindString(out)
			if m == "" {
				t.Fatalf("not caught within %d seeds:\n%s", p.seeds, out)
			}
			if !regexp.MustCompile(p.finds).MatchString(m) {
				t.Fatalf("found something else: %s", m)
			}
			t.Logf("%.200s", strings.TrimSpace(m))
			caught++
		})
	}
	fmt.Printf("canary: %d planted faults caught in %.0f s\n", caught, time.Since(began).Seconds())
}

// run plays seeds over the planted copy and returns what was printed. The copy replaces files by an overlay of the
// build: the product's own are not touched.
func (p *plant) run(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for i, e := range p.edits {
		name := filepath.Join(root, e.file)
		from := name
		if done := replace[name]; done != "" {
			from = done // the second edit of a file
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), e.old); n != 1 {
			t.Fatalf("%s: the text to replace stands there %d times: %q", e.file, n, e.old)
		}
		replace[name] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replace[name], []byte(strings.Replace(string(b), e.old, e.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	test, seeds := "^TestSimulation$", "-seeds"
	if p.txns {
		test, seeds = "^TestTransactions$", "-txnseeds"
	}
	run := exec.Command(bin, "-test.run="+test, "-quick", fmt.Sprintf("%s=%d", seeds, p.seeds))
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("not caught within %d seeds:\n%s", p.seeds, out)
	}
	return string(out)
}
