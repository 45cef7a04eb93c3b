//go:build unix

package attack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// requestBlob sends a request for a blob and returns the status and the body.
func (e *env) requestBlob(method, token, sum, body string) (int, string) {
	e.t.Helper()
	r := e.request(method, "/api/v1/blobs/"+sum, token, strings.NewReader(body))
	rec := e.do(r)
	return rec.Code, rec.Body.String()
}

// upload uploads a text with a key and returns its hash.
func (e *env) upload(token, text string) string {
	e.t.Helper()
	if code, body := e.requestBlob(http.MethodPut, token, sha256Hex(text), text); code != http.StatusCreated {
		e.t.Fatalf("upload: %d %s", code, body)
	}
	return sha256Hex(text)
}

// treeOf is a list of files with those hashes.
func treeOf(sums ...string) string {
	tree := muster.Tree{Files: []muster.File{}}
	for i, sum := range sums {
		tree.Files = append(tree.Files, muster.File{Path: fmt.Sprintf("f%d", i), Size: 1, SHA256: sum})
	}
	b, err := json.Marshal(tree)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// folderSpec is a job whose task runs a script in a folder with files.
func folderSpec(sum string) *muster.Spec {
	return &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindScript, Script: &muster.Script{Text: "echo hello"}, Files: "sha256:" + sum}}}
}

// connectAll opens the session of a worker that takes processes and scripts.
func (e *env) connectAll(name string) (testworker.Worker, link.WorkerConn) {
	e.t.Helper()
	worker := e.join(name)
	conn := e.dial(worker)
	h := hello(worker, name)
	h.Kinds = append(h.Kinds, muster.KindScript)
	e.send(conn, &link.ToServer{Hello: h})
	e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	return worker, conn
}

// submitAs submits a spec with a key.
func (e *env) submitAs(token string, spec *muster.Spec) (muster.Job, error) {
	e.t.Helper()
	c, err := client.New(e.url(""), token, client.Options{})
	if err != nil {
		e.t.Fatal(err)
	}
	return c.Submit(e.t.Context(), spec, client.SubmitOptions{})
}

// assignment waits for the assignment of a job's attempt, and starts it.
func (e *env) assignment(conn link.WorkerConn, job muster.JobID) muster.AttemptID {
	e.t.Helper()
	var id muster.AttemptID
	e.receive(conn, "an assignment", func(f *link.ToWorker) bool {
		for _, a := range f.Assign {
			if a.Attempt.Task.Job == job {
				id = a.Attempt
				return true
			}
		}
		return false
	})
	e.send(conn, &link.ToServer{Started: []link.Started{{Attempt: id, At: muster.NewTime(time.Now())}}})
	return id
}

// TestBlobsBelongToProjects checks that the hash of a blob is of no use to the key of another project: it does not read
// the blob, does not learn that it is here, cannot name it in a job, nor in a list of files that it names in a job.
func TestBlobsBelongToProjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha, beta := e.key(string(auth.Submitter), "alpha", 0).Secret, e.key(string(auth.Submitter), "beta", 0).Secret
	const text = "the secret of alpha"
	secret := e.upload(alpha, text)
	folder := e.upload(alpha, treeOf(secret))
	if code, body := e.requestBlob(http.MethodGet, alpha, secret, ""); code != http.StatusOK || body != text {
		t.Fatalf("alpha reads its own: %d %s", code, body)
	}
	absent := sha256Hex("an absent blob")
	for _, sum := range []string{secret, folder} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			code, body := e.requestBlob(method, beta, sum, "")
			wantCode, want := e.requestBlob(method, beta, absent, "")
			if code != wantCode || strings.ReplaceAll(body, sum, absent) != want {
				t.Errorf("%s of alpha's blob: %d %s, of one that is not there: %d %s", method, code, body, wantCode, want)
			}
		}
	}
	r := e.request(http.MethodPost, "/api/v1/blobs/missing", beta, strings.NewReader(fmt.Sprintf(`{"sha256":[%q,%q,%q]}`, secret, folder, absent)))
	r.Header.Set("Content-Type", "application/json")
	if body := e.do(r).Body.String(); !strings.Contains(body, secret) || !strings.Contains(body, folder) || !strings.Contains(body, absent) {
		t.Errorf("beta can detect some of alpha's blobs: %s", body)
	}
	if rec := e.do(e.request(http.MethodPost, "/api/v1/blobs/"+secret+"/check", beta, nil)); rec.Code != http.StatusNotFound {
		t.Errorf("beta has alpha's blob checked: %d %s", rec.Code, rec.Body)
	}
	// Nor do wrong bytes, or a part of them, take it for beta.
	for _, body := range []string{"", "other bytes", text[:5]} {
		if code, answer := e.requestBlob(http.MethodPut, beta, secret, body); code < 400 {
			t.Errorf("with %q as its bytes beta has alpha's blob: %d %s", body, code, answer)
		}
	}
	for name, sum := range map[string]string{"alpha's folder": folder, "a list of its own with alpha's file": e.upload(beta, treeOf(secret))} {
		if job, err := e.submitAs(beta, folderSpec(sum)); muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "uploaded") {
			t.Errorf("beta names %s: job %d, %v", name, job.ID, err)
		}
	}
	// A client that uploads the bytes gets access to the blob, and alpha keeps it.
	e.upload(beta, text)
	if code, body := e.requestBlob(http.MethodGet, beta, secret, ""); code != http.StatusOK || body != text {
		t.Errorf("beta reads what it uploaded: %d %s", code, body)
	}
	if code, body := e.requestBlob(http.MethodGet, alpha, secret, ""); code != http.StatusOK || body != text {
		t.Errorf("alpha reads its own afterwards: %d %s", code, body)
	}
	if _, err := e.submitAs(alpha, folderSpec(folder)); err != nil {
		t.Errorf("alpha used its own folder: %v", err)
	}
}

// TestWorkerReadsOnlyBlobsOfItsAttempts checks that a worker's key can read the folder of an attempt only while the worker runs it, and no
// blobs of other jobs.
func TestWorkerReadsOnlyBlobsOfItsAttempts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha := e.key(string(auth.Submitter), "alpha", 0).Secret
	file, other := e.upload(alpha, "a file of the job"), e.upload(alpha, "a file of another job")
	folder := e.upload(alpha, treeOf(file))
	worker, conn := e.connectAll("rig")
	reads := func(sum string) bool {
		t.Helper()
		code, body := e.requestBlob(http.MethodGet, worker.Key, sum, "")
		if code != http.StatusOK && code != http.StatusNotFound {
			t.Fatalf("GET: %d %s", code, body)
		}
		return code == http.StatusOK
	}
	if reads(folder) || reads(file) {
		t.Error("the worker reads a folder before it has an attempt of its job")
	}
	job, err := e.submitAs(alpha, folderSpec(folder))
	if err != nil {
		t.Fatal(err)
	}
	id := e.assignment(conn, job.ID)
	if !reads(folder) || !reads(file) {
		t.Error("the worker does not read what its attempt needs")
	}
	if reads(other) {
		t.Error("the worker reads a file of another job")
	}
	e.send(conn, &link.ToServer{Finished: []muster.Report{{Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: muster.NewTime(time.Now())}}})
	e.Wait(job.ID, awaitTimeout)
	e.Await("the worker reads nothing any more", awaitTimeout, func() error {
		if reads(folder) || reads(file) {
			return errors.New("it does")
		}
		return nil
	})
}

// TestWorkerReadsOnlyResultsThatItsAttemptsHaveAsInputs checks that a worker which knows the hash of a task's result can read it only while
// it runs an attempt that has it as an input, and then also one that failed.
func TestWorkerReadsOnlyResultsThatItsAttemptsHaveAsInputs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha := e.key(string(auth.Submitter), "alpha", 0).Secret
	worker, conn := e.connectAll("rig")
	idle := e.join("idle")
	const text, other = `{"loss":0.5}`, `{"loss":0.25}`
	reads := func(w testworker.Worker, text string) bool {
		t.Helper()
		code, body := e.requestBlob(http.MethodGet, w.Key, sha256Hex(text), "")
		if code != http.StatusOK && code != http.StatusNotFound || code == http.StatusOK && body != text {
			t.Fatalf("GET: %d %s", code, body)
		}
		return code == http.StatusOK
	}
	job, err := e.submitAs(alpha, &muster.Spec{Tasks: []muster.TaskSpec{
		{Name: "other", Kind: muster.KindNoop},
		{Name: "train", Kind: muster.KindNoop, Needs: []string{"other"}},
		{Name: "report", Kind: muster.KindNoop, Needs: []string{"train"}, When: muster.WhenFailed, Inputs: []muster.Input{{From: "train", Name: muster.ResultFile}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	finish := func(outcome muster.Outcome, result string) {
		id := e.assignment(conn, job.ID)
		if reads(worker, text) || reads(worker, other) {
			t.Error("the worker reads a result that its attempt does not have as an input")
		}
		e.send(conn, &link.ToServer{Finished: []muster.Report{{Attempt: id, Outcome: outcome, Result: json.RawMessage(result), FinishedAt: muster.NewTime(time.Now())}}})
	}
	finish(muster.AttemptSucceeded, other)
	finish(muster.AttemptFailed, text)
	id := e.assignment(conn, job.ID)
	if !reads(worker, text) {
		t.Error("the worker does not read the result that its attempt has as an input")
	}
	if reads(worker, other) || reads(idle, text) {
		t.Error("a worker reads the result of another stage, or of another worker's attempt")
	}
	e.send(conn, &link.ToServer{Finished: []muster.Report{{Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: muster.NewTime(time.Now())}}})
	e.Wait(job.ID, awaitTimeout)
	e.Await("the worker reads nothing any more", awaitTimeout, func() error {
		if reads(worker, text) {
			return errors.New("it does")
		}
		return nil
	})
}

// TestWorkerReportsOnlyItsOwnFiles checks that a worker cannot have a blob delivered as an artifact, as a file of a running
// task or by a checkpoint because it knows the hash, nor one that is not here, nor with another size.
func TestWorkerReportsOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha, beta := e.key(string(auth.Submitter), "alpha", 0).Secret, e.key(string(auth.Submitter), "beta", 0).Secret
	secret := e.upload(alpha, "the secret of alpha")
	worker, conn := e.connectAll("rig")
	own := e.upload(worker.Key, "a file of the task")
	artifact := func(sum string, size int64) muster.Artifact {
		return muster.Artifact{Name: "out", Size: size, SHA256: sum}
	}
	for name, a := range map[string]muster.Artifact{
		"another project's blob": artifact(secret, 19), "a blob that is not here": artifact(sha256Hex("none"), 4), "another size": artifact(own, 17),
	} {
		job, err := e.submitAs(beta, &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}, Checkpoint: &muster.Checkpoint{}}}})
		if err != nil {
			t.Fatal(err)
		}
		id := e.assignment(conn, job.ID)
		visible := a
		visible.Name = "live/out"
		e.send(conn, &link.ToServer{
			Progress: []muster.Progress{{Attempt: id, Artifacts: []muster.Artifact{visible}}},
			Saved:    []link.Saved{{Attempt: id, SHA256: e.upload(worker.Key, treeOf(a.SHA256))}},
			Finished: []muster.Report{{Attempt: id, Outcome: muster.AttemptSucceeded, Artifacts: []muster.Artifact{a}, FinishedAt: muster.NewTime(time.Now())}},
		})
		// It is the fleet's fault, so that the task is tried again.
		next := e.assignment(conn, job.ID)
		task, err := e.Client.Task(t.Context(), id.Task)
		if err != nil {
			t.Fatal(err)
		}
		attempts, err := e.Client.Attempts(t.Context(), id.Task)
		if err != nil {
			t.Fatal(err)
		}
		if first := attempts[0]; first.Outcome != muster.AttemptFailed || first.Reason != muster.WorkerInternal || len(first.Artifacts) > 0 {
			t.Errorf("%s: the attempt is %s (%s) with %v", name, first.Outcome, first.Reason, first.Artifacts)
		}
		if len(task.Artifacts) > 0 || task.Checkpoint != "" && name != "another size" {
			t.Errorf("%s: the task has %v and the checkpoint %q", name, task.Artifacts, task.Checkpoint)
		}
		good := artifact(own, int64(len("a file of the task")))
		e.send(conn, &link.ToServer{Finished: []muster.Report{{Attempt: next, Outcome: muster.AttemptSucceeded, Artifacts: []muster.Artifact{good}, FinishedAt: muster.NewTime(time.Now())}}})
		if job := e.Wait(job.ID, awaitTimeout); job.State != muster.JobSucceeded {
			t.Errorf("with its own file the job is %s", job.State)
		}
		if code, body := e.requestBlob(http.MethodGet, beta, own, ""); code != http.StatusOK {
			t.Errorf("the project does not read what its job made: %d %s", code, body)
		}
	}
	if code, body := e.requestBlob(http.MethodGet, beta, secret, ""); code != http.StatusNotFound {
		t.Errorf("beta reads the secret of alpha: %d %s", code, body)
	}
}

// TestFileOfTwoJobsIsSentOnce checks that a worker can report a file for one job that it has as an input of another: the server answers that
// it need not be sent, and accepts the report.
func TestFileOfTwoJobsIsSentOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha, beta := e.key(string(auth.Submitter), "alpha", 0).Secret, e.key(string(auth.Submitter), "beta", 0).Secret
	common := e.upload(alpha, "a common file")
	worker, conn := e.connectAll("rig")
	first, err := e.submitAs(alpha, folderSpec(e.upload(alpha, treeOf(common))))
	if err != nil {
		t.Fatal(err)
	}
	e.assignment(conn, first.ID)
	second, err := e.submitAs(beta, &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}}}})
	if err != nil {
		t.Fatal(err)
	}
	id := e.assignment(conn, second.ID)
	e.Await("the file need not be sent", awaitTimeout, func() error {
		if code, body := e.requestBlob(http.MethodHead, worker.Key, common, ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	e.send(conn, &link.ToServer{Finished: []muster.Report{{
		Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: muster.NewTime(time.Now()),
		Artifacts: []muster.Artifact{{Name: "out", Size: int64(len("a common file")), SHA256: common}},
	}}})
	if job := e.Wait(second.ID, awaitTimeout); job.State != muster.JobSucceeded {
		t.Errorf("the job whose file was not sent again is %s", job.State)
	}
}
