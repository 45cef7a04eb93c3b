package python_test

import (
	"os/exec"
	"strings"
	"testing"

	python "github.com/muster-dev/muster/sdk/python"
)

func TestModule(t *testing.T) {
	if n := strings.Count(python.Module(), "\n"); n >= 150 {
		t.Errorf("muster.py has %d lines: it is to stay under 150", n)
	}
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: this machine has no python3")
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-B", "-m", "unittest", "test_muster")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
