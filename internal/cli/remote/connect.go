package remote

import (
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/client"
)

// DefaultServer is where up and server listen by default.
const DefaultServer = "http://127.0.0.1:8700"

// Remote says which server a command talks to.
type Remote struct {
	URL   string
	Token frame.Secret
}

// Flags are the options for it.
func (r *Remote) Flags() []cli.Flag { return r.FlagsUnder("Server") }

// FlagsUnder is Flags with another heading in the help text.
func (r *Remote) FlagsUnder(group string) []cli.Flag {
	return append([]cli.Flag{
		frame.Option{Name: "server", Usage: "the server's `URL` (default: the one saved by up or server, else " + DefaultServer + ")", Group: group}.Variable().Text(&r.URL),
	}, frame.Option{Name: "token", Usage: "the API `KEY` to use (default: the one saved for that server)", Group: group}.Variable().Secret(&r.Token, "the API key")...)
}

// Resolve fills in what was saved. A saved token goes only to the server that it
// was saved for.
func (r *Remote) Resolve() (Server, error) {
	token, err := r.Token.Read()
	if err != nil {
		return Server{}, err
	}
	s, err := ReadSaved()
	if err != nil && (r.URL == "" || token == "") {
		return Server{}, err
	}
	known := s.Server(strings.TrimRight(r.URL, "/"))
	if known.URL == "" {
		known = s.Server(DefaultServer)
	}
	if token != "" {
		known.Token = token
	}
	return known, nil
}

// Connect makes a client for the server. It does not send anything yet.
func (r *Remote) Connect() (*client.Client, error) {
	known, err := r.Resolve()
	if err != nil {
		return nil, err
	}
	return client.New(known.URL, known.Token, client.Options{UserAgent: "muster-cli/" + frame.BuildVersion().Version})
}
