package contexts

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/origin"
)

type loginConfig struct {
	name   string
	token  app.Secret
	signIn bool
	cert   string // files of the client's certificate
	key    string
}

func loginCommand(a *app.App) *cli.Command {
	c := &loginConfig{}
	return a.NewCommand(app.Command{
		Name: "login", Usage: "Save a server and an API key for later commands", Args: "URL", Complete: app.Completer(remote.CompleteContexts).Once(), Category: app.CategorySetup,
		Description: "Asks for the API key at a terminal, checks it, and makes the server the current context. If the server has an OpenID Connect provider, it shows a code with which you sign in in any browser instead. A URL without scheme and port is http://URL:8700, or " +
			"https://URL:8700 if the key ends in the fingerprint of the server's certificate authority. At a terminal, the fingerprint of an unknown authority is shown and must be confirmed.",
		Flags: slices.Concat([]cli.Flag{
			app.Option{Name: "name", Usage: "Name of the context (default: the host, with the port unless it is 8700)"}.StringVar(&c.name),
			app.Option{Name: "sign-in", Usage: "Sign in with the server's OpenID Connect provider, also without a terminal"}.BoolVar(&c.signIn),
		}, app.Option{Name: "token", Usage: "API key (default: that of a sign-in, or the one typed at the terminal)"}.WithEnv().SecretVars(&c.token, "API key"),
			remote.ClientCertFlags(&c.cert, &c.key, "")),
		Examples: []app.HelpRow{
			{Name: "muster login lab", Usage: "Ask for an API key of http://lab:8700"},
			{Name: "muster login --name lab --token-file key.txt https://muster.example", Usage: "Read the key from a file"},
		},
		Run: func(ctx context.Context, args []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			return c.run(ctx, a, args)
		},
	})
}

func (c *loginConfig) run(ctx context.Context, a *app.App, args []string) error {
	if len(args) != 1 {
		return muster.Errorf(muster.Invalid, "give one server URL, such as http://lab:8700")
	}
	if c.name != "" {
		if err := remote.CheckName(c.name); err != nil {
			return err
		}
	}
	saved, err := remote.LoadContext()
	if err != nil {
		return err
	}
	old, err := saved.Lookup(args[0])
	if err != nil {
		return err
	}
	given, err := c.token.Read()
	switch {
	case err != nil:
		return err
	case given != "" && c.signIn:
		return muster.Errorf(muster.Invalid, "--sign-in and an API key exclude each other: omit one of them")
	}
	target := remote.Server{URL: old.URL, Name: c.name, CA: old.CA, TLSServerName: old.TLSServerName}
	if target.ClientCert, target.ClientKey, err = c.clientCert(&old); err != nil {
		return err
	}
	if given == "" {
		if given, err = c.obtainToken(ctx, a, &target); err != nil {
			return err
		}
	}
	target.SetToken(given, strings.Contains(args[0], "://"))
	if err := auth.CheckToken(target.Token); err != nil {
		return muster.Errorf(muster.Invalid, "this is not an API key: %w", err)
	}
	if isPublicHTTP(ctx, target.URL) {
		a.Warnf("the API key is sent unencrypted to %s: start the server with --tls, or use a tunnel such as ssh -L", target.URL)
	}
	server, err := remote.NewClient(target, "")
	if err != nil {
		return err
	}
	who, err := server.Whoami(ctx)
	if unknownAuthority(err) && target.CA == "" && a.Err.Interactive {
		if server, err = c.confirm(ctx, a, &target); err != nil {
			return err
		}
		who, err = server.Whoami(ctx)
	}
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return muster.Errorf(muster.Unauthenticated, "%s does not accept this API key (%w): an administrator makes one with muster keys create", target.URL, err)
	case err != nil:
		return err
	case who.Role == string(auth.Join):
		return muster.Errorf(muster.Forbidden, "this is a join token, with which a worker joins: use it with muster worker --token-file, or muster worker install --token-file for a service")
	case who.Role == string(auth.Worker):
		return muster.Errorf(muster.Forbidden, "this is the key of worker %s, which commands cannot use: an administrator makes one with muster keys create", who.Worker)
	}
	if err := change(func(saved *remote.SavedContext) (err error) {
		target, err = saved.Login(target)
		return err
	}); err != nil {
		return err
	}
	return app.WriteOutput(a.Out, fmt.Appendf(nil, "Logged in to %s as %s (%s). Saved as context %s, which commands now use.\n", target.URL, term.Sanitize(who.Name), describeKey(&who), target.Name))
}

// clientCert returns the absolute paths of the client's certificate and key, or the saved ones.
func (c *loginConfig) clientCert(old *remote.Server) (cert, key string, err error) {
	if c.cert == "" && c.key == "" {
		return old.ClientCert, old.ClientKey, nil
	}
	if c.cert == "" || c.key == "" {
		return "", "", muster.Errorf(muster.Invalid, "--tls-client-cert and --tls-client-key need each other: set both")
	}
	if cert, err = filepath.Abs(c.cert); err == nil {
		key, err = filepath.Abs(c.key)
	}
	return cert, key, err
}

// unknownAuthority reports whether a server's certificate is of an authority that this machine does not trust.
func unknownAuthority(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

// confirm shows the fingerprint of the server's authority, which the user compares with what the server has printed, and returns a client
// that trusts it. The API key has not been sent before.
func (c *loginConfig) confirm(ctx context.Context, a *app.App, target *remote.Server) (*client.Client, error) {
	authority, err := origin.FetchCA(ctx, target.URL)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the certificate of %s is signed by an unknown authority, and its fingerprint cannot be shown: %w; trust the authority with SSL_CERT_FILE", target.URL, err)
	}
	pin := origin.PinOf(authority).String()
	answer, err := term.Prompt(ctx, a.Err, fmt.Sprintf("The authenticity of %s cannot be verified: the API key has no fingerprint of its certificate authority.\n"+
		"The server prints the fingerprint when it starts; here it is %s\nTrust this server? [y/N] ", target.URL, pin))
	if err != nil {
		return nil, err
	}
	if answer != "y" && answer != "yes" {
		return nil, muster.Errorf(muster.Forbidden, "the server is not trusted, and the API key was not sent")
	}
	target.CA = pin
	return remote.NewClient(*target, "")
}

// typedToken asks for the API key.
func typedToken(ctx context.Context, a *app.App) (string, error) {
	token, err := term.ReadSecret(ctx, a.Err, "API key: ")
	if err == nil && token == "" {
		return "", muster.Errorf(muster.Invalid, "no API key was typed")
	}
	return token, err
}

// describeKey returns the permissions of a key, and when it expires.
func describeKey(who *client.Whoami) string {
	parts := []string{term.Sanitize(who.Role)}
	if who.Project != "" {
		parts = append(parts, "project "+term.Sanitize(who.Project))
	}
	if who.ExpiresAt != 0 {
		parts = append(parts, "expires in "+term.FormatDuration(time.Until(who.ExpiresAt.Std())))
	}
	return strings.Join(parts, ", ")
}

// isPublicHTTP reports whether requests to a server are unencrypted and leave the private network.
func isPublicHTTP(ctx context.Context, server string) bool {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return false // the request will fail, or a proxy knows the name
	}
	overlay := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598, which overlay networks use
	for _, ip := range all {
		if ip = ip.Unmap(); !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() && !overlay.Contains(ip) {
			return true
		}
	}
	return false
}
