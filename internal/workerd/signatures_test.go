package workerd

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sshsig"
)

func TestTrustedKeysAreReadAtTheStart(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	line := string(ssh.MarshalAuthorizedKey(key))
	for name, c := range map[string]struct{ content, wantErr string }{
		"a key":           {line, ""},
		"no key":          {"# none yet\n", "has no keys for the namespace muster-job"},
		"another purpose": {"ada namespaces=git " + line, "has no keys for the namespace muster-job"},
		"not a key":       {"hello\n", "line 1: not a public key"},
		"too many":        {strings.Repeat(line, maxTrustedKeys+1), "the most is 200"},
		"too long":        {strings.Repeat("#", maxTrustFile+1), "more than"},
	} {
		cfg := Config{TrustKeys: filepath.Join(t.TempDir(), "keys")}
		if err := os.WriteFile(cfg.TrustKeys, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := cfg.readTrustedKeys()
		switch {
		case c.wantErr != "":
			if muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: %v, want …%s…", name, err, c.wantErr)
			}
		case err != nil || len(cfg.Allow.SignedBy) != 1 || cfg.Allow.SignedBy[0] != sshsig.Fingerprint(key):
			t.Errorf("%s: %q, %v", name, cfg.Allow.SignedBy, err)
		}
	}
	missing := Config{TrustKeys: filepath.Join(t.TempDir(), "keys")}
	if err := missing.readTrustedKeys(); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("no file: %v", err)
	}
}
