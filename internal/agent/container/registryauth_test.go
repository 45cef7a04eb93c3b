package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// helper writes a credential helper, docker-credential-NAME, to the PATH. It keeps credentials for one
// server, and answers others as those of github.com/docker/docker-credential-helpers do.
func helper(t *testing.T, name, server, user, secret string) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
read server
if [ "$server" = %q ]; then echo '{"ServerURL":"%s","Username":"%s","Secret":"%s"}'; exit 0; fi
echo "credentials not found in native keychain"; exit 1
`, server, server, user, secret)
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestRegistryAuth(t *testing.T) {
	helper(t, "box", "ghcr.io", "bob", "from-box")
	helper(t, "store", "https://index.docker.io/v1/", "<token>", "of-the-hub")
	helper(t, "broken", "", "", "")
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{
		"auths": {
			"quay.io": {"auth": "YW5uOnNlY3JldA=="},
			"https://registry.acme.dev": {"username": "eve", "password": "two"},
			"quay.io/acme": {"auth": "YWNtZTpvdGhlcg=="},
			"old.acme.dev": {"identitytoken": "idtok", "auth": "YW5uOg=="},
			"ghcr.io": {},
			"damaged.dev": {"auth": "%%"}
		},
		"credHelpers": {"ghcr.io": "box", "absent.dev": "no-such-program"},
		"credsStore": "store"
	}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := newRegistryAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]*docker.Credentials{
		"quay.io/other/tool:1":           {ServerAddress: "quay.io", Username: "ann", Password: "secret"},
		"quay.io/acme/tool:1":            {ServerAddress: "quay.io/acme", Username: "acme", Password: "other"},
		"registry.acme.dev/tool:1":       {ServerAddress: "https://registry.acme.dev", Username: "eve", Password: "two"},
		"old.acme.dev/tool:1":            {ServerAddress: "old.acme.dev", Username: "ann", IdentityToken: "idtok"},
		"ghcr.io/acme/tool:1":            {ServerAddress: "ghcr.io", Username: "bob", Password: "from-box"},
		"docker.io/library/python:3":     {ServerAddress: "https://index.docker.io/v1/", IdentityToken: "of-the-hub"},
		"nobody.dev/tool:1":              nil,
		"quay.io.evil.dev/other/tool:1":  nil,
		"evil.dev/quay.io/other/tool:1":  nil,
		"registry.acme.dev:5000/tool:1":  nil,
		"127.0.0.1:5000/quay.io/acme/x:": nil,
	} {
		got, err := k.credentials(t.Context(), ref)
		switch {
		case err != nil:
			t.Errorf("%s: %v", ref, err)
		case (got == nil) != (want == nil), got != nil && *got != *want:
			t.Errorf("%s: %+v, want %+v", ref, got, want)
		}
	}
	for ref, part := range map[string]string{"absent.dev/x:1": "docker-credential-no-such-program", "damaged.dev/x:1": "log in again"} {
		if _, err := k.credentials(t.Context(), ref); !errors.Is(err, errRegistryAuth) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v: want %s", ref, err, part)
		}
	}
}

func TestRegistryAuthOfTheUser(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
	}
	k, err := newRegistryAuth("")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.credentials(t.Context(), "quay.io/x:1"); got != nil || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	write := func(path string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(`{"auths": {"quay.io": {"auth": "YW5uOnNlY3JldA=="}}}`), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{".config/containers/auth.json", ".docker/config.json"} {
		path = filepath.Join(home, path)
		write(path)
		if got, err := k.credentials(t.Context(), "quay.io/x:1"); err != nil || got == nil || got.Username != "ann" {
			t.Errorf("with %s: %v, %v", path, got, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newRegistryAuth(filepath.Join(home, "none.json")); err == nil || !strings.Contains(err.Error(), "--registry-config") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestHangingHelperTimesOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-hangs"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	k := &registryAuth{helperTimeout: 50_000_000}
	if _, err := k.runHelper(context.WithoutCancel(t.Context()), "hangs", "quay.io"); !errors.Is(err, errRegistryAuth) || !strings.Contains(err.Error(), "longer than 50ms") {
		t.Errorf("%v", err)
	}
}
