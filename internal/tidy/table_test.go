package tidy

// row is what one package may import: project packages by their path below the module, and third-party modules by
// prefix. The standard library is free, except for the doors in doors_test.go.
type row struct {
	project []string
	third   []string
}

// anything marks a row whose project imports are not limited.
const anything = "*"

// table is the layering of docs/DESIGN.md: imports run downwards, nothing runs sideways unless it is listed. A package
// without a row fails the test, so a new folder is a decision somebody wrote down here.
var table = map[string]row{
	"internal/check": {},
	"internal/clock": {},

	"internal/javahash": {},
	"internal/match":    {},

	"internal/buf": {project: []string{"internal/check"}},
	"internal/vfs": {project: []string{"internal/check"}, third: []string{"golang.org/x/sys/unix"}},

	"batch": {
		project: []string{"internal/check"},
		third:   []string{"github.com/klauspost/compress", "github.com/pierrec/lz4"},
	},
	"index": {
		project: []string{"internal/check", "internal/vfs"},
		third:   []string{"github.com/dgraph-io/ristretto"},
	},
	"pidmap": {project: []string{"internal/check"}, third: []string{"github.com/cespare/xxhash"}},
	"wire":   {project: []string{"internal/buf"}, third: []string{"github.com/twmb/franz-go/pkg/kmsg"}},

	"segment": {project: []string{"batch", "index", "internal/vfs", "internal/check"}},
	"meta":    {project: []string{"internal/vfs", "internal/clock", "internal/check"}},

	// The conformance suite every implementation of meta.MetadataStore must pass.
	"meta/metatest": {
		project: []string{"meta", "internal/vfs", "internal/clock", "internal/check"},
		third:   []string{"go.uber.org/goleak", "pgregory.net/rapid"},
	},

	"auth": {project: []string{"meta"}, third: []string{"github.com/xdg-go/scram"}},

	"clean": {project: []string{"batch", "index", "internal/check"}},

	"plog": {project: []string{
		"clean", "segment", "index", "pidmap", "batch",
		"internal/vfs", "internal/clock", "internal/buf", "internal/check",
	}},
	"store": {
		project: []string{"plog", "clean", "meta", "batch", "internal/vfs", "internal/clock", "internal/check"},
		third:   []string{"github.com/cespare/xxhash"},
	},
	"coord": {
		project: []string{"batch", "internal/clock", "internal/check", "internal/javahash", "internal/match"},
		third: []string{
			"github.com/cespare/xxhash", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kmsg",
		},
	},
	"group": {
		project: []string{"batch", "internal/clock", "internal/check", "internal/javahash", "internal/match"},
		third: []string{
			"github.com/cespare/xxhash", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kmsg",
		},
	},
	"engine": {
		project: []string{
			"store", "meta", "coord", "group", "plog", "pidmap", "batch",
			"internal/vfs", "internal/clock", "internal/check",
		},
		third: []string{"github.com/twmb/franz-go/pkg/kerr"},
	},
	"broker": {
		project: []string{
			"auth", "engine", "store", "meta", "coord", "group", "wire", "plog", "segment", "index", "pidmap", "batch",
			"internal/vfs", "internal/clock", "internal/buf", "internal/check",
		},
		third: []string{
			"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kerr",
			"github.com/prometheus/client_golang",
		},
	},
	"cmd/sekali": {
		project: []string{
			"broker", "auth", "engine", "store", "meta", "coord", "group", "wire", "plog", "segment", "index", "pidmap", "batch",
			"internal/vfs", "internal/clock", "internal/buf", "internal/check",
		},
		third: []string{
			"github.com/alecthomas/kong", "github.com/twmb/franz-go", "github.com/prometheus/client_golang",
			"github.com/HdrHistogram/hdrhistogram-go", "github.com/schollz/progressbar",
		},
	},
	"bench":              {project: []string{anything}, third: []string{anything}},
	"fuzz":               {project: []string{anything}, third: []string{anything}},
	"internal/tidy":      {project: []string{anything}, third: []string{anything}},
	"internal/rawclient": {project: []string{"batch", "wire"}, third: []string{"github.com/twmb/franz-go"}},
}

// prefixRows are families of test packages that share a row.
var prefixRows = []string{"fuzz", "bench"}

// testOnly may be imported by test files of any package beside what its row says.
var testOnly = []string{
	"internal/rawclient", "internal/vfs", "internal/clock", "internal/buf", "internal/check", "meta/metatest",
}

// exempt folders hold programs and tests that may use the operating system and the clock directly.
var exempt = []string{"cmd", "fuzz", "bench", "internal/tidy", "internal/rawclient", "meta/metatest"}
