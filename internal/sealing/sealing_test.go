package sealing

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/testkit"
)

func key(c byte) []byte { return bytes.Repeat([]byte{c}, KeySize) }

func newBox(tb testing.TB, keys ...[]byte) *Box {
	tb.Helper()
	b, err := New(keys)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestBoxOpensWhatItSealed(t *testing.T) {
	b, other := newBox(t, key(1)), newBox(t, key(2))
	rapid.Check(t, func(t *rapid.T) {
		text, context := rapid.SliceOf(rapid.Byte()).Draw(t, "text"), rapid.String().Draw(t, "context")
		sealed := b.Seal(text, context)
		if got, err := b.Open(sealed, context); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%q, %v", got, err)
		}
		if len(sealed) != len(text)+Overhead || len(text) > 8 && bytes.Contains(sealed, text) || !bytes.Equal(sealed, b.Seal(text, context)) {
			t.Errorf("%x", sealed)
		}
		if _, err := b.Open(sealed, context+"x"); !errors.Is(err, ErrDamaged) {
			t.Errorf("with another context: %v", err)
		}
		if bytes.Equal(b.Seal(text, context+"x")[idSize:][:24], sealed[idSize:][:24]) {
			t.Error("the nonce is the same with another context")
		}
		if _, err := other.Open(sealed, context); !errors.Is(err, ErrOtherKey) {
			t.Errorf("with another key: %v", err)
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "position")
		changed := bytes.Clone(sealed)
		changed[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if got, err := b.Open(changed, context); err == nil {
			t.Errorf("with another byte %d: %q", i, got)
		}
		if got, err := b.Open(sealed[:i], context); err == nil {
			t.Errorf("cut to %d bytes: %q", i, got)
		}
	})
}

// The context is not ambiguous: a part of it cannot be moved into the text.
func TestContextIsSeparate(t *testing.T) {
	b := newBox(t, key(1))
	if bytes.Equal(b.Seal([]byte("bc"), "a")[idSize:][:24], b.Seal([]byte("c"), "ab")[idSize:][:24]) {
		t.Error("the nonces are equal")
	}
}

func TestRotation(t *testing.T) {
	before := newBox(t, key(1)).Seal([]byte("text"), "c")
	both := newBox(t, key(2), key(1))
	if got, err := both.Open(before, "c"); err != nil || string(got) != "text" || both.Current(before) {
		t.Errorf("%q, %v, current %v", got, err, both.Current(before))
	}
	again := both.Seal([]byte("text"), "c")
	after := newBox(t, key(2))
	if got, err := after.Open(again, "c"); err != nil || string(got) != "text" || !after.Current(again) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := after.Open(before, "c"); !errors.Is(err, ErrOtherKey) {
		t.Errorf("without the older key: %v", err)
	}
	if _, err := New(nil); err == nil {
		t.Error("a Box without a key")
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	src := Source{File: path, Name: "secrets key", IfLost: "set the secrets again"}
	created, err := LoadKeys(t.Context(), src)
	if err != nil || len(created) != 1 || len(created[0]) != KeySize {
		t.Fatalf("%v, %v", created, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, err := LoadKeys(t.Context(), src); err != nil || !bytes.Equal(again[0], created[0]) {
		t.Errorf("read again: %v, %v", again, err)
	}
	valid := strings.Repeat("ab", KeySize)
	for _, c := range []struct {
		name, text string
		keys       int
		problem    string
	}{
		{"two keys", "\n" + valid + "\r\n  " + strings.Repeat("AB", KeySize) + "\n\n", 2, ""},
		{"empty", "\n", 0, "line 1 of the file " + path},
		{"short", valid + "\n" + valid[2:] + "\n", 0, "line 2 of the file"},
		{"an empty line between", valid + "\n\n" + valid, 0, "line 2 of the file"},
		{"not hexadecimal", strings.Repeat("xy", KeySize), 0, "is not a secrets key, 64 hexadecimal digits: restore it from a backup, or set the secrets again"},
		{"too much", strings.Repeat(valid+"\n", 2000), 0, "line 1"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := LoadKeys(t.Context(), src)
		if len(keys) != c.keys || (err == nil) != (c.problem == "") {
			t.Errorf("%s: %d keys, %v", c.name, len(keys), err)
		}
		if err != nil && (muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "abab")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if keys, err := LoadKeys(t.Context(), src); err == nil {
		t.Errorf("a folder: %v", keys)
	}
	src.File = filepath.Join(path, "missing", "file")
	if keys, err := LoadKeys(t.Context(), src); err == nil {
		t.Errorf("in a folder that does not exist: %v", keys)
	}
}

func TestKeyCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are those of a POSIX shell")
	}
	valid, half := strings.Repeat("0f", KeySize), strings.Repeat("0f", KeySize/2)
	for _, c := range []struct {
		name, command string
		keys          int
		code          muster.Code
		problem       string
	}{
		{"a key", "echo " + valid, 1, "", ""},
		{"two keys", "printf '%s\n%s' " + valid + " " + strings.ToUpper(valid), 2, "", ""},
		{"it fails", "echo 'no credentials\x1b[2J' >&2; echo more >&2; exit 3", 0, muster.Unavailable, "the command that prints the secrets key failed (exit status 3): no credentials [2J"},
		{"it fails after printing a key", "echo " + valid + "; exit 1", 0, muster.Unavailable, "failed (exit status 1): it printed no error"},
		{"it is missing", "muster-no-such-program decrypt", 0, muster.Unavailable, "muster-no-such-program"},
		{"junk", "echo '{\"Plaintext\": 1}'", 0, muster.Invalid, "line 1 of the output of the command that prints the secrets key is not a key"},
		{"a part of a key", "echo " + half, 0, muster.Invalid, "line 1"},
		{"a key and junk", "echo " + valid + "; echo " + half, 0, muster.Invalid, "line 2"},
		{"nothing", "true", 0, muster.Invalid, "line 1"},
		{"too much", "yes " + valid + " | head -n 100000", 0, muster.Invalid, "line 1"},
		{"it is killed", "kill -9 $$", 0, muster.Unavailable, "failed (signal: killed)"},
		{"its child holds its output open", "sleep 5 & echo " + valid, 1, "", ""},
	} {
		keys, err := LoadKeys(t.Context(), Source{File: "/nonexistent", Command: c.command, Name: "secrets key"})
		if len(keys) != c.keys || (err == nil) != (c.code == "") {
			t.Errorf("%s: %d keys, %v", c.name, len(keys), err)
		}
		if err != nil && (muster.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "0f0f") || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, k := range keys {
			if hex.EncodeToString(k) != valid {
				t.Errorf("%s: %x", c.name, k)
			}
		}
	}
}

// A command that hangs is killed with all that it started.
func TestHangingKeyCommand(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found in /proc")
	}
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	keys, err := LoadKeys(ctx, Source{Command: "sleep 1000 & echo $! > " + pid + "; wait", Name: "secrets key"})
	if muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "did not end within") || keys != nil {
		t.Errorf("%v, %v", keys, err)
	}
	child, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the end of its child", func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || bytes.Contains(state, []byte(") Z "))
	})
}

// FuzzOpen opens arbitrary bytes: only what Seal returned can be opened.
func FuzzOpen(f *testing.F) {
	b := newBox(f, key(1), key(2))
	old := newBox(f, key(2))
	f.Add(b.Seal([]byte("text"), "context"), "context")
	f.Add(old.Seal(nil, ""), "")
	f.Add(b.Seal([]byte("text"), "context")[:Overhead], "context")
	f.Add([]byte(nil), "")
	f.Fuzz(func(t *testing.T, sealed []byte, context string) {
		text, err := b.Open(sealed, context)
		switch {
		case err == nil && !bytes.Equal(b.Seal(text, context), sealed) && !bytes.Equal(old.Seal(text, context), sealed):
			t.Fatalf("%x opens as %q", sealed, text)
		case err != nil && (text != nil || !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOtherKey)):
			t.Fatalf("%q, %v", text, err)
		}
	})
}
