package tool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Closed tells which of files, below root, are not there or this user may not
// open. They are opened by a child that can be killed, because opening a device
// may hang in its driver; and opened, because a container may have the file and
// not the right to use it.
func Closed(ctx context.Context, root string, files []string) map[string]bool {
	shut := map[string]bool{}
	if len(files) == 0 {
		return shut
	}
	const look = `for f; do [ -r "$f" ] && [ -w "$f" ] && (: <"$f") 2>/dev/null && echo "$f"; done; :`
	args := []string{"-c", look, "sh"}
	for _, f := range files {
		shut[f] = true
		args = append(args, filepath.Join(root, f))
	}
	out, err := Ask(ctx, "sh", args...)
	for _, f := range files {
		full := filepath.Join(root, f)
		if errors.Is(err, ErrMissing) { // a container without a shell
			shut[f] = Denied(full) || !present(full)
			continue
		}
		for line := range strings.Lines(out) {
			if strings.TrimSpace(line) == full {
				shut[f] = false
			}
		}
	}
	return shut
}

// present says whether a file is there.
func present(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
