package host

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
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serve"
)

// serverConfig is what server and up have in common.
type serverConfig struct {
	frame.Logging
	Watching

	listen    string
	data      string
	admin     frame.Secret
	join      frame.Secret
	heartbeat muster.Duration
	accept    bool
	ipfs      string
	addresses []netip.Prefix // that workers may name as theirs
	dialects  []dialect.Config
	webhooks  []netip.Prefix // that notifications may go to beside the public ones
	signing   frame.Secret
	url       string
	output    string
}

// newServerConfig returns the defaults.
func newServerConfig(listen string) serverConfig {
	return serverConfig{listen: listen, output: "text", heartbeat: muster.Duration(5 * time.Second), addresses: privateNetworks(), Logging: frame.NewLogging()}
}

func (c *serverConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "listen", Usage: "serve at this `ADDRESS`; port 0 picks a free one"}.Variable().Text(&c.listen),
		frame.Option{Name: "data", Usage: "keep everything in this `FOLDER` (default: muster in the user's data folder)"}.Variable().Text(&c.data),
	},
		frame.Option{Name: "admin-token", Usage: "the `TOKEN` of the first administrator (default: a new one, printed once)"}.Variable().Secret(&c.admin, "the token of the first administrator"),
		frame.Option{Name: "join-token", Usage: "the `TOKEN` with which workers join (default: a new one, printed once)"}.Variable().Secret(&c.join, "the token with which workers join"),
		frame.Option{Name: "webhook-secret", Usage: "the `SECRET` from which those follow that sign notifications (default: one made at the first start)"}.Variable().Secret(&c.signing, "the secret that signs notifications"),
		[]cli.Flag{
			frame.Option{Name: "heartbeat", Usage: "workers show that they live every `DURATION`"}.Variable().Duration(&c.heartbeat),
			frame.Option{Name: "accept-loss", Usage: "start even if the database lacks acknowledged commits, for example because an older copy was restored"}.Variable().On(&c.accept),
			frame.Option{Name: "ipfs", Usage: "give the files that results call ipfs://… to the IPFS node with this `URL`, such as http://127.0.0.1:5001"}.Variable().Text(&c.ipfs),
			frame.Option{Name: "output", Short: "o", Usage: "what to print when ready, a `FORMAT`: text, or json for one line with url, admin_token and join_token"}.Choice(&c.output, "text", "json"),
			frame.Into(frame.Option{Name: "worker-addresses", Usage: "accept the --address of a worker if it is in these `NETWORKS`, comma-separated, such as 203.0.113.0/24, private, none or any; the address it connects from is always accepted"}.Variable(),
				&c.addresses, parseNetworks, showNetworks),
			frame.Option{Name: "url", Usage: "the `URL` at which people reach this server, for links in notifications"}.Variable().Text(&c.url),
			frame.Into(frame.Option{Name: "webhook-allow", Usage: "send notifications also to addresses in these `NETWORKS`, comma-separated, such as 10.0.0.0/8, private, loopback, none or any"}.Variable(),
				&c.webhooks, parseNetworks, showNetworks),
			frame.Into(frame.Option{Name: "dialect", Usage: "also serve workers and clients of another `SYSTEM`, such as qubix or mloc=:8000,key=required,redis=redis://127.0.0.1; may be repeated"}.Variable(),
				&c.dialects, c.parseDialects, showDialects),
		}, c.WatchFlags(), c.Flags())
}

func (a *commands) serverCommand() *cli.Command {
	c := newServerConfig(":8700")
	return a.Command(frame.Command{
		Name: "server", Usage: "run a server", Category: frame.SetUp, Flags: c.flags(),
		About: "The first SIGINT or SIGTERM stops it in order, the second at once. Nothing that was acknowledged is lost either way.",
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			log, err := c.Logger(a.Err)
			if err != nil {
				return err
			}
			if err := c.take(); err != nil {
				return err
			}
			ctx, stop := frame.Interruptible(ctx)
			defer stop()
			return c.With(ctx, log, func(ctx context.Context, w *Watched) error {
				return a.serve(ctx, &c, w, func(ctx context.Context, _ remote.Server) error {
					<-ctx.Done()
					return nil
				})
			})
		},
	})
}

// take reads the tokens, and keeps them from the processes that this one starts.
func (c *serverConfig) take() error {
	_, admin := c.admin.Take()
	_, join := c.join.Take()
	_, signing := c.signing.Take()
	return errors.Join(admin, join, signing)
}

// serve runs a server until ctx ends. Once it is ready it is announced, and alongside runs; when that returns the server is stopped.
func (a *commands) serve(ctx context.Context, c *serverConfig, w *Watched, alongside func(context.Context, remote.Server) error) error {
	log := w.Log
	tracer, err := w.Tracer(ctx, "muster-server")
	if err != nil {
		return err
	}
	if c.data, err = frame.DataFolder(c.data, ""); err != nil {
		return err
	}
	if err := limit.DisableDumpable(); err != nil {
		log.Warn("other processes of this user may look into the server", slog.Any("error", err))
	}
	admin, err := c.admin.Read()
	if err != nil {
		return err
	}
	join, err := c.join.Read()
	if err != nil {
		return err
	}
	signing, err := c.signing.Read()
	if err != nil {
		return err
	}
	server, err := serve.New(ctx, serve.Config{
		Listen: c.listen, Data: c.data, AdminToken: admin, JoinToken: join, Heartbeat: c.heartbeat, AcceptLoss: c.accept, IPFS: c.ipfs, Addresses: c.addresses, Dialects: c.dialects,
		WebhookAllow: c.webhooks, WebhookSecret: signing, URL: c.url, Version: frame.BuildVersion().Version, Metrics: w.Registry, Tracer: tracer,
	}, log)
	if err != nil {
		return err
	}
	// The server outlives what runs alongside, so that a worker can report.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group, serving := errgroup.WithContext(serving)
	group.Go(func() error {
		defer stopServing()
		return server.Run(serving)
	})
	group.Go(func() error {
		defer stopServing()
		beside, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(serving, cancel)()
		if err := awaitReady(beside, server.URL()); err != nil || beside.Err() != nil {
			return err
		}
		known := a.remember(remote.Server{URL: server.URL(), Token: server.AdminToken(), JoinToken: server.JoinToken(), Data: c.data})
		if err := a.announce(c, known, server.Gateways(), server.AdminToken() != "" && admin == ""); err != nil {
			return err
		}
		return alongside(beside, known)
	})
	return group.Wait()
}

// readyWithin is how long loading the state may take.
const readyWithin = 10 * time.Minute

// awaitReady returns when the server answers, or without an error when ctx ends.
func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("the server is not ready after %s", readyWithin))
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

// remember saves the context for the next command. A server runs without it, too.
func (a *commands) remember(server remote.Server) remote.Server {
	s, err := remote.ReadSaved()
	if err == nil {
		server = s.Put(server)
		err = s.Write()
	}
	if err != nil {
		a.Say("%s %v", a.Err.Paint(term.Yellow, "muster:"), err)
	}
	return server
}

// announce says where the server is. Tokens are shown to people only when they
// are new; a program gets what is known.
func (a *commands) announce(c *serverConfig, known remote.Server, gateways []serve.Gateway, fresh bool) error {
	if c.output == "json" {
		line, err := json.Marshal(struct {
			URL        string            `json:"url"`
			AdminToken string            `json:"admin_token"`
			JoinToken  string            `json:"join_token"`
			Dialects   map[string]string `json:"dialects,omitempty"`
		}{known.URL, known.Token, known.JoinToken, urlsOf(gateways)})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return frame.Write(a.Out, append(line, '\n'))
	}
	text := fmt.Sprintf("Muster serves its dashboard and API at %s\n", a.Out.Paint(term.Bold, known.URL))
	text += served(gateways)
	if known.Token == "" {
		text += "The tokens were shown at its first start; this user's commands need --token-file, or MUSTER_TOKEN.\n"
	}
	if fresh {
		text += fmt.Sprintf("  admin token  %s    signs in to the dashboard, too\n  join token   %s\n", known.Token, known.JoinToken) +
			"The tokens are not shown again. Commands of this user on this machine know them.\n" +
			onOthers(c.listen, known.URL)
	}
	return frame.Write(a.Out, []byte(text))
}

// onOthers says what to type on other machines, for a server that listens there
// and is known here by that URL.
func onOthers(listen, known string) string {
	host, _, _ := net.SplitHostPort(listen) // it does listen there
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() {
		return "Other machines do not reach it: for that, listen on all addresses of this machine with --listen :8700\n"
	}
	if name, err := os.Hostname(); err == nil && (host == "" || ip.IsUnspecified()) {
		if u, err := url.Parse(known); err == nil {
			known = "http://" + net.JoinHostPort(name, u.Port())
		}
	}
	return fmt.Sprintf("On other machines, with the token in a file that only you may read:\n"+
		"  muster worker --server %s --token-file JOIN-TOKEN-FILE\n  muster ps     --server %s --token-file ADMIN-TOKEN-FILE\n", known, known)
}
