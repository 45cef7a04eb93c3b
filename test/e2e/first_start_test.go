package e2e

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestFirstStartKilled kills the first starts of a server at random times: in the end its administrator has seen tokens, always the same
// ones, and they are valid.
func TestFirstStartKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	const kills = 12
	dir := t.TempDir()
	printed := filepath.Join(dir, "printed")
	start := func() (*exec.Cmd, *os.File) {
		out, err := os.OpenFile(printed, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		testkit.NoError(t, err)
		cmd := exec.Command(mustertest.Program(t), "server", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--log-level", "error")
		cmd.Env = append(os.Environ(), "MUSTER_CONFIG="+filepath.Join(dir, "context.json"), "MUSTER_ADMIN_TOKEN=", "MUSTER_JOIN_TOKEN=")
		cmd.Stdout = out
		testkit.NoError(t, cmd.Start())
		return cmd, out
	}
	stop := func(cmd *exec.Cmd, out *os.File) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		testkit.NoError(t, out.Close())
	}
	output := func() string {
		text, err := os.ReadFile(printed)
		testkit.NoError(t, err)
		return string(text)
	}
	for range kills {
		cmd, out := start()
		time.Sleep(rand.N(300 * time.Millisecond))
		stop(cmd, out)
	}
	before := len(output())
	cmd, out := start()
	defer stop(cmd, out)
	testkit.Await(t, "the server prints its URL", func() bool {
		return strings.HasSuffix(output()[before:], "\n") && strings.Contains(output()[before:], "Dashboard and API:")
	})
	url := regexp.MustCompile(`http://\S+`).FindString(output()[before:])
	for role, re := range map[string]*regexp.Regexp{"admin": regexp.MustCompile(`mst_admin_\w+`), "join": regexp.MustCompile(`mst_join_\w+`)} {
		tokens := re.FindAllString(output(), -1)
		if len(tokens) == 0 {
			t.Fatalf("no %s token was ever printed:\n%s", role, output())
		}
		for _, token := range tokens {
			if token != tokens[0] {
				t.Errorf("two %s tokens were printed: %s and %s", role, tokens[0], token)
			}
		}
		c, err := client.New(url, tokens[0], client.Options{})
		testkit.NoError(t, err)
		who, err := c.Whoami(t.Context())
		if err != nil || who.Role != role {
			t.Errorf("the printed %s token: %+v, %v", role, who, err)
		}
	}
}
