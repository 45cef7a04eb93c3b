package arch

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// An older version of this code had its own idiom. docs/glossary.md has the standard term of each concept; the lists below keep the idiom out.

// bannedWords are words of no identifier, alone or as a part of it.
var bannedWords = []string{
	"anew", "berth", "bury", "chores", "crew", "desk", "exile", "heed", "kin", "lull", "mercy", "oust", "raze", "roster", "sail", "said",
	"shun", "shunned", "strays", "told", "vacate", "vessel", "whose",
}

// bannedIdents are no whole identifiers; as a part of one they may be right.
var bannedIdents = []string{
	"bear", "carry", "hope", "hurry", "its", "lineup", "mine", "news", "patience", "says", "shy", "takeup", "tell", "tells", "those", "trash", "visitor",
}

// bannedFiles are base names of no file, without _test and what follows.
var bannedFiles = []string{
	"ahead", "board", "books", "desk", "door", "found", "given", "inside", "keep", "kin", "lives", "look", "odd", "remember", "roster", "shun", "steer", "tell", "way", "word", "words",
}

// bannedPackages are last elements of no package's path.
var bannedPackages = []string{"allow", "contents", "do", "flow", "frame", "gate", "guard", "kin", "kubo", "limit", "place", "save", "serve", "series", "valid", "vessel", "warm", "work"}

// bannedPhrases are in no string literal and no comment.
var bannedPhrases = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(go(es|ing)?|went|gone) on\b`), "continue"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\b((as|not|is|are|was|were|be|been|when|by) told|told (to|already|once|when|what|why|how|that|by|of|nothing))\b`), "is notified, receives, logged"},
	{regexp.MustCompile(`(?i)\b(whoever|nobody('s)? (else|answers?|asked|asks|can|comes|got|has|holds|joins?|joined|knows|listens?|looks?|may|needs|reads|reason|sees?|takes|waits|wants?|way))\b`), "no one, any client, any user"},
	{regexp.MustCompile(`(?i)\bstands? (by|still)\b`), "monitors, hangs, is frozen"},
	{regexp.MustCompile(`(?i)\b(it|that|which|and) (is|are) none\b`), "does not exist, is not one"},
	{regexp.MustCompile(`(?i)(\b(it|that|which|this|what)|%[qsdv]|") is no (artifact|date|duration|file|first|folder|image|job|json|key|name|news|number|path|refusal|share|size|task|text|time|url|worker)\b`), "is not a"},
	{regexp.MustCompile(`(?i)\b(earlier|next|last|previous|its|one|another|each|new) li(fe|ves)\b`), "the previous process, after a restart"},
	{regexp.MustCompile(`(?i)\b(some day|for ever|as ever|to be had)\b`), "later, forever, as usual, available"},
	{regexp.MustCompile(`(?i)\bmakes? way\b`), "is preempted"},
	{regexp.MustCompile(`(?i)\b(takes?|took|taken) up (its|the|a|what|tasks?|attempts?|again)\b`), "recovers"},
	{regexp.MustCompile(`(?i)\bhand(s|ed)? (back|out|over)\b`), "returns, assigns, passes"},
	{regexp.MustCompile(`(?i)\b(lies?|lay) (in|on|at|below|beside|above|under)\b`), "is in"},
	{regexp.MustCompile(`(?i)\b(kept|keeps?) free (for|when)\b`), "reserved"},
	{regexp.MustCompile(`(?i)\bwhat (it|the [a-z]+('s [a-z]+)?) has become\b`), "the replaced one"},
	{regexp.MustCompile(`^Of (which|whom|that|these|those) `), "subject, verb, object"},
	{regexp.MustCompile(`^(What|Who|Whom) .*, (package|type|and not|and what|and nothing|it) \w+`), "subject, verb, object"},
}

// TestWords checks that names and texts use the field's terms.
func TestWords(t *testing.T) {
	for _, f := range parse(t, "../..") {
		if f.pkg == "arch" {
			continue // the lists
		}
		if name := path.Base(f.pkg); slices.Contains(bannedPackages, name) {
			t.Errorf("%s: a package %q: see docs/glossary.md", f.path, name)
		}
		if name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(f.path), ".go"), "_"); slices.Contains(bannedFiles, name) {
			t.Errorf("%s: a file %q: name it by its content", f.path, name)
		}
		checkWords(t, f)
	}
}

func checkWords(t *testing.T, f file) {
	t.Helper()
	complain := func(pos token.Pos, what, instead string) {
		t.Errorf("%s:%d: %q: write %s", f.path, f.fset.Position(pos).Line, what, instead)
	}
	phrases := func(pos token.Pos, text string) {
		for _, p := range bannedPhrases {
			if m := p.pattern.FindString(text); m != "" {
				complain(pos, m, p.instead)
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			banned := slices.Contains(bannedIdents, strings.ToLower(n.Name))
			for _, w := range camelWords(n.Name) {
				banned = banned || slices.Contains(bannedWords, w)
			}
			if banned {
				complain(n.Pos(), n.Name, "the term of docs/glossary.md")
			}
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				phrases(n.Pos(), s)
			}
		}
		return true
	})
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			phrases(c.Pos(), strings.TrimSpace(strings.TrimPrefix(c.Text, "//")))
		}
	}
}

// camelWords splits an identifier: readIOFile has read, io and file.
func camelWords(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			if w := strings.ToLower(strings.Trim(string(runes[start:i]), "_")); w != "" {
				words = append(words, w)
			}
			start = i
		}
	}
	return words
}

func TestCamelWords(t *testing.T) {
	for name, want := range map[string]string{"readIOFile": "read io file", "kin": "kin", "URL": "url", "snake_caseName": "snake case name", "takeUp2": "take up2"} {
		if got := strings.Join(camelWords(name), " "); got != want {
			t.Errorf("%s has the words %q, not %q", name, got, want)
		}
	}
}
