package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var sourcePath = regexp.MustCompile("`((?:internal|cmd|runtimes|sdk|test|scripts|examples)/[A-Za-z0-9_/.-]*)`")

// TestDocsPaths holds that every path of the source that the documents name is
// there.
func TestDocsPaths(t *testing.T) {
	root := filepath.Join("..", "..")
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sourcePath.FindAllSubmatch(text, -1) {
			seen++
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s names %s: %v", page, m[1], err)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d paths were found: the search is broken", seen)
	}
}
