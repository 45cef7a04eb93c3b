// Package remote connects commands to the server: the options --server, --token-file and --token, the
// context that up, server and login save for later commands, and selectors such as 17, 17.3, 17.0-9 and last.
package remote

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// DefaultServer is where up and server listen by default.
const DefaultServer = "http://127.0.0.1:8700"

// ServerOptions selects the server of a command.
type ServerOptions struct {
	URL   string
	Token app.Secret
}

// Flags returns the options.
func (r *ServerOptions) Flags() []cli.Flag { return r.FlagsInGroup("Server") }

// FlagsInGroup is Flags with another heading in the help text.
func (r *ServerOptions) FlagsInGroup(group string) []cli.Flag {
	return append([]cli.Flag{
		app.Option{Name: "server", Value: "url", Usage: "Server URL or name of a context (default: the current context, else " + DefaultServer + ")", Group: group, Complete: CompleteContexts}.WithEnv().StringVar(&r.URL),
	}, app.Option{Name: "token", Usage: "API key (default: the one saved for the server)", Group: group}.WithEnv().SecretVars(&r.Token, "API key")...)
}

// QueryOptions are the options of a command that queries a server and writes the result.
type QueryOptions struct {
	ServerOptions
	app.OutputOptions
}

// Flags returns more and the options for output and server.
func (o *QueryOptions) Flags(more ...cli.Flag) []cli.Flag {
	return slices.Concat(more, o.OutputOptions.Flags(), o.ServerOptions.Flags())
}

// Resolve completes the options from the saved context. A saved token is used only for the server that it
// was saved for.
func (r *ServerOptions) Resolve() (Server, error) {
	target, _, err := r.resolve()
	return target, err
}

// resolve also returns how many servers are saved.
func (r *ServerOptions) resolve() (target Server, saved int, err error) {
	token, err := r.Token.Read()
	if err != nil {
		return Server{}, 0, err
	}
	s, err := LoadContext()
	if err != nil && (r.URL == "" || token == "") {
		return Server{}, 0, err
	}
	if target, err = s.Lookup(r.URL); err == nil && target.URL == "" {
		target, err = s.Lookup(DefaultServer)
	}
	if token != "" {
		target.Token = token
	}
	return target, len(s.Servers), err
}

// connectTimeout limits the tries to reach the server for the first time, so that an unreachable one is reported within a second.
const connectTimeout = 700 * time.Millisecond

// Connect returns a client of the server. It sends nothing.
func (r *ServerOptions) Connect() (*client.Client, error) {
	target, saved, err := r.resolve()
	if err != nil {
		return nil, err
	}
	hint := ""
	if saved > 1 {
		hint = "; muster context list shows the saved servers"
	}
	return NewClient(target, hint)
}

// NewClient returns a client of a server for a command. hint ends the message of an unreachable server.
func NewClient(target Server, hint string) (*client.Client, error) {
	return client.New(target.URL, target.Token, client.Options{
		UserAgent: userAgent(), ConnectTimeout: connectTimeout, Hint: hint,
		OnSlow: func() {
			_, _ = fmt.Fprintf(term.NewScreen(os.Stderr, os.Getenv), "muster: waiting for the server at %s (Ctrl-C to stop)\n", target.URL)
		},
	})
}

func userAgent() string { return "muster-cli/" + app.CurrentBuild().Version }

// Select is Connect and ResolveSelectors.
func (r *ServerOptions) Select(ctx context.Context, args []string) (*client.Client, []Selector, error) {
	server, err := r.Connect()
	if err != nil {
		return nil, nil, err
	}
	sels, err := ResolveSelectors(ctx, server, args)
	return server, sels, err
}
