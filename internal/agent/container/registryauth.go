package container

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// registryAuth reads the registry credentials of the worker's user from the file of docker login or podman login. It reads the file for
// each pull, so that a login needs no restart.
type registryAuth struct {
	path          string // "" for the user's file
	helperTimeout time.Duration
}

// errRegistryAuth means that the credentials are misconfigured.
var errRegistryAuth = errors.New("the worker's credentials for registries cannot be used")

// newRegistryAuth returns an error if path is set and cannot be read.
func newRegistryAuth(path string) (*registryAuth, error) {
	k := &registryAuth{path: path, helperTimeout: 20 * time.Second}
	if path == "" {
		return k, nil
	}
	if _, err := k.read(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "--registry-config: %w", err)
	}
	return k, nil
}

// authFile is the part of Docker's config.json about registries.
type authFile struct {
	Auths   map[string]docker.Credentials `json:"auths"`       // with user:password in base64 as Auth
	Helpers map[string]string             `json:"credHelpers"` // programs by registries: docker-credential-NAME
	Store   string                        `json:"credsStore"`  // the same for all others
}

// read returns the file, an empty one if the user has none.
func (k *registryAuth) read() (*authFile, error) {
	f := &authFile{}
	for _, path := range k.paths() {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && k.path == "" {
			continue
		}
		if err == nil {
			if err = json.Unmarshal(b, f); err == nil {
				return f, nil
			}
			err = fmt.Errorf("%s is not a config.json of Docker: %w", path, err)
		}
		return nil, err
	}
	return f, nil
}

func (k *registryAuth) paths() []string {
	if k.path != "" {
		return []string{k.path}
	}
	under := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	home, _ := os.UserHomeDir()
	list := []string{
		under(cmp.Or(os.Getenv("DOCKER_CONFIG"), under(home, ".docker")), "config.json"), os.Getenv("REGISTRY_AUTH_FILE"),
		under(os.Getenv("XDG_RUNTIME_DIR"), "containers/auth.json"), under(home, ".config/containers/auth.json"),
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// credentials returns the credentials for the registry of an image, nil for none.
func (k *registryAuth) credentials(ctx context.Context, ref string) (*docker.Credentials, error) {
	f, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRegistryAuth, err)
	}
	names := authNames(ref)
	for _, name := range names {
		if helper := f.Helpers[name]; helper != "" {
			return k.runHelper(ctx, helper, name)
		}
	}
	if creds, err := f.stored(ref); creds != nil || err != nil {
		return creds, err
	}
	if f.Store == "" {
		return nil, nil //nolint:nilnil // no credentials, which most registries allow
	}
	return k.runHelper(ctx, f.Store, serverAddress(ref))
}

// serverAddress returns the name of an image's registry in Docker's files.
func serverAddress(ref string) string {
	if host := registryHost(ref); host != "docker.io" {
		return host
	}
	return dockerHub
}

// authNames returns the names that the registry of an image may have in a file, the best match first.
func authNames(ref string) []string {
	host := registryHost(ref)
	names := []string{host, "https://" + host, "http://" + host, "https://" + host + "/v1/", "https://" + host + "/v2/"}
	if host == "docker.io" {
		names = []string{dockerHub, "docker.io", "index.docker.io", "https://index.docker.io", "registry-1.docker.io"}
	}
	name, _, _ := muster.ParseImage(ref)
	for prefix := name; strings.Contains(prefix, "/"); prefix = prefix[:strings.LastIndex(prefix, "/")] {
		names = append([]string{prefix}, names...) // Podman's file may have credentials for a path in a registry
	}
	return names
}

// stored returns the credentials that the file itself has for the registry of an image, nil for none.
func (f *authFile) stored(ref string) (*docker.Credentials, error) {
	for _, name := range authNames(ref) {
		if a, ok := f.Auths[name]; ok && (a.Auth != "" || a.Username != "" || a.IdentityToken != "") {
			creds := &docker.Credentials{ServerAddress: name, Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken}
			if a.Auth == "" {
				return creds, nil
			}
			pair, err := base64.StdEncoding.DecodeString(strings.TrimRight(a.Auth, "\x00"))
			user, password, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("%w: the entry of docker login for %s is damaged: log in again", errRegistryAuth, registryHost(ref))
			}
			creds.Username, creds.Password = user, strings.TrimRight(password, "\x00")
			return creds, nil
		}
	}
	return nil, nil //nolint:nilnil // no credentials
}

// dockerHub is the name of Docker Hub in Docker's files.
const dockerHub = "https://index.docker.io/v1/"

// runHelper runs a credential helper; github.com/docker/docker-credential-helpers has the protocol.
func (k *registryAuth) runHelper(ctx context.Context, helper, server string) (*docker.Credentials, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.helperTimeout, fmt.Errorf("it took longer than %s", k.helperTimeout))
	defer cancel()
	name := "docker-credential-" + helper
	cmd := exec.CommandContext(ctx, name, "get")
	cmd.Stdin = strings.NewReader(server + "\n")
	cmd.WaitDelay = time.Second
	var out bytes.Buffer // the secret: never log it
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if strings.Contains(out.String(), "credentials not found") {
			return nil, nil //nolint:nilnil // no credentials
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s failed for %s: %w", errRegistryAuth, name, server, err)
	}
	reply := struct {
		Username string `json:"Username"`
		Secret   string `json:"Secret"`
	}{}
	if json.Unmarshal(out.Bytes(), &reply) != nil {
		return nil, fmt.Errorf("%w: %s returned invalid output", errRegistryAuth, name)
	}
	if reply.Username == "<token>" {
		return &docker.Credentials{ServerAddress: server, IdentityToken: reply.Secret}, nil
	}
	return &docker.Credentials{ServerAddress: server, Username: reply.Username, Password: reply.Secret}, nil
}
