package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientFlags are the flags of every command that talks to a daemon.
type clientFlags struct {
	Bootstrap []string      `name:"bootstrap" short:"b" default:"127.0.0.1:9092" help:"${client_bootstrap}"`
	Timeout   time.Duration `name:"timeout" default:"15s" help:"How long to try before giving up."`
	Security  string        `name:"command-config" placeholder:"FILE" help:"${client_security}"`
}

// client connects lazily; the first request finds out whether somebody listens.
func (f *clientFlags) client(opts ...kgo.Opt) (*kgo.Client, error) {
	for _, addr := range f.Bootstrap {
		if err := checkAddress(addr); err != nil {
			return nil, err
		}
	}
	secure, err := securityOpts(f.Security)
	if err != nil {
		return nil, err
	}
	opts = append(secure, opts...)
	b := thisBuild()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.Bootstrap...),
		kgo.ClientID("sekali"),
		kgo.SoftwareNameAndVersion("sekali", softwareVersion(b.Version)),
		kgo.RetryTimeout(f.Timeout),
		kgo.DialTimeout(min(f.Timeout, 5*time.Second)),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return cl, nil
}

// checkAddress refuses what is no HOST or HOST:PORT; without a port it is Kafka's 9092.
func checkAddress(addr string) error {
	host, port, ok := strings.Cut(addr, ":")
	if strings.HasPrefix(addr, "[") || strings.Count(addr, ":") > 1 {
		var err error
		if host, port, err = net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("--bootstrap %s is not HOST:PORT", addr)
		}
		ok = true
	}
	if host == "" {
		return fmt.Errorf("--bootstrap %q names no host", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); ok && (err != nil || n == 0) {
		return fmt.Errorf("--bootstrap %s: %q is no port", addr, port)
	}
	return nil
}

// softwareVersion keeps what the protocol allows in a client's version.
func softwareVersion(v string) string {
	keep := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, v), "-.")
	if keep == "" {
		return "devel"
	}
	return keep
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ping asks for the versions the daemon serves, so that a wrong address is told as such and not as a timed-out request.
func (f *clientFlags) ping(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("no Kafka protocol at %s: %w\nIs it running? Start one with: sekali serve",
			strings.Join(f.Bootstrap, ","), err)
	}
	return nil
}

// admin runs fn with an admin client that has reached the daemon.
func (f *clientFlags) admin(fn func(ctx context.Context, adm *kadm.Client) error) error {
	return f.withClient(func(ctx context.Context, cl *kgo.Client) error {
		adm := kadm.NewClient(cl)
		adm.SetTimeoutMillis(int32(f.Timeout.Milliseconds()))
		return unwrapShards(fn(ctx, adm))
	})
}

// withClient runs fn with a client that has reached the daemon.
func (f *clientFlags) withClient(fn func(ctx context.Context, cl *kgo.Client) error) error {
	ctx, stop := interruptible()
	defer stop()
	cl, err := f.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := f.ping(ctx, cl); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return fn(ctx, cl)
}

// unwrapShards takes the daemon's own answers out of the client's count of requests that failed.
func unwrapShards(err error) error {
	var shards *kadm.ShardErrors
	if !errors.As(err, &shards) || len(shards.Errs) == 0 {
		return err
	}
	var told []error
	seen := map[string]bool{}
	for _, e := range shards.Errs {
		if !seen[e.Err.Error()] {
			seen[e.Err.Error()] = true
			told = append(told, e.Err)
		}
	}
	return errors.Join(told...)
}

// interruptible is a context that ends with SIGINT or SIGTERM.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// printJSON writes one value as an indented JSON document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printDescribed writes what describe has found: one JSON document, or one after the other with a line between. err is
// of those that could not be described, and comes back beside the others.
func printDescribed[T any](io streams, asJSON bool, all []T, err error, show func(streams, T) error) error {
	if asJSON {
		return errors.Join(printJSON(io.out, all), err)
	}
	for i, x := range all {
		if i > 0 {
			fmt.Fprintln(io.out)
		}
		if e := show(io, x); e != nil {
			return e
		}
	}
	return err
}

// cellMax is how much of one name a table shows, in letters; JSON shows all of it.
const cellMax = 256

// cell is a name as a table shows it: on one line, without what a terminal would take for a command.
func cell(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		s = strconv.Quote(s)
	}
	if r := []rune(s); len(r) > cellMax {
		s = string(r[:cellMax]) + "…"
	}
	return s
}

// printTable writes rows under a head, columns aligned.
func printTable(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, s := range r {
			cells[i] = cell(s)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// pairs reads NAME=VALUE words.
func pairs(words []string) (map[string]string, error) {
	all := map[string]string{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", w)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		all[name] = value
	}
	return all, nil
}

// explain prefers the daemon's own words to the text of the error code.
func explain(err error, message string) error {
	if err == nil {
		return nil
	}
	if message != "" {
		return fmt.Errorf("%w: %s", err, message)
	}
	return err
}

// oneOf puts words in the spelling of the known ones and refuses those that are none: a filter that finds nothing is an
// answer, a mistyped one is not.
func oneOf(flag string, words []string, known ...string) error {
	for i, w := range words {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, w) })
		if at < 0 {
			return fmt.Errorf("%s %s is none of %s", flag, w, strings.Join(known, ", "))
		}
		words[i] = known[at]
	}
	return nil
}
