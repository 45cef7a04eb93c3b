package tool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Inaccessible reports which of files, below root, do not exist or cannot be opened by this user. A child that can be killed opens
// them, because that may hang in the driver; it is not enough that they exist, because a container may have a file without the right
// to use it.
func Inaccessible(ctx context.Context, root string, files []string) map[string]bool {
	denied := map[string]bool{}
	if len(files) == 0 {
		return denied
	}
	const script = `for f; do [ -r "$f" ] && [ -w "$f" ] && (: <"$f") 2>/dev/null && echo "$f"; done; :`
	args := []string{"-c", script, "sh"}
	for _, f := range files {
		args = append(args, filepath.Join(root, f))
	}
	out, err := Output(ctx, "sh", args...)
	opened := strings.Split(out, "\n")
	for _, f := range files {
		path := filepath.Join(root, f)
		denied[f] = !slices.Contains(opened, path)
		if errors.Is(err, ErrMissing) { // a container without a shell
			_, statErr := os.Stat(path)
			denied[f] = AccessDenied(path) || statErr != nil
		}
	}
	return denied
}
