package daemon

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/serverd"
)

// tlsOptions are the options of a server's certificate.
type tlsOptions struct {
	own      bool
	names    []string
	certFile string
	keyFile  string
}

func (c *tlsOptions) flags() []cli.Flag {
	const group = "TLS"
	return []cli.Flag{
		app.Option{Name: "tls", Usage: "Serve with TLS, with a certificate authority of this server that tokens name; workers and commands need nothing else", Group: group}.WithEnv().BoolVar(&c.own),
		app.Option{Name: "tls-name", Usage: "Host names and addresses in the certificate of --tls in addition to those of this machine, for browsers", Group: group}.WithEnv().ListVar(&c.names),
		app.Option{Name: "tls-cert", Value: "path", Usage: "Serve with TLS, with the certificate and its chain in this PEM file; a changed file is loaded within seconds", Group: group}.WithEnv().StringVar(&c.certFile),
		app.Option{Name: "tls-key", Value: "path", Usage: "PEM file with the key of --tls-cert", Group: group}.WithEnv().StringVar(&c.keyFile),
	}
}

// certs returns the source of the certificate. publicHost is the host of the server's public URL, "" for none.
func (c *tlsOptions) certs(publicHost string) (certs.Config, error) {
	switch {
	case (c.certFile == "") != (c.keyFile == ""):
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-cert and --tls-key need each other: set both")
	case c.own && c.certFile != "":
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls and --tls-cert exclude each other: --tls makes a certificate, --tls-cert reads one")
	case !c.own && len(c.names) > 0:
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-name needs --tls")
	}
	for _, name := range c.names {
		if err := certs.CheckName(name); err != nil {
			return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-name: %w", err)
		}
	}
	names := slices.Clone(c.names)
	if publicHost != "" && certs.CheckName(publicHost) == nil {
		names = append(names, publicHost)
	}
	return certs.Config{Own: c.own, Names: names, CertFile: c.certFile, KeyFile: c.keyFile}, nil
}

// warnUnencrypted warns if other machines can connect without TLS.
func (a *runner) warnUnencrypted(server *serverd.Server) {
	open := server.Unencrypted()
	if len(open) == 0 {
		return
	}
	advice := "use --tls"
	if server.TLS() {
		advice = "put a proxy with TLS in front, or use a tunnel"
	}
	a.Warnf("connections to %s are not encrypted, so others in the network can read keys and data: %s", strings.Join(open, " and "), advice)
}
