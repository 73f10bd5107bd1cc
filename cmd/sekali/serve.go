package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sekali/broker"
)

// serveCmd is the daemon.
type serveCmd struct {
	Data        string        `name:"data" placeholder:"DIR" help:"Data directory (log.dir); ./data by default."`
	Listen      string        `name:"listen" placeholder:"HOST:PORT" help:"${serve_listen}"`
	Advertise   string        `name:"advertise" placeholder:"HOST:PORT" help:"${serve_advertise}"`
	Admin       string        `name:"admin" placeholder:"HOST:PORT" help:"${serve_admin}"`
	Durability  string        `name:"durability" placeholder:"fsync|written" help:"${serve_durability}"`
	Config      string        `name:"config" placeholder:"FILE" help:"${serve_config}"`
	Set         []string      `name:"set" sep:"none" placeholder:"NAME=VALUE" help:"One setting; may be repeated."`
	StopTimeout time.Duration `name:"stop-timeout" default:"30s" help:"The longest an orderly stop may take."`
	LogFormat   string        `name:"log-format" enum:"text,json" default:"text" help:"${serve_log_format}"`
	PrintConfig bool          `name:"print-config" help:"Print every setting with its source, and exit."`
	JSON        bool          `name:"json" help:"With --print-config: JSON."`
}

// config lays flags over --set over environment over file over defaults.
func (c *serveCmd) config() (*configured, error) {
	file, err := fileLayer(c.Config)
	if err != nil {
		return nil, err
	}
	env, unknown := envLayer(os.Environ())
	set, err := pairs(c.Set)
	if err != nil {
		return nil, fmt.Errorf("--set: %w", err)
	}
	conf, err := resolveConfig(file, env, layer{"--set", set}, layer{"flag", c.flags()})
	if err != nil {
		return nil, err
	}
	if c.Advertise != "" {
		// The short form speaks of the first listener, whatever its name is.
		conf.Listeners[0].Advertise = c.Advertise
		conf.from["advertised.listeners"] = "flag"
	}
	if len(unknown) > 0 {
		conf.warnings = append(conf.warnings, "variables that name no setting: "+strings.Join(unknown, ", "))
	}
	return conf, nil
}

// flags are the settings given by their short forms.
func (c *serveCmd) flags() map[string]string {
	all := map[string]string{}
	put := func(name, value string) {
		if value != "" {
			all[name] = value
		}
	}
	put("log.dir", c.Data)
	put("sekali.durability", c.Durability)
	put("sekali.admin", c.Admin)
	if c.Admin == "none" {
		all["sekali.admin"] = ""
	}
	if c.Listen != "" {
		all["listeners"] = c.Listen
		if !strings.Contains(c.Listen, "://") {
			all["listeners"] = "PLAINTEXT://" + c.Listen
		}
	}
	return all
}

// Run serves until SIGTERM or SIGINT.
func (c *serveCmd) Run(io streams) error {
	conf, err := c.config()
	if err != nil {
		return err
	}
	if c.PrintConfig {
		return printConfig(io.out, conf, c.JSON)
	}
	if conf.LogLevel == nil {
		conf.LogLevel = new(slog.LevelVar)
	}
	log := slog.New(handler(io, c.LogFormat, conf.LogLevel))
	for _, w := range conf.warnings {
		log.Warn(w)
	}
	conf.Log = log
	limitMemory(log)
	conf.Store.FilesMax = openFiles(log)

	// Caught before the first file is touched: a stop during recovery is an orderly one too.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opened := make(chan struct{})
	stopped := make(chan os.Signal, 1)
	go func() {
		s := <-signals
		select {
		case <-opened:
		default:
			cancel() // recovery is left where it stands; the next start begins it anew
		}
		stopped <- s
		if _, again := <-signals; again {
			os.Exit(exitFailed)
		}
	}()

	server, err := broker.Open(ctx, conf.Config)
	if err != nil {
		return err
	}
	close(opened)
	return c.serve(io, log, conf, server, stopped)
}

// serve runs an opened server until a signal comes or it fails by itself.
func (c *serveCmd) serve(
	io streams, log *slog.Logger, conf *configured, server *broker.Server, stop <-chan os.Signal,
) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve() }()
	fmt.Fprintf(io.out, "sekali %s is ready on %s (data %s, durability %s, epoch %d)\n", thisBuild().Version,
		addresses(server.Addrs()), conf.Store.Dir, conf.Get("sekali.durability"), server.Epoch())
	r := server.Recovery()
	log.Info("serving", "clients", addresses(server.Addrs()), "admin", conf.adminText(server), "logs", r.Logs,
		"recovery", r.Took, "scanned_bytes", r.ScannedBytes, "cut_bytes", r.CutBytes)
	notifySystemd(log, "READY=1")
	var err error
	select {
	case s := <-stop:
		log.Info("stopping", "signal", s.String(), "timeout", c.StopTimeout)
	case err = <-failed:
		log.Error("serving failed", "err", err)
	}
	notifySystemd(log, "STOPPING=1")
	ctx, cancel := context.WithTimeout(context.Background(), c.StopTimeout)
	defer cancel()
	if stopErr := server.Shutdown(ctx); stopErr != nil {
		// What is durable stays durable: the next start recovers by scan where a log was not closed.
		log.Warn("stopped before all was closed", "err", stopErr)
	} else {
		log.Info("stopped")
	}
	return err
}

// adminText is the address of the admin port as it was opened.
func (c *configured) adminText(server *broker.Server) string {
	if a := server.AdminAddr(); a != nil {
		return a.String()
	}
	return "none"
}

func addresses(addrs []net.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}

func handler(io streams, format string, level slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.NewJSONHandler(io.err, o)
	}
	return slog.NewTextHandler(io.err, o)
}

// notifySystemd tells the service manager about a change of state, where one listens (sd_notify).
func notifySystemd(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		log.Warn("service manager not told", "state", state, "err", err)
		return
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		log.Warn("service manager not told", "state", state, "err", err)
	}
}
