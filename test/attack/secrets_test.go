//go:build unix

package attack

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// secretValue is what no statement of this file may let out.
const secretValue = `hf_"AbC\dEf+GhI/jKl=<mNo>&pQrStUvWxYz`

// secretForms returns how the value may be written. Those of base64 are without the characters that depend on what is beside the value.
func secretForms() map[string]string {
	quoted, _ := json.Marshal(secretValue)
	forms := map[string]string{"plain": secretValue, "JSON": string(quoted[1 : len(quoted)-1]), "query": url.QueryEscape(secretValue), "path": url.PathEscape(secretValue)}
	for i := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", i) + secretValue + "xx"))
		forms[fmt.Sprint("base64 ", i)] = text[4 : len(text)-8]
	}
	return forms
}

// discloses returns how a text has the value, "" if it has not.
func discloses(text []byte) string {
	for name, form := range secretForms() {
		if bytes.Contains(text, []byte(form)) {
			return name
		}
	}
	return ""
}

// filesWith returns the files below a folder that have the value.
func filesWith(t *testing.T, dir string) []string {
	t.Helper()
	return filesThat(t, dir, discloses)
}

// filesContaining returns the files below a folder that contain a text.
func filesContaining(t *testing.T, dir, text string) []string {
	t.Helper()
	return filesThat(t, dir, func(b []byte) string {
		if !bytes.Contains(b, []byte(text)) {
			return ""
		}
		return "plain"
	})
}

// filesThat returns the files below a folder of which has returns how they have something.
func filesThat(t *testing.T, dir string, has func([]byte) string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it is gone
		}
		b, err := os.ReadFile(path)
		if how := has(b); err == nil && how != "" {
			found = append(found, path+" ("+how+")")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (e *env) secret(project, name, value string, workers ...string) {
	e.t.Helper()
	if _, err := e.Client.SetSecret(e.t.Context(), project, name, value, workers); err != nil {
		e.t.Fatal(err)
	}
}

// secretJob submits a task with a secret and a script for sh.
func (e *env) secretJob(script string, secrets ...muster.Secret) muster.Job {
	e.t.Helper()
	return e.Submit(&muster.Spec{Project: "a", Tasks: []muster.TaskSpec{{Script: &muster.Script{Text: script, Interpreter: []string{"sh"}}, Secrets: secrets, Outputs: []string{"**"}}}})
}

// get returns the answer to a request of an administrator.
func (e *env) get(path string) []byte {
	e.t.Helper()
	return e.do(e.request(http.MethodGet, path, e.AdminToken, nil)).Body.Bytes()
}

// printEverywhere prints the secret in all forms and to all places that reach the server.
const printEverywhere = `
printf '%s\n' "$TOKEN"
printf '%s' "$TOKEN" | base64 -w0; echo
printf 'x%s' "$TOKEN" | base64 -w0; echo
printf 'xx%s' "$TOKEN" | base64 -w0; echo
printf '%s' "$TOKEN" | base64 -w10
printf '%s' "$TOKEN" | cut -c1-9 | tr -d '\n'; sleep 0.3; printf '%s\n' "$TOKEN" | cut -c10- >&1
printf '%s\n' "$TOKEN" >&2
quoted=$(printf '%s' "$TOKEN" | sed 's/\\/\\\\/g; s/"/\\"/g')
printf '{"token": "%s"}\n' "$quoted"
printf '{"progress": 0.5, "step": "using %s", "metrics": {"loss": 1}}\n' "$quoted" >> "$MUSTER_EVENTS"
printf '{"token": "%s", "list": ["%s"]}' "$quoted" "$quoted" > "$MUSTER_OUT/result.json"
`

// TestSecretsDoNotLeaveTheirTask states where the value of a secret is not, whatever a task does to print it.
func TestSecretsDoNotLeaveTheirTask(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e := newEnv(t)
	workerData := filepath.Join(mustertest.SharedDir(t), "worker")
	worker := e.StartWorker("w", workerData)
	e.secret("a", "TOKEN", secretValue)
	gate := filepath.Join(mustertest.SharedDir(t), "gate")

	printing := e.secretJob(printEverywhere+"until [ -e "+gate+" ]; do sleep 0.05; done; echo after: \"$TOKEN\"; echo marker", muster.Secret{Name: "TOKEN"})
	task := muster.TaskID{Job: printing.ID}
	e.Await("the task has printed everything", awaitTimeout, func() error {
		if step := e.get("/api/v1/tasks/" + task.String()); !bytes.Contains(step, []byte("using")) {
			return fmt.Errorf("%s", step)
		}
		return nil
	})
	t.Run("the worker's data directory does not have it while the task runs", func(t *testing.T) {
		if found := filesWith(t, workerData); len(found) > 0 {
			t.Errorf("%v", found)
		}
	})
	worker.Kill()
	again := e.StartWorker("w", workerData)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if job := e.Wait(printing.ID, awaitTimeout); job.State != muster.JobSucceeded {
		t.Fatalf("%+v\n%s", job, e.get("/api/v1/tasks/"+task.String()))
	}
	t.Run("the log has stars in its place, also after a restart of the worker", func(t *testing.T) {
		log := e.get("/api/v1/tasks/" + task.String() + "/logs?follow=false")
		if how := discloses(log); how != "" || !bytes.Contains(log, []byte("***")) || !bytes.Contains(log, []byte("after: ***")) || !bytes.Contains(log, []byte("marker")) {
			t.Errorf("%s:\n%s", how, log)
		}
		for _, part := range []string{secretValue[:16], secretValue[9:25]} { // it was printed in two pieces
			if bytes.Contains(log, []byte(part)) {
				t.Errorf("%s is in\n%s", part, log)
			}
		}
	})
	t.Run("progress and result have stars in its place", func(t *testing.T) {
		answer := e.get("/api/v1/tasks/" + task.String())
		var got muster.Task
		if err := json.Unmarshal(answer, &got); err != nil || discloses(answer) != "" || !strings.Contains(string(got.Result), `"token":"***"`) && !strings.Contains(string(got.Result), `"token": "***"`) {
			t.Errorf("%v: %s", err, answer)
		}
	})
	t.Run("a failure message has stars in its place", func(t *testing.T) {
		failing := e.secretJob(`printf '{"reason": "bad_input", "message": "the token %s is wrong"}' "$(printf '%s' "$TOKEN" | sed 's/\\/\\\\/g; s/"/\\"/g')" > "$MUSTER_OUT/failure.json"; exit 1`, muster.Secret{Name: "TOKEN"})
		e.Wait(failing.ID, awaitTimeout)
		answer := e.get("/api/v1/tasks/" + failing.ID.String() + ".0")
		if discloses(answer) != "" || !bytes.Contains(answer, []byte("the token *** is wrong")) {
			t.Errorf("%s", answer)
		}
	})
	t.Run("a file whose name has it is not an artifact", func(t *testing.T) {
		e.secret("a", "PLAIN", "hf_NothingToEscape12345")
		naming := e.secretJob(`touch "$MUSTER_OUT/$PLAIN.txt" "$PLAIN" "$MUSTER_OUT/kept.txt"`, muster.Secret{Name: "PLAIN"})
		e.Wait(naming.ID, awaitTimeout)
		answer := e.get("/api/v1/tasks/" + naming.ID.String() + ".0/artifacts")
		log := e.get("/api/v1/tasks/" + naming.ID.String() + ".0/logs?follow=false")
		if bytes.Contains(answer, []byte("hf_NothingToEscape12345")) || bytes.Contains(log, []byte("hf_NothingToEscape12345")) || !bytes.Contains(answer, []byte("kept.txt")) {
			t.Errorf("%s\n%s", answer, log)
		}
	})
	t.Run("a file of a secret is its task's, exact, and not an artifact", func(t *testing.T) {
		filing := e.secretJob(`[ -z "$TOKEN" ] && cat .keys/token && stat -c 'mode %a' .keys/token && ln .keys/token copy && touch made`, muster.Secret{Name: "TOKEN", File: ".keys/token"})
		if job := e.Wait(filing.ID, awaitTimeout); job.State != muster.JobSucceeded {
			t.Errorf("%s", e.get("/api/v1/tasks/"+filing.ID.String()+".0/logs?follow=false"))
		}
		answer, log := e.get("/api/v1/tasks/"+filing.ID.String()+".0/artifacts"), e.get("/api/v1/tasks/"+filing.ID.String()+".0/logs?follow=false")
		if bytes.Contains(answer, []byte("token")) || bytes.Contains(answer, []byte("copy")) || !bytes.Contains(answer, []byte("made")) || !bytes.Contains(log, []byte("mode 600")) || discloses(log) != "" {
			t.Errorf("%s\n%s", answer, log)
		}
	})
	t.Run("no answer of the API has it", func(t *testing.T) {
		id := printing.ID.String()
		for _, path := range []string{
			"/projects/a/secrets", "/jobs", "/jobs/" + id, "/jobs/" + id + "/tasks", "/tasks/" + id + ".0", "/tasks/" + id + ".0/spec", "/tasks/" + id + ".0/attempts", "/tasks/" + id + ".0/explain",
			"/tasks/" + id + ".0/events", "/tasks/" + id + ".0/logs/window", "/tasks/" + id + ".0/metrics", "/tasks/" + id + ".0/artifacts", "/workers", "/overview", "/jobs/" + id + "/late",
		} {
			if answer := e.get("/api/v1" + path); discloses(answer) != "" {
				t.Errorf("%s: %s", path, answer)
			}
		}
	})
	t.Run("a backup has it encrypted only", func(t *testing.T) {
		err := e.Client.Backup(t.Context(), func(r io.Reader) error {
			b, err := io.ReadAll(r)
			if how := discloses(b); how != "" || len(b) == 0 {
				t.Errorf("%d bytes have it: %s", len(b), how)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the server's data directory, with its database, has it encrypted only", func(t *testing.T) {
		if found := filesWith(t, e.DataDir); len(found) > 0 {
			t.Errorf("%v", found)
		}
	})
	t.Run("the worker's data directory does not have it after the task", func(t *testing.T) {
		if found := filesWith(t, workerData); len(found) > 0 {
			t.Errorf("%v", found)
		}
	})
	t.Run("the server and the worker do not log it", func(t *testing.T) {
		for _, log := range []string{e.Server.Log(), worker.Log(), again.Log()} {
			if how := discloses([]byte(log)); how != "" || log == "" {
				t.Errorf("%s: %s", how, log)
			}
		}
	})
}

// TestSecretsAreForTheirProject states who gets a secret, and who does not.
func TestSecretsAreForTheirProject(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e := newEnv(t)
	e.secret("a", "TOKEN", secretValue)
	e.secret("a", "TRUSTED", secretValue, "trusted")
	e.StartWorker("none", filepath.Join(mustertest.SharedDir(t), "worker"), "--allow-secrets", "none")
	spec := func(project, name string) *muster.Spec {
		return &muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Run: &muster.Command{Shell: "true"}, Secrets: []muster.Secret{{Name: name}}}}}
	}
	explains := func(t *testing.T, job muster.Job, want string) {
		t.Helper()
		e.Await("the explanation says: "+want, awaitTimeout, func() error {
			if answer := e.get("/api/v1/tasks/" + job.ID.String() + ".0/explain"); !bytes.Contains(answer, []byte(want)) {
				return fmt.Errorf("%s", answer)
			}
			return nil
		})
	}
	t.Run("another project cannot name it", func(t *testing.T) {
		_, err := e.submitAs(e.key("submitter", "b", 0).Secret, spec("b", "TOKEN"))
		if muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "project b has no secret TOKEN: set it with muster secrets set TOKEN --project b") {
			t.Errorf("%v", err)
		}
		if _, err = e.submitAs(e.key("submitter", "b", 0).Secret, spec("a", "TOKEN")); muster.CodeOf(err) != muster.Forbidden {
			t.Errorf("in the other project: %v", err)
		}
	})
	t.Run("a viewer and an operator do not see the names, and cannot change it", func(t *testing.T) {
		for _, key := range []client.MadeKey{e.key("viewer", "a", 0), e.key("viewer", "", 0), e.key("operator", "", 0), e.key("join", "", 0)} {
			for method, path := range map[string]string{http.MethodGet: "", http.MethodPut: "/TOKEN", http.MethodDelete: "/TOKEN"} {
				r := e.request(method, "/api/v1/projects/a/secrets"+path, key.Secret, strings.NewReader(`{"value":"12345678"}`))
				r.Header.Set("Content-Type", "application/json")
				if rec := e.do(r); rec.Code != http.StatusForbidden {
					t.Errorf("%s as %s: %d %s", method, key.Key.Role, rec.Code, rec.Body)
				}
			}
		}
	})
	t.Run("a submitter may use it, but not change it", func(t *testing.T) {
		key := e.key("submitter", "a", 0).Secret
		if rec := e.do(e.request(http.MethodGet, "/api/v1/projects/a/secrets", key, nil)); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "TOKEN") {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		if rec := e.do(e.request(http.MethodDelete, "/api/v1/projects/a/secrets/TOKEN", key, nil)); rec.Code != http.StatusForbidden {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
	job, err := e.submitAs(e.key("submitter", "a", 0).Secret, spec("a", "TOKEN"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a worker whose owner does not allow it does not get the task", func(t *testing.T) {
		explains(t, job, "its owner does not allow tasks to have the secret TOKEN")
	})
	trusting := e.Submit(spec("a", "TRUSTED"))
	e.StartWorker("any", filepath.Join(mustertest.SharedDir(t), "worker"))
	e.Wait(job.ID, awaitTimeout)
	t.Run("a worker without its tags does not get the task", func(t *testing.T) {
		explains(t, trusting, "trusted")
		if got, err := e.Client.Job(t.Context(), trusting.ID); err != nil || got.State != muster.JobQueued {
			t.Errorf("%v, %v", got.State, err)
		}
	})
	e.StartWorker("trusted", filepath.Join(mustertest.SharedDir(t), "worker"), "--tags", "trusted")
	t.Run("a worker with its tags gets it", func(t *testing.T) {
		if got := e.Wait(trusting.ID, awaitTimeout); got.State != muster.JobSucceeded {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a deleted secret is gone, for new jobs and for those that wait", func(t *testing.T) {
		late := spec("a", "TOKEN")
		late.Tasks[0].Where.Tags = []string{"late"}
		waiting := e.Submit(late)
		if err := e.Client.DeleteSecret(t.Context(), "a", "TOKEN"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Client.Submit(t.Context(), spec("a", "TOKEN"), client.SubmitOptions{}); muster.CodeOf(err) != muster.InvalidSpec {
			t.Errorf("a new job: %v", err)
		}
		e.StartWorker("late", filepath.Join(mustertest.SharedDir(t), "worker"), "--tags", "late")
		e.Wait(waiting.ID, awaitTimeout)
		answer := e.get("/api/v1/tasks/" + waiting.ID.String() + ".0")
		if !bytes.Contains(answer, []byte("bad_reference")) || !bytes.Contains(answer, []byte("project a has no secret TOKEN")) {
			t.Errorf("%s", answer)
		}
	})
}

// TestStolenRowsOfSecrets states what a copy of the database, and changes of it, are worth without the key.
func TestStolenRowsOfSecrets(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e := newEnv(t)
	e.secret("a", "TOKEN", secretValue)
	e.secret("b", "OTHER", "a value of project b")
	e.StartWorker("w", filepath.Join(mustertest.SharedDir(t), "worker"))
	e.Server.Kill()

	swap := func(change func(rows []store.Secret) store.Secret) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(e.DataDir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.Secrets(t.Context())
		if err == nil {
			err = s.PutSecret(t.Context(), change(rows))
		}
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	swap(func(rows []store.Secret) store.Secret {
		stolen := rows[0]
		stolen.Project = "b"
		return stolen
	})
	e.StartServer()
	waits := func(t *testing.T, project, why string) {
		t.Helper()
		job := e.Submit(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Run: &muster.Command{Shell: "env"}, Secrets: []muster.Secret{{Name: "TOKEN"}}}}})
		e.Await("the task waits: "+why, awaitTimeout, func() error {
			if answer := e.get("/api/v1/tasks/" + job.ID.String() + ".0/explain"); !bytes.Contains(answer, []byte(why)) {
				return fmt.Errorf("%s", answer)
			}
			return nil
		})
		if _, err := e.Client.Cancel(t.Context(), job.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a row that was copied to another project is not read", func(t *testing.T) {
		waits(t, "b", "the server cannot read the secret TOKEN: it is damaged")
	})
	e.Server.Kill()
	if err := os.Rename(filepath.Join(e.DataDir, "secrets.key"), filepath.Join(e.DataDir, "moved")); err != nil {
		t.Fatal(err)
	}
	e.StartServer()
	t.Run("without the key the server says so, and makes no new one", func(t *testing.T) {
		list, err := e.Client.Secrets(t.Context(), "a")
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Problem, "is missing") {
			t.Errorf("%+v, %v", list, err)
		}
		if _, err := e.Client.SetSecret(t.Context(), "a", "NEW", "12345678", nil); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(filepath.Join(e.DataDir, "secrets.key")); err == nil {
			t.Error("there is a new key")
		}
	})
	t.Run("without the key the server starts, and tasks with secrets wait", func(t *testing.T) {
		waits(t, "a", "is missing: restore it from a backup")
	})
}
