// Command sekali is the one binary: `sekali serve` is the daemon, the other subcommands are its tools. Tools that talk
// to a daemon do so over the Kafka protocol; check and dump read a data directory and never need one.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// Exit codes that scripts may rely on.
const (
	exitOK     = 0
	exitFailed = 1 // the command ran and says no: an error at start, a refused record, damage found
	exitUsage  = 2 // the command could not run: its words are off, or what it needs is not there
)

// version is set by the linker; the build information of the module fills in where it is not.
var version string

// cli is the command line as kong reads it.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Serve a data directory to Kafka clients."`
	Topic   topicCmd   `cmd:"" help:"List, create, describe, alter and delete topics."`
	Produce produceCmd `cmd:"" help:"Write lines of standard input as records, each exactly once."`
	Consume consumeCmd `cmd:"" help:"Write records to standard output."`
	Group   groupCmd   `cmd:"" help:"List, describe and delete consumer groups, and set their offsets."`
	Txn     txnCmd     `cmd:"" help:"List, describe and abort transactions."`
	User    userCmd    `cmd:"" help:"List, make and delete those who may log in."`
	ACL     aclCmd     `cmd:"" name:"acl" help:"List, add and delete rules of who may do what."`
	Check   checkCmd   `cmd:"" help:"Verify the data directory of a stopped daemon; exit 0 clean, 1 damage, 2 not done."`
	Dump    dumpCmd    `cmd:"" help:"Show any file of a data directory as text."`
	Version versionCmd `cmd:"" help:"Say what this binary is."`
}

// streams are what a command reads and writes; tests put buffers in their place.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError carries the exit code of a command that has already said what it had to say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run parses the words, runs the command they name and returns the exit code.
func run(args []string, io streams) int {
	var c cli
	code := -1
	parser, err := kong.New(&c,
		kong.Name("sekali"),
		kong.Description("Every record once: a storage daemon that speaks the Kafka protocol."),
		kong.Writers(io.out, io.err),
		kong.Exit(func(n int) { code = n }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		helpTexts,
		kong.Bind(io),
	)
	if err != nil {
		fmt.Fprintln(io.err, "sekali:", err)
		return exitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	for _, a := range args {
		if !utf8.ValidString(a) {
			// The parser would put other bytes in their place, and the command be about something else.
			fmt.Fprintf(io.err, "sekali: %q is not UTF-8\n", a)
			return exitUsage
		}
	}
	ctx, err := parser.Parse(args)
	if code >= 0 { // --help has been answered
		return code
	}
	if err != nil {
		fmt.Fprintf(io.err, "sekali: %v\nTry: sekali --help\n", err)
		return exitUsage
	}
	return exitCode(ctx.Run(), io.err)
}

func exitCode(err error, w io.Writer) int {
	var exit exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	}
	fmt.Fprintln(w, "sekali:", err)
	return exitFailed
}
