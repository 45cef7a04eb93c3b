package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"
)

func TestEnvironmentVariables(t *testing.T) {
	t.Setenv("HERE", "value here")
	var env map[string]string
	parse := func(args ...string) error {
		env = nil
		cmd := &cli.Command{Flags: []cli.Flag{Option{Name: "env", Short: "e"}.EnvVar(&env)}, Action: func(context.Context, *cli.Command) error { return nil }, Writer: os.Stderr}
		return cmd.Run(t.Context(), append([]string{"muster"}, args...))
	}
	if err := parse("-e", "HERE", "-e", "A=b=c", "-e", "EMPTY="); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"HERE": "value here", "A": "b=c", "EMPTY": ""}, env); diff != "" {
		t.Error(diff)
	}
	for _, arg := range []string{"NOT_SET_HERE", "=x", ""} {
		if err := parse("-e", arg); err == nil {
			t.Errorf("%q was accepted as %v", arg, env)
		}
	}
}

func TestReadEnvFile(t *testing.T) {
	t.Setenv("HERE", "value here")
	path := filepath.Join(t.TempDir(), "env")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\ufeffA=1\r\n# comment\n\n  B=\"quoted\" # no comment\nHERE\nNOT_SET_HERE\nC=")
	got, err := ReadEnvFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": `"quoted" # no comment`, "HERE": "value here", "C": ""}, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{"A=1\nexport B=2": "line 2", "=1": "line 1", "A=" + strings.Repeat("x", 2<<20): "too long"} {
		write(text)
		if _, err := ReadEnvFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadEnvFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
}
