package install

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// newHost returns a machine whose files are in a folder, and what it prints.
func newHost(t *testing.T, system string, user bool) (h *Host, out *bytes.Buffer) {
	t.Helper()
	out = new(bytes.Buffer)
	h = &Host{app: &app.App{Out: term.Screen{Writer: out}, Err: term.Screen{Writer: out}}, user: user, root: t.TempDir(), home: "/home/ada", config: "/home/ada/.config"}
	uid := 0
	if user {
		uid = 1000
	}
	if system == "linux" {
		testkit.NoError(t, os.MkdirAll(h.path("/run/systemd/system"), 0o700))
	}
	testkit.NoError(t, h.open(system, uid))
	return h, out
}

// newPackaged is newHost with the package of Muster.
func newPackaged(t *testing.T) (h *Host, out *bytes.Buffer) {
	t.Helper()
	h, out = newHost(t, "linux", false)
	writeFile(t, h.path("/usr/lib/systemd/system/muster-worker.service"), "[Service]\n")
	return h, out
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)))
}

func service() *Service {
	return &Service{
		Program: "/opt/my tools/muster", Args: []string{"worker", "--server", "http://10.0.0.5:8700", "--name", `a "b" 50% $HOME <c>`}, Env: []string{"MUSTER_TAGS=x,y", "MUSTER_DATA=/data"},
		Token: "mst_join_secret", Server: "http://10.0.0.5:8700",
	}
}

// TestFiles compares what is written on each kind of machine. The token is not printed.
func TestFiles(t *testing.T) {
	for name, open := range map[string]func() (*Host, *bytes.Buffer){
		"systemd":      func() (*Host, *bytes.Buffer) { return newHost(t, "linux", false) },
		"package":      func() (*Host, *bytes.Buffer) { return newPackaged(t) },
		"systemd-user": func() (*Host, *bytes.Buffer) { return newHost(t, "linux", true) },
		"launchd":      func() (*Host, *bytes.Buffer) { return newHost(t, "darwin", false) },
		"launchd-user": func() (*Host, *bytes.Buffer) { return newHost(t, "darwin", true) },
	} {
		t.Run(name, func(t *testing.T) {
			h, out := open()
			testkit.NoError(t, h.Print(service()))
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				writeFile(t, golden, out.String())
			}
			want, err := os.ReadFile(golden)
			testkit.NoError(t, err)
			if out.String() != string(want) {
				t.Errorf("it is not that of %s (go test -update writes it again):\n%s", golden, out)
			}
			if strings.Contains(out.String(), "mst_join") {
				t.Error("the token is printed")
			}
		})
	}
}

// TestPropertyListsAreXML also checks that the arguments are those of the service.
func TestPropertyListsAreXML(t *testing.T) {
	h, _ := newHost(t, "darwin", true)
	list, err := h.files(service())
	testkit.NoError(t, err)
	var texts []string
	for d := xml.NewDecoder(strings.NewReader(list[0].text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		testkit.NoError(t, err)
		if c, ok := token.(xml.CharData); ok && strings.TrimSpace(string(c)) != "" {
			texts = append(texts, string(c))
		}
	}
	if got, want := strings.Join(texts, "|"), strings.Join(append([]string{"ProgramArguments", service().Program}, service().Args...), "|"); !strings.Contains(got, want) {
		t.Errorf("%s has not %s", got, want)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, system string
		user         bool
		uid          int
		code         muster.Code
		want         string
	}{
		{"no systemd", "linux", false, 0, muster.Invalid, "neither systemd nor launchd"},
		{"another system", "windows", false, 0, muster.Invalid, "neither systemd nor launchd"},
		{"no root", "darwin", false, 1000, muster.Forbidden, "with sudo, or with --user"},
		{"root's own", "darwin", true, 0, muster.Invalid, "run it as that user"},
	} {
		h := &Host{user: tc.user, root: t.TempDir()}
		if err := h.open(tc.system, tc.uid); muster.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	h, _ := newHost(t, "linux", false)
	writeFile(t, h.path("/etc/systemd/system/muster-worker.service"), "[Service]\nExecStart=/usr/local/bin/muster worker\n")
	if err := h.Install(t.Context(), service()); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "remove the file first") {
		t.Errorf("over a unit of the administrator: %v", err)
	}
	if err := h.Uninstall(t.Context()); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("of a unit of the administrator: %v", err)
	}
	if !h.exists("/etc/systemd/system/muster-worker.service") || h.exists("/etc/muster") {
		t.Error("a refused command changed files")
	}
}

// fakeSystemd puts a systemctl and a journalctl on the PATH, which write their arguments to a file; show prints text.
func fakeSystemd(t *testing.T, show, restart string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "calls")
	writeFile(t, filepath.Join(dir, "systemctl"), "#!/bin/sh\necho \"$*\" >>"+file+"\ncase \"$*\" in *restart*) "+restart+";; *show*) printf '"+show+"';; esac\n")
	writeFile(t, filepath.Join(dir, "journalctl"), "#!/bin/sh\necho 'muster: another worker uses the data dir'\n")
	writeFile(t, filepath.Join(dir, "loginctl"), "#!/bin/sh\nexit 1\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, err := os.ReadFile(file)
		testkit.NoError(t, err)
		testkit.NoError(t, os.Remove(file))
		return strings.ReplaceAll(string(b), "\n", "; ")
	}
}

const connected = `ActiveState=active\nStatusText=connected to http://10.0.0.5:8700, 0 tasks running\nNRestarts=0\n`

func TestInstallAndUninstall(t *testing.T) {
	for name, h := range map[string]func() (*Host, *bytes.Buffer){
		"without a package": func() (*Host, *bytes.Buffer) { return newHost(t, "linux", false) },
		"with the package":  func() (*Host, *bytes.Buffer) { return newPackaged(t) },
		"of a user":         func() (*Host, *bytes.Buffer) { return newHost(t, "linux", true) },
	} {
		t.Run(name, func(t *testing.T) {
			h, out := h()
			user := ""
			if h.user {
				user = "--user "
			}
			calls := fakeSystemd(t, connected, ":")
			before := listFiles(t, h.root)
			token := h.path(h.tokenFile())
			for range 2 { // the second replaces the first
				testkit.NoError(t, h.Install(t.Context(), service()))
				want := strings.NewReplacer("USER ", user).Replace("USER daemon-reload; USER enable muster-worker.service; USER restart muster-worker.service; USER show ")
				if got := calls(); !strings.HasPrefix(got, want) {
					t.Errorf("the calls are %q, want %q", got, want)
				}
				if info, err := os.Stat(token); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the token's file: %v (%v)", info, err)
				}
			}
			if !strings.Contains(out.String(), "for the server http://10.0.0.5:8700.") || strings.Contains(out.String(), "enable-linger") != h.user {
				t.Errorf("it prints %s", out)
			}
			// Options change; the worker has joined, and its token stays for a server that forgets it.
			s := service()
			s.Args, s.Token = []string{"worker", "--name", "other"}, ""
			testkit.NoError(t, h.Install(t.Context(), s))
			dropIn, err := os.ReadFile(h.path((&systemd{h}).dropIn()))
			if err != nil || !strings.Contains(string(dropIn), " worker --name other\n") || strings.Contains(string(dropIn), "10.0.0.5") || !strings.Contains(string(dropIn), "worker-join-token") {
				t.Errorf("the drop-in is %s (%v)", dropIn, err)
			}
			calls()
			testkit.NoError(t, h.Uninstall(t.Context()))
			if got, want := calls(), user+"disable --now muster-worker.service; "+user+"daemon-reload; "; got != want {
				t.Errorf("the calls are %q, want %q", got, want)
			}
			if after := listFiles(t, h.root); after != before {
				t.Errorf("it leaves the files %s, before there were %s", after, before)
			}
			if err := h.Uninstall(t.Context()); muster.CodeOf(err) != muster.NotFound {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

func listFiles(t *testing.T, root string) string {
	t.Helper()
	var list []string
	testkit.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, path)
		}
		return err
	}))
	return strings.Join(list, " ")
}

// TestWorkerThatDoesNotStart checks that a failed start is reported with the worker's log, and that the service stays for another try.
func TestWorkerThatDoesNotStart(t *testing.T) {
	for _, tc := range []struct{ name, show, restart, want string }{
		{"the start fails", connected, "echo 'Job for muster-worker.service failed' >&2; exit 1", "restart muster-worker.service failed: exit status 1\n  Job for muster-worker.service failed\n  muster: another worker"},
		{"it fails again and again", `ActiveState=activating\nStatusText=\nNRestarts=1\n`, ":", "another worker uses the data dir"},
		{"it has ended", `ActiveState=failed\nStatusText=\nNRestarts=0\n`, ":", "is not connected (failed)"},
	} {
		h, _ := newHost(t, "linux", false)
		fakeSystemd(t, tc.show, tc.restart)
		err := h.Install(t.Context(), service())
		if muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !h.exists((&systemd{h}).dropIn()) {
			t.Errorf("%s: the service is removed", tc.name)
		}
	}
	h, _ := newHost(t, "linux", false)
	t.Setenv("PATH", t.TempDir())
	if err := h.Install(t.Context(), service()); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "systemctl: it is not on the PATH") {
		t.Errorf("without systemctl: %v", err)
	}
}

// TestUnitQuoting reads quoted words as systemd does: see extract_first_word and cunescape in its source.
func TestUnitQuoting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		special := rapid.Map(rapid.SliceOf(rapid.SampledFrom([]byte(" \\\"'%$;#\n\t\x7f\xc3\xbcx"))), func(b []byte) string { return string(b) })
		word := rapid.OneOf(rapid.String(), special, rapid.StringMatching(`[a-z./:=@-]+`)).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(t, "word")
		quoted := quoteUnit(word)
		if strings.ContainsAny(quoted, "\n\r") {
			t.Fatalf("%q is on several lines", quoted)
		}
		if got := unquote(t, quoted); got != word {
			t.Fatalf("%q is written as %s and read as %q", word, quoted, got)
		}
	})
}

// unquote reads one word of a unit.
func unquote(t *rapid.T, s string) string {
	body, isQuoted := strings.CutPrefix(s, `"`)
	if isQuoted {
		body = body[:len(body)-1]
	} else if strings.ContainsAny(body, " \t'\";\\%#$") || body == "" {
		t.Fatalf("%q needs quotes", s)
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '"':
			t.Fatalf("%q ends early", s)
		case strings.HasPrefix(body[i:], "%%"):
			i++
			b.WriteByte('%')
		case body[i] == '%':
			t.Fatalf("%q has a specifier", s)
		case strings.HasPrefix(body[i:], `\x`):
			n, err := strconv.ParseUint(body[i+2:i+4], 16, 8)
			if err != nil || n == 0 {
				t.Fatalf("%q has a wrong escape: %v", s, err)
			}
			b.WriteByte(byte(n))
			i += 3
		case body[i] == '\\':
			i++
			b.WriteByte(body[i])
		default:
			b.WriteByte(body[i])
		}
	}
	return b.String()
}
