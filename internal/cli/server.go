package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/serve"
)

// serverConfig is what server and up have in common.
type serverConfig struct {
	logging
	listen    string
	data      string
	admin     string
	join      string
	heartbeat muster.Duration
	output    string
}

func (c *serverConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "listen", usage: "serve at this `ADDRESS`; port 0 picks a free one"}.variable().text(&c.listen),
		option{name: "data", usage: "keep everything in this `FOLDER` (default: muster in the user's data folder)"}.variable().text(&c.data),
		option{name: "admin-token", usage: "the `TOKEN` of the first administrator (default: a new one, printed once)"}.variable().text(&c.admin),
		option{name: "join-token", usage: "the `TOKEN` with which workers join (default: a new one, printed once)"}.variable().text(&c.join),
		option{name: "heartbeat", usage: "workers show that they live every `DURATION`"}.variable().duration(&c.heartbeat),
		option{name: "output", short: "o", usage: "what to print when ready, a `FORMAT`: text, or json for one line with url, admin_token and join_token"}.choice(&c.output, "text", "json"),
	}, c.logging.flags())
}

func (a *app) serverCommand() *cli.Command {
	c := &serverConfig{listen: ":8700", output: "text", heartbeat: muster.Duration(5 * time.Second), logging: logging{level: "info", format: "text"}}
	return a.command(command{
		name: "server", usage: "run a server", category: setUp, flags: c.flags(),
		about: "The first SIGINT or SIGTERM stops it in order, the second at once. Nothing that was acknowledged is lost either way.",
		run: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			log, err := c.logger(a.err)
			if err != nil {
				return err
			}
			return a.serve(ctx, c, log, func(ctx context.Context, _ savedServer) error {
				<-ctx.Done()
				return nil
			})
		},
	})
}

// serve runs a server until a signal comes. Once it is ready it is announced,
// and alongside runs; when that returns the server is stopped.
func (a *app) serve(ctx context.Context, c *serverConfig, log *slog.Logger, alongside func(context.Context, savedServer) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	var err error
	if c.data, err = dataFolder(c.data, ""); err != nil {
		return err
	}
	server, err := serve.New(ctx, serve.Config{
		Listen: c.listen, Data: c.data, AdminToken: c.admin, JoinToken: c.join, Heartbeat: c.heartbeat, Version: buildVersion().Version,
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
		known := a.remember(savedServer{URL: server.URL(), Token: server.AdminToken(), JoinToken: server.JoinToken(), Data: c.data})
		if err := a.announce(c, known, server.AdminToken() != "" && c.admin == ""); err != nil {
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
			if ctx.Err() == context.DeadlineExceeded { //nolint:errorlint // a context's error is never wrapped
				return context.Cause(ctx)
			}
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// remember saves the context for the next command. A server runs without it, too.
func (a *app) remember(server savedServer) savedServer {
	s, err := readSaved()
	if err == nil {
		server = s.put(server)
		err = s.write()
	}
	if err != nil {
		a.say("%s %v", a.err.Paint(term.Yellow, "muster:"), err)
	}
	return server
}

// announce says where the server is. Tokens are shown to people only when they
// are new; a program gets what is known.
func (a *app) announce(c *serverConfig, known savedServer, fresh bool) error {
	if c.output == "json" {
		line, err := json.Marshal(struct {
			URL        string `json:"url"`
			AdminToken string `json:"admin_token"`
			JoinToken  string `json:"join_token"`
		}{known.URL, known.Token, known.JoinToken})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return write(a.out, append(line, '\n'))
	}
	text := fmt.Sprintf("Muster serves at %s\n", a.out.Paint(term.Bold, known.URL))
	if fresh {
		text += fmt.Sprintf("  admin token  %s\n  join token   %s\n", known.Token, known.JoinToken) +
			"The tokens are not shown again. Commands of this user on this machine know them; elsewhere:\n" +
			fmt.Sprintf("  muster ps     --server %s --token ADMIN-TOKEN\n  muster worker --server %s --token JOIN-TOKEN\n", known.URL, known.URL)
	}
	return write(a.out, []byte(text))
}

// dataFolder returns an absolute path: dir, or by default a folder for this
// program in the user's folder for data.
func dataFolder(dir, below string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	root := os.Getenv("XDG_DATA_HOME")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "there is no place for the data: %w; name a folder with --data", err)
		}
		root = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(root, "muster", below), nil
}

// logging says what a server or worker writes to standard error.
type logging struct {
	level  string
	format string
}

func (c *logging) flags() []cli.Flag {
	const group = "Log"
	return []cli.Flag{
		option{name: "log-level", usage: "log from this `LEVEL` on: debug, info, warn or error", group: group}.variable().choice(&c.level, "debug", "info", "warn", "error"),
		option{name: "log-format", usage: "log as `FORMAT`: text or json", group: group}.variable().choice(&c.format, "text", "json"),
	}
}

func (c *logging) logger(w io.Writer) (*slog.Logger, error) {
	o := &slog.HandlerOptions{}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.level)); err != nil {
		return nil, muster.Errorf(muster.Invalid, "%q is no log level: %w", c.level, err)
	}
	o.Level = level
	if c.format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
