package transfer

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

// An invalid list of files fails the task for good: the bytes will be the same at the next try.
func TestTreeIsNoList(t *testing.T) {
	s := newServer(t)
	for _, text := range []string{"", "{", "[]", `{"files":[]} {}`, `{"files":[{"path":"a","mode":7}]}`} {
		if err := newClient(t, s, 0).FetchTree(t.Context(), s.put([]byte(text)), t.TempDir()); reasonOf(err) != muster.TaskInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Links that the kernel resolves inside of the folder are accepted, and those that it does not are not.
func TestLinksAreResolvedAsTheKernelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outer, err := os.MkdirTemp("", "links")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(outer)
		root := filepath.Join(outer, "in", "task") // two folders, so that ".." twice is outside, too
		dirs := []string{".", "a", "a/b", "c"}
		links := map[string]string{}
		for _, dir := range dirs {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		parts := rapid.SampledFrom([]string{"..", "a", "b", "c", "l1", "l2", "l3", "."})
		for _, name := range []string{"l1", "l2", "l3"} {
			at := path.Join(rapid.SampledFrom(dirs).Draw(t, "dir"), name)
			links[at] = strings.Join(rapid.SliceOfN(parts, 1, 5).Draw(t, name), "/")
			if err := os.Symlink(links[at], filepath.Join(root, at)); err != nil {
				t.Fatal(err)
			}
		}
		for at := range links {
			real, err := filepath.EvalSymlinks(filepath.Join(root, at))
			if err != nil {
				continue // it leads nowhere
			}
			if inside := real == root || strings.HasPrefix(real, root+"/"); !inside && !leavesFolder(at, links) {
				t.Fatalf("%s leads to %s with %v", at, real, links)
			}
		}
	})
}
