package contexts

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// obtainToken signs the user in if the server offers that, or asks for an API key at a terminal. It may set the target's authority.
func (c *loginConfig) obtainToken(ctx context.Context, a *app.App, target *remote.Server) (string, error) {
	if !c.signIn && !a.Err.Interactive {
		return "", muster.Errorf(muster.Invalid, "no API key: use --token-file FILE (- means standard input) or MUSTER_TOKEN, or --sign-in if the server has an OpenID Connect provider")
	}
	server, err := remote.NewClient(*target, "")
	if err != nil {
		return "", err
	}
	offered, err := server.SignIn(ctx)
	if unknownAuthority(err) && target.CA == "" && a.Err.Interactive {
		if server, err = c.confirm(ctx, a, target); err != nil {
			return "", err
		}
		offered, err = server.SignIn(ctx)
	}
	if code := muster.CodeOf(err); code == muster.NotFound || code == muster.Unauthenticated {
		err = nil // an older server
	}
	switch {
	case err != nil:
		return "", err
	case offered.Device:
		return deviceToken(ctx, a, server, offered.Provider)
	case c.signIn && offered.Provider != "":
		return "", muster.Errorf(muster.Invalid, "%s signs users of %s in only in a browser: use the dashboard, or an API key with --token-file", term.Sanitize(offered.Provider), target.URL)
	case c.signIn:
		return "", muster.Errorf(muster.Invalid, "%s has no sign-in with an OpenID Connect provider: use an API key with --token-file", target.URL)
	}
	return typedToken(ctx, a)
}

// deviceToken shows the code that the user enters in a browser, and waits until the user has signed in.
func deviceToken(ctx context.Context, a *app.App, server *client.Client, provider string) (string, error) {
	d, err := server.BeginDeviceSignIn(ctx)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("To sign in with %s, open %s and enter the code %s.\n", term.Sanitize(provider), term.Sanitize(d.URL), term.Sanitize(d.UserCode))
	if d.FullURL != "" {
		text = fmt.Sprintf("To sign in with %s, open %s and confirm the code %s.\n", term.Sanitize(provider), term.Sanitize(d.FullURL), term.Sanitize(d.UserCode))
	}
	text += fmt.Sprintf("Waiting until %s (Ctrl-C to stop; to use an API key, --token-file -)\n", d.ExpiresAt.Std().Local().Format("15:04:05"))
	if err := app.WriteOutput(a.Err, []byte(text)); err != nil {
		return "", err
	}
	interval := max(d.Interval.Std(), time.Second)
	for time.Now().Before(d.ExpiresAt.Std()) {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(interval):
		}
		switch result, err := server.FinishDeviceSignIn(ctx, d.Device); {
		case err != nil:
			return "", err
		case !result.Pending:
			return result.Secret, nil
		}
	}
	return "", muster.Errorf(muster.Unauthenticated, "the code %s was not entered in time: run muster login again", term.Sanitize(d.UserCode))
}
