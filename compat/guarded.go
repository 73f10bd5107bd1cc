package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	library "sekali/compat/client"
)

// way is one way into the guarded daemon. The user of each has its name and may write and read topics that begin with
// it, so that who comes in under another name is refused.
type way struct {
	name, protocol, mechanism string
}

var ways = []way{
	{"plain-tls", "SASL_SSL", library.Plain},
	{"scram-sha-256", "SASL_SSL", library.ScramSHA256},
	{"scram-sha-512", "SASL_SSL", library.ScramSHA512},
	{"scram-plaintext", "SASL_PLAINTEXT", library.ScramSHA512},
	{"mtls", "SSL", ""},
}

const (
	wayCodec      = "lz4"
	writePassword = `pen cil, "é"` // what a client has to quote, or to encode, if any does
	wrongPassword = "pencil"
	unusedGroup   = "unused" // a reader of librdkafka has one and never joins
)

// guarded is a daemon that lets in whom it knows and where everybody may do what a rule says. It is another one than that
// of the other scenarios. The plain listener is the administrator's.
type guarded struct {
	bench   *bench
	addrs   map[string]string // by protocol
	trusted *authority
}

var guardedSettings = []string{"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "authorizer.class.name=acl",
	"super.users=User:ANONYMOUS", "listener.name.ssl.ssl.client.auth=required",
	"listener.name.ssl.ssl.principal.mapping.rules=RULE:^CN=([^,]+),OU=compat,O=sekali$/$1/"}

// startGuarded starts it in a folder of its own, with certificates, users and rules for the ways.
func startGuarded(ctx context.Context, binary, dir, run string) (*guarded, error) {
	g := &guarded{addrs: map[string]string{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if g.trusted, err = newAuthority(dir, "trusted"); err != nil {
		return nil, err
	}
	store, err := g.trusted.keyStore("broker")
	if err != nil {
		return nil, err
	}
	protocols := []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
	addrs, err := freeAddrs(len(protocols))
	if err != nil {
		return nil, err
	}
	var listeners []string
	for i, protocol := range protocols {
		g.addrs[protocol] = addrs[i]
		listeners = append(listeners, protocol+"://"+addrs[i])
	}
	d := &daemon{binary: binary, dir: dir, addr: g.addrs["PLAINTEXT"]}
	for _, s := range append([]string{"listeners=" + strings.Join(listeners, ","), "ssl.keystore.location=" + store,
		"ssl.truststore.location=" + g.trusted.root}, guardedSettings...) {
		d.flags = append(d.flags, "--set", s)
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	g.bench = &bench{daemon: d, dir: dir, run: run} // topics: by the way
	if g.bench.ref, err = newReference(d.addr); err == nil {
		err = g.populate(ctx)
	}
	if err != nil {
		d.kill()
		return nil, err
	}
	return g, nil
}

// stop is the orderly end of the daemon.
func (g *guarded) stop() error {
	g.bench.ref.close()
	return g.bench.daemon.stop()
}

// populate makes the users and the rules through the wire, as an administrator does.
func (g *guarded) populate(ctx context.Context) error {
	var users []kadm.UpsertSCRAM
	scram := map[string]kadm.ScramMechanism{library.Plain: kadm.ScramSha256, library.ScramSHA256: kadm.ScramSha256,
		library.ScramSHA512: kadm.ScramSha512}
	for _, w := range ways {
		if w.mechanism != "" {
			users = append(users, kadm.UpsertSCRAM{User: w.name, Mechanism: scram[w.mechanism], Iterations: 4096,
				Password: writePassword})
		}
		may := func() *kadm.ACLBuilder {
			return kadm.NewACLs().Allow("User:" + w.name).AllowHosts().
				ResourcePatternType(kmsg.ACLResourcePatternTypePrefixed)
		}
		half := kadm.OpWrite
		if w.mechanism == "" {
			half = kadm.OpRead
		}
		for _, rules := range []*kadm.ACLBuilder{
			may().Topics(w.name+"-").Operations(kadm.OpWrite, kadm.OpRead),
			may().Topics(halfOpenTopics + "-").Operations(half),
			may().Groups(unusedGroup).Operations(kadm.OpRead),
		} {
			if err := g.allow(ctx, rules); err != nil {
				return err
			}
		}
	}
	altered, err := g.bench.ref.admin.AlterUserSCRAMs(ctx, nil, users)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range altered {
		errs = append(errs, a.Err)
	}
	return errors.Join(errs...)
}

func (g *guarded) allow(ctx context.Context, rules *kadm.ACLBuilder) error {
	made, err := g.bench.ref.admin.CreateACLs(ctx, rules)
	if err != nil {
		return err
	}
	for _, m := range made {
		if m.Err != nil {
			return fmt.Errorf("rule for %s: %w", m.Principal, m.Err)
		}
	}
	return nil
}

// login is how a client comes in this way.
func (g *guarded) login(w way) (l library.Login, err error) {
	l = library.Login{Protocol: w.protocol, Mechanism: w.mechanism}
	if w.mechanism != "" {
		l.User, l.Password = w.name, writePassword
	}
	if w.protocol != "SASL_PLAINTEXT" {
		l.CA = g.trusted.root
	}
	if w.protocol == "SSL" {
		l.KeyStore, err = g.trusted.keyStore(w.name)
	}
	return l, err
}

// with is the client with its login in a file, which it finds by its environment.
func (g *guarded) with(c *client, name string, l library.Login) (*client, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(g.bench.dir, name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	in := *c
	in.env = []string{library.LoginFile + "=" + path}
	in.bootstrap = g.addrs[l.Protocol]
	return &in, nil
}

// through writes and reads the corpus by one way in.
func (g *guarded) through(ctx context.Context, c *client, w way) (string, error) {
	l, err := g.login(w)
	if err != nil {
		return "", err
	}
	in, err := g.with(c, w.name, l)
	if err != nil {
		return "", err
	}
	b := *g.bench
	b.topics = w.name
	note, err := b.roundTrip(ctx, in, wayCodec, c.idempotent)
	if w.mechanism == "" {
		return fmt.Sprintf("%s, User:%s by a rule for the certificate's name: %s", w.protocol, w.name, note), err
	}
	return fmt.Sprintf("%s, %s: %s", w.protocol, w.mechanism, note), err
}
