// Package remote connects commands to the server: the options --server, --token-file and --token, the
// context that up and server save for later commands, and selectors such as 17, 17.3, 17.0-9 and last.
package remote

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
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
		app.Option{Name: "server", Value: "url", Usage: "Server URL (default: the one saved by up or server, else " + DefaultServer + ")", Group: group}.WithEnv().StringVar(&r.URL),
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
	token, err := r.Token.Read()
	if err != nil {
		return Server{}, err
	}
	s, err := LoadContext()
	if err != nil && (r.URL == "" || token == "") {
		return Server{}, err
	}
	target := s.Lookup(strings.TrimRight(r.URL, "/"))
	if target.URL == "" {
		target = s.Lookup(DefaultServer)
	}
	if token != "" {
		target.Token = token
	}
	return target, nil
}

// Connect returns a client of the server. It sends nothing.
func (r *ServerOptions) Connect() (*client.Client, error) {
	target, err := r.Resolve()
	if err != nil {
		return nil, err
	}
	return client.New(target.URL, target.Token, client.Options{UserAgent: "muster-cli/" + app.CurrentBuild().Version})
}

// Select is Connect and ResolveSelectors.
func (r *ServerOptions) Select(ctx context.Context, args []string) (*client.Client, []Selector, error) {
	server, err := r.Connect()
	if err != nil {
		return nil, nil, err
	}
	sels, err := ResolveSelectors(ctx, server, args)
	return server, sels, err
}
