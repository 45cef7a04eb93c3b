package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/sdnotify"
	"github.com/muster-dev/muster/internal/serverd"
)

// serverConfig has the options of server and up.
type serverConfig struct {
	app.LogOptions
	TelemetryOptions
	retentionOptions
	tlsOptions
	signInOptions

	listen          string
	data            string
	adminToken      app.Secret
	joinToken       app.Secret
	heartbeat       muster.Duration
	acceptLoss      bool
	ipfs            string
	workerAddresses []netip.Prefix // that workers may announce
	dialects        []dialect.Config
	webhookNetworks []netip.Prefix // allowed targets of notifications besides public networks
	webhookSecret   app.Secret
	secretsKey      struct{ file, command string }
	plainSecrets    bool
	publicURL       string
	allowHosts      []string
	rateLimits      ratelimit.Config
	output          string

	secrets struct{ admin, join, webhook string } // see readSecrets
}

// maxRate is the highest rate limit that may be set.
const maxRate = 1_000_000

// newServerConfig returns the defaults.
func newServerConfig(listen string) serverConfig {
	return serverConfig{listen: listen, output: "text", heartbeat: muster.Duration(5 * time.Second), workerAddresses: privateNetworks(), rateLimits: ratelimit.Config{PerKey: ratelimit.DefaultPerKey, PerAddress: ratelimit.DefaultPerAddress}, LogOptions: app.DefaultLogOptions(), retentionOptions: newRetentionOptions(), signInOptions: newSignInOptions()}
}

func (c *serverConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "listen", Value: "address", Usage: "Address to listen on; port 0 selects a free port"}.WithEnv().StringVar(&c.listen),
		app.Option{Name: "data", Value: "path", Usage: "Data directory (default: muster in the user's data directory)"}.WithEnv().StringVar(&c.data),
	},
		app.Option{Name: "admin-token", Usage: "Token of the first administrator (default: a new one, printed once)"}.WithEnv().SecretVars(&c.adminToken, "token of the first administrator"),
		app.Option{Name: "join-token", Usage: "Token for workers to join (default: a new one, printed once)"}.WithEnv().SecretVars(&c.joinToken, "join token"),
		app.Option{Name: "webhook-secret", Usage: "Secret from which the signing secrets of notifications are derived (default: generated at the first start)"}.WithEnv().SecretVars(&c.webhookSecret, "webhook secret"),
		[]cli.Flag{
			app.Option{Name: "secrets-key-file", Value: "path", Usage: "File with the key that encrypts secrets; created with the first secret (default: secrets.key in the data directory)"}.WithEnv().StringVar(&c.secretsKey.file),
			app.Option{Name: "secrets-key-command", Value: "command", Usage: "Shell command that prints the key that encrypts secrets, such as one that decrypts it with a key management service"}.WithEnv().StringVar(&c.secretsKey.command),
			app.Option{Name: "plain-secrets", Usage: "Send secrets to workers on other machines without TLS too: the network is trusted"}.WithEnv().BoolVar(&c.plainSecrets),
			app.Option{Name: "heartbeat", Usage: "Worker heartbeat interval"}.WithEnv().DurationVar(&c.heartbeat),
			app.Option{Name: "accept-loss", Usage: "Start even if the database lacks acknowledged commits, for example after an older copy was restored"}.WithEnv().BoolVar(&c.acceptLoss),
			app.Option{Name: "ipfs", Value: "url", Usage: "Pin artifacts referenced as ipfs://… on this IPFS node, such as http://127.0.0.1:5001"}.WithEnv().StringVar(&c.ipfs),
			app.Option{Name: "output", Short: "o", Value: "format", Usage: "Format of the startup message: text, or json for one line with url, admin_token and join_token"}.EnumVar(&c.output, "text", "json"),
			app.Var(app.Option{Name: "worker-addresses", Value: "networks", Usage: "Networks of accepted worker addresses (--address), such as 203.0.113.0/24, private, none or any; a worker's source address is always accepted"}.WithEnv(),
				&c.workerAddresses, parseNetworks, formatNetworks),
			app.Option{Name: "url", Value: "url", Usage: "Public URL of the server, for links in notifications and URLs of artifacts; browsers may reach it by this name only, and by --allow-host"}.WithEnv().StringVar(&c.publicURL),
			app.Option{Name: "allow-host", Value: "name", Usage: "Another name by which browsers may reach the server, such as muster.lab.example or .lab.example; may be repeated"}.WithEnv().ListVar(&c.allowHosts),
			app.Option{Name: "rate-limit", Value: "n", Usage: "Requests per second with one API key; 0 for no limit"}.WithEnv().IntVar(&c.rateLimits.PerKey, 0, maxRate),
			app.Option{Name: "rate-limit-address", Value: "n", Usage: "Requests per second without a valid API key from one address or IPv6 /64; 0 for no limit"}.WithEnv().IntVar(&c.rateLimits.PerAddress, 0, maxRate),
			app.Var(app.Option{Name: "webhook-allow", Value: "networks", Usage: "Additional networks that notifications may be sent to, such as 10.0.0.0/8, private, loopback, none or any"}.WithEnv(),
				&c.webhookNetworks, parseNetworks, formatNetworks),
			app.Var(app.Option{Name: "dialect", Value: "system", Usage: "Serve workers and clients of another system, such as qubix or mloc=:8000,key=required,redis=redis://127.0.0.1; may be repeated"}.WithEnv(),
				&c.dialects, c.parseDialects, formatDialects),
		}, c.tlsOptions.flags(), c.signInOptions.flags(), c.retentionOptions.flags(), c.TelemetryFlags(), c.Flags())
}

func (a *runner) serverCommand() *cli.Command {
	c := newServerConfig(":8700")
	return a.NewCommand(app.Command{
		Name: "server", Usage: "Run a server", Category: app.CategorySetup, Flags: c.flags(),
		Description: "The first SIGINT or SIGTERM shuts down gracefully, the second stops at once. Acknowledged changes are durable in both cases.",
		Run: func(ctx context.Context, _ []string) error {
			log, err := c.Logger(a.Err)
			if err != nil {
				return err
			}
			if err := c.readSecrets(); err != nil {
				return err
			}
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			return withNotifier(ctx, log, func(notifier *sdnotify.Notifier) error {
				return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
					return a.serve(ctx, &c, w, notifier, func(ctx context.Context, _ *serverd.Server, _ remote.Server) error {
						<-ctx.Done()
						return nil
					})
				})
			})
		},
	})
}

// readSecrets reads the tokens and removes them from the environment of child processes.
func (c *serverConfig) readSecrets() error {
	var errs [4]error
	c.secrets.admin, errs[0] = c.adminToken.ReadAndUnset()
	c.secrets.join, errs[1] = c.joinToken.ReadAndUnset()
	c.secrets.webhook, errs[2] = c.webhookSecret.ReadAndUnset()
	errs[3] = c.readSecret()
	return errors.Join(errs[:]...)
}

// serve runs a server until ctx ends. Once it is ready, it prints its URL, notifies systemd and calls alongside; when that returns, the
// server stops.
func (a *runner) serve(ctx context.Context, c *serverConfig, w *Telemetry, notifier *sdnotify.Notifier, alongside func(context.Context, *serverd.Server, remote.Server) error) error {
	log := w.Log
	tracer, err := w.Tracer(ctx, "muster-server")
	if err != nil {
		return err
	}
	if c.data, err = app.DataDir(c.data, ""); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	certificates, err := c.certs(hostOf(c.publicURL))
	if err != nil {
		return err
	}
	signIn, err := c.signInConfig()
	if err != nil {
		return err
	}
	if err := isolation.DisableDumpable(); err != nil {
		log.Warn("processes of this user can read the server's memory", slog.Any("error", err))
	}
	server, err := serverd.New(ctx, serverd.Config{
		Listen: c.listen, Data: c.data, AdminToken: c.secrets.admin, JoinToken: c.secrets.join, Heartbeat: c.heartbeat, AcceptLoss: c.acceptLoss, IPFS: c.ipfs, Addresses: c.workerAddresses, Dialects: c.dialects,
		WebhookAllow: c.webhookNetworks, WebhookSecret: c.secrets.webhook, SecretsKeyFile: c.secretsKey.file, SecretsKeyCommand: c.secretsKey.command, PlainSecrets: c.plainSecrets, URL: c.publicURL, AllowHosts: c.allowHosts, RateLimits: c.rateLimits, Version: app.CurrentBuild().Version, Metrics: w.Registry, Tracer: tracer, Retention: c.policy, KeepServer: c.server, TLS: certificates, SignIn: signIn,
	}, log)
	if err != nil {
		return err
	}
	a.warnUnencrypted(server)
	defer context.AfterFunc(ctx, func() { notifier.Stopping(serverStopLimit) })()
	// The server stops after alongside, so that a worker can report.
	serveCtx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group, serveCtx := errgroup.WithContext(serveCtx)
	group.Go(func() error {
		defer stopServing()
		return server.Run(serveCtx)
	})
	group.Go(func() error {
		defer stopServing()
		sideCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(serveCtx, cancel)()
		if err := awaitReady(sideCtx, server); err != nil || sideCtx.Err() != nil {
			return err
		}
		target, contextMessage := a.saveContext(sideCtx, remote.Server{URL: server.URL(), Token: server.AdminToken(), JoinToken: server.JoinToken(), Data: c.data, CA: server.Pin(), TLSServerName: server.TLSServerName(), ClientCert: c.clientCert, ClientKey: c.clientKey})
		if err := a.announce(c, target, contextMessage, server.Gateways(), server.AdminToken() != "" && c.secrets.admin == ""); err != nil {
			return err
		}
		if err := server.TokensShown(); err != nil {
			return err
		}
		notifier.ShowStatus(func() string { return "serving " + server.URL() })
		defer notifier.Watch(server.Alive)()
		notifier.Ready()
		return alongside(sideCtx, server, target)
	})
	return group.Wait()
}

// readyTimeout limits loading the state.
const readyTimeout = 10 * time.Minute

// awaitReady returns when the server is ready, or nil when ctx ends.
func awaitReady(ctx context.Context, server *serverd.Server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the server is not ready after %s", readyTimeout))
	defer cancel()
	if err := server.AwaitReady(ctx); errors.Is(err, context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return nil
}

// saveContext saves the server for later commands, and returns its entry and what the user should know about the current context. A
// failure is only a warning.
func (a *runner) saveContext(ctx context.Context, server remote.Server) (remote.Server, string) {
	s, err := remote.LoadContext()
	if err != nil {
		a.Warnf("%v", err)
		return server, ""
	}
	before, _ := s.Lookup("") // none if the user deleted it
	saved, current := s.Record(server, func(url string) bool { return answers(ctx, url) })
	if err := s.Save(); err != nil {
		a.Warnf("%v", err)
		return saved, ""
	}
	switch {
	case !current:
		return saved, fmt.Sprintf("Commands of this user still use %s (%s). To use this server: muster context use %s\n", before.Name, before.URL, saved.Name)
	case before.URL != "" && before.URL != saved.URL && before.Data != saved.Data:
		return saved, fmt.Sprintf("Commands of this user now use %s (before: %s). To change that: muster context use %s\n", saved.Name, before.Name, before.Name)
	default:
		return saved, ""
	}
}

// answers reports whether a server is running at url.
func answers(ctx context.Context, url string) bool {
	const limit = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := origin.Unverified(limit).Do(req)
	if err != nil {
		return errors.Is(origin.Explain(err, req.URL), origin.ErrClientCert)
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// announce prints the URL and tokens of the server. The format text shows only new tokens.
func (a *runner) announce(c *serverConfig, target remote.Server, contextMessage string, gateways []serverd.Gateway, newTokens bool) error {
	if c.output == "json" {
		line, err := json.Marshal(struct {
			URL        string            `json:"url"`
			AdminToken string            `json:"admin_token"`
			JoinToken  string            `json:"join_token"`
			Dialects   map[string]string `json:"dialects,omitempty"`
		}{target.URL, auth.WithPin(target.Token, target.CA), auth.WithPin(target.JoinToken, target.CA), gatewayURLs(gateways)})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return app.WriteOutput(a.Out, append(line, '\n'))
	}
	text := fmt.Sprintf("Dashboard and API: %s\n", a.Out.Paint(term.Bold, target.URL))
	if target.CA != "" {
		text += fmt.Sprintf("  fingerprint  %s    (of its certificate authority, for logins with keys that do not end in it)\n", target.CA)
	}
	text += describeGateways(gateways)
	if target.Token == "" {
		text += "The tokens were shown at the first start. Commands of this user need --token-file or MUSTER_TOKEN.\n" +
			"To set new tokens, restart once with --admin-token-file FILE --join-token-file FILE.\n"
	}
	if newTokens {
		text += fmt.Sprintf("  admin token  %s    (also for the dashboard)\n  join token   %s\n", auth.WithPin(target.Token, target.CA), auth.WithPin(target.JoinToken, target.CA)) +
			"The tokens are not shown again. They are saved for commands of this user on this machine.\n" +
			remoteInstructions(c.listen, target.URL)
	}
	text += contextMessage
	return app.WriteOutput(a.Out, []byte(text))
}

// hostOf returns the host of a URL, "" if it has none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// remoteInstructions returns the commands for other machines, for the listen address and URL of the server.
func remoteInstructions(listen, serverURL string) string {
	host, port, _ := net.SplitHostPort(listen) // the server listens on it
	if port == "0" {
		port = ""
	}
	if serverd.IsLoopback(listen) {
		return fmt.Sprintf("Other machines cannot connect: to allow that, use --listen :%s --tls\n", cmp.Or(port, "8700"))
	}
	if name, err := os.Hostname(); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		if u, err := url.Parse(serverURL); err == nil {
			serverURL = u.Scheme + "://" + net.JoinHostPort(name, u.Port())
		}
	}
	return fmt.Sprintf("On other machines, to offer one as a worker (with the join token in a file that only you can read), or to submit jobs from it:\n"+
		"  muster worker --server %s --token-file JOIN-TOKEN-FILE\n  muster login  %s\n", serverURL, serverURL)
}
