package daemon

import (
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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serverd"
)

// serverConfig is what server and up have in common.
type serverConfig struct {
	app.LogOptions
	TelemetryOptions

	listen          string
	data            string
	adminToken      app.Secret
	joinToken       app.Secret
	heartbeat       muster.Duration
	acceptLoss      bool
	ipfs            string
	workerAddresses []netip.Prefix // that workers may name as theirs
	dialects        []dialect.Config
	webhookNetworks []netip.Prefix // that notifications may go to beside the public ones
	webhookSecret   app.Secret
	publicURL       string
	output          string
}

// newServerConfig returns the defaults.
func newServerConfig(listen string) serverConfig {
	return serverConfig{listen: listen, output: "text", heartbeat: muster.Duration(5 * time.Second), workerAddresses: privateNetworks(), LogOptions: app.DefaultLogOptions()}
}

func (c *serverConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "listen", Usage: "serve at this `ADDRESS`; port 0 picks a free one"}.WithEnv().StringVar(&c.listen),
		app.Option{Name: "data", Usage: "keep everything in this `FOLDER` (default: muster in the user's data folder)"}.WithEnv().StringVar(&c.data),
	},
		app.Option{Name: "admin-token", Usage: "the `TOKEN` of the first administrator (default: a new one, printed once)"}.WithEnv().SecretVars(&c.adminToken, "the token of the first administrator"),
		app.Option{Name: "join-token", Usage: "the `TOKEN` with which workers join (default: a new one, printed once)"}.WithEnv().SecretVars(&c.joinToken, "the token with which workers join"),
		app.Option{Name: "webhook-secret", Usage: "the `SECRET` from which those follow that sign notifications (default: one made at the first start)"}.WithEnv().SecretVars(&c.webhookSecret, "the secret that signs notifications"),
		[]cli.Flag{
			app.Option{Name: "heartbeat", Usage: "workers show that they live every `DURATION`"}.WithEnv().DurationVar(&c.heartbeat),
			app.Option{Name: "accept-loss", Usage: "start even if the database lacks acknowledged commits, for example because an older copy was restored"}.WithEnv().BoolVar(&c.acceptLoss),
			app.Option{Name: "ipfs", Usage: "give the files that results call ipfs://… to the IPFS node with this `URL`, such as http://127.0.0.1:5001"}.WithEnv().StringVar(&c.ipfs),
			app.Option{Name: "output", Short: "o", Usage: "what to print when ready, a `FORMAT`: text, or json for one line with url, admin_token and join_token"}.EnumVar(&c.output, "text", "json"),
			app.Var(app.Option{Name: "worker-addresses", Usage: "accept the --address of a worker if it is in these `NETWORKS`, comma-separated, such as 203.0.113.0/24, private, none or any; the address it connects from is always accepted"}.WithEnv(),
				&c.workerAddresses, parseNetworks, formatNetworks),
			app.Option{Name: "url", Usage: "the `URL` at which people reach this server, for links in notifications"}.WithEnv().StringVar(&c.publicURL),
			app.Var(app.Option{Name: "webhook-allow", Usage: "send notifications also to addresses in these `NETWORKS`, comma-separated, such as 10.0.0.0/8, private, loopback, none or any"}.WithEnv(),
				&c.webhookNetworks, parseNetworks, formatNetworks),
			app.Var(app.Option{Name: "dialect", Usage: "also serve workers and clients of another `SYSTEM`, such as qubix or mloc=:8000,key=required,redis=redis://127.0.0.1; may be repeated"}.WithEnv(),
				&c.dialects, c.parseDialects, formatDialects),
		}, c.TelemetryFlags(), c.Flags())
}

func (a *runner) serverCommand() *cli.Command {
	c := newServerConfig(":8700")
	return a.NewCommand(app.Command{
		Name: "server", Usage: "run a server", Category: app.CategorySetup, Flags: c.flags(),
		Description: "The first SIGINT or SIGTERM stops it in order, the second at once. Nothing that was acknowledged is lost either way.",
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			log, err := c.Logger(a.Err)
			if err != nil {
				return err
			}
			if err := c.readSecrets(); err != nil {
				return err
			}
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
				return a.serve(ctx, &c, w, func(ctx context.Context, _ remote.Server) error {
					<-ctx.Done()
					return nil
				})
			})
		},
	})
}

// readSecrets reads the tokens, and keeps them from the processes that this one starts.
func (c *serverConfig) readSecrets() error {
	_, adminErr := c.adminToken.ReadAndUnset()
	_, joinErr := c.joinToken.ReadAndUnset()
	_, webhookErr := c.webhookSecret.ReadAndUnset()
	return errors.Join(adminErr, joinErr, webhookErr)
}

// serve runs a server until ctx ends. Once it is ready it is announced, and alongside runs; when that returns the server is stopped.
func (a *runner) serve(ctx context.Context, c *serverConfig, w *Telemetry, alongside func(context.Context, remote.Server) error) error {
	log := w.Log
	tracer, err := w.Tracer(ctx, "muster-server")
	if err != nil {
		return err
	}
	if c.data, err = app.DataDir(c.data, ""); err != nil {
		return err
	}
	if err := isolation.DisableDumpable(); err != nil {
		log.Warn("other processes of this user may look into the server", slog.Any("error", err))
	}
	adminToken, err := c.adminToken.Read()
	if err != nil {
		return err
	}
	joinToken, err := c.joinToken.Read()
	if err != nil {
		return err
	}
	webhookSecret, err := c.webhookSecret.Read()
	if err != nil {
		return err
	}
	server, err := serverd.New(ctx, serverd.Config{
		Listen: c.listen, Data: c.data, AdminToken: adminToken, JoinToken: joinToken, Heartbeat: c.heartbeat, AcceptLoss: c.acceptLoss, IPFS: c.ipfs, Addresses: c.workerAddresses, Dialects: c.dialects,
		WebhookAllow: c.webhookNetworks, WebhookSecret: webhookSecret, URL: c.publicURL, Version: app.CurrentBuild().Version, Metrics: w.Registry, Tracer: tracer,
	}, log)
	if err != nil {
		return err
	}
	// The server outlives what runs alongside, so that a worker can report.
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
		if err := awaitReady(sideCtx, server.URL()); err != nil || sideCtx.Err() != nil {
			return err
		}
		target := a.saveContext(remote.Server{URL: server.URL(), Token: server.AdminToken(), JoinToken: server.JoinToken(), Data: c.data})
		if err := a.announce(c, target, server.Gateways(), server.AdminToken() != "" && adminToken == ""); err != nil {
			return err
		}
		return alongside(sideCtx, target)
	})
	return group.Wait()
}

// readyTimeout is how long loading the state may take.
const readyTimeout = 10 * time.Minute

// awaitReady returns when the server answers, or without an error when ctx ends.
func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the server is not ready after %s", readyTimeout))
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
		if err != nil {
			return fmt.Errorf("make request: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return context.Cause(ctx)
			}
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// saveContext saves the context for the next command. A server runs without it, too.
func (a *runner) saveContext(server remote.Server) remote.Server {
	s, err := remote.LoadContext()
	if err == nil {
		server = s.SetCurrent(server)
		err = s.Save()
	}
	if err != nil {
		a.Messagef("%s %v", a.Err.Paint(term.Yellow, "muster:"), err)
	}
	return server
}

// announce says where the server is. Tokens are shown to people only when they
// are new; a program gets what is known.
func (a *runner) announce(c *serverConfig, target remote.Server, gateways []serverd.Gateway, newTokens bool) error {
	if c.output == "json" {
		line, err := json.Marshal(struct {
			URL        string            `json:"url"`
			AdminToken string            `json:"admin_token"`
			JoinToken  string            `json:"join_token"`
			Dialects   map[string]string `json:"dialects,omitempty"`
		}{target.URL, target.Token, target.JoinToken, gatewayURLs(gateways)})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return app.WriteOutput(a.Out, append(line, '\n'))
	}
	text := fmt.Sprintf("Muster serves its dashboard and API at %s\n", a.Out.Paint(term.Bold, target.URL))
	text += describeGateways(gateways)
	if target.Token == "" {
		text += "The tokens were shown at its first start; this user's commands need --token-file, or MUSTER_TOKEN.\n"
	}
	if newTokens {
		text += fmt.Sprintf("  admin token  %s    signs in to the dashboard, too\n  join token   %s\n", target.Token, target.JoinToken) +
			"The tokens are not shown again. Commands of this user on this machine know them.\n" +
			remoteInstructions(c.listen, target.URL)
	}
	return app.WriteOutput(a.Out, []byte(text))
}

// remoteInstructions says what to type on other machines, for a server that listens there
// and is known here by that URL.
func remoteInstructions(listen, serverURL string) string {
	host, _, _ := net.SplitHostPort(listen) // it does listen there
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() {
		return "Other machines do not reach it: for that, listen on all addresses of this machine with --listen :8700\n"
	}
	if name, err := os.Hostname(); err == nil && (host == "" || ip.IsUnspecified()) {
		if u, err := url.Parse(serverURL); err == nil {
			serverURL = "http://" + net.JoinHostPort(name, u.Port())
		}
	}
	return fmt.Sprintf("On other machines, with the token in a file that only you may read:\n"+
		"  muster worker --server %s --token-file JOIN-TOKEN-FILE\n  muster ps     --server %s --token-file ADMIN-TOKEN-FILE\n", serverURL, serverURL)
}
