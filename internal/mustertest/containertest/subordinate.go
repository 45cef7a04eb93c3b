package containertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

// WithSubordinateIDs runs a test again in a process whose /etc/subuid and /etc/subgid have these lines, such as containers:1000000:655360, and
// reports whether it is that process. Engines that the test starts have the same files; those of the machine do not change. It needs root.
func WithSubordinateIDs(t *testing.T, lines string) bool {
	t.Helper()
	const inside = "MUSTER_TEST_SUBORDINATE"
	switch {
	case os.Getenv(inside) == t.Name():
		return true
	case os.Geteuid() != 0 || testing.Short():
		t.Skip("only root may replace files for a process, or -short")
	}
	file := filepath.Join(t.TempDir(), "ids")
	testkit.NoError(t, os.WriteFile(file, []byte(lines+"\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/subuid; mount --bind "$0" /etc/subgid; exec "$@"`, file,
		os.Args[0], "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v: %s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Errorf("it did not run: %s", out)
	}
	return false
}
