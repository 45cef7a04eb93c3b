// Package serverd builds a server from its parts and runs it.
package serverd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/auditlog"
	"github.com/muster-dev/muster/internal/backup"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/catalog"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dashboard"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/execrelay"
	"github.com/muster-dev/muster/internal/history"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/overview"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/schedules"
	"github.com/muster-dev/muster/internal/secrets"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/sweeper"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/webhook"
	"github.com/muster-dev/muster/web"
)

// Config configures a server.
type Config struct {
	Listen     string          // host:port; port 0 picks a free one
	Data       string          // data directory; created if it does not exist
	AdminToken string          // preset; "" generates one at the first start
	JoinToken  string          // preset; "" generates one at the first start
	Heartbeat  muster.Duration // heartbeat interval of workers; 0 means 10 seconds
	AcceptLoss bool            // start even if the database lacks acknowledged jobs
	IPFS       string          // URL of an IPFS node's RPC API, which pins files that results refer to as ipfs://…; "" for none
	Version    string
	Private    bool // do not open a port: only this process can access the server, see Local
	// Metrics is the registry of the server's metrics; nil creates one, which only the API serves.
	Metrics *obs.Registry
	// Tracer creates spans of jobs; it may be nil.
	Tracer *obs.Tracer
	// Addresses are networks of addresses that workers may announce, in addition to the ones from which they connect.
	Addresses []netip.Prefix
	// WebhookAllow are non-public networks to which notifications may be sent.
	WebhookAllow []netip.Prefix
	// WebhookSecret signs notifications; "" generates one at the first start.
	WebhookSecret string
	// SecretsKeyFile has the key of secrets; "" means secrets.key in Data. SecretsKeyCommand prints it in place of the file, if it is not "".
	SecretsKeyFile, SecretsKeyCommand string
	// PlainSecrets sends secrets to workers on other machines although the connections are not encrypted.
	PlainSecrets bool
	// URL is the public URL of the server, for links in notifications and URLs of artifacts; "" for no links, and the URLs to which workers connect.
	URL string
	// AllowHosts are further names by which browsers may reach this server; one that begins with a dot includes all below it.
	AllowHosts []string
	// Retention is the limits that the administrator chose; nil fields are the defaults. KeepServer is those of the server itself; the zero
	// value means the defaults.
	Retention  retention.Policy
	KeepServer retention.ServerPolicy
	// Dialects are the gateways for workers and clients of other systems.
	Dialects []dialect.Config
	// Systems are the supported dialects; nil means Dialects().
	Systems []dialect.System
	// SignIn is the OpenID Connect provider with which users sign in; without an issuer there is none.
	SignIn oidc.Config
	// RateLimits limits requests per second; the zero value has no limits.
	RateLimits ratelimit.Config
	// TLS is the source of the server's certificate; the zero value serves without TLS.
	TLS certs.Config
}

// Server is a server that listens, and serves when Run is called.
type Server struct {
	cfg        Config
	log        *slog.Logger
	store      *sqlite.Store
	logs       *tasklog.Dir
	engine     *engine.Engine
	socket     *wslink.Server
	poll       *polllink.Server
	exec       *execrelay.Relay
	execSocket *wslink.Server   // of exec
	execPoll   *polllink.Server // of exec
	http       *http.Server
	keys       *keyring.Ring
	sessions   *sessiontoken.Issuer
	urls       *artifacturl.Signer
	verifier   cidVerifier
	history    *history.History
	webhooks   *webhook.Sender
	secrets    *secrets.Keeper
	schedules  *schedules.Scheduler
	sweeper    *sweeper.Sweeper
	audit      *auditlog.Recorder
	backupMu   sync.Mutex    // held by a backup
	pinner     ipfsPinner    // nil for none
	listener   net.Listener  // nil for a private server
	challenges net.Listener  // of the ACME authority; nil for none
	certs      *certs.Certs  // nil without TLS
	localPipe  *dialect.Pipe // connects gateways and callers of Local to the server
	gateways   []*gateway
	tokens     tokens
	metrics    *obs.Server
	limiter    *ratelimit.Limiter
}

// New opens the port and then the data directory: if the port cannot be opened, no file is created. The server serves when Run is called.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	if err := refuseIncomplete(cfg.Data); err != nil {
		return nil, err
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = muster.Duration(10 * time.Second)
	}
	if cfg.KeepServer == (retention.ServerPolicy{}) {
		cfg.KeepServer = retention.DefaultServerPolicy()
	}
	s := &Server{cfg: cfg, log: log, localPipe: dialect.NewPipe()}
	limiter := connlimit.New(maxConnections(connlimit.Descriptors(), len(cfg.Dialects)))
	err := s.listen(ctx, limiter)
	if err == nil {
		err = s.build(ctx, limiter)
	}
	if err != nil {
		for _, l := range []net.Listener{s.listener, s.challenges} {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
		return nil, errors.Join(err, s.close()) //nolint:contextcheck // closing does not wait
	}
	return s, nil
}

// listen opens the port, except for a private server.
func (s *Server) listen(ctx context.Context, limiter *connlimit.Limiter) error {
	if s.cfg.Private {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return listenError(s.cfg.Listen, err)
	}
	s.listener = limiter.Listen(listener)
	return s.listenForChallenges(ctx, limiter)
}

// close closes what was opened, in reverse order.
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

// openStore opens the database. It fails if the database lacks jobs that have logs.
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
		s.log.Error("the database lacks acknowledged jobs; loss accepted", slog.String("lost", loss.String()))
	}
	return nil
}

func (s *Server) build(ctx context.Context, limiter *connlimit.Limiter) error {
	err := os.MkdirAll(s.cfg.Data, 0o700)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot create the data directory: %w", err)
	}
	if err := s.enableTLS(); err != nil {
		return err
	}
	if s.logs, err = tasklog.OpenIndexedDir(filepath.Join(s.cfg.Data, "logs")); err != nil {
		return err
	}
	s.logs.KeepOpen(int(min(1024, connlimit.Descriptors()/8)))
	if err := s.openStore(ctx); err != nil {
		return err
	}
	s.audit = auditlog.New(s.store, s.log)
	if err := backup.RemoveLeftovers(s.cfg.Data); err != nil {
		return err
	}
	blobs, err := blob.OpenDir(filepath.Join(s.cfg.Data, "blobs"))
	if err != nil {
		return err
	}
	if err := s.buildIPFS(blobs); err != nil {
		return err
	}
	pages, err := dashboard.New(web.Dist())
	if err != nil {
		return err
	}
	s.registerMetrics()
	s.limiter = ratelimit.New(s.cfg.RateLimits, s.metrics.RequestLimited)
	if s.secrets, err = secrets.New(ctx, secrets.Config{
		Store: s.store, KeyFile: cmp.Or(s.cfg.SecretsKeyFile, filepath.Join(s.cfg.Data, "secrets.key")), KeyCommand: s.cfg.SecretsKeyCommand, Log: s.log,
	}); err != nil {
		return err
	}
	if err := s.loadIdentity(ctx); err != nil {
		return err
	}
	events := eventbus.NewSized(newEpoch(), s.cfg.KeepServer.Events)
	kinds := catalog.New(s.log)
	s.engine = engine.New(engine.Config{
		Secrets: s.secrets, PlainSecrets: s.cfg.PlainSecrets || s.certs != nil || strings.HasPrefix(s.cfg.URL, "https://"),
		Store: s.store, Logs: countingLogs{s.logs, s.metrics}, Blobs: blobs, Events: countingBus{events, s.metrics}, Log: s.log, Sched: sched.Config{Heartbeat: s.cfg.Heartbeat},
		KindVersion: func(kind string, workers func() []muster.Worker) string {
			return kinds.Version(kind, s.cfg.Version, workers)
		},
		Addresses: s.cfg.Addresses, URLs: s.urls, OnBatch: s.observeBatch, OnCopy: s.quarantine,
	})
	if s.webhooks, err = webhook.New(ctx, webhook.Config{
		Store: s.store, Events: events, Explain: s.explainWait, KeyFile: filepath.Join(s.cfg.Data, "webhook.key"), Secret: s.cfg.WebhookSecret, Allow: s.cfg.WebhookAllow, URL: s.cfg.URL, Version: s.cfg.Version, Log: s.log,
	}); err != nil {
		return err
	}
	s.sweeper = sweeper.New(sweeper.Config{
		Store: s.store, Engine: s.engine, Logs: s.logs, Blobs: blobs, Options: s.cfg.Retention, Server: s.cfg.KeepServer, Log: s.log, Observe: s.observeDeleted,
	})
	s.schedules = schedules.New(schedules.Config{
		Store: s.store, Engine: s.engine, Audit: s.audit, Log: s.log, Admit: func(spec *muster.Spec) []muster.FieldError { return secrets.Require(s.secrets, spec) },
	})
	accept := func(ctx context.Context, conn link.ServerConn, peer link.Peer) {
		ctx, release := api.BindToKey(ctx)
		defer release()
		s.auditSession(ctx, conn)
		s.metrics.SessionOpened()
		if err := link.Serve(ctx, countingConn{conn, s.metrics, s.rejected(ctx, conn.RemoteIP())}, enrolled{s.engine, api.EnrolmentOf(ctx), peer.Secret, s.store, s.urlFor(ctx)}, peer.Worker, s.log); err != nil {
			s.log.Info("worker session ended", slog.String("worker", string(peer.Worker)), slog.Any("why", err))
		}
	}
	s.socket = wslink.NewServer(api.WorkerOfRequest, accept)
	s.poll = polllink.NewServer(api.WorkerOfRequest, accept)
	s.exec = execrelay.New(s.engine, s.log)
	acceptExec := func(ctx context.Context, r *http.Request, conn link.FrameConn, peer link.Peer) {
		ctx, release := api.BindToKey(ctx)
		defer release()
		s.exec.Accept(ctx, r, watchedFrames{conn, s.rejected(ctx, link.RemoteIPOf(r))}, peer)
	}
	s.execSocket = wslink.NewFrameServer(api.WorkerOfRequest, acceptExec)
	s.execPoll = polllink.NewFrameServer(api.WorkerOfRequest, acceptExec, execrelay.MaxPerWorker)
	s.keys = keyring.New(s.store, s.sessions, s.limiter, s.log)
	var signIn *oidc.Provider
	if s.cfg.SignIn.Issuer != "" {
		if signIn, err = oidc.New(s.cfg.SignIn); err != nil {
			return err
		}
	}
	rows := namedReader{s.store, s.engine}
	s.http = &http.Server{
		Handler: connlimit.Handler(s.strictTransport(s.guardBrowsers(s.serveAuthority(api.New(api.Config{
			Engine: s.engine, JobEditor: s.engine, Store: rows, Keys: s.store, Enrol: s.store, Sessions: s.sessions, URLs: s.urls, Ring: s.keys, Logs: s.logs, Blobs: countingBlobs{blobs, s.metrics}, Grants: s.store, LateReports: rows, BlobNeeds: s.engine, VerifyCID: s.verifier.Verify, Events: events,
			Parse: spec.ParseContext, Kinds: kinds, LinkSocket: s.socket, LinkPoll: s.poll, Exec: s.exec, LinkExec: s.execSocket, LinkExecPoll: s.execPoll, Heartbeat: s.cfg.Heartbeat, Log: s.log, Version: s.cfg.Version, Pin: s.Pin(),
			Metrics: s.cfg.Metrics.Handler(s.log), ObserveRequest: s.metrics.RequestStarted, RateLimits: s.limiter, Connections: limiter.MaxConns(), Gateways: s.gatewayStatus, Dashboard: pages,
			Views: s.apiViews(),
			URL:   s.cfg.URL, SignIn: signIn,
			Webhooks: s.webhooks, Secrets: s.secrets, Schedules: s.schedules, Cache: s.store, Notifications: s.store, Retention: s.sweeper, Backup: s.Backup, Audit: s.audit, AuditLog: s.store,
		}))))),
		ConnContext:       connlimit.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if err := s.openGateways(ctx); err != nil {
		return err
	}
	// The last step: a start that fails before it creates no tokens.
	if s.tokens, err = ensureTokens(ctx, s.ownKeys(), s.cfg); err != nil {
		return err
	}
	s.auditStart()
	return s.auditRestore(ctx)
}

// explainWait returns why a task waits.
func (s *Server) explainWait(ctx context.Context, id muster.TaskID) (string, error) {
	x, err := s.engine.Explain(ctx, id)
	return x.Summary, err
}

func listenError(address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return muster.Errorf(muster.Conflict, "cannot listen on %s: another program uses this address; stop it, or choose another address with --listen", address)
	}
	return muster.Errorf(muster.Invalid, "cannot listen on %s: %w; set --listen to an address of this machine such as 127.0.0.1:8700, or to :8700 for all addresses", address, err)
}

// URL returns the server's address on this machine, "" for a private server.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	scheme := "http://"
	if s.certs != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return scheme + s.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

// AwaitReady returns when the server has loaded its state, and serves. Its error is that of ctx.
func (s *Server) AwaitReady(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Alive returns an error if the server does not respond before ctx ends, for a watchdog. A failing disk or a flood of requests is not
// an error.
func (s *Server) Alive(ctx context.Context) error { return s.engine.Ping(ctx) }

// AdminToken returns the admin token if this start generated or preset it, or if it was generated but not yet shown
// (TokensShown), else "": only its hash is stored. It ends in the fingerprint of the server's authority, if there is one.
func (s *Server) AdminToken() string { return s.withPin(s.tokens.Admin) }

// JoinToken returns the join token of workers in the same way.
func (s *Server) JoinToken() string { return s.withPin(s.tokens.Join) }

// shutdownGrace is how long running requests may continue when the server stops.
const shutdownGrace = 2 * time.Second

// Run serves until ctx ends, then ends sessions and requests, and closes the store. It
// returns an error if it could not serve.
func (s *Server) Run(ctx context.Context) error {
	// The engine outlives the sessions, and the store the engine.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	var engineGroup, tracing, auditing errgroup.Group
	auditCtx, stopAudit := context.WithCancel(context.WithoutCancel(ctx)) // also for what happens while the server stops
	defer stopAudit()
	auditing.Go(func() error { return s.audit.Run(auditCtx) })
	tracingCtx, stopTracing := context.WithCancel(context.WithoutCancel(ctx)) // also for the engine's last batch
	defer stopTracing()
	tracing.Go(func() error { return s.cfg.Tracer.Run(tracingCtx) })
	engineDone := make(chan struct{})
	engineGroup.Go(func() error {
		defer close(engineDone)
		return s.engine.Run(engineCtx)
	})

	// Services that gateways use run until these have stopped.
	group, ctx := errgroup.WithContext(ctx)
	serviceCtx, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServices()
	group.Go(func() error {
		defer stopServices()
		return s.whenReady(ctx, s.runGateways)
	})
	group.Go(func() error { return s.socket.Run(serviceCtx) })
	group.Go(func() error { return s.poll.Run(serviceCtx) })
	group.Go(func() error { return s.exec.Run(serviceCtx) })
	group.Go(func() error { return s.keys.Run(serviceCtx) })
	group.Go(func() error { return s.execSocket.Run(serviceCtx) })
	group.Go(func() error { return s.execPoll.Run(serviceCtx) })
	group.Go(func() error { return s.whenReady(serviceCtx, s.history.Run) })
	group.Go(func() error { return s.whenReady(serviceCtx, s.webhooks.Run) })
	group.Go(func() error { return s.whenReady(serviceCtx, s.sweeper.Run) })
	group.Go(func() error { return s.whenReady(serviceCtx, s.schedules.Run) })
	group.Go(func() error { return s.secrets.Run(serviceCtx) })
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
	if s.challenges != nil {
		group.Go(func() error { return s.serveHTTP(serviceCtx, s.challengeServer(), s.challenges) })
	}
	if s.certs != nil {
		group.Go(func() error { return s.whenReady(serviceCtx, s.certs.Run) })
	}
	if s.listener != nil {
		group.Go(func() error {
			s.log.Info("serving", slog.String("url", s.URL()))
			return s.serveHTTP(serviceCtx, s.http, s.listener)
		})
	}
	if len(s.gateways) > 0 || s.cfg.Private {
		local := &http.Server{Handler: dialect.ReceiveOrigin(s.http.Handler, withOrigin), ReadHeaderTimeout: s.http.ReadHeaderTimeout, IdleTimeout: s.http.IdleTimeout, ErrorLog: s.http.ErrorLog,
			BaseContext: func(net.Listener) context.Context { return ratelimit.Exempt(context.Background()) }}
		group.Go(func() error { return s.serveHTTP(serviceCtx, local, s.localPipe) })
	}
	err := group.Wait()
	stopEngine()
	if engineErr := engineGroup.Wait(); engineErr != nil {
		err = engineErr
	}
	stopTracing()
	err = errors.Join(err, tracing.Wait())
	s.audit.Stop()
	stopAudit()
	err = errors.Join(err, auditing.Wait())
	return errors.Join(err, s.close()) //nolint:contextcheck // closing does not wait
}

// whenReady calls run after the engine has loaded its state. It returns nil if ctx ends before.
func (s *Server) whenReady(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-s.engine.Ready():
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// serveHTTP serves after the engine has loaded its state.
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
			err = server.Close() // streams of logs and events do not end by themselves
		}
		stopped <- err
	})
	err := server.Serve(listener)
	if stop() {
		return err
	}
	return <-stopped
}

// apiViews opens the history and returns the API's views.
func (s *Server) apiViews() api.Views {
	s.history = history.Open(history.Config{Source: s.engine, File: filepath.Join(s.cfg.Data, "history"), Log: s.log})
	return api.Views{Fleet: s.engine, History: s.history, Jobs: s.store, Disk: s.dataDisk}
}

// dataDisk returns the usage of the data directory's disk, zero if unknown.
func (s *Server) dataDisk() overview.Disk {
	u, err := disk.Usage(s.cfg.Data)
	if err != nil {
		return overview.Disk{}
	}
	// Blocks reserved for root count as used.
	return overview.Disk{Free: muster.Size(u.Free), Size: muster.Size(u.Used + u.Free)}
}
