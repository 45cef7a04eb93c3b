//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/oidc/oidctest"
	"github.com/muster-dev/muster/internal/testkit"
)

// output is what a command has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// TestLoginByDeviceCode signs users of a provider in with muster login, which prints the code that they confirm elsewhere. They have the role of
// the rule that matches them, and what is saved works in later commands.
func TestLoginByDeviceCode(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, "http://unused.example/callback",
		oidctest.User{Name: "ann", Email: "ann@lab.example", EmailVerified: true, Groups: []string{"staff"}}, oidctest.User{Name: "eve", Email: "eve@lab.example"})
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{
		"--oidc-issuer", at.URL, "--oidc-client-id", oidctest.ClientID, "--oidc-client-secret", oidctest.ClientSecret, "--oidc-role", "viewer/vision=groups:staff", "--oidc-role", "admin=email:eve@*", "--oidc-session", "1h",
	}})
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Server.PID())); err == nil && bytes.Contains(line, []byte(oidctest.ClientSecret)) {
		t.Errorf("the server's arguments show the client secret: %q", line)
	}
	code := regexp.MustCompile(`user_code=\S+ and confirm the code ([A-Z-]+)\.`)
	login := func(answer func(code string)) (status int, stdout, stderr, context string) {
		t.Helper()
		context = filepath.Join(t.TempDir(), "context.json")
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "login", "--sign-in", c.URL)
		cmd.Env = []string{"MUSTER_CONFIG=" + context, "HOME=" + t.TempDir()}
		var out, errs output
		cmd.Stdout, cmd.Stderr = &out, &errs
		testkit.NoError(t, cmd.Start())
		c.Await("the command shows a code", time.Minute, func() error {
			if !code.MatchString(errs.String()) {
				return errors.New(errs.String())
			}
			return nil
		})
		answer(code.FindStringSubmatch(errs.String())[1])
		_ = cmd.Wait() // its status says it
		return cmd.ProcessState.ExitCode(), out.String(), errs.String(), context
	}
	status, stdout, stderr, context := login(func(code string) { at.Approve(code, "ann") })
	if status != 0 || !strings.Contains(stdout, "as ann@lab.example (viewer, project vision, expires in") {
		t.Fatalf("ann: %d %s%s", status, stdout, stderr)
	}
	cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "ps", "-o", "json")
	cmd.Env = []string{"MUSTER_CONFIG=" + context, "HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil || !json.Valid(out) {
		t.Errorf("a later command: %v %s", err, out)
	}
	if status, _, stderr, _ = login(func(code string) { at.Approve(code, "eve") }); status != 4 || !strings.Contains(stderr, "has no access") {
		t.Errorf("eve, whose email is not verified: %d %s", status, stderr)
	}
	if status, _, stderr, _ = login(at.Deny); status != 4 || !strings.Contains(stderr, "denied") {
		t.Errorf("a refusal: %d %s", status, stderr)
	}
	keys, err := c.Client.Keys(t.Context())
	testkit.NoError(t, err)
	n := 0
	for _, k := range keys {
		if k.Name == "ann@lab.example" && k.Role == "viewer" && k.ExpiresAt != 0 {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the keys are %+v", keys)
	}
}
