package remote

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

func TestSelectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Selector{Job: muster.JobID(rapid.Int64Range(1, 1<<40).Draw(t, "job"))}
		for range rapid.IntRange(0, 4).Draw(t, "spans") {
			first := rapid.IntRange(0, 1<<20).Draw(t, "first")
			want.Spans = append(want.Spans, client.Span{First: first, Last: first + rapid.IntRange(0, 9).Draw(t, "more")})
		}
		got, err := ParseSelector(want.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s reads back as something else:\n%s", want, diff)
		}
		num := rapid.IntRange(0, 1<<20).Draw(t, "num")
		inside := want.Spans == nil
		for _, s := range want.Spans {
			inside = inside || s.First <= num && num <= s.Last
		}
		if want.Contains(&muster.TaskID{Job: want.Job, Num: num}) != inside || want.Contains(&muster.TaskID{Job: want.Job + 1, Num: num}) || want.Contains(nil) {
			t.Fatalf("%s does not know whether it has task %d", want, num)
		}
	})
}

func FuzzSelector(f *testing.F) {
	for _, s := range []string{"17", "17.3", "17.0-9,12", "last", "last.3", "17.3#2", "0", "-1", "17.", "17.9-1", "017", "17_57", "last_1-9", "17.train", "17.train.5", "17.a.lr=0.1,s=2", "17_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelector(s)
		if err != nil {
			if muster.CodeOf(err) != muster.Invalid {
				t.Fatalf("%q: %v is not Invalid", s, err)
			}
			return
		}
		if sel.Job == 0 {
			if !strings.HasPrefix(s, "last") {
				t.Fatalf("%q has no job", s)
			}
			sel.Job = 1
		}
		again, err := ParseSelector(sel.String())
		if err != nil || !cmp.Equal(sel, again) {
			t.Fatalf("%q is %s, and that is %v (%v)", s, sel, again, err)
		}
	})
}

func TestSelectorErrors(t *testing.T) {
	for s, want := range map[string]string{
		"": "is not a job or task", "x": "is not a job or task", "0": "is not a job or task", "17.": "is not a job or task", "17.a.": "is not a job or task", "17_": "is not a job or task", "17.ä": "is not a job or task", "17.1,2-": "is not a job or task",
		"17.5-2": "is not a job or task", "017": "is not a job or task", "17.3#2": "--attempt 2", "17_3#2": "use 17_3",
	} {
		if _, err := ParseSelector(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", s, err, want)
		}
	}
}

func TestTokenIsSentOnlyToItsServer(t *testing.T) {
	t.Setenv("MUSTER_CONFIG", filepath.Join(t.TempDir(), "context.json"))
	t.Setenv("MUSTER_TOKEN", "")
	t.Setenv("MUSTER_SERVER", "")
	if got, err := (&ServerOptions{}).Resolve(); err != nil || got.URL != DefaultServer || got.Token != "" {
		t.Errorf("without anything: %+v, %v", got, err)
	}
	var s SavedContext
	for _, server := range []Server{{URL: "http://a:1", Token: "ta"}, {URL: "http://10.0.0.5:8700", Name: "evil", Token: "te"}, {URL: "http://b:2", Token: "tb"}} {
		if _, err := s.Login(server); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("in a file\nand more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args       []string
		url, token string
	}{
		{nil, "http://b:2", "tb"},
		{[]string{"--server", "http://a:1/"}, "http://a:1", "ta"},
		{[]string{"--server", "a:1"}, "http://a:1", "ta"},
		{[]string{"--server", "http://evil:1"}, "http://evil:1", ""},
		{[]string{"--server", "evil"}, "http://10.0.0.5:8700", "te"},
		{[]string{"--server", "http://evil:8700"}, "http://evil:8700", ""},
		{[]string{"--server", "evil:8700"}, "http://evil:8700", ""},
		{[]string{"--server", "https://a:1"}, "https://a:1", ""},
		{[]string{"--server", "http://evil:1", "--token", "given"}, "http://evil:1", "given"},
		{[]string{"--token", "given"}, "http://b:2", "given"},
		{[]string{"--token-file", file}, "http://b:2", "in a file"},
	} {
		var r ServerOptions
		cmd := &cli.Command{Flags: r.Flags(), Action: func(context.Context, *cli.Command) error { return nil }}
		if err := cmd.Run(t.Context(), append([]string{"muster"}, c.args...)); err != nil {
			t.Fatal(err)
		}
		got, err := r.Resolve()
		if err != nil || got.URL != c.url || got.Token != c.token {
			t.Errorf("%q: %s with %q (%v), want %s with %q", c.args, got.URL, got.Token, err, c.url, c.token)
		}
	}
}

func TestConnectNamesOtherServers(t *testing.T) {
	t.Setenv("MUSTER_CONFIG", filepath.Join(t.TempDir(), "context.json"))
	r := &ServerOptions{URL: "http://127.0.0.1:1"}
	unreachable := func() string {
		c, err := r.Connect()
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Workers(t.Context())
		if muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("got %v", err)
		}
		return err.Error()
	}
	const hint = "muster context list"
	if text := unreachable(); strings.Contains(text, hint) {
		t.Errorf("without other servers: %s", text)
	}
	s := SavedContext{Servers: []Server{{URL: "http://a:1"}, {URL: "http://b:1"}}}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	if text := unreachable(); !strings.Contains(text, hint) {
		t.Errorf("with other servers: %s", text)
	}
}
