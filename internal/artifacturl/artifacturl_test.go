package artifacturl

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func signer(tb testing.TB) *Signer {
	tb.Helper()
	s, err := New([]byte("a secret of the server"))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestLifetimes checks that a URL is valid for as long as its task may run, within limits.
func TestLifetimes(t *testing.T) {
	s, now := signer(t), time.Now()
	for timeout, want := range map[time.Duration]time.Duration{0: MinTTL, time.Hour: MinTTL, 50 * time.Hour: 50 * time.Hour, 1000 * time.Hour: MaxTTL} {
		u, err := url.Parse(s.ForTask("http://h", muster.TaskID{Job: 1}, "a", "ab", muster.Duration(timeout)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Verify(u, now.Add(want-time.Minute)); err != nil {
			t.Errorf("timeout %s: it is not valid until %s: %v", timeout, want, err)
		}
		if _, err := s.Verify(u, now.Add(want+time.Minute)); muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "expired") {
			t.Errorf("timeout %s: it is valid after %s: %v", timeout, want, err)
		}
	}
}

// FuzzVerify checks that what is signed is verified as it is, and that no other text is valid.
func FuzzVerify(f *testing.F) {
	s := signer(f)
	of := Scope{Task: muster.TaskID{Job: 17, Num: 3}, Name: "plots/my model?&#%.pt", SHA256: strings.Repeat("ab", 32), Expires: muster.NewTime(time.Unix(2_000_000_000, 0))}
	signed := s.URL("https://h:1/", of)
	f.Add(signed)
	f.Add(strings.Replace(signed, "17.3", "17.4", 1))
	f.Add(strings.Replace(signed, "expires=2", "expires=3", 1))
	f.Add(strings.Replace(signed, "sha256=ab", "sha256=ac", 1))
	f.Add(signed + "&expires=9000000000")
	f.Add("https://h:1/api/v1/tasks/17.3/artifacts/x?signature=")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		got, err := s.Verify(u, time.Unix(1_900_000_000, 0))
		if err == nil && got != of {
			t.Errorf("%s is valid for %+v", text, got)
		}
		if text == signed && err != nil {
			t.Error(err)
		}
		if other, _ := New([]byte("another server")); err == nil {
			if _, err := other.Verify(u, time.Unix(1_900_000_000, 0)); err == nil {
				t.Errorf("%s is valid with another key", text)
			}
		}
	})
}
