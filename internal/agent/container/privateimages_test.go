package container

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// password is of the user ann of the registries of this file.
const password = "s3cret-of-ann"

// withSecret is newSpec with a secret for a registry.
func withSecret(image, value string) *run.ContainerSpec {
	b := newSpec(image, "env")
	b.Task.Spec.Secrets = []muster.Secret{{Name: "PULL", Registry: registryHost(image)}}
	b.Task.Secrets = []muster.SecretValue{{Name: "PULL", Value: []byte(value)}}
	return b
}

// TestImageIsPulledWithASecret checks both ways in which registries ask for credentials, and both forms of secrets.
func TestImageIsPulledWithASecret(t *testing.T) {
	basic, token := containertest.NewRegistry(t), containertest.NewRegistry(t)
	basic.RequireAuth("ann", password)
	token.RequireToken("ann", password)
	for scheme, r := range map[string]*containertest.Registry{"basic": basic, "token": token} {
		for form, value := range map[string]string{
			"pair":        "ann:" + password + "\n",
			"config.json": fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, r.Addr, base64.StdEncoding.EncodeToString([]byte("ann:"+password))),
		} {
			t.Run(scheme+", "+form, func(t *testing.T) {
				w := newTestEnv(t, nil)
				ref, _ := pushImage(w, r, "acme/"+strings.ReplaceAll(form, ".", "")+":1", 1000)
				out, code := w.runContainer(withSecret(ref, value))
				if code != 0 || strings.Contains(out+w.lines.String(), password) {
					t.Errorf("exit code %d, output and logs:\n%s\n%s", code, out, &w.lines)
				}
				_, err := w.create(withSecret(ref+"-none", value))
				wantTaskError(t, err, muster.ImageMissing, "the credentials in the secret PULL")
			})
		}
	}
}

// TestPrivateImagesAreForTasksThatMayPullThem checks that an image which was pulled with credentials of a task is used by others only if the
// registry lets them pull it, by whatever name, also after a restart of the worker.
func TestPrivateImagesAreForTasksThatMayPullThem(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	r.RequireAuth("ann", password)
	ref, digest := pushImage(w, r, "acme/private:1", 1000)
	tagImage(t, r, "ann:"+password, "acme/private", "1", "2")
	w.mustCreate(withSecret(ref, "ann:"+password))
	requests := r.Requests("/manifests/")
	w.mustCreate(withSecret(ref, "ann:"+password))
	if n := r.Requests("/manifests/"); n != requests {
		t.Errorf("the registry was asked %d times more for a task with the same credentials", n-requests)
	}
	pinned := strings.TrimSuffix(ref, ":1") + "@" + digest
	refuse := func(w *testEnv) {
		t.Helper()
		for _, name := range []string{ref, pinned, ref + "@" + digest} {
			_, err := w.create(newSpec(name, "true"))
			wantTaskError(t, err, muster.ImageMissing, "registry: "+r.Addr)
			_, err = w.create(withSecret(name, "ann:wrong-password"))
			wantTaskError(t, err, muster.ImageMissing, "the credentials in the secret PULL")
			never := newSpec(name, "true")
			never.Task.Spec.Container = &muster.Container{Pull: muster.PullNever}
			_, err = w.create(never)
			wantTaskError(t, err, muster.ImageMissing, "was pulled with credentials of a task")
		}
	}
	refuse(w)
	again := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir })
	refuse(again)
	again.mustCreate(withSecret(ref, "ann:"+password))

	b, err := os.ReadFile(filepath.Join(w.cfg.Dir, "private-images.json"))
	if err != nil || strings.Contains(string(b), password) || strings.Contains(string(b), "ann") {
		t.Errorf("%v: the record is %s", err, b)
	}
	if info, err := os.Stat(filepath.Join(w.cfg.Dir, "private-images.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	owner := newTestEnv(t, func(c *Config) {
		c.Dir, c.Credentials = w.cfg.Dir, writeAuthFile(t, map[string]string{r.Addr: "ann:" + password})
	})
	owner.mustCreate(newSpec(ref, "true"))
	r.SetFault(containertest.Failing)
	last := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir })
	last.mustCreate(newSpec(ref, "true")) // the worker's own credentials are for all tasks
}

// TestCrashDuringAPrivatePull checks that an image which the engine finished to pull after its worker was killed is private.
func TestCrashDuringAPrivatePull(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/crash:1", 1000)
	r.RequireAuth("ann", password)
	if err := w.private.begin(ref, nil); err != nil { // the last that this process does
		t.Fatal(err)
	}
	if err := w.cfg.Engine.Pull(t.Context(), ref, &docker.Credentials{Username: "ann", Password: password}, func(docker.PullProgress) {}); err != nil {
		t.Fatal(err)
	}
	next := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir })
	_, err := next.create(newSpec(ref, "true"))
	wantTaskError(t, err, muster.ImageMissing)
}

// TestImagesOfTheOwnerAreForAllTasks checks that the pull of a task takes no image from others.
func TestImagesOfTheOwnerAreForAllTasks(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/owned:1", 1000)
	w.mustCreate(newSpec(ref, "true"))
	r.RequireAuth("ann", password)
	b := withSecret(ref, "ann:"+password)
	b.Task.Spec.Container = &muster.Container{Pull: muster.PullAlways}
	w.mustCreate(b)
	w.mustCreate(newSpec(ref, "true"))
}

// denyAtTheCheck returns a worker with a private image, and the name of another repository with its digest, which its engine pulls without asking whether
// the task may have it: earlier versions of Docker 20.10 do so since they have the digest, this one because the registry begins to refuse only when
// the worker asks. unremovable makes the engine keep all names.
func denyAtTheCheck(t *testing.T, unremovable bool) (w *testEnv, private, other string) {
	t.Helper()
	r := containertest.NewRegistry(t)
	w = newTestEnvAt(t, throughProxy(t, containertest.SharedEngine(t), func(answer http.ResponseWriter, q *http.Request) bool {
		switch {
		case strings.Contains(q.URL.Path, "/distribution/"):
			if other != "" && !w.hasImage(other) {
				t.Errorf("the pull did not give the image the name %s", other)
			}
			r.RequireAuth("ann", password)
		case q.Method == http.MethodDelete && strings.Contains(q.URL.Path, "/images/") && unremovable:
			answer.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	}), nil)
	image := containertest.ShellImage(t)
	image.Texts = map[string]string{"/filler": w.cfg.Worker}
	private, digest := r.Push(t, "acme/named:1", image)
	otherTag, same := r.Push(t, "bob/own:1", image)
	if same != digest {
		t.Fatal("the images differ")
	}
	api := containertest.API(t, containertest.SharedEngine(t))
	for _, name := range []string{private, strings.TrimSuffix(private, ":1") + "@" + digest, strings.TrimSuffix(otherTag, ":1") + "@" + digest} {
		t.Cleanup(func() {
			_, _ = api.ImageRemove(context.WithoutCancel(t.Context()), name, client.ImageRemoveOptions{Force: true})
		})
	}
	r.RequireAuth("ann", password)
	w.mustCreate(withSecret(private, "ann:"+password))
	r.RequireAuth("", "")
	return w, private, strings.TrimSuffix(otherTag, ":1") + "@" + digest
}

// refused are tasks that may not have a private image, by their credentials.
var refused = map[string]func(ref string) *run.ContainerSpec{
	"none":  func(ref string) *run.ContainerSpec { return newSpec(ref, "true") },
	"wrong": func(ref string) *run.ContainerSpec { return withSecret(ref, "bob:guess") },
}

// TestRefusedPullsLeaveNoName checks that an image does not keep a name that a pull gave it although the registry does not let the task have it: it
// would be a way to the image when the names of its repository are gone.
func TestRefusedPullsLeaveNoName(t *testing.T) {
	for secret, b := range refused {
		t.Run(secret, func(t *testing.T) {
			w, private, other := denyAtTheCheck(t, false)
			_, err := w.create(b(other))
			wantTaskError(t, err, muster.ImageMissing)
			if w.hasImage(other) || !w.hasImage(private) {
				t.Error("the refused name is there, or the image is not")
			}
			if len(w.private.repos) != 1 {
				t.Errorf("the record has %v", w.private.repos)
			}
			w.mustCreate(withSecret(private, "ann:"+password))
		})
	}
}

// TestANameThatRemainsIsPrivate checks that a name which cannot be removed after a refused pull is no way to the image either.
func TestANameThatRemainsIsPrivate(t *testing.T) {
	for secret, b := range refused {
		t.Run(secret, func(t *testing.T) {
			w, private, other := denyAtTheCheck(t, true)
			_, err := w.create(b(other))
			wantTaskError(t, err, muster.ImageMissing)
			if !strings.Contains(w.lines.String(), "a private image failed") {
				t.Errorf("the log does not mention it:\n%s", &w.lines)
			}
			api := containertest.API(t, containertest.SharedEngine(t))
			if _, err := api.ImageRemove(t.Context(), private, client.ImageRemoveOptions{Force: true}); err != nil { // by the owner
				t.Fatal(err)
			}
			if !w.hasImage(other) {
				t.Fatal("the image has no other name")
			}
			next := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir })
			_, err = next.create(newSpec(other, "true"))
			wantTaskError(t, err, muster.ImageMissing)
			never := newSpec(other, "true")
			never.Task.Spec.Container = &muster.Container{Pull: muster.PullNever}
			_, err = next.create(never)
			wantTaskError(t, err, muster.ImageMissing, "was pulled with credentials of a task")
		})
	}
}

// TestNewNames has the lists of an engine before and after it pulled a digest, which it had, by the name of another repository.
func TestNewNames(t *testing.T) {
	const id, other, digest = "sha256:aa", "sha256:bb", "@sha256:a4617ff0a625e6202d0aa706d0720600f843716098f32dc588c497392f7d2db7"
	before := []docker.ImageSummary{
		{ID: id, Names: []string{"127.0.0.1:5000/acme/named:1", "127.0.0.1:5000/acme/named" + digest}},
		{ID: other, Names: []string{"127.0.0.1:5000/bob/own:1"}},
	}
	after := []docker.ImageSummary{
		{ID: id, Names: []string{
			"127.0.0.1:5000/acme/named:1", "127.0.0.1:5000/acme/named:2", // another pull at the same time
			"127.0.0.1:5000/acme/named" + digest, "127.0.0.1:5000/bob/own" + digest, "127.0.0.1:5000/bob/own:1", // which moved
		}},
		{ID: other, Names: []string{"127.0.0.1:5000/bob/own:2"}},
	}
	if got := newNames("127.0.0.1:5000/bob/own"+digest, id, before, after); !slices.Equal(got, []string{"127.0.0.1:5000/bob/own" + digest}) {
		t.Errorf("new are %v", got)
	}
	if got := newNames("127.0.0.1:5000/acme/named"+digest, id, before, before); got != nil {
		t.Errorf("new are %v", got)
	}
}

func TestDamagedRecordOfPrivateImages(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	r.RequireAuth("ann", password)
	ref, _ := pushImage(w, r, "acme/damaged:1", 1000)
	w.mustCreate(withSecret(ref, "ann:"+password))
	for _, text := range []string{"{torn", "null", `{"x": null}`} {
		if err := os.WriteFile(filepath.Join(w.cfg.Dir, "private-images.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		next := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir })
		if !strings.Contains(next.lines.String(), "all images are pulled again") {
			t.Errorf("the log does not mention it: %s", &next.lines)
		}
		_, err := next.create(newSpec(ref, "true"))
		wantTaskError(t, err, muster.ImageMissing)
		next.mustCreate(withSecret(ref, "ann:"+password))
	}
}

// TestRegistryEchoesCredentials checks that a registry cannot have credentials printed.
func TestRegistryEchoesCredentials(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	r.RequireAuth("ann", password)
	ref, _ := pushImage(w, r, "acme/echo:1", 1000)
	r.SetFault(containertest.Echoing)
	_, err := w.create(withSecret(ref, "ann:"+password))
	wantTaskError(t, err, muster.ImageMissing, "you sent Basic ***, ann with ***")
	if strings.Contains(w.lines.String(), password) {
		t.Errorf("the password was logged:\n%s", &w.lines)
	}
}

// TestRefusedPullsLeaveNoRecord checks that wrong names do not fill the record.
func TestRefusedPullsLeaveNoRecord(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	r.RequireAuth("ann", password)
	for i := range 3 {
		_, err := w.create(withSecret(fmt.Sprintf("%s/acme/none%d:1", r.Addr, i), "ann:"+password))
		wantTaskError(t, err, muster.ImageMissing)
	}
	if len(w.private.repos) != 0 {
		t.Errorf("the record has %v", w.private.repos)
	}
}

func TestSecretCredentials(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-evil"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for value, part := range map[string]string{
		"": "neither", "ann": "neither", ":pw": "neither", "ann:": "neither", "{torn": "neither",
		`{"credsStore": "evil"}`:                               "helpers are not used",
		`{"credHelpers": {"ghcr.io": "evil"}}`:                 "helpers are not used",
		`{"auths": {"quay.io": {"auth": "YW5uOnNlY3JldA=="}}}`: "no credentials for ghcr.io",
		`{"auths": {"ghcr.io": {"auth": "%%"}}}`:               "damaged",
	} {
		if creds, err := secretCredentials([]byte(value), "ghcr.io/acme/x:1"); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, %v: want %s", value, creds, err, part)
		}
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Error("a secret ran a program of the worker")
	}
	creds, err := secretCredentials([]byte("_json_key:{\"a\":\n1}\n"), "docker.io/library/python:3")
	if err != nil || *creds != (docker.Credentials{ServerAddress: dockerHub, Username: "_json_key", Password: "{\"a\":\n1}"}) {
		t.Errorf("%+v, %v", creds, err)
	}
	b := withSecret("127.0.0.1:5000/x:1", "ann:"+password)
	if _, err := newTestAccess(t).taskAccess(b.Task, "evil.dev/x:1"); err == nil {
		t.Error("the credentials are for the registry of another image")
	}
}

func newTestAccess(t *testing.T) *privateImages {
	t.Helper()
	return openPrivateImages(t.TempDir(), nil)
}
