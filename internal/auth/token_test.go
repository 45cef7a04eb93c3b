package auth_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/auth"
)

func TestFingerprintOfATokenDoesNotChangeItsKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.StringMatching(`[!-~]{16,60}`).Draw(t, "token")
		pin := rapid.StringMatching(`[a-z2-7]{52}`).Draw(t, "pin")
		if _, own := auth.SplitToken(token); own != "" {
			t.Skip("the token has a fingerprint")
		}
		pinned := auth.WithPin(token, pin)
		if gotToken, gotPin := auth.SplitToken(pinned); gotToken != token || gotPin != pin {
			t.Fatalf("SplitToken(%q) = %q, %q", pinned, gotToken, gotPin)
		}
		if auth.Hash(pinned) != auth.Hash(token) || auth.CheckToken(pinned) != nil {
			t.Fatalf("%q is another key than %q, or none", pinned, token)
		}
		if again := auth.WithPin(pinned, pin); again != pinned {
			t.Fatalf("a second fingerprint makes %q", again)
		}
	})
	pin := strings.Repeat("a", 52)
	for _, whole := range []string{"", "mst_join_x", "mst_join_x.ca", "mst_join_x.ca" + pin[1:], "mst_join_x.ca" + pin[1:] + "A", "mst_join_x.ca" + pin[1:] + "8", "mst_join_x.cb" + pin} {
		if token, got := auth.SplitToken(whole); token != whole || got != "" {
			t.Errorf("SplitToken(%q) = %q, %q", whole, token, got)
		}
	}
	if auth.WithPin("", pin) != "" || auth.WithPin("mst_join_x", "") != "mst_join_x" {
		t.Error("WithPin invents a token or a fingerprint")
	}
}

func TestPrefix(t *testing.T) {
	random := "abcdefgh" + strings.Repeat("2", 24)
	for token, want := range map[string]string{
		"mst_admin_" + random: "mst_admin_abcd",
		"mst_join_" + random + ".ca" + strings.Repeat("b", 52): "mst_join_abcd",
		"mst_admin_" + random[1:]:                              "",
		"mst_root_" + random:                                   "",
		"xyz_admin_" + random:                                  "",
		"a-secret-that-a-user-chose":                           "",
		"mst_admin_a-secret-that-a-user-chose":                 "",
		strings.Repeat("a", 32):                                "",
		"":                                                     "",
	} {
		if got := auth.Prefix(token); got != want {
			t.Errorf("Prefix(%q) = %q, want %q", token, got, want)
		}
	}
	if token := auth.NewToken(auth.Viewer, [auth.RandomBytes]byte{1}); auth.Prefix(token) != token[:len("mst_viewer_")+4] {
		t.Errorf("Prefix(%q) = %q", token, auth.Prefix(token))
	}
}

// FuzzToken reads arbitrary headers: what is split from it is a part of it, and only a fingerprint of the right form is.
func FuzzToken(f *testing.F) {
	pin := strings.Repeat("a", 52)
	for _, s := range []string{"", "Bearer ", "Bearer mst_admin_x", "bearer  mst_join_x.ca" + pin, "Basic x", "Bearer .ca" + pin, "Bearer x.ca" + pin + ".ca" + pin} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		whole := auth.Bearer(header)
		if !strings.Contains(header, whole) {
			t.Fatalf("Bearer(%q) = %q", header, whole)
		}
		token, fingerprint := auth.SplitToken(whole)
		switch {
		case fingerprint == "" && token != whole, fingerprint != "" && token+".ca"+fingerprint != whole:
			t.Fatalf("SplitToken(%q) = %q, %q", whole, token, fingerprint)
		case fingerprint != "" && (len(fingerprint) != 52 || strings.Trim(fingerprint, "abcdefghijklmnopqrstuvwxyz234567") != ""):
			t.Fatalf("the fingerprint of %q is %q", whole, fingerprint)
		}
		if auth.CheckToken(token) == nil && (len(token) > auth.MaxToken || strings.ContainsAny(token, " \r\n\x00\x1b")) {
			t.Fatalf("%q is a usable token", token)
		}
		if again, _ := auth.SplitToken(auth.WithPin(token, pin)); fingerprint == "" && token != "" && again != token {
			t.Fatalf("with a fingerprint the token of %q is %q", token, again)
		}
	})
}
