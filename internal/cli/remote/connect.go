package remote

import (
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/client"
)

// DefaultServer is where up and server listen by default.
const DefaultServer = "http://127.0.0.1:8700"

// ServerOptions says which server a command talks to.
type ServerOptions struct {
	URL   string
	Token app.Secret
}

// Flags are the options for it.
func (r *ServerOptions) Flags() []cli.Flag { return r.FlagsInGroup("Server") }

// FlagsInGroup is Flags with another heading in the help text.
func (r *ServerOptions) FlagsInGroup(group string) []cli.Flag {
	return append([]cli.Flag{
		app.Option{Name: "server", Usage: "the server's `URL` (default: the one saved by up or server, else " + DefaultServer + ")", Group: group}.WithEnv().StringVar(&r.URL),
	}, app.Option{Name: "token", Usage: "the API `KEY` to use (default: the one saved for that server)", Group: group}.WithEnv().SecretVars(&r.Token, "the API key")...)
}

// Resolve fills in what was saved. A saved token goes only to the server that it
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

// Connect makes a client for the server. It does not send anything yet.
func (r *ServerOptions) Connect() (*client.Client, error) {
	target, err := r.Resolve()
	if err != nil {
		return nil, err
	}
	return client.New(target.URL, target.Token, client.Options{UserAgent: "muster-cli/" + app.CurrentBuild().Version})
}
