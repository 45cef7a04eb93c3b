package dtf

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
)

func TestOptionsAreRead(t *testing.T) {
	for option, value := range map[string]string{"simulated": "yes", "tasks": "all", "grace": "5s", "batch": "0", "security": "/nowhere", "secret-file": "/nowhere"} {
		if _, err := readSettings(dialect.Config{Options: map[string]string{option: value}}); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s=%s: %v", option, value, err)
		}
	}
	s, err := readSettings(dialect.Config{Options: map[string]string{"simulated": "allow", "tasks": "muster", "grace": "1m", "batch": "8"}})
	if err != nil || !s.simulated || s.passThrough || s.grace != time.Minute || s.batch != 8 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRegistryFiles(t *testing.T) {
	for text, want := range map[string]string{
		`{"coordinators":["http://a:8080","https://b/"]}`: "http://a:8080 https://b/",
		`["http://a"]`:                       "http://a",
		"# both\nhttp://a\n\n http://b:1 \n": "http://a http://b:1",
		``:                                   "",
	} {
		got, err := parseRegistry([]byte(text))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{`{"coordinators":5}`, `[1]`, "ftp://a", `["a"]`} {
		if _, err := parseRegistry([]byte(bad)); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	path := filepath.Join(t.TempDir(), "made.json")
	for range 2 {
		if got, err := loadRegistry(path, []string{"http://a"}); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// What is read is a list of URLs that can be connected to.
func FuzzParseRegistry(f *testing.F) {
	f.Add([]byte(`{"coordinators":["http://a"]}`))
	f.Add([]byte("http://a\n#x\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseRegistry(raw)
		if err != nil {
			return
		}
		for _, url := range list {
			if _, err := socketURL(url); err != nil {
				t.Fatalf("%q: %q", raw, url)
			}
		}
	})
}
