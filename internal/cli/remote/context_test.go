package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func down(string) bool    { return false }
func running(string) bool { return true }

func TestSavedContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "context.json")
	t.Setenv("MUSTER_CONFIG", path)
	s, err := LoadContext()
	if err != nil {
		t.Fatal(err)
	}
	s.Record(Server{URL: "http://a:1", Token: "ta", JoinToken: "ja", Data: "/a"}, down)
	s.Record(Server{URL: "http://b:2", Token: "tb", Data: "/b"}, down)
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v), want mode 0600", info.Mode(), err)
	}
	if s, err = LoadContext(); err != nil {
		t.Fatal(err)
	}
	// A server that starts again does not know its tokens, and its port may be another one.
	again, current := s.Record(Server{URL: "http://a:9", Data: "/a"}, down)
	if want := (Server{Name: "a:9", URL: "http://a:9", Token: "ta", JoinToken: "ja", Data: "/a"}); again != want || s.Current != want.URL || !current {
		t.Errorf("started again it is %+v, want %+v", again, want)
	}
	if _, ok := s.Find("http://a:1"); ok {
		t.Error("the old address is still saved")
	}
	for i := range 3 * maxServers {
		s.Record(Server{URL: fmt.Sprintf("http://c:%d", i+1), Data: fmt.Sprintf("/%d", i)}, down)
	}
	if len(s.Servers) != maxServers {
		t.Errorf("%d servers are saved, want at most %d", len(s.Servers), maxServers)
	}
}

func TestRecordWhileAnotherServerRuns(t *testing.T) {
	var s SavedContext
	first := Server{URL: "http://127.0.0.1:8700", Data: "/a"}
	second := Server{URL: "http://127.0.0.1:21130", Data: "/b"}
	if saved, current := s.Record(first, running); !current || saved.Name != "127.0.0.1" {
		t.Errorf("the first server: %+v, current %t", saved, current)
	}
	if saved, current := s.Record(second, running); current || s.Current != first.URL || saved.Name != "127.0.0.1:21130" {
		t.Errorf("a second server while the first one runs: %+v, current %t", saved, current)
	}
	if _, current := s.Record(second, down); !current || s.Current != second.URL {
		t.Errorf("a second server while the first one does not run is not current: %s", s.Current)
	}
	// The current server starts again, on another port.
	moved := Server{URL: "http://127.0.0.1:21131", Data: "/b"}
	if _, current := s.Record(moved, running); !current || s.Current != moved.URL {
		t.Errorf("the current server on another port is not current: %s", s.Current)
	}
}

func TestChosenContextStays(t *testing.T) {
	var s SavedContext
	if _, err := s.Login(Server{URL: "http://lab:8700", Token: "t"}); err != nil {
		t.Fatal(err)
	}
	local := Server{URL: "http://127.0.0.1:8700", Data: "/a"}
	if _, current := s.Record(local, down); current || s.Current != "http://lab:8700" {
		t.Errorf("a local server replaced the chosen one: %s", s.Current)
	}
	if _, err := s.Use("127.0.0.1"); err != nil || s.Current != local.URL {
		t.Errorf("the current server is %s (%v)", s.Current, err)
	}
	if _, err := s.Delete("127.0.0.1:8700"); err != nil || s.Current != "" {
		t.Errorf("after a deletion the current server is %s (%v)", s.Current, err)
	}
	if _, err := s.Lookup(""); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "muster context use") {
		t.Errorf("without a current server: %v", err)
	}
	if _, current := s.Record(local, running); !current {
		t.Error("a local server is not current although none is")
	}
	for _, err := range []error{
		func() error { _, err := s.Use("nowhere"); return err }(),
		func() error { _, err := s.Delete("nowhere"); return err }(),
	} {
		if muster.CodeOf(err) != muster.NotFound {
			t.Errorf("an unknown context: %v", err)
		}
	}
}

// A login of a server of this machine, and its next start, have one entry with all tokens.
func TestLoginOfALocalServer(t *testing.T) {
	var s SavedContext
	s.Record(Server{URL: "http://127.0.0.1:8700", Token: "admin", JoinToken: "join", Data: "/a"}, down)
	saved, err := s.Login(Server{URL: "http://127.0.0.1:8700", Token: "own", Name: "here"})
	want := Server{Name: "here", URL: "http://127.0.0.1:8700", Token: "own", JoinToken: "join", Data: "/a"}
	if err != nil || saved != want || len(s.Servers) != 1 {
		t.Errorf("%+v of %d, want %+v (%v)", saved, len(s.Servers), want, err)
	}
	if saved, current := s.Record(Server{URL: "http://127.0.0.1:8700", Data: "/a"}, down); saved != want || !current {
		t.Errorf("after a restart %+v, want %+v", saved, want)
	}
	// The same, for a login before the server's first start by this user.
	var other SavedContext
	if _, err := other.Login(Server{URL: "http://127.0.0.1:8700", Token: "own"}); err != nil {
		t.Fatal(err)
	}
	if saved, _ := other.Record(Server{URL: "http://127.0.0.1:8700", Data: "/a"}, down); saved.Token != "own" || len(other.Servers) != 1 {
		t.Errorf("%+v", other.Servers)
	}
}

func TestLoginNames(t *testing.T) {
	var s SavedContext
	for _, c := range []struct {
		server Server
		name   string
	}{
		{Server{URL: "http://lab:8700"}, "lab"},
		{Server{URL: "https://lab"}, "https://lab"}, // the default name is taken
		{Server{URL: "http://lab:9000", Name: "test"}, "test"},
		{Server{URL: "http://lab:9000"}, "test"},
		{Server{URL: "http://lab:9000", Name: "test2"}, "test2"},
	} {
		if got, err := s.Login(c.server); err != nil || got.Name != c.name {
			t.Errorf("%+v has the name %q (%v), want %q", c.server, got.Name, err, c.name)
		}
	}
	if _, err := s.Login(Server{URL: "http://other:1", Name: "lab"}); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("the name of another server: %v", err)
	}
	for _, name := range []string{"", "a b", "-a", ".", "http://x", "ä", strings.Repeat("a", 101)} {
		if CheckName(name) == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	for _, name := range []string{"a", "lab-2", "10.0.0.5:21100"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestLoginsAreNotEvicted(t *testing.T) {
	var s SavedContext
	for i := range 2 * maxServers {
		if _, err := s.Login(Server{URL: fmt.Sprintf("http://c:%d", i+1), Token: "t"}); err != nil {
			t.Fatal(err)
		}
		s.Record(Server{URL: fmt.Sprintf("http://d:%d", i+1), Data: fmt.Sprintf("/%d", i)}, down)
	}
	if len(s.Servers) != 3*maxServers {
		t.Errorf("%d servers are saved", len(s.Servers))
	}
}

// Files of earlier versions have no names.
func TestOldFilesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "context.json")
	t.Setenv("MUSTER_CONFIG", path)
	old := `{"current":"http://127.0.0.1:8700","servers":[{"url":"http://127.0.0.1:21100","token":"a"},{"url":"http://127.0.0.1:8700","token":"b"},{"url":"https://127.0.0.1:8700"}]}`
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadContext()
	if err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{"": "http://127.0.0.1:8700", "127.0.0.1": "http://127.0.0.1:8700", "127.0.0.1:21100": "http://127.0.0.1:21100", "https://127.0.0.1:8700": "https://127.0.0.1:8700"} {
		if got, err := s.Lookup(name); err != nil || got.URL != url || got.Name == "" {
			t.Errorf("%q is %+v (%v), want %s", name, got, err, url)
		}
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"lab": "http://lab:8700", "lab:21100": "http://lab:21100", "127.0.0.1:21100": "http://127.0.0.1:21100", "http://lab": "http://lab",
		"https://Muster.Example/": "https://muster.example", "HTTP://lab:80//": "http://lab:80", "::1": "http://[::1]:8700", "[::1]:9": "http://[::1]:9",
		"https://host/muster/": "https://host/muster", " lab ": "http://lab:8700",
	} {
		if got, err := ParseURL(in); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "/", "ftp://x", "http://", "http://user@x", "http://x?a=b", "http://x#a", "x:99999", "x:0", "x:", "a b", "unix:///run/x", "http://x:y"} {
		if got, err := ParseURL(in); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q is %q (%v)", in, got, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"lab", "http://lab:80/x", "::1", "[::1]:9", "x:y", "%zz", "http://a@b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseURL(s)
		if err != nil {
			return
		}
		again, err := ParseURL(got)
		if err != nil || again != got {
			t.Errorf("%q is %q, and that is %q (%v)", s, got, again, err)
		}
	})
}
