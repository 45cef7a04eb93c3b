package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var sourcePath = regexp.MustCompile("`((?:internal|cmd|runtimes|sdk|test|scripts|examples)/[A-Za-z0-9_/.-]*)`")

// TestDocsPaths checks that every path of the source that the documents name is
// there.
func TestDocsPaths(t *testing.T) {
	seen := 0
	for _, page := range pages(t) {
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

// pages returns all documents.
func pages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/dialects/*.md", "docs/guides/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

var promiseTest = regexp.MustCompile(`\b(?:Test|check|Fuzz)[A-Z][A-Za-z0-9_]*\b`)

// TestGuaranteesAreTested checks that every test that docs/guarantees.md names is
// there.
func TestGuaranteesAreTested(t *testing.T) {
	names := reportMissing(t, filepath.Join(root, "docs", "guarantees.md"), functionNames(t))
	if names < 10 {
		t.Errorf("only %d tests are named: the search is broken", names)
	}
}

// TestDialectsAreTested checks the same for the pages in docs/dialects, which list the test of every line of a guide.
func TestDialectsAreTested(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "docs", "dialects", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := functionNames(t)
	for _, page := range found {
		names := reportMissing(t, page, declared)
		if filepath.Base(page) != "README.md" && names < 10 {
			t.Errorf("%s names only %d tests", page, names)
		}
	}
}

// functionNames returns the names of all functions of the source.
func functionNames(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	for _, f := range parse(t, root) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				declared[fn.Name.Name] = true
			}
		}
	}
	return declared
}

// reportMissing complains of the tests that a page names and that are not there, and returns how many it names.
func reportMissing(t *testing.T, page string, declared map[string]bool) int {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	names := promiseTest.FindAllString(string(text), -1)
	for _, name := range names {
		if !declared[name] {
			t.Errorf("%s names %s, which is nowhere", page, name)
		}
	}
	return len(names)
}

var pageLink = regexp.MustCompile(`\]\(([A-Za-z0-9_/.-]+)(?:#[a-z-]*)?\)`)

// TestDocsLinks checks that the documents that a document links to are there.
func TestDocsLinks(t *testing.T) {
	seen := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pageLink.FindAllSubmatch(text, -1) {
			seen++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d links were found: the search is broken", seen)
	}
}

// TestDecisionsAreListed checks that docs/adr/README.md lists every decision.
func TestDecisionsAreListed(t *testing.T) {
	dir := filepath.Join(root, "docs", "adr")
	list, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	if err != nil || len(decisions) < 30 {
		t.Fatalf("%d decisions found: %v", len(decisions), err)
	}
	for _, d := range decisions {
		if name := filepath.Base(d); !strings.Contains(string(list), "("+name+")") {
			t.Errorf("docs/adr/README.md does not list %s", name)
		}
	}
}
