//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestSignedJobs signs jobs with a key that ssh-keygen made, for a worker that trusts it: a folder and an array run, also after the worker has
// restarted; an unsigned job, the same signature again, and commands in tasks do not. ssh-keygen verifies what was signed.
func TestSignedJobs(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen: ", err)
	}
	dir := t.TempDir()
	key, spec, folder := filepath.Join(dir, "key"), filepath.Join(dir, "job.yaml"), filepath.Join(dir, "code")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(in, program string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	must(run("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", key))
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(dir, "allowed_signers")
	write(signers, `ada namespaces="muster-job" `+string(public))

	c := mustertest.New(t, t.TempDir())
	t.Setenv("MUSTER_SERVER", c.Client.URL())
	t.Setenv("MUSTER_TOKEN", mustertest.AdminToken)
	t.Setenv("MUSTER_CONFIG", filepath.Join(dir, "context.json"))
	data := t.TempDir()
	worker := c.StartWorker("strict", data, "--trust-keys", signers)

	unsigned := c.Submit(mustertest.ShellSpec("unsigned", "echo unsigned"))
	awaitExplanation(t, c, unsigned.ID, "without a signature by a trusted key")

	write(filepath.Join(folder, "hello.sh"), `echo "hello $1 of $MUSTER_INDEX"`)
	write(spec, "name: signed\narray: 5-6\nfiles: code\nrun: sh hello.sh ${index}\n")
	out := must(run("", mustertest.Program(t), "submit", "--sign", key, "-q", spec))
	id, err := muster.ParseJobID(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	waitSucceeded(t, c, id)
	for _, task := range c.Tasks(id) {
		if want := fmt.Sprintf("hello %s of %[1]s", task.Element); !strings.Contains(c.Output(task.ID), want) {
			t.Errorf("task %s says %q, want %q", task.ID, c.Output(task.ID), want)
		}
	}
	job, err := c.Client.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "sig"), job.Spec.Signature.Armor)
	must(run(job.Spec.Signature.Statement, "ssh-keygen", "-Y", "verify", "-n", "muster-job", "-f", signers, "-I", "ada", "-s", filepath.Join(dir, "sig")))

	worker.Signal(os.Interrupt)
	worker.WaitExit(time.Minute)
	c.StartWorker("strict", data, "--trust-keys", signers)
	again, err := c.Client.Submit(t.Context(), job.Spec, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitExplanation(t, c, again.ID, "another job with this signature")

	sleeps := must(run("", mustertest.Program(t), "run", "--sign", key, "-d", "--", "sleep", "600"))
	if id, err = muster.ParseJobID(strings.TrimSpace(sleeps)); err != nil {
		t.Fatal(err)
	}
	c.AwaitRunning(id, 1)
	if out, err := run("", mustertest.Program(t), "exec", id.String()+".0", "--", "id"); err == nil || !strings.Contains(out, "cannot execute commands in tasks") {
		t.Errorf("exec: %v, %s", err, out)
	}
	if w, err := c.Client.Worker(t.Context(), "strict"); err != nil || w.Allow == nil || len(w.Allow.SignedBy) != 1 {
		shown, _ := json.Marshal(w)
		t.Errorf("the worker is %s, %v", shown, err)
	}
	must(run("", mustertest.Program(t), "cancel", id.String()))
}
