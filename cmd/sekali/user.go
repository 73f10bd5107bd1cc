package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"sekali/auth"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// userCmd groups what is done with those who may log in.
type userCmd struct {
	List   userListCmd   `cmd:"" help:"List who can log in, and how."`
	Set    userSetCmd    `cmd:"" help:"Make a user, or give one another password."`
	Delete userDeleteCmd `cmd:"" help:"Delete users."`
}

// userListCmd lists users.
type userListCmd struct {
	clientFlags
	JSON bool `name:"json" help:"JSON instead of a table."`
}

// listedUser is a line of user list.
type listedUser struct {
	User       string            `json:"user"`
	Mechanisms []listedMechanism `json:"mechanisms"`
}

type listedMechanism struct {
	Mechanism  string `json:"mechanism"`
	Iterations int32  `json:"iterations"`
}

// Run prints names and mechanisms; there is nothing else to be told.
func (c *userListCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		described, err := adm.DescribeUserSCRAMs(ctx)
		if err != nil {
			return err
		}
		all, rows := []listedUser{}, [][]string{}
		for _, d := range described.Sorted() {
			if d.Err != nil {
				return fmt.Errorf("%s: %w", d.User, explain(d.Err, d.ErrMessage))
			}
			u := listedUser{User: d.User}
			var names []string
			for _, i := range d.CredInfos {
				name := auth.Mechanism(i.Mechanism).String()
				u.Mechanisms = append(u.Mechanisms, listedMechanism{name, i.Iterations})
				names = append(names, name+" ("+strconv.Itoa(int(i.Iterations))+")")
			}
			all, rows = append(all, u), append(rows, []string{d.User, strings.Join(names, ", ")})
		}
		if c.JSON {
			return printJSON(io.out, all)
		}
		return printTable(io.out, []string{"USER", "MECHANISMS (ITERATIONS)"}, rows)
	})
}

// userSetCmd sets a password.
type userSetCmd struct {
	clientFlags
	User       string   `arg:"" name:"user"`
	File       string   `name:"password-file" placeholder:"FILE" help:"${user_password}"`
	Mechanisms []string `name:"mechanism" default:"SCRAM-SHA-256,SCRAM-SHA-512" help:"${user_mechanism}"`
	Iterations int      `name:"iterations" default:"4096" help:"Rounds of hashing, 4096 to 16384."`
	Data       string   `name:"data" placeholder:"DIR" help:"${user_data}"`
}

// Run stores the password, hashed, for the mechanisms.
func (c *userSetCmd) Run(io streams) error {
	if c.Iterations < auth.IterationsMin || c.Iterations > auth.IterationsMax {
		return fmt.Errorf("--iterations %d is not between %d and %d", c.Iterations, auth.IterationsMin,
			auth.IterationsMax)
	}
	ms, err := mechanisms(c.Mechanisms)
	if err != nil {
		return err
	}
	password, err := readPassword(io.in, c.File)
	if err != nil {
		return err
	}
	var changes []auth.Change
	for _, m := range ms {
		cred, err := auth.NewCredential(m, password, c.Iterations)
		if err != nil {
			return err
		}
		changes = append(changes, auth.Change{User: c.User, Mechanism: m, Credential: &cred})
	}
	if c.Data != "" {
		err = changeOffline(c.Data, func(ctx context.Context, s *auth.Store) error { return s.Apply(ctx, changes) })
	} else {
		err = c.admin(func(ctx context.Context, adm *kadm.Client) error {
			var up []kadm.UpsertSCRAM
			for _, m := range ms {
				up = append(up, kadm.UpsertSCRAM{User: c.User, Mechanism: kadm.ScramMechanism(m),
					Iterations: int32(c.Iterations), Password: password})
			}
			return altered(adm.AlterUserSCRAMs(ctx, nil, up))
		})
	}
	if err == nil {
		fmt.Fprintf(io.out, "set the password of %s\n", c.User)
	}
	return err
}

func mechanisms(names []string) (ms []auth.Mechanism, err error) {
	for _, name := range names {
		switch name {
		case auth.ScramSHA256:
			ms = append(ms, auth.SHA256)
		case auth.ScramSHA512:
			ms = append(ms, auth.SHA512)
		default:
			return nil, fmt.Errorf("--mechanism %s is neither %s nor %s (PLAIN logs in by either)", name,
				auth.ScramSHA256,
				auth.ScramSHA512)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(ms))), nil
}

// readPassword takes the first line of the file or of standard input. A password is never a word of the command line,
// which others can see.
func readPassword(in io.Reader, file string) (string, error) {
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("password: %w", err)
		}
		defer f.Close()
		in = f
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("no password: give it as the first line of standard input or of --password-file")
	}
	return line, nil
}

// altered is what went wrong with any of the users.
func altered(answers kadm.AlteredUserSCRAMs, err error) error {
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range answers.Sorted() {
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.User, explain(a.Err, a.ErrMessage)))
		}
	}
	return errors.Join(errs...)
}

// changeOffline changes the users of a stopped daemon's data directory: the first one has to come from somewhere.
func changeOffline(dir string, fn func(context.Context, *auth.Store) error) error {
	fs := vfs.OS()
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := store.Lock(store.Config{Dir: dir, FS: fs})
	if err != nil {
		return fmt.Errorf("the data directory is in use; leave --data out to change a running daemon: %w", err)
	}
	defer lock.Close()
	m, closer, err := meta.Open(dir, fs, clock.Real())
	if err != nil {
		return err
	}
	s, err := auth.Open(context.Background(), m)
	if err == nil {
		err = fn(context.Background(), s)
	}
	return errors.Join(err, closer.Close())
}

// userDeleteCmd deletes users.
type userDeleteCmd struct {
	clientFlags
	Users     []string `arg:"" name:"user"`
	IfPresent bool     `name:"if-exists" help:"A user that does not exist is no error."`
}

// Run deletes every credential of each user and says so. Connections that are logged in stay.
func (c *userDeleteCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		described, err := adm.DescribeUserSCRAMs(ctx, c.Users...)
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range c.Users {
			d := described[name]
			switch {
			case errors.Is(d.Err, kerr.ResourceNotFound) && c.IfPresent:
				fmt.Fprintf(io.out, "%s does not exist\n", name)
				continue
			case errors.Is(d.Err, kerr.ResourceNotFound):
				errs = append(errs, fmt.Errorf("delete %s: no such user; see: sekali user list", name))
				continue
			case d.Err != nil:
				errs = append(errs, fmt.Errorf("delete %s: %w", name, explain(d.Err, d.ErrMessage)))
				continue
			}
			var del []kadm.DeleteSCRAM
			for _, i := range d.CredInfos {
				del = append(del, kadm.DeleteSCRAM{User: name, Mechanism: i.Mechanism})
			}
			if err := altered(adm.AlterUserSCRAMs(ctx, del, nil)); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(io.out, "deleted %s\n", name)
		}
		return errors.Join(errs...)
	})
}
