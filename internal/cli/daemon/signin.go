package daemon

import (
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/oidc"
)

// signInOptions are the options of sign-in with an OpenID Connect provider.
type signInOptions struct {
	oidc    oidc.Config
	secret  app.Secret
	roles   []string
	session muster.Duration
}

func newSignInOptions() signInOptions {
	return signInOptions{session: muster.Duration(oidc.DefaultSession)}
}

func (c *signInOptions) flags() []cli.Flag {
	const group = "Sign-in"
	list := []cli.Flag{
		app.Option{Name: "oidc-issuer", Value: "url", Usage: "Let users sign in with this OpenID Connect provider, such as https://accounts.google.com; its client needs the redirect URL URL/api/v1/oidc/callback", Group: group}.WithEnv().StringVar(&c.oidc.Issuer),
		app.Option{Name: "oidc-client-id", Value: "id", Usage: "Client ID that the provider gave to this server", Group: group}.WithEnv().StringVar(&c.oidc.ClientID),
	}
	list = append(list, app.Option{Name: "oidc-client-secret", Usage: "Client secret that the provider gave to this server", Group: group}.WithEnv().SecretVars(&c.secret, "client secret")...)
	return append(list,
		app.Option{Name: "oidc-role", Value: "rule", Usage: "Role of users with a claim, such as admin=groups:ml-admins or submitter/vision=email:*@lab.example; the first rule that matches counts; may be repeated, or a list", Group: group}.WithEnv().ListVar(&c.roles),
		app.Option{Name: "oidc-scopes", Usage: "Scopes to request beside openid, email and profile, such as groups", Group: group}.WithEnv().ListVar(&c.oidc.Scopes),
		app.Option{Name: "oidc-name", Value: "name", Usage: "Name of the provider on the sign-in page (default: its host)", Group: group}.WithEnv().StringVar(&c.oidc.Name),
		app.Option{Name: "oidc-session", Usage: "How long a sign-in lasts", Group: group}.WithEnv().DurationVar(&c.session),
	)
}

// readSecret reads the client secret and removes it from the environment of child processes.
func (c *signInOptions) readSecret() (err error) {
	c.oidc.ClientSecret, err = c.secret.ReadAndUnset()
	return err
}

// signInConfig returns the provider; without an issuer there is none.
func (c *signInOptions) signInConfig() (oidc.Config, error) {
	cfg := c.oidc
	if cfg.Issuer == "" {
		if cfg.ClientID != "" || cfg.ClientSecret != "" || len(c.roles) > 0 {
			return oidc.Config{}, muster.Errorf(muster.Invalid, "--oidc-client-id, --oidc-client-secret and --oidc-role need --oidc-issuer")
		}
		return oidc.Config{}, nil
	}
	for _, text := range c.roles {
		rule, err := oidc.ParseRule(text)
		if err != nil {
			return oidc.Config{}, muster.Errorf(muster.Invalid, "--oidc-role: %w", err)
		}
		cfg.Rules = append(cfg.Rules, rule)
	}
	if c.session <= 0 {
		return oidc.Config{}, muster.Errorf(muster.Invalid, "--oidc-session must be more than 0, such as 12h")
	}
	cfg.Scopes = append([]string{"email", "profile"}, cfg.Scopes...)
	cfg.Session = c.session.Std()
	return cfg, nil
}
