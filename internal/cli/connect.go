package cli

import (
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/client"
)

const defaultServer = "http://127.0.0.1:8700"

// remote says which server a command talks to.
type remote struct {
	server string
	token  string
}

func (r *remote) flags() []cli.Flag {
	const group = "Server"
	return []cli.Flag{
		option{name: "server", usage: "the server's `URL` (default: the one saved by up or server, else " + defaultServer + ")", group: group}.variable().text(&r.server),
		option{name: "token", usage: "the API `KEY` to use (default: the one saved for that server)", group: group}.variable().text(&r.token),
	}
}

// resolve fills in what was saved. A saved token goes only to the server that it
// was saved for.
func (r *remote) resolve() (savedServer, error) {
	s, err := readSaved()
	if err != nil && (r.server == "" || r.token == "") {
		return savedServer{}, err
	}
	known := s.server(strings.TrimRight(r.server, "/"))
	if known.URL == "" {
		known = s.server(defaultServer)
	}
	if r.token != "" {
		known.Token = r.token
	}
	return known, nil
}

func (r *remote) connect() (*client.Client, error) {
	known, err := r.resolve()
	if err != nil {
		return nil, err
	}
	return client.New(known.URL, known.Token, client.Options{Agent: "muster-cli/" + buildVersion().Version})
}
