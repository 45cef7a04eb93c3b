package secrets_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sealing"
	"github.com/muster-dev/muster/internal/secrets"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/testkit"
)

const token = "hf_AbCdEfGhIjKlMnOp"

type fixture struct {
	*sqlite.Store
	dir string
	log bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir()}
	var err error
	if f.Store, err = sqlite.Open(t.Context(), filepath.Join(f.dir, "muster.db"), sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testkit.NoError(t, f.Close()) })
	return f
}

func (f *fixture) config() secrets.Config {
	return secrets.Config{Store: f.Store, KeyFile: f.keyFile(), Log: slog.New(slog.NewTextHandler(&f.log, nil))}
}

func (f *fixture) keyFile() string { return filepath.Join(f.dir, "secrets.key") }

func (f *fixture) keeper(t *testing.T) *secrets.Keeper {
	t.Helper()
	k, err := secrets.New(t.Context(), f.config())
	testkit.NoError(t, err)
	return k
}

func (f *fixture) writeKeys(t *testing.T, keys ...byte) {
	t.Helper()
	var text []byte
	for _, c := range keys {
		text = append(text, hex.EncodeToString(bytes.Repeat([]byte{c}, sealing.KeySize))+"\n"...)
	}
	testkit.NoError(t, os.WriteFile(f.keyFile(), text, 0o600))
}

func set(t *testing.T, k *secrets.Keeper, project, name, value string, workers ...string) secrets.Info {
	t.Helper()
	in, err := k.Set(t.Context(), secrets.Change{Project: project, Name: name, Value: []byte(value), Workers: workers, By: "admin"})
	testkit.NoError(t, err)
	return in
}

func value(k *secrets.Keeper, project, name string, tags ...string) (string, error) {
	values, err := k.Values(project, []muster.Secret{{Name: name}}, tags)
	if err != nil {
		return "", err
	}
	return string(values[0].Value), nil
}

func TestSetListDelete(t *testing.T) {
	f := newFixture(t)
	k := f.keeper(t)
	if _, err := os.Stat(f.keyFile()); err == nil {
		t.Error("there is a key before the first secret")
	}
	set(t, k, "vision", "HF_TOKEN", "the first value")
	second := set(t, k, "vision", "HF_TOKEN", token, "trusted", "gpu", "trusted")
	set(t, k, "vision", "A_KEY", "another value")
	set(t, k, "default", "HF_TOKEN", "of another project")
	if second.Version != 2 || second.UpdatedBy != "admin" || second.UpdatedAt == 0 || !slices.Equal(second.Workers, []string{"gpu", "trusted"}) {
		t.Errorf("%+v", second)
	}
	for range 2 {
		list := k.List("vision")
		if len(list) != 2 || list[0].Name != "A_KEY" || list[1].Name != "HF_TOKEN" || list[1].Problem != "" || list[1].UpdatedAt != second.UpdatedAt {
			t.Errorf("%+v", list)
		}
		if got, err := value(k, "vision", "HF_TOKEN", "trusted", "cpu", "gpu"); got != token || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := value(k, "vision", "HF_TOKEN", "trusted"); muster.CodeOf(err) != muster.Forbidden || got != "" || !strings.Contains(err.Error(), "the tag gpu") {
			t.Errorf("without a tag: %q, %v", got, err)
		}
		k = f.keeper(t)
	}
	testkit.NoError(t, k.Delete(t.Context(), "vision", "HF_TOKEN"))
	for range 2 {
		_, err := value(k, "vision", "HF_TOKEN", "trusted", "gpu")
		if muster.CodeOf(err) != muster.NotFound || !strings.Contains(err.Error(), "muster secrets set HF_TOKEN --project vision") {
			t.Errorf("after its deletion: %v", err)
		}
		if err := k.Delete(t.Context(), "vision", "HF_TOKEN"); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
		if got, err := value(k, "default", "HF_TOKEN"); got != "of another project" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		k = f.keeper(t)
	}
}

func TestRefusedValues(t *testing.T) {
	k := newFixture(t).keeper(t)
	for _, c := range []struct {
		name, value, workers string
		code                 muster.Code
		problem              string
	}{
		{"1TOKEN", token, "", muster.Invalid, "is not a name of a secret"},
		{"A-B", token, "", muster.Invalid, "is not a name"},
		{"", token, "", muster.Invalid, "is not a name"},
		{strings.Repeat("A", 65), token, "", muster.Invalid, "is not a name"},
		{"MUSTER_TOKEN", token, "", muster.Invalid, "Muster's own variables"},
		{"A", "", "", muster.Invalid, "the value of A is empty"},
		{"A", "\n \n", "", muster.Invalid, "is empty"},
		{"A", " 1234567\n", "", muster.Invalid, "has 7 bytes, a secret has at least 8"},
		{"A", strings.Repeat("x", muster.MaxSecretSize+1), "", muster.TooLarge, "is larger than 64KiB"},
		{"A", "12345678\x00", "", muster.Invalid, "is not text"},
		{"A", "12345678\xff", "", muster.Invalid, "is not text"},
		{"A", token, "a tag", muster.Invalid, "is not a tag"},
		{"A", token, "a\nb", muster.Invalid, "is not a tag"},
	} {
		change := secrets.Change{Project: "p", Name: c.name, Value: []byte(c.value)}
		if c.workers != "" {
			change.Workers = []string{c.workers}
		}
		_, err := k.Set(t.Context(), change)
		if muster.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), token) {
			t.Errorf("%q = %.20q: %v", c.name, c.value, err)
		}
	}
	if list := k.List("p"); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	for i := range muster.MaxSecrets {
		set(t, k, "p", fmt.Sprint("A", i), token)
	}
	if _, err := k.Set(t.Context(), secrets.Change{Project: "p", Name: "B", Value: []byte(token)}); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("one too many: %v", err)
	}
	set(t, k, "p", "A0", "another value")
	set(t, k, "q", "B", token)
}

// After a rotation all secrets are sealed with the new key, so that the old one can be removed.
func TestRotation(t *testing.T) {
	f := newFixture(t)
	f.writeKeys(t, 1)
	set(t, f.keeper(t), "p", "A", token)
	f.writeKeys(t, 2, 1)
	f.keeper(t)
	f.writeKeys(t, 2)
	k := f.keeper(t)
	if got, err := value(k, "p", "A"); got != token || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if in := k.List("p")[0]; in.Version != 1 || in.UpdatedBy != "admin" {
		t.Errorf("the rotation changed %+v", in)
	}
	f.writeKeys(t, 1)
	if _, err := value(f.keeper(t), "p", "A"); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("with the old key: %v", err)
	}
}

// A missing key is not replaced by a new one while there are secrets, which it could not open.
func TestMissingKey(t *testing.T) {
	f := newFixture(t)
	set(t, f.keeper(t), "p", "A", token)
	key, err := os.ReadFile(f.keyFile())
	testkit.NoError(t, err)
	testkit.NoError(t, os.Remove(f.keyFile()))
	k := f.keeper(t)
	_, err = value(k, "p", "A")
	if muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), f.keyFile()+" is missing: restore it") {
		t.Errorf("value: %v", err)
	}
	if in := k.List("p")[0]; !strings.Contains(in.Problem, "is missing") {
		t.Errorf("%+v", in)
	}
	if _, err := k.Set(t.Context(), secrets.Change{Project: "p", Name: "B", Value: []byte(token)}); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("set: %v", err)
	}
	if _, err := os.Stat(f.keyFile()); err == nil {
		t.Fatal("a new key was made")
	}
	if !strings.Contains(f.log.String(), "secrets cannot be read") {
		t.Errorf("logged: %s", f.log.String())
	}

	// It is read as soon as it is there again.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	testkit.NoError(t, os.WriteFile(f.keyFile(), key, 0o600))
	testkit.NoError(t, <-done)
	if got, err := value(k, "p", "A"); got != token || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	// Without the old secrets there may be a new key.
	testkit.NoError(t, os.Remove(f.keyFile()))
	k = f.keeper(t)
	testkit.NoError(t, k.Delete(t.Context(), "p", "A"))
	set(t, k, "p", "B", token)
}

func TestDamagedKeyFile(t *testing.T) {
	f := newFixture(t)
	set(t, f.keeper(t), "p", "A", token)
	testkit.NoError(t, os.WriteFile(f.keyFile(), []byte("junk\n"), 0o600))
	if _, err := value(f.keeper(t), "p", "A"); muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "is not a key of secrets, 64 hexadecimal digits") {
		t.Errorf("%v", err)
	}
}

// The key may come from a command, such as one of a key management service.
func TestKeyCommand(t *testing.T) {
	f := newFixture(t)
	cfg := f.config()
	cfg.KeyCommand = "echo " + strings.Repeat("ab", sealing.KeySize)
	k, err := secrets.New(t.Context(), cfg)
	testkit.NoError(t, err)
	set(t, k, "p", "A", token)
	if _, err := os.Stat(f.keyFile()); err == nil {
		t.Error("there is a key file")
	}
	cfg.KeyCommand = "echo 'access denied' >&2; exit 1"
	k, err = secrets.New(t.Context(), cfg)
	testkit.NoError(t, err)
	if _, err := value(k, "p", "A"); muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("%v", err)
	}
}

// A value is bound to its row: one that was copied to another project, another name, an earlier version or other workers is not read.
func TestSwappedRows(t *testing.T) {
	f := newFixture(t)
	k := f.keeper(t)
	set(t, k, "p", "A", token, "trusted")
	rows, err := f.Secrets(t.Context())
	testkit.NoError(t, err)
	for name, change := range map[string]func(*store.Secret){
		"project": func(s *store.Secret) { s.Project = "q" },
		"name":    func(s *store.Secret) { s.Name = "B" },
		"version": func(s *store.Secret) { s.Version++ },
		"workers": func(s *store.Secret) { s.Workers = nil },
		"value":   func(s *store.Secret) { s.Sealed = append(bytes.Clone(s.Sealed[:len(s.Sealed)-1]), 0) },
		"short":   func(s *store.Secret) { s.Sealed = []byte{} },
	} {
		row := rows[0]
		change(&row)
		testkit.NoError(t, f.PutSecret(t.Context(), row))
		got, err := value(f.keeper(t), row.Project, row.Name, "trusted")
		if muster.CodeOf(err) != muster.Unavailable || got != "" || !strings.Contains(err.Error(), "it is damaged") {
			t.Errorf("another %s: %q, %v", name, got, err)
		}
		testkit.NoError(t, f.PutSecret(t.Context(), rows[0]))
	}
	if got, err := value(f.keeper(t), "p", "A", "trusted"); got != token || err != nil {
		t.Errorf("unchanged: %q, %v", got, err)
	}
}

func TestValuesInNoText(t *testing.T) {
	v := muster.SecretValue{Name: "A", Value: []byte(token)}
	list := []muster.SecretValue{v}
	if text := fmt.Sprintf("%v %+v %#v %s %v %#v %+v", v, v, v, v, list, list, &v); strings.Contains(text, token) || strings.Contains(text, "104, 102") {
		t.Errorf("%s", text)
	}
}
