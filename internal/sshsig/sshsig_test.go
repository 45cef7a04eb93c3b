package sshsig

import (
	"bytes"
	"crypto/dsa" //nolint:staticcheck // to be refused
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

const namespace = "muster-job"

func newSigner(tb testing.TB, key any, err error) ssh.Signer {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newEd25519(tb testing.TB) ssh.Signer {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return newSigner(tb, key, err)
}

func ecdsaKey(curve elliptic.Curve) (any, error) { return ecdsa.GenerateKey(curve, rand.Reader) }

func rsaKey(bits int) (any, error) { return rsa.GenerateKey(rand.Reader, bits) }

func TestSignedMessagesVerify(t *testing.T) {
	signers := map[string]ssh.Signer{"ed25519": newEd25519(t)}
	for name, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()} {
		key, err := ecdsaKey(curve)
		signers[name] = newSigner(t, key, err)
	}
	key, err := rsaKey(2048)
	signers["rsa"] = newSigner(t, key, err)
	for name, signer := range signers {
		t.Run(name, func(t *testing.T) {
			armored, err := Sign(rand.Reader, signer, namespace, []byte("a job"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(armored)
			if err != nil {
				t.Fatal(err)
			}
			if Fingerprint(s.Key) != Fingerprint(signer.PublicKey()) {
				t.Error("another key")
			}
			if err := s.Verify(namespace, []byte("a job")); err != nil {
				t.Error(err)
			}
			if err := s.Verify(namespace, []byte("another job")); err == nil {
				t.Error("another message verifies")
			}
			if err := s.Verify("git", []byte("a job")); err == nil || !strings.Contains(err.Error(), `namespace "muster-job"`) {
				t.Errorf("another namespace: %v", err)
			}
			other := *s
			other.Key = newEd25519(t).PublicKey()
			if err := other.Verify(namespace, []byte("a job")); err == nil {
				t.Error("another key verifies")
			}
		})
	}
}

// sha1RSA signs with SHA-1, as old agents do.
type sha1RSA struct{ ssh.Signer }

func TestWeakKeysAreRefused(t *testing.T) {
	weak, err := rsaKey(1024)
	if err != nil {
		t.Skip("this Go makes no weak keys: ", err)
	}
	if _, err := Sign(rand.Reader, newSigner(t, weak, nil), namespace, nil); err == nil || !strings.Contains(err.Error(), "1024 bits") {
		t.Errorf("a short RSA key: %v", err)
	}
	strong, err := rsaKey(2048)
	signer := newSigner(t, strong, err)
	if _, err := Sign(rand.Reader, sha1RSA{signer}, namespace, nil); err == nil || !strings.Contains(err.Error(), "SHA-1") {
		t.Errorf("an agent with SHA-1: %v", err)
	}
	data := signedData(namespace, hashSHA512, []byte("x"))
	old, err := signer.Sign(rand.Reader, data) // ssh-rsa
	if err != nil {
		t.Fatal(err)
	}
	s := &Signature{Key: signer.PublicKey(), Namespace: namespace, hash: hashSHA512, sig: old}
	if err := s.Verify(namespace, []byte("x")); err == nil || !strings.Contains(err.Error(), `"ssh-rsa"`) {
		t.Errorf("a signature with SHA-1: %v", err)
	}
	for bits, want := range map[uint]string{16384: "", 16385: "16385 bits"} {
		public, err := ssh.NewPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits-1), E: 65537})
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckKey(public); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("an RSA key of %d bits: %v", bits, err)
		}
	}
	var k dsa.PrivateKey
	if err := dsa.GenerateParameters(&k.Parameters, rand.Reader, dsa.L1024N160); err != nil {
		t.Fatal(err)
	}
	if err := dsa.GenerateKey(&k, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if public, err := ssh.NewPublicKey(&k.PublicKey); err == nil && CheckKey(public) == nil {
		t.Error("a DSA key is accepted")
	}
	cert := &ssh.Certificate{Key: newEd25519(t).PublicKey(), CertType: ssh.UserCert}
	if err := cert.SignCert(rand.Reader, newEd25519(t)); err != nil {
		t.Fatal(err)
	}
	if CheckKey(cert) == nil {
		t.Error("a certificate is accepted")
	}
}

func TestDamagedSignaturesAreErrors(t *testing.T) {
	armored, err := Sign(rand.Reader, newEd25519(t), namespace, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(armored)
	change := func(f func(*envelope)) []byte {
		var e envelope
		if err := ssh.Unmarshal(block.Bytes[len(magic):], &e); err != nil {
			t.Fatal(err)
		}
		f(&e)
		return armor(append([]byte(magic), ssh.Marshal(e)...))
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"nothing":         {nil, "not an SSH signature"},
		"other PEM":       {bytes.ReplaceAll(armored, []byte("SSH"), []byte("PGP")), "not an SSH signature"},
		"text before":     {append([]byte("x\n"), armored...), "not an SSH signature"},
		"text behind":     {append(bytes.Clone(armored), "x"...), "not an SSH signature"},
		"no magic":        {armor(block.Bytes[1:]), "damaged"},
		"cut":             {armor(block.Bytes[:len(block.Bytes)-1]), "damaged"},
		"longer":          {armor(append(bytes.Clone(block.Bytes), 0)), "damaged"},
		"another version": {change(func(e *envelope) { e.Version = 2 }), "version 2"},
		"a weak hash":     {change(func(e *envelope) { e.Hash = "sha1" }), `hash "sha1"`},
		"no key":          {change(func(e *envelope) { e.PublicKey = nil }), "key"},
		"more behind":     {change(func(e *envelope) { e.Signature = append(e.Signature, 1) }), "damaged"},
		"too long":        {bytes.Repeat([]byte("x"), MaxSize+1), "more than"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", name, err, c.want)
		}
	}
}

func keygen(t *testing.T, in string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen: ", err)
	}
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func noPassphrase(string) (string, error) { return "", errors.New("asked for a passphrase") }

// Signatures pass between this package and ssh-keygen in both directions, with each type of key.
func TestInteroperatesWithSSHKeygen(t *testing.T) {
	for _, args := range [][]string{{"ed25519"}, {"ecdsa", "-b", "256"}, {"ecdsa", "-b", "384"}, {"ecdsa", "-b", "521"}, {"rsa", "-b", "2048"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			dir := t.TempDir()
			key := filepath.Join(dir, "key")
			keygen(t, "", append([]string{"-q", "-N", "", "-C", "ada@example.com", "-f", key, "-t"}, args...)...)
			signer, release, err := OpenSigner(t.Context(), key, noPassphrase)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			public, err := os.ReadFile(key + ".pub")
			if err != nil {
				t.Fatal(err)
			}
			trusted, err := ParseTrusted(public, namespace)
			if err != nil || len(trusted) != 1 || Fingerprint(trusted[0].Key) != Fingerprint(signer.PublicKey()) || trusted[0].Comment != "ada@example.com" {
				t.Fatalf("%v, %v", trusted, err)
			}

			armored, err := Sign(rand.Reader, signer, namespace, []byte("our message"))
			if err != nil {
				t.Fatal(err)
			}
			sig := writeFile(t, filepath.Join(dir, "ours.sig"), string(armored))
			signers := writeFile(t, filepath.Join(dir, "signers"), "ada@example.com "+string(public))
			out := keygen(t, "our message", "-Y", "verify", "-n", namespace, "-f", signers, "-I", "ada@example.com", "-s", sig)
			if !strings.Contains(out, "Good") {
				t.Errorf("ssh-keygen says %s", out)
			}

			message := writeFile(t, filepath.Join(dir, "message"), "their message")
			keygen(t, "", "-Y", "sign", "-q", "-n", namespace, "-f", key, message)
			theirs, err := os.ReadFile(message + ".sig")
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(theirs)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(namespace, []byte("their message")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPassphrases(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	keygen(t, "", "-q", "-N", "correct horse", "-t", "ed25519", "-f", key)
	t.Setenv("SSH_AUTH_SOCK", "")
	if _, _, err := OpenSigner(t.Context(), key, noPassphrase); err == nil || err.Error() != "asked for a passphrase" {
		t.Errorf("without a terminal: %v", err)
	}
	if _, _, err := OpenSigner(t.Context(), key, func(string) (string, error) { return "wrong", nil }); err == nil || !strings.Contains(err.Error(), "wrong passphrase") {
		t.Errorf("a wrong passphrase: %v", err)
	}
	prompt := ""
	_, release, err := OpenSigner(t.Context(), key, func(p string) (string, error) { prompt = p; return "correct horse", nil })
	if err != nil || !strings.Contains(prompt, key) {
		t.Fatalf("%v after the prompt %q", err, prompt)
	}
	release()
	if _, _, err := OpenSigner(t.Context(), key+".pub", noPassphrase); err == nil || !strings.Contains(err.Error(), "SSH_AUTH_SOCK is not set") {
		t.Errorf("a public key without an agent: %v", err)
	}
	if _, _, err := OpenSigner(t.Context(), writeFile(t, key+".txt", "hello"), noPassphrase); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("not a key: %v", err)
	}
}

// A key that only ssh-agent has signs: by its public key, and for its locked file without the passphrase.
func TestKeysOfAnAgent(t *testing.T) {
	if _, err := exec.LookPath("ssh-agent"); err != nil {
		t.Skip("no ssh-agent: ", err)
	}
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	t.Setenv("SSH_AUTH_SOCK", socket)
	key := filepath.Join(dir, "key")
	keygen(t, "", "-q", "-N", "", "-t", "rsa", "-b", "2048", "-f", key)
	var out []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if out, err = exec.CommandContext(t.Context(), "ssh-add", "-q", key).CombinedOutput(); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("ssh-add: %v\n%s", err, out)
	}
	keygen(t, "", "-q", "-p", "-P", "", "-N", "correct horse", "-f", key)
	for _, path := range []string{key, key + ".pub"} {
		signer, release, err := OpenSigner(t.Context(), path, noPassphrase)
		if err != nil {
			t.Fatal(err)
		}
		armored, err := Sign(rand.Reader, signer, namespace, []byte("x"))
		release()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(armored)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(namespace, []byte("x")); err != nil {
			t.Error(err)
		}
	}
	keygen(t, "", "-q", "-N", "", "-t", "ed25519", "-f", key+"2")
	if _, _, err := OpenSigner(t.Context(), key+"2.pub", noPassphrase); err == nil || !strings.Contains(err.Error(), "ssh-add") {
		t.Errorf("a key that the agent does not have: %v", err)
	}
}

func TestParseTrusted(t *testing.T) {
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(newEd25519(t).PublicKey())))
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		line    string
		keys    int
		comment string
		invalid []string // times at which the key is not valid
		valid   []string
		wantErr string
	}{
		"a public key":         {line: public + " ada", keys: 1, comment: "ada", valid: []string{"1980-01-01T00:00:00Z"}},
		"without a comment":    {line: public, keys: 1},
		"comments and blanks":  {line: "# hello\n\n  \n" + public, keys: 1},
		"two":                  {line: public + "\n" + public, keys: 2},
		"an allowed signer":    {line: "ada@example.com,bob " + public, keys: 1, comment: "ada@example.com,bob"},
		"its namespace":        {line: `ada namespaces="git,muster-*" ` + public, keys: 1, comment: "ada"},
		"another namespace":    {line: `ada namespaces="git" ` + public},
		"validity":             {line: `ada valid-after="20260101Z",valid-before=202602010000Z ` + public, keys: 1, comment: "ada", invalid: []string{"2025-12-31T23:59:59Z", "2026-02-01T00:00:00Z"}, valid: []string{"2026-01-01T00:00:00Z", "2026-01-31T23:59:59Z"}},
		"not a time":           {line: "ada valid-before=tomorrow " + public, wantErr: "line 1: valid-before: \"tomorrow\" is not a time"},
		"an authority":         {line: "ada cert-authority " + public, wantErr: "cert-authority is not supported"},
		"a restricted login":   {line: "restrict " + public, wantErr: "restrict is not supported"},
		"a login's address":    {line: `from="10.0.0.0/8" ` + public, wantErr: "not supported before a key"},
		"a negated principal":  {line: "!ada " + public, wantErr: "not supported before a key"},
		"a negated namespace":  {line: `ada namespaces="!muster-job" ` + public, wantErr: "unsupported pattern"},
		"a DSA key":            {line: "ssh-dss AAAAB3NzaC1kc3MAAACBAA==", wantErr: "line 1: "},
		"half a key":           {line: "\n" + public[:len(public)/2], wantErr: "line 2: not a public key"},
		"options without key":  {line: "ada namespaces=git", wantErr: "not a public key"},
		"a security token key": {line: "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIKXeEuI9OQiAqG3kZ6Nf5yZPKxJBJ1hTDR0u3RSZXYZ8AAAABHNzaDo=", wantErr: "not accepted"},
	} {
		keys, err := ParseTrusted([]byte(c.line), namespace)
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: %v, want …%s…", name, err, c.wantErr)
			}
			continue
		}
		if err != nil || len(keys) != c.keys {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
			continue
		}
		if c.keys > 0 && keys[0].Comment != c.comment {
			t.Errorf("%s: the comment is %q", name, keys[0].Comment)
		}
		for _, s := range c.invalid {
			if keys[0].ValidAt(at(s)) == nil {
				t.Errorf("%s: valid at %s", name, s)
			}
		}
		for _, s := range c.valid {
			if err := keys[0].ValidAt(at(s)); err != nil {
				t.Errorf("%s: %v at %s", name, err, s)
			}
		}
	}
}

// FuzzSignature holds that no change of a signature, other than of its armor, verifies.
func FuzzSignature(f *testing.F) {
	signer := newEd25519(f)
	message := []byte("a job")
	armored, err := Sign(rand.Reader, signer, namespace, message)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(armored)
	f.Add([]byte(armorBegin))
	block, _ := pem.Decode(armored)
	f.Add(armor(block.Bytes[:30]))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if err := s.Verify(namespace, message); err != nil {
			return
		}
		if bytes.Equal(s.Key.Marshal(), signer.PublicKey().Marshal()) {
			if b, _ := pem.Decode(text); !bytes.Equal(b.Bytes, block.Bytes) {
				t.Fatalf("a changed signature verifies: %q", text)
			}
		}
	})
}

func FuzzTrustedKeys(f *testing.F) {
	f.Add([]byte(`ada namespaces="muster-job",valid-before=20260101 ` + string(ssh.MarshalAuthorizedKey(newEd25519(f).PublicKey()))))
	f.Add([]byte("# none\nssh-ed25519 AAAA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseTrusted(text, namespace)
		if err == nil && len(keys) > bytes.Count(text, []byte("\n"))+1 {
			t.Fatalf("%d keys in %q", len(keys), text)
		}
		for i := range keys {
			if err := CheckKey(keys[i].Key); err != nil {
				t.Fatal(err)
			}
		}
	})
}
