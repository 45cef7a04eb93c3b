package webhook

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sealing"
)

// The first line of the key file seals and signs; the other ones read what they sealed, and sign in addition until they are removed.
func TestSeveralKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "webhook.key")
	const older, newer = "0f", "a1"
	open := func(keys ...string) *Sender {
		t.Helper()
		var text []byte
		for _, k := range keys {
			text = append(text, strings.Repeat(k, sealing.KeySize)+"\n"...)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := New(t.Context(), Config{KeyFile: file})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	secretOf := func(w *Sender) string {
		t.Helper()
		secret, err := w.Secret("p")
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	before := open(older)
	list := []muster.Notify{{URL: "https://hooks.example/services/x", Secret: "the secret"}}
	sealed, err := before.Seal(list)
	if err != nil {
		t.Fatal(err)
	}

	both := open(newer, older)
	plain, err := both.Unseal(sealed)
	if err != nil || plain[0].URL != list[0].URL {
		t.Fatalf("with both keys: %v, %v", plain, err)
	}
	if secretOf(both) == secretOf(before) {
		t.Error("the secret of the project is that of the older key")
	}
	secrets, err := both.keys.projectSecrets("p")
	if err != nil || !slices.Equal(secrets, []string{secretOf(both), secretOf(before)}) {
		t.Fatalf("a delivery is signed with %q, %v", secrets, err)
	}
	signatures := func(secrets ...string) []string {
		t.Helper()
		h := http.Header{}
		if err := sign(h, secrets, "m1", time.Unix(1, 0), bytes.Repeat([]byte("x"), 10)); err != nil {
			t.Fatal(err)
		}
		return strings.Fields(h.Get(headerSignature))
	}
	if got, want := signatures(secrets...), append(signatures(secretOf(both)), signatures(secretOf(before))...); !slices.Equal(got, want) {
		t.Errorf("signatures %q, want %q", got, want)
	}

	again, err := both.Seal(plain)
	if err != nil {
		t.Fatal(err)
	}
	after := open(newer)
	if plain, err := after.Unseal(again); err != nil || plain[0].URL != list[0].URL {
		t.Errorf("sealed again: %v, %v", plain, err)
	}
	if _, err := after.Unseal(sealed); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("sealed with a removed key: %v, want Invalid", err)
	}
}
