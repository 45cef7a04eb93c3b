// Package remote connects commands to the server: the options --server, --token-file and --token, the
// context that up, server and login save for later commands, and selectors such as 17, 17.3, 17.0-9 and last.
package remote

import (
	"cmp"
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

// The variables with the files of a client's certificate, which have precedence over the saved ones.
const (
	ClientCertEnv = "MUSTER_TLS_CLIENT_CERT"
	ClientKeyEnv  = "MUSTER_TLS_CLIENT_KEY"
)

// ClientCertFlags returns the options of a client's certificate.
func ClientCertFlags(cert, key *string, group string) []cli.Flag {
	return []cli.Flag{
		app.Option{Name: "tls-client-cert", Value: "path", Env: ClientCertEnv, Usage: "PEM file with the certificate to present to a server that requires one", Group: group}.StringVar(cert),
		app.Option{Name: "tls-client-key", Value: "path", Env: ClientKeyEnv, Usage: "PEM file with the key of --tls-client-cert", Group: group}.StringVar(key),
	}
}

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

// ResolveJoin returns the server with a name or URL for a worker, with the given join token, or else the saved one.
func ResolveJoin(nameOrURL, token string) (Server, error) {
	r := &ServerOptions{URL: nameOrURL}
	target, _, err := r.resolveFor(token)
	if err != nil {
		return Server{}, err
	}
	target.JoinToken = cmp.Or(token, target.JoinToken)
	return target, nil
}

// resolve also returns how many servers are saved.
func (r *ServerOptions) resolve() (target Server, saved int, err error) {
	token, err := r.Token.Read()
	if err != nil {
		return Server{}, 0, err
	}
	target, saved, err = r.resolveFor(token)
	target.Token = cmp.Or(token, target.Token)
	return target, saved, err
}

// resolveFor is resolve with a token, which it does not set.
func (r *ServerOptions) resolveFor(token string) (target Server, saved int, err error) {
	s, err := LoadContext()
	if err != nil && (r.URL == "" || token == "") {
		return Server{}, 0, err
	}
	target, err = s.LookupFor(r.URL, token)
	if err == nil && target.URL == "" {
		target, err = s.Lookup(DefaultServer)
	}
	target.UseEnvironment()
	return target, len(s.Servers), err
}

// UseEnvironment sets the client's certificate of the environment, if there is one.
func (s *Server) UseEnvironment() {
	if cert, key := os.Getenv(ClientCertEnv), os.Getenv(ClientKeyEnv); cert != "" || key != "" {
		s.ClientCert, s.ClientKey = cert, key
	}
}

// Options returns o for a client of the server.
func (s *Server) Options(o client.Options) client.Options {
	o.UserAgent, o.CA, o.TLSServerName, o.ClientCert, o.ClientKey = userAgent(), s.CA, s.TLSServerName, s.ClientCert, s.ClientKey
	return o
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
	return client.New(target.URL, target.Token, target.Options(client.Options{
		ConnectTimeout: connectTimeout, Hint: hint,
		OnSlow: func() {
			_, _ = fmt.Fprintf(term.NewScreen(os.Stderr, os.Getenv), "muster: waiting for the server at %s (Ctrl-C to stop)\n", target.URL)
		},
		OnDelay: func(d time.Duration) {
			_, _ = fmt.Fprintf(term.NewScreen(os.Stderr, os.Getenv), "muster: the server at %s accepts no more requests now: trying again in %s (Ctrl-C to stop)\n", target.URL, d.Round(time.Second))
		},
	}))
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
