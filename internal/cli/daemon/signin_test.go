package daemon

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func TestSignInOptions(t *testing.T) {
	t.Parallel()
	if cfg, err := (&signInOptions{}).signInConfig(); err != nil || cfg.Issuer != "" {
		t.Error(cfg, err)
	}
	c := newSignInOptions()
	c.oidc.Issuer, c.roles = "https://accounts.example.com", []string{"viewer=email:*@lab.example", "admin=groups:a"}
	if cfg, err := c.signInConfig(); err != nil || len(cfg.Rules) != 2 || strings.Join(cfg.Scopes, " ") != "email profile" || cfg.Session.Hours() != 12 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for want, change := range map[string]func(*signInOptions){
		"need --oidc-issuer":               func(c *signInOptions) { c.oidc.Issuer = "" },
		`--oidc-role: "x" is not`:          func(c *signInOptions) { c.roles = []string{"x"} },
		"--oidc-session must be more than": func(c *signInOptions) { c.session = 0 },
	} {
		bad := c
		change(&bad)
		if _, err := bad.signInConfig(); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
