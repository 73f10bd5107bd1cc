package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"sekali/engine"
	"sekali/group"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
	"sekali/store"
)

// Defaults is the configuration of a server nobody configured: one plain listener on the loopback address, data in
// ./data. Clock, Log and Store.FS stay nil, which stands for the real ones.
func Defaults() Config {
	c := Config{
		Listeners:  []Listener{{Name: "PLAINTEXT", Addr: "127.0.0.1:9092"}},
		Admin:      "127.0.0.1:9644",
		AutoCreate: true,
	}
	c.Store.Dir = "./data"
	c.Groups.InitialDelayMs = group.Defaults().InitialDelayMs
	c.fill()
	return c
}

// fill sets what is zero and may not be.
func (c *Config) fill() {
	setDefault(&c.InFlightBytesMax, inFlightDefault)
	setDefault(&c.ConnsMax, connsDefault)
	setDefault(&c.ConnsMaxPerIP, connsPerIPDefault)
	setDefault(&c.PipelineMax, pipelineDefault)
	setDefault(&c.IdleMax, idleDefault)
	setDefault(&c.Security.FailDelay, failDelayDefault)
	setDefault(&c.WriteTimeout, writeTimeoutDefault)
	setDefault(&c.FetchWaitMaxMs, fetchWaitDefault)
	setDefault(&c.FetchBytesMax, fetchBytesDefault)
	setDefault(&c.NumPartitions, numPartitionsDefault)
	setDefault(&c.PIDBlock, pidBlockDefault)
	setDefault(&c.WatermarksMax, watermarksDefault)
	setDefault(&c.Store.Syncers, syncersDefault)
	setDefault(&c.Store.RecoveryThreads, recoveryDefault)
	setDefault(&c.Store.ProducersMax, producersDefault)
	setDefault(&c.Store.ProducerExpire, producerExpireDefault)
	c.Store.Clean = c.Store.Clean.WithDefaults()
	setDefault(&c.Txns.TimeoutMaxMs, txnTimeoutMaxDefault)
	setDefault(&c.Txns.IDExpireMs, txnIDExpireDefault)
	setDefault(&c.Txns.SnapshotEvery, txnSnapshotEvery)
	setDefault(&c.Txns.RewriteEvery, txnRewriteEvery)
	c.Txns.TV = 2 // the finalized transaction.version
	fillGroups(&c.Groups)
	setDefault(&c.TxnPartitions, internalPartitionsDefault)
	setDefault(&c.OffsetsPartitions, internalPartitionsDefault)
	setDefault(&c.TxnSegmentBytes, internalSegmentDefault)
	setDefault(&c.OffsetsSegmentBytes, internalSegmentDefault)
	c.PipelineMax = min(c.PipelineMax, pipelineMax)
	c.Limits = c.Limits.Defaults()
}

// fillGroups sets what is zero in the settings of groups; no setting of groups may be zero but the initial delay.
func fillGroups(c *group.Config) {
	d := group.Defaults()
	setDefault(&c.SessionMinMs, d.SessionMinMs)
	setDefault(&c.SessionMaxMs, d.SessionMaxMs)
	setDefault(&c.SizeMax, d.SizeMax)
	setDefault(&c.MetadataMax, d.MetadataMax)
	setDefault(&c.RetainMs, d.RetainMs)
	setDefault(&c.RetainCheckMs, d.RetainCheckMs)
	setDefault(&c.ConsumerSessionMs, d.ConsumerSessionMs)
	setDefault(&c.ConsumerHeartbeatMs, d.ConsumerHeartbeatMs)
	setDefault(&c.ConsumerSizeMax, d.ConsumerSizeMax)
	setDefault(&c.SnapshotEvery, d.SnapshotEvery)
	setDefault(&c.RewriteEvery, d.RewriteEvery)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Open locks the data directory, raises the start epoch in the metadata, opens and recovers the store, and listens. No
// connection is accepted before Serve. An error leaves nothing open.
func Open(ctx context.Context, c Config) (*Server, error) {
	c.fill()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Store.FS == nil {
		c.Store.FS = vfs.OS()
	}
	s := &Server{
		cfg: c, log: c.Log, clk: c.Clock, metrics: newMetrics(),
		conns: map[*conn]struct{}{}, stopped: make(chan struct{}), quiet: make(chan struct{}),
		sessions: newSessions(c.Clock), settings: newSettings(c, Defaults()),
		budget: newBudget(c.InFlightBytesMax), handlers: handlers,
	}
	s.complaints.log, s.complaints.clk = c.Log, c.Clock
	s.pool = s.budget.all
	s.metrics.watchInFlight(func() int64 { return s.pool.Usage().InFlight })
	if err := s.assemble(ctx); err != nil {
		for _, l := range s.listeners {
			err = errors.Join(err, l.ln.Close())
		}
		return nil, errors.Join(err, s.release(context.WithoutCancel(ctx)))
	}
	s.ticker.Go(s.housekeep)
	s.ticker.Go(s.tickEngine)
	s.ticker.Go(s.reload)
	return s, nil
}

// assemble opens the parts in the order in which they need one another.
func (s *Server) assemble(ctx context.Context) (err error) {
	c := &s.cfg.Store
	c.Clock, c.Events, c.Notice, c.NodeID = s.clk, s.events, s.notice, s.cfg.NodeID
	c.HoldTxns = true
	if err := s.secureAll(); err != nil {
		return err
	}
	if err := s.startAdmin(); err != nil {
		return err
	}
	if s.lock, err = store.Lock(*c); err != nil {
		return err
	}
	if s.meta, s.metaClose, err = meta.Open(c.Dir, c.FS, s.clk); err != nil {
		return err
	}
	if err := s.openAuth(ctx); err != nil {
		return err
	}
	if s.epoch, err = store.RaiseEpoch(ctx, *c, s.meta); err != nil {
		return err
	}
	if s.shared, err = plog.NewShared(indexCacheBytes, sealedHandles, s.pool); err != nil {
		return err
	}
	c.Epoch, c.Meta, c.Shared = s.epoch, s.meta, s.shared
	if s.store, err = store.Open(*c); err != nil {
		return err
	}
	s.clusterID, s.nodeID = s.store.ClusterID(), s.store.NodeID()
	if err := s.settings.attach(s.store); err != nil {
		return err
	}
	s.cfg.Txns.Events = s.metrics.txnEvents(s.log, s.complaints.warn)
	s.cfg.Groups.Events = s.metrics.groupEvents()
	s.engine = engine.New(s.engineConfig())
	s.closeEngine = sync.OnceFunc(s.engine.Close)
	if err := s.engine.Load(ctx); err != nil {
		return err
	}
	s.metrics.watchTxns(s.engine.Txns())
	s.metrics.watchGroups(s.engine.Groups(), s.store)
	s.metrics.watchStore(s.store, s.cfg.WatermarksMax)
	s.openAges = s.metrics.watchOpenAges(s.store, s.clk)
	return s.listen(ctx)
}

// engineConfig is what the engine needs of this server.
func (s *Server) engineConfig() engine.Config {
	c := &s.cfg
	return engine.Config{
		Store: s.store, Meta: s.meta, FS: c.Store.FS, Clock: s.clk, PIDBlock: c.PIDBlock, Txns: c.Txns, Groups: c.Groups,
		TxnPartitions: c.TxnPartitions, TxnSegmentBytes: c.TxnSegmentBytes,
		OffsetsPartitions: c.OffsetsPartitions, OffsetsSegmentBytes: c.OffsetsSegmentBytes, VerifyOff: c.VerifyOff,
		Fault: func(what string, err error) { s.log.Error("coordinator fault", "what", what, "err", err) },
	}
}

// listen opens the listeners that are not open yet.
func (s *Server) listen(ctx context.Context) error {
	var lc net.ListenConfig
	for i, cfg := range s.cfg.Listeners {
		ln := cfg.Ln
		if ln == nil {
			var err error
			if ln, err = lc.Listen(ctx, "tcp", cfg.Addr); err != nil {
				return fmt.Errorf("broker: listener %s: %w", cfg.Name, err)
			}
		}
		l := &listener{cfg: cfg, ln: ln, security: s.securities[i]}
		s.listeners = append(s.listeners, l)
		if err := l.advertise(); err != nil {
			return err
		}
	}
	return nil
}
