package transfer

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
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
	outer, tries := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		root := filepath.Join(outer, strconv.Itoa(tries), "task")
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
			target, err := filepath.EvalSymlinks(filepath.Join(root, at))
			if err != nil {
				continue // it leads nowhere
			}
			if inside := target == root || strings.HasPrefix(target, root+"/"); !inside && !leavesFolder(at, links) {
				t.Fatalf("%s leads to %s with %v", at, target, links)
			}
		}
	})
}
