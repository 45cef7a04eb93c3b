package daemon

import (
	"net/url"
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
	acme     certs.ACME
	clientCA string

	clientCert, clientKey string // for commands of this user, if they are known
}

func (c *tlsOptions) flags() []cli.Flag {
	const group = "TLS"
	return []cli.Flag{
		app.Option{Name: "tls", Usage: "Serve with TLS, with a certificate authority of this server that tokens name; workers and commands need nothing else", Group: group}.WithEnv().BoolVar(&c.own),
		app.Option{Name: "tls-name", Usage: "Host names and addresses in the certificate of --tls in addition to those of this machine, for browsers", Group: group}.WithEnv().ListVar(&c.names),
		app.Option{Name: "tls-cert", Value: "path", Usage: "Serve with TLS, with the certificate and its chain in this PEM file; a changed file is loaded within seconds", Group: group}.WithEnv().StringVar(&c.certFile),
		app.Option{Name: "tls-key", Value: "path", Usage: "PEM file with the key of --tls-cert", Group: group}.WithEnv().StringVar(&c.keyFile),
		app.Option{Name: "tls-client-ca", Value: "path", Usage: "Require all clients, workers and browsers to present a certificate of an authority in this PEM file", Group: group}.WithEnv().StringVar(&c.clientCA),
		app.Option{Name: "acme", Usage: "Serve with TLS, with certificates of Let's Encrypt for these host names, whose port 443 (or 80, with --acme-http) must reach this server", Group: group}.WithEnv().ListVar(&c.acme.Domains),
		app.Option{Name: "acme-http", Value: "address", Usage: "Let the authority of --acme also verify the names on this address, such as :80, without TLS (http-01); other requests are redirected to https", Group: group}.WithEnv().StringVar(&c.acme.Challenge),
		app.Option{Name: "acme-email", Value: "address", Usage: "Address for messages of the authority of --acme", Group: group}.WithEnv().StringVar(&c.acme.Email),
		app.Option{Name: "acme-directory", Value: "url", Usage: "Directory of another authority for --acme (RFC 8555; default: Let's Encrypt)", Group: group}.WithEnv().StringVar(&c.acme.Directory),
	}
}

// certs returns the source of the certificate. publicHost is the host of the server's public URL, "" for none.
func (c *tlsOptions) certs(publicHost string) (certs.Config, error) {
	switch {
	case (c.certFile == "") != (c.keyFile == ""):
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-cert and --tls-key need each other: set both")
	case c.own && c.certFile != "" || len(c.acme.Domains) > 0 && (c.own || c.certFile != ""):
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls, --tls-cert and --acme exclude each other: the certificate is made by this server, read from a file, or of a public authority")
	case len(c.acme.Domains) == 0 && (c.acme.Email != "" || c.acme.Directory != "" || c.acme.Challenge != ""):
		return certs.Config{}, muster.Errorf(muster.Invalid, "--acme-http, --acme-email and --acme-directory need --acme")
	case c.acme.Directory != "" && !isDirectory(c.acme.Directory):
		return certs.Config{}, muster.Errorf(muster.Invalid, "--acme-directory: %q is not a URL that begins with https:// and has no password", muster.HideCredentials(c.acme.Directory))
	case c.clientCA != "" && !c.own && c.certFile == "" && len(c.acme.Domains) == 0:
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-client-ca needs --tls, --tls-cert or --acme")
	case !c.own && len(c.names) > 0:
		return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-name needs --tls")
	}
	for _, name := range c.names {
		if err := certs.CheckName(name); err != nil {
			return certs.Config{}, muster.Errorf(muster.Invalid, "--tls-name: %w", err)
		}
	}
	for _, name := range c.acme.Domains {
		if err := certs.CheckDomain(name); err != nil {
			return certs.Config{}, muster.Errorf(muster.Invalid, "--acme: %w", err)
		}
	}
	names := slices.Clone(c.names)
	if publicHost != "" && certs.CheckName(publicHost) == nil {
		names = append(names, publicHost)
	}
	return certs.Config{Own: c.own, Names: names, CertFile: c.certFile, KeyFile: c.keyFile, ACME: c.acme, ClientCA: c.clientCA}, nil
}

// warnUnencrypted warns if other machines can connect without TLS.
func (a *runner) warnUnencrypted(server *serverd.Server) {
	open := server.Unencrypted()
	if len(open) == 0 {
		return
	}
	advice := "use --tls"
	if server.TLS() {
		advice = "add tls=on to --dialect, or use a tunnel"
	}
	a.Warnf("connections to %s are not encrypted, so others in the network can read keys and data: %s", strings.Join(open, " and "), advice)
}

// isDirectory reports whether address may be that of an authority. One with a password, which no authority needs, would be logged.
func isDirectory(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil
}
