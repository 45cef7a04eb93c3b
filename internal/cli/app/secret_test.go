package app

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"
)

// TestTokenSources checks that an argument counts more than a variable, and that only a token
// among the arguments is warned of.
func TestTokenSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  from a file\t\r\nand more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args      []string
		env       string
		envFile   string
		want      string
		wrong     string
		warnedFor string
	}{
		"nothing":                       {},
		"argument":                      {args: []string{"--token", "a"}, want: "a", warnedFor: "--token-file"},
		"argument in one":               {args: []string{"--token=a"}, want: "a", warnedFor: "MUSTER_TOKEN"},
		"file":                          {args: []string{"--token-file", file}, want: "from a file"},
		"variable":                      {env: "e", want: "e"},
		"variable for the file":         {envFile: file, want: "from a file"},
		"argument beats variables":      {args: []string{"--token", "a"}, env: "e", envFile: "/no/such", want: "a", warnedFor: "--token-file"},
		"file beats variables":          {args: []string{"--token-file", file}, env: "e", envFile: "/no/such", want: "from a file"},
		"the token's variable is first": {env: "e", envFile: "/no/such", want: "e"},
		"both":                          {args: []string{"--token", "a", "--token-file", file}, wrong: "mutually exclusive"},
		"both, the other way":           {args: []string{"--token-file", file, "--token", "a"}, wrong: "mutually exclusive"},
		"no such file":                  {args: []string{"--token-file", "/no/such"}, wrong: "/no/such: no such file"},
		"a folder":                      {args: []string{"--token-file", "/"}, wrong: "is a directory"},
		"empty":                         {args: []string{"--token-file", os.DevNull}, wrong: "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MUSTER_TOKEN", c.env)
			t.Setenv("MUSTER_TOKEN_FILE", c.envFile)
			var s Secret
			a, _, stderr := newApp()
			var got string
			var err error
			run := func(context.Context, []string) error {
				got, err = s.ReadAndUnset()
				return nil
			}
			cmd := a.NewCommand(Command{Name: "x", Category: CategorySetup, Run: run, Flags: Option{Name: "token", Usage: "the `KEY`"}.WithEnv().SecretVars(&s, "the key")})
			if status := a.Run(t.Context(), []*cli.Command{cmd}, append([]string{"muster", "x"}, c.args...)); status != 0 {
				t.Fatalf("the status is %d: %s", status, stderr)
			}
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("the error is %v, want one with %q", err, c.wrong)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("the token is %q, want %q: %v", got, c.want, err)
			}
			if warned := stderr.String(); (warned != "") != (c.warnedFor != "") || !strings.Contains(warned, c.warnedFor) || strings.Count(warned, "\n") > 1 {
				t.Errorf("got %q, want a line with %q", warned, c.warnedFor)
			}
			for _, name := range []string{"MUSTER_TOKEN", "MUSTER_TOKEN_FILE"} {
				if v, there := os.LookupEnv(name); there {
					t.Errorf("%s is passed on: %q", name, v)
				}
			}
		})
	}
}

// TestUpgradePassesTokensInTheEnvironment checks that the next program finds the tokens, however this one came by them, and
// no other process does.
func TestUpgradePassesTokensInTheEnvironment(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{args[0], "up", "--join-token", "****", "--admin-token-file=-", "--data", "--token"}
	admin, join := Secret{name: "admin-token", env: "MUSTER_ADMIN_TOKEN", text: "a"}, Secret{name: "join-token", env: "MUSTER_JOIN_TOKEN", text: "j"}
	p, err := CurrentProgram(&admin, &join)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{args[0], "up", "--data", "--token"}, p.args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, entry := range []string{"MUSTER_ADMIN_TOKEN=a", "MUSTER_JOIN_TOKEN=j"} {
		if !slices.Contains(p.env, entry) {
			t.Errorf("%s is not in its environment", entry)
		}
	}
}

// TestSecretsInArguments lists which parts of arguments are secrets.
func TestSecretsInArguments(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string][]string{
		"--server=http://user:pw@host:8700":                         {"user:pw"},
		"http://host:3001/k/mst_join_abc":                           {"", "mst_join_abc"},
		"http://host:3001/k/a-key/":                                 {"", "a-key"},
		"mloc=:8000,token=chosen,redis=redis://:pw@host":            {":pw", "chosen"},
		"the key mst_admin_ohzdaybec6jfwvyryuumjocey546p7sc of ada": {"mst_admin_ohzdaybec6jfwvyryuumjocey546p7sc"},
		"http://host:8700/models/name@revision":                     {""},
		"train.py":                                                  nil,
	} {
		if got := secretValues([]string{"muster", arg}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", arg, got, want)
		}
	}
}

// TestOverwriteOnlyProcessArguments checks that only the memory of this process's arguments is overwritten.
func TestOverwriteOnlyProcessArguments(t *testing.T) {
	args := []string{"muster", "worker", "--token", "a constant", "--join-token=another"}
	if got, want := secretValues(args), []string{"a constant", "another"}; !slices.Equal(got, want) {
		t.Errorf("the secrets are %q, want %q", got, want)
	}
	overwriteSecrets(args) // would end this process
	if args[3] != "a constant" {
		t.Errorf("it is %q now", args[3])
	}
}
