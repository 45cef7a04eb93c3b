//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// hubKind downloads a file of a gated model as the clients of the hub do: from HF_ENDPOINT, with HF_TOKEN, into HF_HOME.
const hubKind = `#!/usr/bin/env python3
import json, os, urllib.request
path = "org/gated/resolve/main/config.json"
request = urllib.request.Request(os.environ["HF_ENDPOINT"] + "/" + path)
if os.environ.get("HF_TOKEN"):
    request.add_header("Authorization", "Bearer " + os.environ["HF_TOKEN"])
print("sending", request.headers, flush=True)
target = os.path.join(os.environ["HF_HOME"], path)
os.makedirs(os.path.dirname(target), exist_ok=True)
with urllib.request.urlopen(request) as answer, open(target, "wb") as f:
    f.write(answer.read())
with open(target) as f, open(os.path.join(os.environ["MUSTER_OUT"], "result.json"), "w") as out:
    json.dump({"config": json.load(f), "token": os.environ.get("HF_TOKEN")}, out)
`

// TestKindUsesTheTokenOfAHub checks that a kind which uses models downloads a gated one with the secret HF_TOKEN, which is neither in its
// log nor in its result, and not without it.
func TestKindUsesTheTokenOfAHub(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 for a kind")
	}
	const token = "hf_AbCdEfGhIjKlMnOp"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/org/gated/resolve/main/config.json" || r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("X-Error-Code", "GatedRepo")
			http.Error(w, "gated", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"layers": 3}`))
	}))
	t.Cleanup(hub.Close)
	kinds := t.TempDir()
	dir := filepath.Join(kinds, "hubtest")
	if err := errors.Join(
		os.Chmod(filepath.Dir(kinds), 0o755), os.Chmod(kinds, 0o755), os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "kind.yaml"), []byte("name: hubtest\nabout: Download a model.\nentry: [./main.py]\nmodels: true\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "main.py"), []byte(hubKind), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir(), "--kinds-dir", kinds)
	if _, err := c.Client.SetSecret(t.Context(), "default", "HF_TOKEN", token, nil); err != nil {
		t.Fatal(err)
	}
	ran := func(secrets ...muster.Secret) (muster.Task, string) {
		t.Helper()
		job := c.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: "hubtest", Env: map[string]string{"HF_ENDPOINT": hub.URL}, Secrets: secrets}}})
		c.Wait(job.ID, 2*time.Minute)
		task := c.Tasks(job.ID)[0]
		return task, c.Output(task.ID)
	}
	task, log := ran(muster.Secret{Name: "HF_TOKEN"})
	var result struct {
		Config map[string]int `json:"config"`
		Token  string         `json:"token"`
	}
	if err := json.Unmarshal(task.Result, &result); err != nil || task.State != muster.Succeeded || result.Config["layers"] != 3 || result.Token != "***" {
		t.Errorf("%v: %s, %s: %s\n%s", err, task.State, task.Message, task.Result, log)
	}
	if strings.Contains(log, token) || !strings.Contains(log, "Bearer ***") {
		t.Errorf("the log is %s", log)
	}
	if task, log := ran(); task.State != muster.Failed || log != "sending {}\n" {
		t.Errorf("without the secret: %s\n%s", task.State, log)
	}
}
