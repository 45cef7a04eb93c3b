package tool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Inaccessible tells which of files, below root, are not there or this user may not
// open. They are opened by a child that can be killed, because opening a device
// may hang in its driver; and opened, because a container may have the file and
// not the right to use it.
func Inaccessible(ctx context.Context, root string, files []string) map[string]bool {
	denied := map[string]bool{}
	if len(files) == 0 {
		return denied
	}
	const script = `for f; do [ -r "$f" ] && [ -w "$f" ] && (: <"$f") 2>/dev/null && echo "$f"; done; :`
	args := []string{"-c", script, "sh"}
	for _, f := range files {
		denied[f] = true
		args = append(args, filepath.Join(root, f))
	}
	out, err := Output(ctx, "sh", args...)
	for _, f := range files {
		path := filepath.Join(root, f)
		if errors.Is(err, ErrMissing) { // a container without a shell
			denied[f] = AccessDenied(path) || !exists(path)
			continue
		}
		for line := range strings.Lines(out) {
			if strings.TrimSpace(line) == path {
				denied[f] = false
			}
		}
	}
	return denied
}

// exists says whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
