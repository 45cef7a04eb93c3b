package attack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// keeperKind is a kind with models and a model server, whose tasks run a command of the job.
const keeperKind = `
name: keeper
about: Use a model.
entry: [./main]
run: must
models: true
warm: [./host]
merge_key: [model]
input: {type: object, properties: {model: {type: string}}}
`

// keeperHost is its model server.
const keeperHost = `#!/usr/bin/python3
import os, socket
os.chdir(os.path.dirname(os.environ["MUSTER_WARM"]))
server = socket.socket(socket.AF_UNIX)
server.bind(os.path.basename(os.environ["MUSTER_WARM"]))
server.listen()
while True:
    client, _ = server.accept()
    line = client.makefile().readline()
    client.sendall(b'{"ok":true}\n')
    client.close()
    if '"evict"' in line:
        break
`

// useModels breaks into the models of the owner, and of the other project if there is $OTHER.
const useModels = `
echo server $MUSTER_WARM
[ "$(cat $MUSTER_OWNER_MODELS/ours/weights)" = ours ] || echo BROKEN: does not find a model of the owner
[ "$(cat $HF_HOME/weights 2>/dev/null)" = "$EXPECT" ] || echo BROKEN: finds $(cat $HF_HOME/weights)
for dir in $MUSTER_OWNER_MODELS/ours $MUSTER_OWNER_MODELS $OTHER/hf $OTHER; do
	(echo evil >$dir/weights) 2>/dev/null && echo BROKEN: changes $dir
	(echo evil >$dir/added) 2>/dev/null && echo BROKEN: adds to $dir
	mkdir $dir/more 2>/dev/null && echo BROKEN: adds a model to $dir
done
[ -n "$OTHER" ] && cat $OTHER/hf/weights 2>/dev/null && echo BROKEN: reads $OTHER
[ -n "$OTHER" ] && ls $OTHER $OTHER/.. 2>/dev/null && echo BROKEN: lists $OTHER
mkdir -p $HF_HOME && echo $PROJECT >$HF_HOME/weights || echo BROKEN: cannot keep a model
`

// TestModelsOfProjectsAreSeparate checks that a task of one project neither reads, changes nor adds models of another project or of the worker's
// owner, and that a loaded model serves the tasks of one project only, also while one uses it.
func TestModelsOfProjectsAreSeparate(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python + " for a model server")
	}
	kinds, data := mustertest.SharedDir(t), t.TempDir()
	kind, ours := filepath.Join(kinds, "keeper"), filepath.Join(data, "models", "ours")
	if err := errors.Join(
		os.Mkdir(kind, 0o755), os.MkdirAll(ours, 0o755),
		os.WriteFile(filepath.Join(kind, "kind.yaml"), []byte(keeperKind), 0o644),
		os.WriteFile(filepath.Join(kind, "main"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755),
		os.WriteFile(filepath.Join(kind, "host"), []byte(keeperHost), 0o755),
		os.WriteFile(filepath.Join(ours, "weights"), []byte("ours\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", data, "--kinds-dir", kinds, "--cache-models")
	submit := func(project, script string, env map[string]string) muster.Job {
		env["PROJECT"] = project
		return c.Submit(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: "keeper", Run: &muster.Command{Shell: script}, Env: env}}})
	}
	server := func(job muster.Job) string {
		t.Helper()
		if got := c.Wait(job.ID, awaitTimeout); got.State != muster.JobSucceeded {
			t.Fatalf("the job ended as %s: %s", got.State, c.Tasks(job.ID)[0].Message)
		}
		out := c.Output(muster.TaskID{Job: job.ID})
		line, more, _ := strings.Cut(out, "\n")
		path, ok := strings.CutPrefix(line, "server /")
		if !ok || more != "" {
			t.Fatalf("a task has no model server, or broke out:\n%s", out)
		}
		return path
	}
	alpha := submit("alpha", useModels+"mkfifo $MUSTER_MODELS/gate && read line <$MUSTER_MODELS/gate; rm $MUSTER_MODELS/gate", map[string]string{})
	var gate *os.File
	c.Await("the task of alpha waits", awaitTimeout, func() error {
		found, err := filepath.Glob(filepath.Join(data, "cache", "models", "*", "gate"))
		if err != nil || len(found) == 0 {
			return errors.Join(err, errors.New("it has no gate"))
		}
		gate, err = os.OpenFile(found[0], os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	other := map[string]string{"OTHER": filepath.Dir(gate.Name())}
	ofBeta := server(submit("beta", useModels, other))
	if _, err := gate.WriteString("go\n"); err != nil {
		t.Error(err)
	}
	if err := gate.Close(); err != nil {
		t.Error(err)
	}
	ofAlpha := server(alpha)
	again := server(submit("alpha", useModels, map[string]string{"EXPECT": "alpha"}))
	beta := server(submit("beta", useModels, map[string]string{"OTHER": other["OTHER"], "EXPECT": "beta"}))
	if ofAlpha == ofBeta || again != ofAlpha || beta != ofBeta {
		t.Errorf("the servers of alpha are %s and %s, of beta %s and %s", ofAlpha, again, ofBeta, beta)
	}
}
