package probe

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// run runs a tool without input and returns its output.
func (h *host) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	out, err := tool.OutputWithin(ctx, h.toolTimeout, program, args...)
	return []byte(out), err
}

// lookPath returns the absolute path of a tool, or "" if it is not installed.
func lookPath(program string) string {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// readLimited reads up to limit bytes. It returns what it read before an error.
func readLimited(r io.Reader, limit int64) []byte {
	b, _ := io.ReadAll(io.LimitReader(r, limit))
	return b
}
