package attack

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/mustertest"
)

// TestErrorsDoNotShowSettingsOfGateways checks that a mistake in a gateway's settings does not print the others, of which one is a token.
func TestErrorsDoNotShowSettingsOfGateways(t *testing.T) {
	t.Parallel()
	const value = "mloc=127.0.0.1:0,token=s3kr1t,redis=redis://:s3kr1t@127.0.0.1:1,nope=1"
	for name, cmd := range map[string]*exec.Cmd{
		"option":   exec.CommandContext(t.Context(), mustertest.Program(t), "server", "--data", t.TempDir(), "--dialect", value),
		"variable": exec.CommandContext(t.Context(), mustertest.Program(t), "server", "--data", t.TempDir()),
	} {
		cmd.Env = []string{"HOME=" + t.TempDir(), "MUSTER_DIALECT=" + value}
		if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "s3kr1t") || !strings.Contains(string(out), `unknown option "nope"`) {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// TestErrorsDoNotShowThePasswordOfAURL checks that no message about an address shows the password in it, whether the address is refused, not understood,
// or unreachable.
func TestErrorsDoNotShowThePasswordOfAURL(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts 110 programs")
	}
	const (
		password = "s3kr1t"
		limit    = 3 * time.Second // for programs that continue, such as a worker that waits for its server
	)
	urls := []string{
		"http://user:" + password + "@127.0.0.1:1", "http://user:" + password + "@", "ftp://user:" + password + "@127.0.0.1", "user:" + password + "@127.0.0.1:1",
		"http://user:" + password + "@[::1", "http://user:" + password + "@127.0.0.1:port", "http://user:%zz" + password + "@127.0.0.1:1", "https://" + password + "@127.0.0.1:1",
		"http://user:a/" + password + "@127.0.0.1:1",
	}
	for name, args := range map[string][]string{
		"ps":          {"ps", "--server"},
		"submit":      {"run", "true", "--server"},
		"login":       {"login", "--token", "x"},
		"doctor":      {"doctor", "--data", "DATA", "--server"},
		"worker":      {"worker", "--data", "DATA", "--token", "x", "--server"},
		"engine":      {"worker", "--data", "DATA", "--token", "x", "--server", "http://127.0.0.1:1", "--engine"},
		"IPFS":        {"server", "--data", "DATA", "--listen", "127.0.0.1:0", "--ipfs"},
		"traces":      {"server", "--data", "DATA", "--listen", "127.0.0.1:0", "--otlp"},
		"other fleet": {"worker", "qubix", "--backend"},
		"authority":   {"server", "--data", "DATA", "--listen", "127.0.0.1:0", "--acme", "muster.example", "--acme-directory"},
		"misplaced":   {"ps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, address := range urls {
				if name == "misplaced" && !strings.Contains(address, "://") {
					continue // it could be anything
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				cmd := exec.CommandContext(ctx, mustertest.Program(t), append(append([]string{}, args...), address)...)
				for i, arg := range cmd.Args {
					if arg == "DATA" {
						cmd.Args[i] = t.TempDir()
					}
				}
				cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "MUSTER_TOKEN=x"}
				out, err := cmd.CombinedOutput()
				ended := ctx.Err() == nil
				cancel()
				if ended && (err == nil || len(out) == 0) {
					t.Errorf("%s: no error: %v %s", address, err, out)
				}
				if strings.Contains(string(out), password) {
					t.Errorf("%s: %s", address, out)
				}
			}
		})
	}
}
