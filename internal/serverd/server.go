// Package serve builds a whole server from its parts and runs it.
package serverd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/catalog"
	"github.com/muster-dev/muster/internal/cidcheck"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dashboard"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/history"
	"github.com/muster-dev/muster/internal/ipfs"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/webhook"
	"github.com/muster-dev/muster/web"
)

// Config says what server to build.
type Config struct {
	Listen     string          // host:port; port 0 picks a free one
	Data       string          // folder of everything that the server keeps; made if it is not there
	AdminToken string          // preset; "" makes one at the first start
	JoinToken  string          // preset; "" makes one at the first start
	Heartbeat  muster.Duration // how often workers renew; 0 means every 10 seconds
	AcceptLoss bool            // start although the database lacks what was acknowledged
	IPFS       string          // URL of an IPFS node's RPC interface, which gets what results call ipfs://…; "" for none
	Version    string
	Private    bool // no port is opened: only this process reaches the server, see Local
	// Metrics is where the server's metrics are registered; nil makes a registry of its own, which only the API serves.
	Metrics *obs.Registry
	// Tracer makes spans of jobs; nil makes none.
	Tracer *obs.Tracer
	// Addresses are networks in which workers may name addresses as theirs, beside the ones from which they connect.
	Addresses []netip.Prefix
	// WebhookAllow are networks that notifications may go to beside the public ones.
	WebhookAllow []netip.Prefix
	// WebhookSecret signs notifications; "" means one that is made at the first start.
	WebhookSecret string
	// URL is where people reach the server's dashboard, for links in notifications; "" for no links.
	URL string
	// Dialects are the gateways for workers and clients of other systems.
	Dialects []dialect.Config
	// Systems are those that Dialects may name; nil means Dialects().
	Systems []dialect.System
}

// Server is a server that listens already and serves once Run is called.
type Server struct {
	cfg       Config
	log       *slog.Logger
	store     *sqlite.Store
	logs      *tasklog.Dir
	engine    *engine.Engine
	socket    *wslink.Server
	poll      *polllink.Server
	http      *http.Server
	verifier  *cidcheck.Verifier
	history   *history.History
	webhooks  *webhook.Sender
	pinner    *ipfs.Pinner  // nil for none
	listener  net.Listener  // nil for a private server
	localPipe *dialect.Pipe // by which gateways, and who calls Local, reach the server
	gateways  []*gateway
	tokens    tokens
	metrics   *obs.Server
}

// New opens the data folder and the port. Nothing is served before Run.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the data folder cannot be made: %w", err)
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = muster.Duration(10 * time.Second)
	}
	s := &Server{cfg: cfg, log: log, localPipe: dialect.NewPipe()}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.close()) //nolint:contextcheck // what is closed is not asked to wait
	}
	return s, nil
}

// close closes what was opened, in the reverse order.
func (s *Server) close() error {
	var errs []error
	for _, g := range s.gateways {
		g.close()
	}
	if s.verifier != nil {
		s.verifier.Close()
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.logs != nil {
		errs = append(errs, s.logs.Close())
	}
	return errors.Join(errs...)
}

// openStore opens the database, and refuses one that lacks jobs which the logs beside it show.
func (s *Server) openStore(ctx context.Context) error {
	used, err := s.logs.LastJob()
	if err != nil {
		return err
	}
	s.store, err = sqlite.Open(ctx, filepath.Join(s.cfg.Data, "muster.db"), sqlite.Options{UsedJob: used, AcceptLoss: s.cfg.AcceptLoss})
	if err != nil {
		return err
	}
	if loss := s.store.Loss(); loss != nil {
		s.log.Error("the database lacks what was acknowledged; this loss was accepted", slog.String("lost", loss.String()))
	}
	return nil
}

func (s *Server) build(ctx context.Context) error {
	var err error
	if s.logs, err = tasklog.OpenIndexedDir(filepath.Join(s.cfg.Data, "logs")); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	blobs, err := blob.OpenDir(filepath.Join(s.cfg.Data, "blobs"))
	if err != nil {
		return err
	}
	s.verifier = cidcheck.New(s.store, blobs, s.log)
	if s.cfg.IPFS != "" {
		if s.pinner, err = ipfs.New(ipfs.Config{Node: s.cfg.IPFS, Pins: s.store, Verify: s.verifier.Verify, Blobs: blobs, Log: s.log}); err != nil {
			return err
		}
	}
	pages, err := dashboard.New(web.Dist())
	if err != nil {
		return err
	}
	s.registerMetrics()
	events := eventbus.New(newEpoch())
	s.engine = engine.New(engine.Config{
		Store: s.store, Logs: countingLogs{s.logs, s.metrics}, Blobs: blobs, Events: countingBus{events, s.metrics}, Log: s.log, Sched: sched.Config{Heartbeat: s.cfg.Heartbeat},
		Addresses: s.cfg.Addresses, OnBatch: s.observeBatch,
	})
	if s.webhooks, err = webhook.New(webhook.Config{
		Store: s.store, Events: events, Explain: s.explainWait, KeyFile: filepath.Join(s.cfg.Data, "webhook.key"), Secret: s.cfg.WebhookSecret, Allow: s.cfg.WebhookAllow, URL: s.cfg.URL, Version: s.cfg.Version, Log: s.log,
	}); err != nil {
		return err
	}
	accept := func(ctx context.Context, conn link.ServerConn, worker muster.WorkerID) {
		ctx, release := api.BindToKey(ctx)
		defer release()
		s.metrics.SessionOpened()
		if err := link.Serve(ctx, countingConn{conn, s.metrics}, s.engine, worker, s.log); err != nil {
			s.log.Info("a worker's session ended", slog.String("worker", string(worker)), slog.Any("why", err))
		}
	}
	s.socket = wslink.NewServer(api.WorkerOfRequest, accept)
	s.poll = polllink.NewServer(api.WorkerOfRequest, accept)
	limiter := connlimit.New(maxConnections(connlimit.Descriptors(), len(s.cfg.Dialects)))
	s.http = &http.Server{
		Handler: connlimit.Handler(api.New(api.Config{
			Engine: s.engine, Store: namedReader{s.store, s.engine}, Keys: s.store, Logs: s.logs, Blobs: countingBlobs{blobs, s.metrics}, Grants: s.store, LateReports: s.store, BlobNeeds: s.engine, VerifyCID: s.verifier.Verify, Events: events,
			Parse: spec.ParseContext, Kinds: catalog.New(s.log), LinkSocket: s.socket, LinkPoll: s.poll, Heartbeat: s.cfg.Heartbeat, Log: s.log, Version: s.cfg.Version,
			Metrics: s.cfg.Metrics.Handler(s.log), ObserveRequest: s.metrics.RequestStarted, Connections: limiter.MaxConns(), Gateways: s.gatewayStatus, Dashboard: pages,
			Views:    s.apiViews(),
			Webhooks: s.webhooks, Notifications: s.store,
		})),
		ConnContext:       connlimit.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if err := s.openPorts(ctx, limiter); err != nil {
		return err
	}
	// The last thing that may fail: tokens that are made are shown, and only once.
	s.tokens, err = ensureTokens(ctx, s.store, s.cfg)
	return err
}

// explainWait says why a task waits.
func (s *Server) explainWait(ctx context.Context, id muster.TaskID) (string, error) {
	x, err := s.engine.Explain(ctx, id)
	return x.Summary, err
}

// openPorts opens the ports of the server and its gateways.
func (s *Server) openPorts(ctx context.Context, limiter *connlimit.Limiter) error {
	if s.cfg.Private {
		return s.openGateways(ctx)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return listenError(s.cfg.Listen, err)
	}
	s.listener = limiter.Listen(listener)
	if err := s.openGateways(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

func listenError(address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return muster.Errorf(muster.Conflict, "cannot listen on %s, because another program does: stop it, or choose another address with --listen", address)
	}
	return muster.Errorf(muster.Invalid, "cannot listen on %s: %w; --listen takes an address of this machine such as 127.0.0.1:8700, or :8700 for all", address, err)
}

// URL is where the server is reached from this machine, "" for a private one.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return "http://" + s.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// AdminToken is the admin token if this start made or preset it, else "": it is
// stored only as a hash.
func (s *Server) AdminToken() string { return s.tokens.admin }

// JoinToken is the same for the token with which workers join.
func (s *Server) JoinToken() string { return s.tokens.join }

// shutdownGrace is how long requests may take to end once the server stops.
const shutdownGrace = 2 * time.Second

// Run serves until ctx ends, then ends sessions and requests, and closes the
// store. It returns why it could not serve, if that was so.
func (s *Server) Run(ctx context.Context) error {
	// The engine outlives the sessions, and the store the engine.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	var engineGroup, tracing errgroup.Group
	tracingCtx, stopTracing := context.WithCancel(context.WithoutCancel(ctx)) // it takes the engine's last batch, too
	defer stopTracing()
	tracing.Go(func() error { return s.cfg.Tracer.Run(tracingCtx) })
	engineDone := make(chan struct{})
	engineGroup.Go(func() error {
		defer close(engineDone)
		return s.engine.Run(engineCtx)
	})

	// What the gateways use goes on until they have stopped.
	group, ctx := errgroup.WithContext(ctx)
	serviceCtx, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServices()
	group.Go(func() error {
		defer stopServices()
		return s.runGateways(ctx)
	})
	group.Go(func() error { return s.socket.Run(serviceCtx) })
	group.Go(func() error { return s.poll.Run(serviceCtx) })
	group.Go(func() error { return s.runHistory(serviceCtx) })
	group.Go(func() error { return s.runWebhooks(serviceCtx) })
	if s.pinner != nil {
		group.Go(func() error { return s.pinner.Run(serviceCtx) })
	}
	group.Go(func() error {
		select {
		case <-engineDone:
			return errors.New("the engine stopped")
		case <-serviceCtx.Done():
			return nil
		}
	})
	if s.listener != nil {
		group.Go(func() error {
			s.log.Info("serving", slog.String("url", s.URL()))
			return s.serveHTTP(serviceCtx, s.http, s.listener)
		})
	}
	if len(s.gateways) > 0 || s.cfg.Private {
		local := &http.Server{Handler: s.http.Handler, ReadHeaderTimeout: s.http.ReadHeaderTimeout, IdleTimeout: s.http.IdleTimeout, ErrorLog: s.http.ErrorLog}
		group.Go(func() error { return s.serveHTTP(serviceCtx, local, s.localPipe) })
	}
	err := group.Wait()
	stopEngine()
	if engineErr := engineGroup.Wait(); engineErr != nil {
		err = engineErr
	}
	stopTracing()
	err = errors.Join(err, tracing.Wait())
	return errors.Join(err, s.close()) //nolint:contextcheck // what is closed is not asked to wait
}

// runWebhooks sends notifications once the state is loaded.
func (s *Server) runWebhooks(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
		return s.webhooks.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// serveHTTP serves once the state is loaded, so that nobody asks an engine that
// is not there.
func (s *Server) serveHTTP(ctx context.Context, server *http.Server, listener net.Listener) error {
	select {
	case <-s.engine.Ready():
	case <-ctx.Done():
		return listener.Close()
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // followers of logs and events do not end by themselves
		}
		stopped <- err
	})
	err := server.Serve(listener)
	if stop() {
		return err
	}
	return <-stopped
}
