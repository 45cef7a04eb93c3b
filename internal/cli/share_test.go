package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/term"
)

// manPages returns the manual pages by file name.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := ShareFiles(time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for path, content := range files {
		if strings.HasPrefix(path, "man/man") {
			pages[filepath.Base(path)] = string(content)
		}
	}
	return pages
}

// plainRoff is the text of a manual page without fonts and escapes.
var plainRoff = strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\-`, "-", `\&`, "", `\(aq`, "'", `\(dq`, `"`, `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\(rs`, `\`, `\[u2026]`, "…")

// TestManPages checks that each visible command and each topic has a page with all that its help tells.
func TestManPages(t *testing.T) {
	pages := manPages(t)
	request := regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|B|BR|RS|RE|EX|EE)[ \n]`)
	for name, page := range pages {
		if !strings.HasPrefix(page, ".TH ") || !strings.Contains(page, " 2001-09-09 ") {
			t.Errorf("%s begins with %.50q", name, page)
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !request.MatchString(line) {
				t.Errorf("%s: troff would read %q as a request", name, line)
			}
		}
	}
	a := newRunner(nil, term.Screen{}, term.Screen{})
	expected := len(a.Topics) + 1
	check := func(name, what, text string) {
		if text != "" && !strings.Contains(plainRoff.Replace(pages[name]), text) {
			t.Errorf("%s does not have the %s %q", name, what, text)
		}
	}
	root, err := output("muster", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]\S*) `).FindAllStringSubmatch(root, -1) {
		check("muster.1", "command or topic", "muster-"+m[1])
	}
	forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
		if c.Hidden {
			return
		}
		expected++
		page := "muster-" + strings.ReplaceAll(name, " ", "-") + ".1"
		check(page, "usage", page[:len(page)-2]+" - "+c.Usage)
		for line := range strings.Lines(c.Description) {
			check(page, "description", strings.TrimSpace(line))
		}
		check(page, "arguments", c.ArgsUsage)
		for _, f := range c.VisibleFlags() {
			check(page, "option", "--"+f.Names()[0])
			if d, ok := f.(cli.DocGenerationFlag); ok {
				check(page, "usage of an option", d.GetUsage())
				for _, env := range d.GetEnvVars() {
					check(page, "variable", env)
				}
			}
		}
		text, err := output(append([]string{"muster"}, strings.Fields(name+" --help")...)...)
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(text, "\nExamples:\n")
		table, _, _ = strings.Cut(table, "\n\n")
		for line := range strings.Lines(table) {
			example, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
			check(page, "example", example)
		}
	})
	for _, topic := range a.Topics {
		for _, s := range topic.Sections() {
			for _, r := range s.Rows {
				check("muster-"+topic.Name+".7", "row", r.Name)
				check("muster-"+topic.Name+".7", "row", r.Usage)
			}
		}
	}
	if own := 1; len(pages) != expected+own { // muster help
		t.Errorf("there are %d pages, want %d", len(pages), expected+own)
	}
}

// TestManPagesFormat formats all pages with all warnings.
func TestManPagesFormat(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	dir := t.TempDir()
	args := []string{"-man", "-ww", "-Tutf8", "-z"}
	for name, page := range manPages(t) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.CommandContext(t.Context(), groff, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tascii", "-P-c", "-P-b", "-P-u", filepath.Join(dir, "muster-run.1"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"muster run --array 1-100 -c 'echo element $MUSTER_INDEX'\n", "--kill-grace duration\n"} {
		if !bytes.Contains(out, []byte(text)) {
			t.Errorf("the page of run does not have %q:\n%s", text, out)
		}
	}
}
