package probe

import (
	"context"
	"os/exec"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu"
)

const pythonTimeout = 3 * time.Second

// python finds a Python 3 that runs: on some systems the name only leads to a
// shop.
func python(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	path, err := exec.LookPath("python3")
	if err != nil {
		return ""
	}
	cmd := exec.CommandContext(ctx, path, "-I", "-S", "-c", "")
	cmd.WaitDelay = time.Second
	if cmd.Run() != nil {
		return ""
	}
	return path
}

// tags are the facts that jobs ask for most.
func tags(f *Facts) []string {
	t := []string{f.System.OS, f.System.Arch}
	if len(f.GPUs) > 0 {
		t = append(t, "gpu")
	}
	if slices.ContainsFunc(f.GPUs, func(g gpu.Device) bool { return g.Vendor == "nvidia" }) {
		t = append(t, "cuda")
	}
	if f.Python != "" {
		t = append(t, "python")
	}
	return t
}
