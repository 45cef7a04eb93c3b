package runtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

func output(t *testing.T, o suite) {
	t.Helper()
	b := open(t, o)
	o.run(t, "each stream in order, lines whole", func(t *testing.T) {
		task := b.task("for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done; printf 'no end'")
		wantSuccess(t, b.done(t, task))
		var out, errs strings.Builder
		for i := range 9 {
			fmt.Fprintf(&out, "out %d\n", i+1)
			fmt.Fprintf(&errs, "err %d\n", i+1)
		}
		b.wantOutput(t, task, tasklog.Stdout, out.String()+"no end")
		b.wantOutput(t, task, tasklog.Stderr, errs.String())
		for _, r := range b.Records(t, task.Attempt) {
			if string(r.Data) != "no end" && bytes.IndexByte(r.Data, '\n') != len(r.Data)-1 {
				t.Errorf("record %q is not a line", r.Data)
			}
			if time.Since(r.At) > time.Hour || r.At.IsZero() {
				t.Errorf("record at %s", r.At)
			}
		}
	})
	o.run(t, "a line of 10 MB and bytes that are no text", func(t *testing.T) {
		task := b.task(`head -c 10000000 /dev/zero | tr '\0' x; printf '\n\377\000\001\r\n'`)
		wantSuccess(t, b.done(t, task))
		if got := b.Output(t, task.Attempt, tasklog.Stdout); got != strings.Repeat("x", 10_000_000)+"\n\xff\x00\x01\r\n" {
			t.Errorf("got %d bytes that end in %q", len(got), got[max(0, len(got)-20):])
		}
	})
	o.run(t, "a prompt shows while its line has no end", func(t *testing.T) {
		task := b.task(`printf 'name? '; while [ ! -e ` + SharedDir(b.Deps) + `/go ]; do sleep 0.02; done; echo bye`)
		done := b.start(t.Context(), task)
		testkit.Await(t, "the prompt is in the log", func() bool { return b.Output(t, task.Attempt, tasklog.Stdout) == "name? " })
		b.resume(t)
		wantSuccess(t, <-done)
		b.wantOutput(t, task, tasklog.Stdout, "name? bye\n")
	})
	o.run(t, "its beginning and its end beyond a limit, and says so once", func(t *testing.T) {
		b := open(t, o, func(e *process.Deps) { e.LogCap = 100_000 })
		task := b.task("yes 0123456789 | head -n 90000; echo '::muster progress=1'; echo after")
		recorder := &Recorder{}
		r := b.record(t, task, recorder)
		wantSuccess(t, r)
		kept := 0
		for _, rec := range b.Records(t, task.Attempt) {
			if rec.Stream != tasklog.Gap {
				kept += len(tasklog.AppendRecord(nil, rec))
			}
		}
		if kept > 100_200 || kept < 75_000 || r.LogSize < 90_000*21 {
			t.Errorf("%d bytes of %d are kept", kept, r.LogSize)
		}
		if got := b.Output(t, task.Attempt, tasklog.Gap); strings.Count(got, "\n") != 1 || !strings.Contains(got, "1.7MiB of output is left out here") {
			t.Errorf("the log says %q", got)
		}
		if out := b.Output(t, task.Attempt, tasklog.Stdout); !strings.HasPrefix(out, "0123456789\n") || !strings.HasSuffix(out, "0123456789\nafter\n") {
			t.Errorf("the output is %.20q … %q", out, out[max(0, len(out)-20):])
		}
		if len(recorder.Updates()) != 1 {
			t.Error("progress after the limit is lost")
		}
	})
	o.run(t, "and a task that prints too fast is slowed", func(t *testing.T) {
		b := open(t, o, func(e *process.Deps) { e.LogRate = 4 << 20 })
		// The burst passes at once; the rest takes a second and a half, but for what is on its way when the task ends.
		r := b.done(t, b.task(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' '\\n' | tr -d '\\n'; head -c %d /dev/zero", 1, run.LogBurst+6<<20)))
		wantSuccess(t, r)
		if r.Usage.WallSeconds < 0.5 {
			t.Errorf("it was done after %.2f s", r.Usage.WallSeconds)
		}
	})
}

func environment(t *testing.T, o suite) {
	t.Helper()
	t.Setenv("MUSTER_TEST_SECRET", "hunter2")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	t.Setenv("TZ", "Europe/Vienna")
	b := open(t, o, func(e *process.Deps) { e.GPUs = &fakeDevices{} })
	task := b.task("env -0 | tr '\\0' '\\n'; pwd; ls -A")
	task.Spec.Matrix = &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"0.1", "0.01,x"}}, {Name: "random-seed", Values: []string{"1", "2", "3"}}}}
	task.Element = "lr=0.01,x,random-seed=2"
	task.Grant.GPUs = []string{"GPU-aa", "GPU-bb"}
	task.Spec.Env = map[string]string{"SEED": "1", "MUSTER_TASK": "forged", "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": "lib"}
	task.Spec.Files = b.Tree(map[string]string{"project.txt": "x"})
	wantSuccess(t, b.done(t, task))
	printed := b.Output(t, task.Attempt, tasklog.Stdout)
	if strings.Contains(printed, "hunter2") {
		t.Errorf("a secret of the worker reaches the task:\n%s", printed)
	}
	env := map[string]string{}
	for line := range strings.Lines(printed) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[k] = v
		}
	}
	tasks := filepath.Join(b.Deps.Dir, "tasks", task.Attempt.Task.String()+"-1")
	exact := map[string]string{
		"MUSTER_JOB": "17", "MUSTER_TASK": task.Attempt.Task.String(), "MUSTER_ATTEMPT": strconv.Itoa(task.Attempt.N), "MUSTER_INDEX": "4", "MUSTER_WORKER": "rig",
		"MUSTER_MATRIX_LR": "0.01,x", "MUSTER_MATRIX_RANDOM_SEED": "2", "CUDA_VISIBLE_DEVICES": "GPU-aa+GPU-bb",
		"MUSTER_GPUS": "GPU-aa,GPU-bb", "MUSTER_RANK": "0", "MUSTER_WORLD_SIZE": "1", "SEED": "1", "TZ": "Europe/Vienna", "HOME": filepath.Join(tasks, "tmp"),
		"MUSTER_CHECKPOINT": b.checkpoint(task),
	}
	for k, v := range exact {
		if env[k] != v {
			t.Errorf("%s is %q, not %q", k, env[k], v)
		}
	}
	if !strings.HasPrefix(env["PYTHONPATH"], "lib:") {
		t.Errorf("PYTHONPATH is %q", env["PYTHONPATH"])
	}
	known := []string{"LANG", "LC_ALL", "LC_CTYPE", "USER", "LOGNAME", "PATH", "TMPDIR", "PYTHONUNBUFFERED", "PYTHONPATH", "MUSTER_OUT", "MUSTER_EVENTS", "PWD", "OLDPWD", "SHLVL", "_"}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if _, ok := exact[k]; !ok && !slices.Contains(known, k) {
			t.Errorf("%s=%s leaks into the task", k, env[k])
		}
	}
	if !strings.Contains(printed, "\n"+filepath.Join(tasks, "work")+"\nproject.txt\n") {
		t.Errorf("it does not run in a folder with its files only:\n%s", printed)
	}

	bare := b.task(`test -z "$CUDA_VISIBLE_DEVICES" && test -n "${CUDA_VISIBLE_DEVICES+set}" && test "$MUSTER_INDEX" = 0`)
	wantSuccess(t, b.done(t, bare))

	// A checkpoint is found by the next attempt. Without one, and once the task has succeeded, no folder stays.
	ck := b.task("echo 3 > $MUSTER_CHECKPOINT/epoch; exit 1")
	want(t, b.done(t, ck), muster.AttemptFailed, muster.ExitCode, "")
	again := *ck
	again.Attempt.N = 2
	again.Spec = &muster.TaskSpec{Run: &muster.Command{Shell: "test $(cat $MUSTER_CHECKPOINT/epoch) = 3"}}
	wantSuccess(t, b.done(t, &again))
	if entries, err := os.ReadDir(filepath.Join(b.Deps.Dir, "checkpoints", b.x.Kind())); err != nil || len(entries) != 0 {
		t.Errorf("checkpoints: %v %v", entries, err)
	}
}

func outputs(t *testing.T, o suite) {
	t.Helper()
	b := open(t, o)
	names := func(r muster.Report) string {
		var out []string
		for _, a := range r.Artifacts {
			out = append(out, fmt.Sprintf("%s:%d", a.Name, a.Size))
		}
		return strings.Join(out, " ")
	}
	o.run(t, "files, globs, folders and the result", func(t *testing.T) {
		task := b.task(`mkdir -p plots/deep $MUSTER_OUT/sub logs; echo 1 > plots/a.png; echo 22 > plots/deep/b.png; echo x > plots/c.txt
			echo m > model.pt; echo log > logs/l; echo o > $MUSTER_OUT/sub/o.txt; echo same > $MUSTER_OUT/model.pt
			echo '{"accuracy": 0.97}' > $MUSTER_OUT/result.json`)
		task.Spec.Outputs = []string{"model.pt", "plots/**/*.png", "./logs/", "none*"}
		r := b.done(t, task)
		wantSuccess(t, r)
		if got := names(r); got != "model.pt:5 sub/o.txt:2 plots/a.png:2 plots/deep/b.png:3 logs/l:4" {
			t.Errorf("artifacts %s", got)
		}
		if string(r.Result) != "{\"accuracy\": 0.97}\n" {
			t.Errorf("result %s", r.Result)
		}
	})
	o.run(t, "what was promised must be there, by name", func(t *testing.T) {
		task := b.task("true")
		task.Spec.Outputs = []string{"model.pt"}
		want(t, b.done(t, task), muster.AttemptFailed, muster.ArtifactMissing, "model.pt")
		task = b.task("echo x > partial.txt; exit 3")
		task.Spec.Outputs = []string{"partial.txt", "model.pt"}
		r := b.done(t, task)
		want(t, r, muster.AttemptFailed, muster.ExitCode, "3")
		if names(r) != "partial.txt:2" {
			t.Errorf("artifacts of a failed task: %s", names(r))
		}
	})
	o.run(t, "nothing from outside its folders", func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
		task := b.task(fmt.Sprintf("ln -s %[1]s $MUSTER_OUT/a; ln -s %[1]s b.txt; ln -s /etc etc; mkfifo p.txt; echo ok > c.txt; ln -s c.txt d.txt", secret))
		task.Spec.Outputs = []string{"*.txt", "etc/**", "etc/passwd"}
		r := b.done(t, task)
		want(t, r, muster.AttemptFailed, muster.ArtifactMissing, "etc/passwd")
		if names(r) != "c.txt:3 d.txt:3" {
			t.Errorf("artifacts %s", names(r))
		}
		if logged := b.Output(t, task.Attempt, tasklog.System); !strings.Contains(logged, "b.txt is not taken as an artifact: it is a link that points outside the folder") || !strings.Contains(logged, "p.txt is not taken") {
			t.Errorf("the log is %q", logged)
		}
	})
	o.run(t, "an invalid result fails the task with the cause", func(t *testing.T) {
		for shell, wantMsg := range map[string]string{
			`echo '{"loss": NaN}' > $MUSTER_OUT/result.json`:     "not valid JSON",
			`head -c 300000 /dev/zero > $MUSTER_OUT/result.json`: "larger than 256KiB",
			`ln -s /proc/self/status $MUSTER_OUT/result.json`:    "not a regular file",
			`mkfifo $MUSTER_OUT/result.json`:                     "not a regular file",
		} {
			want(t, b.done(t, b.task(shell)), muster.AttemptFailed, muster.ResultInvalid, wantMsg)
		}
	})
	o.run(t, "the end of its output is the result of a program that wrote none", func(t *testing.T) {
		for _, c := range []struct{ shell, result string }{
			{"true", ""},
			{"exit 4", ""},
			{"echo out; printf err >&2", `{"exit_code":0,"stdout":"out\n","stderr":"err"}`},
			{"echo out; exit 4", `{"exit_code":4,"stdout":"out\n","stderr":""}`},
			{"echo out; echo x > $MUSTER_OUT/model.pt", `{"exit_code":0,"stdout":"out\n","stderr":""}`},
			{"echo out; echo 7 > $MUSTER_OUT/result.json; exit 4", "7\n"},
			{"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo 345678; done", `{"exit_code":0,"stdout":"` + strings.Repeat(`345678\n`, 1024/7) + `","stderr":"","truncated":true}`},
		} {
			if r := b.done(t, b.task(c.shell)); string(r.Result) != c.result {
				t.Errorf("%s: %.200s, want %.200s", c.shell, r.Result, c.result)
			}
		}
		want(t, b.done(t, b.task("echo out; echo NaN > $MUSTER_OUT/result.json")), muster.AttemptFailed, muster.ResultInvalid, "not valid JSON")
	})
	o.run(t, "the last lines of standard error are in the message of a failure", func(t *testing.T) {
		for shell, message := range map[string]string{
			"echo no; exit 3":               "exit code 3",
			"echo why >&2; exit 3":          "exit code 3: why",
			"echo fine >&2; kill -9 $$":     "ended by SIGKILL*: fine",
			"seq 100 >&2; echo >&2; exit 3": "exit code 3: 100\n91\n92\n93\n94\n95\n96\n97\n98\n99\n100",
		} {
			r := b.done(t, b.task(shell))
			before, after, _ := strings.Cut(message, "*")
			if r.Outcome != muster.AttemptFailed || !strings.HasPrefix(r.Message, before) || !strings.HasSuffix(r.Message, after) || after == "" && r.Message != message {
				t.Errorf("%s: %s %q, want %q", shell, r.Outcome, r.Message, message)
			}
		}
	})
	o.run(t, "nor through a folder put in the place of one of them", func(t *testing.T) {
		outside := t.TempDir()
		for _, name := range []string{"result.json", "model.pt"} {
			if err := os.WriteFile(filepath.Join(outside, name), []byte(`"hunter2"`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, shell := range []string{
			"rm -r $MUSTER_OUT && ln -s %s $MUSTER_OUT", "cd .. && rm -r work && ln -s %s work",
			"d=$(dirname $MUSTER_OUT) && mkdir $d.new && ln -s %s $d.new/out && ln -s %[1]s $d.new/work && rm -r $d && mv $d.new $d",
		} {
			task := b.task(fmt.Sprintf(shell, outside))
			task.Spec.Outputs = []string{"*.pt"}
			r := b.done(t, task)
			if len(r.Artifacts) > 0 || strings.Contains(string(r.Result), "hunter2") {
				t.Errorf("%s: %v %s", shell, r.Artifacts, r.Result)
			}
			if logged := b.Output(t, task.Attempt, tasklog.System); r.Outcome == muster.AttemptSucceeded && !strings.Contains(logged, "the task replaced its folder") {
				t.Errorf("%s: the log is %q", shell, logged)
			}
		}
	})
	o.run(t, "inputs and files are there when it starts", func(t *testing.T) {
		task := b.task("cat a/b/in.txt own.sh; test -x own.sh")
		task.Spec.Files = b.Tree(map[string]string{"own.sh": "old", "a/b/in.txt": "replaced"})
		task.Inputs = []muster.InputFile{{Path: "a/b/in.txt", SHA256: b.Blob("data "), Size: 5}}
		recorder := &Recorder{}
		wantSuccess(t, b.record(t, task, recorder))
		b.wantOutput(t, task, tasklog.Stdout, "data old")
		updates := recorder.Updates()
		if len(updates) < 2 || *updates[0].Step == "" || *updates[len(updates)-1].Step != "" {
			t.Errorf("the steps are %v: want those of the preparation, and none once it is over", updates)
		}
	})
}

func protocol(t *testing.T, o suite) {
	t.Helper()
	b := open(t, o)
	task := b.task(`echo before
		echo '::muster progress=0.25 step="epoch 1/4" loss=0.5'
		echo '::muster {"progress": 0.5, "acc": 0.9}'
		echo '{"step": "from the file", "metrics": {"lr": 0.1}}' >> $MUSTER_EVENTS
		echo '::muster progress=nonsense'
		echo '::muster progress=NaN'
		echo '::muster not an event' >&2
		printf '::muster progress=1'`)
	recorder := &Recorder{}
	wantSuccess(t, b.record(t, task, recorder))
	var fractions, steps []string
	metrics := map[string]float64{}
	for _, p := range recorder.Updates() {
		if p.Attempt != task.Attempt {
			t.Errorf("progress of %s", p.Attempt)
		}
		if p.Progress != nil {
			fractions = append(fractions, fmt.Sprint(*p.Progress))
		}
		if p.Step != nil {
			steps = append(steps, *p.Step)
		}
		maps.Copy(metrics, p.Metrics)
	}
	// Words that come fast may be merged: what counts is the last, and that none goes back.
	if n := len(fractions); n == 0 || fractions[n-1] != "1" || !slices.IsSorted(fractions) {
		t.Errorf("progress %v", fractions)
	}
	for _, s := range steps {
		if s != "epoch 1/4" && s != "from the file" {
			t.Errorf("steps %q", steps)
		}
	}
	if len(steps) == 0 {
		t.Error("no step is passed on")
	}
	if !maps.Equal(metrics, map[string]float64{"loss": 0.5, "acc": 0.9, "lr": 0.1}) {
		t.Errorf("metrics %v", metrics)
	}
	// The log has the history at a lower rate, including the last values.
	point := muster.Point{}
	for _, rec := range b.Records(t, task.Attempt) {
		if rec.Stream == tasklog.Progress {
			if err := json.Unmarshal(rec.Data, &point); err != nil { // adds to what was there
				t.Errorf("the point %s: %v", rec.Data, err)
			}
		}
	}
	if point.Progress == nil || *point.Progress != 1 || point.Step == nil || !maps.Equal(point.Metrics, metrics) {
		t.Errorf("the points of the log come to %+v", point)
	}
	b.wantOutput(t, task, tasklog.Stdout, "before\n::muster progress=nonsense\n::muster progress=NaN\n")
	b.wantOutput(t, task, tasklog.Stderr, "::muster not an event\n")
	if got := b.Output(t, task.Attempt, tasklog.System); strings.Count(got, "\n") != 1 || !strings.Contains(got, "nonsense") {
		t.Errorf("the log is %q", got)
	}
}
