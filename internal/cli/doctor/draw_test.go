package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/doctor"
)

var testFindings = []doctor.Finding{
	{Group: doctor.Server, Name: "server", Status: doctor.OK, Found: "http://10.0.0.5:8700 answers in 2ms"},
	{Group: doctor.Server, Name: "clock", Status: doctor.Warning, Found: "this machine's clock is behind the server's by 12.4s (give or take 0.5s)", Fix: "have both machines keep their clocks by NTP: `sudo timedatectl set-ntp true`"},
	{Group: doctor.Worker, Name: "data", Status: doctor.OK, Found: "/var/lib/muster/worker is there, and this user's (-rwx------)"},
	{Group: doctor.Containers, Name: "engine", Status: doctor.Problem, Found: "this user may not use unix:///var/run/docker.sock", Fix: "let this user use it, and log in again: `sudo usermod -aG docker alice`; this is equivalent to root access"},
	{Group: doctor.System, Name: "gang-ports", Status: doctor.Note, Found: "ports may be taken", Fix: "`sudo sysctl -w net.ipv4.ip_local_reserved_ports=20000-29999 and-more-of-this-long-command-that-fits-no-line`"},
}

func render(t *testing.T, width int, color bool) string {
	t.Helper()
	var b bytes.Buffer
	a := &app.App{Out: term.Screen{Writer: &b, Width: width, Color: color}}
	if err := draw(a, testFindings); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDraw(t *testing.T) {
	t.Parallel()
	const want = `SERVER
ok       server      http://10.0.0.5:8700 answers in 2ms
warning  clock       this machine's clock is behind the server's by 12.4s (give
                     or take 0.5s)
                     → have both machines keep their clocks by NTP:
                       ` + "`sudo timedatectl set-ntp true`" + `

WORKER
ok       data        /var/lib/muster/worker is there, and this user's
                     (-rwx------)

CONTAINERS
problem  engine      this user may not use unix:///var/run/docker.sock
                     → let this user use it, and log in again:
                       ` + "`sudo usermod -aG docker alice`; this is equivalent to" + `
                       root access

SYSTEM
note     gang-ports  ports may be taken
                     → ` + "`sudo sysctl -w net.ipv4.ip_local_reserved_ports=20000-29999 and-more-of-this-long-command-that-fits-no-line`" + `

1 problem, 1 warning, 1 note, 2 ok
`
	if d := cmp.Diff(want, render(t, 80, false)); d != "" {
		t.Error(d)
	}
}

// TestDrawFits checks that only commands, which are there to be copied, are wider than the screen.
func TestDrawFits(t *testing.T) {
	t.Parallel()
	for _, width := range []int{60, 80, 120, 200} {
		for line := range strings.Lines(render(t, width, false)) {
			line = strings.TrimRight(line, "\n")
			if text := strings.TrimLeft(line, " →"); term.Width(line) > width && strings.Contains(text, " ") && !strings.HasPrefix(text, "`") {
				t.Errorf("at %d columns: %q", width, line)
			}
		}
	}
	if text := render(t, 80, true); !strings.Contains(text, "\x1b[31mproblem\x1b[0m  engine") {
		t.Errorf("no colours: %q", text)
	}
	if wide := render(t, 0, false); strings.Count(wide, "\n") != strings.Count(strings.Join(lines(), "\n"), "\n")+1 {
		t.Errorf("without a width lines are wrapped:\n%s", wide)
	}
}

// lines are what is drawn where a line may be of any length.
func lines() []string {
	var all []string
	group := ""
	for i := range testFindings {
		if testFindings[i].Group != group {
			if group != "" {
				all = append(all, "")
			}
			group = testFindings[i].Group
			all = append(all, group)
		}
		all = append(all, testFindings[i].Found)
		if testFindings[i].Fix != "" {
			all = append(all, testFindings[i].Fix)
		}
	}
	return append(all, "", "sum")
}

func TestWrapKeepsCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"run `a b c` now":   {"run", "`a b c`", "now"},
		"`a b`, or `c d`":   {"`a b`,", "or", "`c d`"},
		"one ` is not two":  {"one", "`", "is", "not", "two"},
		"  spaces   only  ": {"spaces", "only"},
		"bad \x1b[31m text": {"bad", " [31m", "text"},
		"":                  {},
	} {
		if d := cmp.Diff(want, splitWords(text)); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}
