package container

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// keys are the credentials for registries that a worker's user has, in the file of docker login,
// or that of podman login. The file is read for each pull: who logs in need not restart the worker.
type keys struct {
	path  string // "" for the user's own
	helps time.Duration
}

// errKeys is why credentials cannot be had: the worker's own setup is wrong.
var errKeys = errors.New("the worker's credentials for registries cannot be used")

// newKeys checks that the file is there, if one is named.
func newKeys(path string) (*keys, error) {
	k := &keys{path: path, helps: 20 * time.Second}
	if path == "" {
		return k, nil
	}
	if _, err := k.read(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "--registry-config: %w", err)
	}
	return k, nil
}

// keyFile is Docker's config.json, as far as it concerns registries.
type keyFile struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // user:password in base64
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
	Helpers map[string]string `json:"credHelpers"` // programs by registries: docker-credential-NAME
	Store   string            `json:"credsStore"`  // the same for all others
}

// read returns the file, an empty one if the user has none.
func (k *keys) read() (*keyFile, error) {
	f := &keyFile{}
	for _, path := range k.paths() {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && k.path == "" {
			continue
		}
		if err == nil {
			if err = json.Unmarshal(b, f); err == nil {
				return f, nil
			}
			err = fmt.Errorf("%s is no config.json of Docker: %w", path, err)
		}
		return nil, err
	}
	return f, nil
}

// paths lists where the file may be.
func (k *keys) paths() []string {
	if k.path != "" {
		return []string{k.path}
	}
	var list []string
	home, _ := os.UserHomeDir()
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		list = append(list, filepath.Join(dir, "config.json"))
	} else if home != "" {
		list = append(list, filepath.Join(home, ".docker", "config.json"))
	}
	if file := os.Getenv("REGISTRY_AUTH_FILE"); file != "" {
		list = append(list, file)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, filepath.Join(dir, "containers", "auth.json"))
	}
	if home != "" {
		list = append(list, filepath.Join(home, ".config", "containers", "auth.json"))
	}
	return list
}

// of returns what is shown to the registry of an image, nil for nothing.
func (k *keys) of(ctx context.Context, ref string) (*docker.Credentials, error) {
	f, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	host := registry(ref)
	names := []string{host, "https://" + host, "http://" + host, "https://" + host + "/v1/", "https://" + host + "/v2/"}
	if host == "docker.io" {
		names = []string{dockerHub, "docker.io", "index.docker.io", "https://index.docker.io", "registry-1.docker.io"}
	}
	name, _, _ := muster.ParseImage(ref)
	for part := name; strings.Contains(part, "/"); part = part[:strings.LastIndex(part, "/")] {
		names = append([]string{part}, names...) // Podman's file may have one for a part of a registry
	}
	for _, name := range names {
		if helper := f.Helpers[name]; helper != "" {
			return k.ask(ctx, helper, name)
		}
	}
	for _, name := range names {
		if a, ok := f.Auths[name]; ok && (a.Auth != "" || a.Username != "" || a.IdentityToken != "") {
			as := &docker.Credentials{Server: name, Username: a.Username, Password: a.Password, Token: a.IdentityToken}
			if a.Auth == "" {
				return as, nil
			}
			pair, err := base64.StdEncoding.DecodeString(strings.TrimRight(a.Auth, "\x00"))
			user, password, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("%w: what docker login kept for %s is damaged: log in again", errKeys, host)
			}
			as.Username, as.Password = user, strings.TrimRight(password, "\x00")
			return as, nil
		}
	}
	if f.Store == "" {
		return nil, nil //nolint:nilnil // there are none, which most registries allow
	}
	server := host
	if host == "docker.io" {
		server = dockerHub
	}
	return k.ask(ctx, f.Store, server)
}

// dockerHub is how Docker calls its own registry in its files.
const dockerHub = "https://index.docker.io/v1/"

// ask asks a helper: see github.com/docker/docker-credential-helpers for what they say.
func (k *keys) ask(ctx context.Context, helper, server string) (*docker.Credentials, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.helps, fmt.Errorf("it took longer than %s", k.helps))
	defer cancel()
	name := "docker-credential-" + helper
	cmd := exec.CommandContext(ctx, name, "get")
	cmd.Stdin = strings.NewReader(server + "\n")
	cmd.WaitDelay = time.Second
	var out bytes.Buffer // never shown: it is the secret
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if strings.Contains(out.String(), "credentials not found") {
			return nil, nil //nolint:nilnil // there are none
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s failed for %s: %w", errKeys, name, server, err)
	}
	said := struct {
		Username string `json:"Username"`
		Secret   string `json:"Secret"`
	}{}
	if json.Unmarshal(out.Bytes(), &said) != nil {
		return nil, fmt.Errorf("%w: %s did not say what helpers say", errKeys, name)
	}
	if said.Username == "<token>" {
		return &docker.Credentials{Server: server, Token: said.Secret}, nil
	}
	return &docker.Credentials{Server: server, Username: said.Username, Password: said.Secret}, nil
}
