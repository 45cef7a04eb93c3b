package spec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/specvalidate"
)

func mustParse(t *testing.T, text string) []*muster.Spec {
	t.Helper()
	specs, err := spec.Parse([]byte(text), "job.yaml")
	if err != nil {
		t.Fatalf("%.1000s\n%.1000s", text, spec.Format(err, text))
	}
	return specs
}

func problems(t *testing.T, text string) []muster.FieldError {
	t.Helper()
	specs, err := spec.Parse([]byte(text), "job.yaml")
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || e.Code != muster.InvalidSpec || specs != nil || len(e.Fields) == 0 {
		t.Fatalf("%.80s gives %v, %v", text, specs, err)
	}
	return e.Fields
}

func TestParseReadsAWholeJob(t *testing.T) {
	text := `
name: digits
priority: 7
labels: {team: vision, build: 12}
tasks:
  - name: train
    files: .
    run: python train.py --epochs 5
    python: {requirements: requirements.txt, version: 3.10}
    env: {SEED: 1, DEBUG: yes, FLAG: true, RATE: 1.50, EMPTY: ""}
    resources: {cpus: 1.5, memory: 4GiB, disk: 1_000, gpus: {count: 1, memory: 10GB, share: true, vendor: nvidia}}
    where: {tags: [linux, a:b], max_price: 2}
    timeout: 1h
    queue_timeout: 90
    retries: {max: 2, backoff: 1.5, on: [worker_lost, exit:75]}
    kill: {signal: SIGINT, grace: 30s}
    outputs: [model.pt, "plots/*.png"]
  - name: evaluate
    needs: [train]
    script: |
      #!/bin/sh
      echo ${train.result.accuracy}
    inputs: [{from: train, name: model.pt, as: in/model.pt}]
    matrix: {lr: [0.10, 1e-3, .5, no], seed: 1-2}
  - needs: [evaluate]
    run: [sleep, 5, "${HOME}"]
    array: 0-9
    input: {b: [1, ~, 0x10, 1e3, "t"], a: {}}
`
	priority := 7
	want := &muster.Spec{
		Name: "digits", Priority: &priority, Labels: map[string]string{"team": "vision", "build": "12"},
		Tasks: []muster.TaskSpec{
			{
				Name: "train", Files: ".", Run: &muster.Command{Shell: "python train.py --epochs 5"},
				Python: &muster.Python{Requirements: "requirements.txt", Version: "3.10"},
				Env:    map[string]string{"SEED": "1", "DEBUG": "yes", "FLAG": "true", "RATE": "1.50", "EMPTY": ""},
				Resources: muster.Request{CPUs: 1.5, Memory: 4 << 30, Disk: 1000,
					GPUs: muster.GPURequest{Count: 1, Memory: 10e9, Share: true, Vendor: "nvidia"}},
				Where:   muster.Where{Tags: []string{"linux", "a:b"}, MaxPrice: 2},
				Timeout: muster.Duration(time.Hour), QueueTimeout: muster.Duration(90 * time.Second),
				Retries: muster.Retries{Max: 2, Backoff: muster.Duration(1500 * time.Millisecond), On: []string{"worker_lost", "exit:75"}},
				Kill:    muster.Kill{Signal: "SIGINT", Grace: muster.Duration(30 * time.Second)},
				Outputs: []string{"model.pt", "plots/*.png"},
			},
			{
				Name: "evaluate", Needs: []string{"train"}, Script: &muster.Script{Text: "#!/bin/sh\necho ${train.result.accuracy}\n"},
				Inputs: []muster.Input{{From: "train", Name: "model.pt", As: "in/model.pt"}},
				Matrix: &muster.Matrix{Axes: []muster.Axis{
					{Name: "lr", Values: []string{"0.10", "1e-3", ".5", "no"}}, {Name: "seed", Values: []string{"1", "2"}},
				}},
			},
			{
				Needs: []string{"evaluate"}, Run: &muster.Command{Argv: []string{"sleep", "5", "${HOME}"}},
				Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 9, Step: 1}}},
				Input: json.RawMessage(`{"b":[1,null,16,1e3,"t"],"a":{}}`),
			},
		},
	}
	got := mustParse(t, text)
	if d := cmp.Diff([]*muster.Spec{want}, got); d != "" {
		t.Error(d)
	}
	b, err := json.Marshal(got[0])
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, mustParse(t, string(b))); d != "" {
		t.Errorf("its JSON is decoded differently: %s", d)
	}
}

func TestParseForms(t *testing.T) {
	shell := func(s string) *muster.Command { return &muster.Command{Shell: s} }
	for name, c := range map[string]struct {
		text string
		want []*muster.Spec
	}{
		"flat":      {"name: a b\nrun: x", []*muster.Spec{{Name: "a b", Tasks: []muster.TaskSpec{{Run: shell("x")}}}}},
		"JSON":      {"{\"run\":\t\"\\ud83d\\ude00 \\/ \\u003c\"}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("😀 / <")}}}}},
		"flow YAML": {"{run: x, outputs: [a]}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x"), Outputs: []string{"a"}}}}}},
		"documents": {"# first\nrun: x\n---\n---\n# nothing\n---\nrun: y\n", []*muster.Spec{
			{Tasks: []muster.TaskSpec{{Run: shell("x")}}}, {Tasks: []muster.TaskSpec{{Run: shell("y")}}}}},
		"anchors": {"x-defaults: &d {run: x, env: {A: b}}\ntasks:\n- <<: *d\n  name: one\n- {<<: [*d], run: y}\n", []*muster.Spec{{Tasks: []muster.TaskSpec{
			{Name: "one", Run: shell("x"), Env: map[string]string{"A": "b"}}, {Run: shell("y"), Env: map[string]string{"A": "b"}}}}}},
		"aliased value": {"name: &n x\nrun: *n", []*muster.Spec{{Name: "x", Tasks: []muster.TaskSpec{{Run: shell("x")}}}}},
		"CRLF and BOM":  {"\ufeffname: x\r\nrun: y\r\n", []*muster.Spec{{Name: "x", Tasks: []muster.TaskSpec{{Run: shell("y")}}}}},
		"a version":     {"%YAML 1.2\n---\nrun: x\n", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x")}}}}},
		"empty lists":   {"run: x\nneeds: []\nenv: {}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x")}}}}},
		"folded text":   {"run: >-\n  a\n  b\n", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("a b")}}}}},
		"a gang":        {"run: x\ngang: 4", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x"), Gang: &muster.Gang{Size: 4}}}}}},
		"a whole gang":  {"run: x\ngang: {size: 4, on_loss: end}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x"), Gang: &muster.Gang{Size: 4, OnLoss: "end"}}}}}},
		"a checkpoint":  {"run: x\ncheckpoint: ckpt/", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x"), Checkpoint: &muster.Checkpoint{Path: "ckpt/"}}}}}},
		"checkpointing": {"run: x\ncheckpoint: {every: 5m, signal: SIGUSR1}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Run: shell("x"), Checkpoint: &muster.Checkpoint{Every: muster.Duration(300e9), Signal: "SIGUSR1"}}}}}},
		"a script":      {"script: {url: https://x/y.py, args: [1, -2]}", []*muster.Spec{{Tasks: []muster.TaskSpec{{Script: &muster.Script{URL: "https://x/y.py", Args: []string{"1", "-2"}}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, mustParse(t, c.text)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAnEmptyEntrypointIsNotNone(t *testing.T) {
	for text, want := range map[string][]string{
		"image: a\ncontainer: {entrypoint: [], capabilities: []}":          {},
		"image: a\ncontainer: {user: nobody}":                              nil,
		`{"image": "a", "container": {"entrypoint": [], "pull": "never"}}`: {},
		"image: a\ncontainer: {entrypoint: [sh, -c]}":                      {"sh", "-c"},
	} {
		c := mustParse(t, text)[0].Tasks[0].Container
		if d := cmp.Diff(want, c.Entrypoint); d != "" || c.Capabilities != nil {
			t.Errorf("%s: %v, %s", text, c, d)
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again muster.Container
		if err := json.Unmarshal(b, &again); err != nil || !cmp.Equal(*c, again) {
			t.Errorf("%s is encoded as %s and decoded as %v, %v", text, b, again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"naem: x\nrun: y", "line 1, column 1: naem: unknown field (did you mean name?)"},
		{"run: y\nmemory: 1GiB", "line 2, column 1: memory: unknown field (did you mean resources.memory?)"},
		{"run: y\nresources:\n  memry: 1GiB", "line 3, column 3: resources.memry: unknown field (did you mean memory?)"},
		{"tasks: [{run: y}]\nrun: z", "line 2, column 1: run: unknown field (it belongs to an entry of tasks)"},
		{"tasks: [{run: y, priority: 5}]", "line 1, column 18: tasks[0].priority: unknown field (it belongs to the job, outside tasks)"},
		{"tasks: [{run: y, kill: {sgnal: x}}]", "line 1, column 25: tasks[0].kill.sgnal: unknown field (did you mean signal?)"},
		{"run: y\nkill: {xyzzy: x}", "line 2, column 8: kill.xyzzy: unknown field (known are signal, grace)"},
		{"run: y\nresources: {cpus: two}", `line 2, column 19: resources.cpus: expected a number, got "two"`},
		{"run: y\nresources: 2", "line 2, column 12: resources: expected an object with cpus, memory, disk, pids, gpus, got 2"},
		{"run: y\nresources: {memory: 4 apples}", `line 2, column 21: resources.memory: "4 apples" is not a size: write bytes or a form such as 512MiB or 10GB`},
		{"run: y\npriority: 1.5", "line 2, column 11: priority: expected a whole number, got 1.5"},
		{"run: y\npriority: high", `line 2, column 11: priority: expected a whole number, got "high"`},
		{"run: y\npriority: 010", `line 2, column 11: priority: expected a whole number, got "010"`},
		{"run: y\npriority: 500", "line 2, column 11: priority: 500 is out of range: write 0 to 100, higher first"},
		{"run: y\ntimeout: soon", `line 2, column 10: timeout: "soon" is not a duration: write seconds or a form such as 90s, 10m, 1h30m or 7d`},
		{"run: y\narray: 10", `line 2, column 8: array: 10 is not an array: write "0-9" for 10 tasks, or "10-10" for element 10 alone`},
		{`{"run": "y", "needs": "a"}`, `line 1, column 23: needs: expected a list, got "a" (such as ["a"])`},
		{`{"run": "y", "resources": {"gpus": 1}}`, "line 1, column 36: resources.gpus: expected an object with count, memory, share, vendor, model, got 1"},
		{"run: y\nresources: {gpus: -1}", "line 2, column 19: resources.gpus.count: -1 is not a number of GPUs: write 0 to 1024"},
		{"run: y\nresources: {gpus: 1.5}", "line 2, column 19: resources.gpus.count: expected a whole number, got 1.5"},
		{"run: y\nneeds: a", `line 2, column 8: needs[0]: unknown stage "a"`},
		{"run: y\nretry: 3", "line 2, column 1: retry: unknown field (did you mean retries.max?)"},
		{"run: y\ngpu: 1", "line 2, column 1: gpu: unknown field (did you mean resources.gpus?)"},
		{"tasks:\n- run: y\n  depends_on: [a]", "line 3, column 3: tasks[0].depends_on: unknown field (did you mean needs?)"},
		{"image: a\ncommand: [x]", "line 2, column 1: command: unknown field (did you mean run?)"},
		{"run: y\nresources: {gpu: 1}", "line 2, column 13: resources.gpu: unknown field (did you mean gpus?)"},
		{"run: y\nenv: [A=b]", "line 2, column 6: env: expected an object, such as {NAME: value}, got a list"},
		{"run: y\nenv: {A: }", "line 2, column 10: env.A: the field has no value (write \"\" for an empty string)"},
		{"run: y\nenv: {A: [b]}", "line 2, column 10: env.A: expected a string, got a list"},
		{"run: y\nenv:\n", "line 2, column 5: env: the field has no value (write a value, or remove the field)"},
		{"run: [a, [b]]", "line 1, column 10: run[1]: expected a string, got a list"},
		{"run: {a: b}", "line 1, column 6: run: "},
		{"run: y\nmatrix: {lr: [1, [2]]}", "line 2, column 18: matrix.lr[1]: expected a string, got a list"},
		{"run: y\nmatrix: {lr: abc}", "line 2, column 14: matrix.lr: matrix axis lr: "},
		{"run: y\nresources: {gpus: {count: 1, share: 1, memory: 1}}", "line 2, column 37: resources.gpus.share: expected true or false, got 1"},
		{"run: y\nenv: {A: 1}\nenv: {B: 1}", `line 3, column 1: duplicate field "env" (keep one of them)`},
		{"{\"run\": \"y\",\n \"env\": {\"A\": \"1\", \"A\": \"2\"}}", `line 2, column 20: duplicate field "A" (keep one of them)`},
		{"{\"run\": \"y\",\n \"é\": \"ü\"}", "line 2, column 2: é: unknown field"},
		{"run: \"y", "line 1, column 6: invalid YAML: "},
		{"run: y\ninput: " + strings.Repeat("[", 500), "line 2, column 308: the nesting is deeper than 100 levels"},
		{"run: y\n\tname: x", "line 2, column 1: a tab indents the line (use spaces)"},
		{"- run: x", "line 1, column 1: a list is not a job: write an object with run or tasks (write the stages under tasks:"},
		{"just text", `line 1, column 1: "just text" is not a job`},
		{"", "line 1, column 1: the file has no job"},
		{"# only a comment\n---\n", "the file has no job"},
		{"name: x", "line 1, column 1: kind: the stage has nothing to run"},
		{"run: *x", "line 1, column 6: invalid YAML: unknown anchor 'x' referenced (a string that begins with * needs quotes)"},
		{"run: x\noutputs: [*.pt]", "line 2, column 11: invalid YAML: unknown anchor '.pt' referenced (a string that begins with * needs quotes)"},
		{"run: x\noutputs: [a: b]", `line 2, column 11: outputs[0]: expected a string, got an object (a string with ": " in it needs quotes)`},
		{"x-a: &a {b: *a}\nrun: x", "the value of the anchor a contains itself"},
		{"run: |\n  ä\x1b[0m", "line 2, column 4: invalid YAML: control characters are not allowed (value: 27) (write such characters in double quotes"},
		{"name: a\nrun: [a, b\nenv: {A: b}\n", "line 2, column 6: invalid YAML: did not find expected ',' or ']', while parsing a flow sequence"},
		{"name: a\nrun: 'a\nenv: {A: b}\n", "line 2, column 6: invalid YAML: found unexpected end of stream, while scanning a quoted scalar"},
		{"name: x\nenv:\n  A: b\n B: c\n", "line 4, column 2: invalid YAML: did not find expected key, while parsing a block mapping"},
		{"name: x\nrun:y\nenv: {}\n", "line 2, column 1: invalid YAML: could not find expected ':', while scanning a simple key"},
		{"name: x\nrun: echo a: b\n", "line 2, column 12: invalid YAML: mapping values are not allowed in this context"},
		{"run: !!str 5", "the tag !!str is not supported"},
		{"run: x\n<<: 5", "line 2, column 5: << needs an alias of an object"},
		{"run: x\n? [a, b]\n: c", "line 2, column 3: the name of a field must be a plain string"},
		{"run: \"a\xff\"", "line 1, column 8: the file is not UTF-8 text"},
		{"run: x ${matrix.lr}", "line 1, column 6: run: ${matrix.lr}: this stage has no matrix"},
		{"tasks:\n- {name: a, run: x}\n- run: echo ${b.result.x}", "line 3, column 8: tasks[1].run: ${b.result.x}: there is no stage b"},
		{"run: x\nretries:\n  on:\n  - exit:0", "line 4, column 5: retries.on[0]: "},
		{"run: x\nenv:\n  MUSTER_JOB: 5", "line 3, column 15: env.MUSTER_JOB: names that begin with MUSTER_"},
		{"run: x\ngang:\n  sise: 4", "line 3, column 3: gang.sise: unknown field (did you mean size?)"},
		{"run: x\ngang: {size: four}", `line 2, column 14: gang.size: expected a whole number, got "four"`},
		{"run: x\ngang: four", `line 2, column 7: gang: "four" is not a gang: write the number of members, or an object with size and on_loss`},
		{"run: x\ngang: {size: 0}", "line 2, column 14: gang.size: 0 is not a number of members: write 1 to 1000"},
		{"run: x\ngnag: 4", "line 2, column 1: gnag: unknown field (did you mean gang?)"},
		{"run: x\non_loss: end", "line 2, column 1: on_loss: unknown field (did you mean gang.on_loss?)"},
		{"run: x\ncheckpoint: [a]", `line 2, column 13: checkpoint: ["a"] is not a checkpoint: write a folder such as ckpt/`},
		{"run: x\ncheckpoint: {path: a, evry: 1s}", "line 2, column 23: checkpoint.evry: unknown field (did you mean every?)"},
		{"run: x\ncheckpoint: ../a", `line 2, column 13: checkpoint.path: "../a" is not a folder in the task's folder`},
		{"run: x\nlauncher: mpirun", `line 2, column 11: launcher: unknown value "mpirun": use torchrun`},
		{"run: x\nnetwork: off", `line 2, column 10: network: unknown value "off": use host, bridge, allowlist or none`},
		{"run: x\nimage: Python", `line 2, column 8: image: "Python" is not a valid image name (image names are lower case: write python)`},
		{"run: x\nimage: [a]", "line 2, column 8: image: expected a string, got a list"},
		{"run: x\nimage: a\nuser: root", "line 3, column 1: user: unknown field (did you mean container.user?)"},
		{"image: a\ncontainer:\n  entrypoint: sh", `line 3, column 15: container.entrypoint: expected a list, got "sh" (such as ["sh"])`},
		{"image: a\ncontainer:\n  mounts: [/data]", `line 3, column 12: container.mounts[0]: "/data" is not a mount: write source:target, with :ro for read-only, such as /data:/data:ro`},
		{"image: a\ncontainer:\n  mounts: [{source: /a, traget: /b}]", "line 3, column 25: container.mounts[0].traget: unknown field (did you mean target?)"},
		{"image: a\ncontainer:\n  mounts:\n  - /a:b", `line 4, column 5: container.mounts[0].target: "b" is not an absolute path`},
		{"image: a\ncontainer: {shm_size: 1}", "line 2, column 23: container.shm_size: 1B is out of range: write 64KiB to 1024TiB"},
		{"image: a:${matrix.v}", "line 1, column 8: image: ${matrix.v}: this stage has no matrix"},
		{"run: x\npids: 5", "line 2, column 1: pids: unknown field (did you mean resources.pids?)"},
	} {
		got := problems(t, c.text)
		if len(got) != 1 || !strings.HasPrefix(got[0].String(), c.want) && !strings.Contains(got[0].String(), c.want) {
			t.Errorf("%q gives\n%v, want\n%s", c.text, got, c.want)
		}
	}
}

func TestParseTellsAllProblemsInOrder(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "wrong.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = spec.Parse(text, "wrong.yaml")
	want, readErr := os.ReadFile(filepath.Join("testdata", "wrong.golden"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	if d := cmp.Diff(string(want), spec.Format(err, string(text))); d != "" {
		t.Error(d)
	}
	if want := "wrong.yaml: 9 problems; the first: line 2, column 1: titel: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the message is %q", err)
	}
}

// Problems of the additional check get the places of their fields, in all forms of a job.
func TestCheckedInputsHaveTheirPlace(t *testing.T) {
	const flat = "kind: mnist_training\ninput:\n  epochs: 0\n  data: {path: x, list: [1, {a: b}]}\n"
	for text, want := range map[string]string{
		flat: "line 3, column 3: input.epochs: a|line 3, column 3: input: f|line 4, column 3: input.data.none: d|line 4, column 10: input.data.path: b|" +
			"line 4, column 30: input.data.list[1].a: c",
		`{"kind":"mnist_training","input":{"epochs":0,"data":{"list":[1,{"a":2}],"path":3}}}`: "line 1, column 34: input: f|" +
			"line 1, column 35: input.epochs: a|line 1, column 46: input.data.none: d|line 1, column 65: input.data.list[1].a: c|line 1, column 73: input.data.path: b",
	} {
		_, err := spec.ParseContext(t.Context(), []byte(text), "x.yaml", func(*muster.Spec) []muster.FieldError {
			return []muster.FieldError{
				{Path: "tasks[0].input.epochs", Message: "a"}, {Path: "tasks[0].input.data.path", Message: "b"}, {Path: "tasks[0].input.data.list[1].a", Message: "c"},
				{Path: "tasks[0].input.data.none", Message: "d"}, {Path: "tasks[0].input", Message: "f"},
			}
		})
		e, ok := errors.AsType[*muster.Error](err)
		if !ok {
			t.Fatalf("%s gives %v", text, err)
		}
		var got []string
		for _, f := range e.Fields {
			got = append(got, f.String())
		}
		if got := strings.Join(got, "|"); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// The values of an input keep their YAML types.
func TestInputsKeepTheirTypes(t *testing.T) {
	got := mustParse(t, "kind: mnist_training\ninput: {lr: 1e-3, n: 5, on: true, text: '5', none: null, list: [0.1, x], big: 12345678901234567890}\n")
	want := `{"lr":1e-3,"n":5,"on":true,"text":"5","none":null,"list":[0.1,"x"],"big":12345678901234567890}`
	if string(got[0].Tasks[0].Input) != want {
		t.Errorf("the input is %s, want %s", got[0].Tasks[0].Input, want)
	}
}

func TestParseIsBounded(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("x-a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&laughs, "x-a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	for name, text := range map[string]string{
		"aliases of aliases": laughs.String() + "run: x\n",
		"brackets":           "input: " + strings.Repeat("[", 100_000),
		"braces":             "input: " + strings.Repeat("{a: ", 100_000),
		"closed brackets":    "run: x\ninput: " + strings.Repeat("[", 500) + strings.Repeat("]", 500),
		"JSON brackets":      `{"run": "x", "input": ` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}",
		"dashes":             "input:\n  " + strings.Repeat("- ", 100_000) + "x",
		"keys":               strings.Repeat("? ", 100_000) + "x",
		"tags":               "run: " + strings.Repeat("!!a ", 100_000) + "x",
		"anchors":            "run: " + strings.Repeat("&a ", 100_000) + "x",
		"indentation":        "run: x\ninput:\n" + nestedObjects(500),
		"documents":          strings.Repeat("run: x\n---\n", 2_000),
		"many problems":      "run: x\n" + strings.Repeat("a: b\n", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			if n := len(problems(t, text)); n > 100 {
				t.Errorf("%d problems", n)
			}
		})
	}
	_, err := spec.Parse([]byte("run: x\n#"+strings.Repeat("x", spec.MaxFile)), "big.yaml")
	if muster.CodeOf(err) != muster.TooLarge || !strings.Contains(err.Error(), "big.yaml is larger than the maximum of 1048576 bytes: ") {
		t.Errorf("a big file gives %v", err)
	}
}

// nestedObjects returns n nested objects.
func nestedObjects(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return b.String()
}

func TestParseReadsLargeFiles(t *testing.T) {
	var b strings.Builder
	b.WriteString("tasks:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- name: s%d\n  run: |\n", i)
		for range 10 {
			b.WriteString("    echo this is a line of a program that is not short\n")
		}
	}
	if got := mustParse(t, b.String()[:b.Len()-1]); len(got[0].Tasks) != 1000 {
		t.Errorf("%d stages", len(got[0].Tasks))
	}
}

func TestFormatShowsTheSurroundingsOfLongLines(t *testing.T) {
	text := `{"run": "` + strings.Repeat("x", 5000) + `", "naem": 1, "labels": {"` + strings.Repeat("y", 500) + `": "z"}}`
	_, err := spec.Parse([]byte(text), "long.json")
	for line := range strings.Lines(spec.Format(err, text)) {
		if len(line) > 300 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	out := strings.Split(spec.Format(err, text), "\n")
	caret := strings.Index(out[2], "^") - strings.Index(out[2], "| ")
	shown := []rune(out[1][strings.Index(out[1], "| "):])
	if string(shown[caret:caret+6]) != `"naem"` {
		t.Errorf("the caret is not below the field:\n%s", strings.Join(out, "\n"))
	}
	if got := spec.Format(errors.New("other"), text); got != "other\n" {
		t.Errorf("another error became %q", got)
	}
}

func TestFormatSaysThatThereIsMore(t *testing.T) {
	for problems, more := range map[int]bool{3: false, 500: true} {
		text := strings.Repeat("kind: not good\n---\n", problems)
		_, err := spec.Parse([]byte(text), "many.yaml")
		out := spec.Format(err, text)
		if got := strings.HasSuffix(out, "\nOnly the first 100 problems are shown.\n"); got != more {
			t.Errorf("%d problems: notice of more problems: %v", problems, got)
		}
	}
}

// FuzzParse checks that accepted specs are valid and survive JSON, and that every problem
// has a place in the file.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"run: x", "name: a\ntasks:\n- {name: b, run: [c, 1], matrix: {lr: [0.1, x], s: 1-3}}\n- needs: [b]\n  kind: noop\n  array: 0-9,20-30:2\n  input: {a: [1, ~, \"${b.0.result.x}\"]}\n",
		"x-a: &a {A: b}\nrun: |\n  echo\nenv: {<<: *a, C: 1e3}\ntimeout: 1h30m\n---\nscript: {url: http://x, sha256: \"\"}",
		`{"run":"\ud800","env":{"A":"\u2028"},"timeout":0.29,"resources":{"cpus":0.1,"memory":"1.5GiB","gpus":{"count":1}}}`,
		"run: x\nretries: {on: [exit:7, timeout], backoff: 1e1}\nwhere: {tags: [a:b]}\npython: {version: 3.10}",
		"run: \"a\\xffb\"", "- - - x", "? a\n: b", "%YAML 1.2\n---\nrun: x", "run: !!binary aa", "run: *a", "{", "[", "a: b: c", "\t", "run: 'x", "kind: noop\ninput: .inf",
	} {
		f.Add([]byte(s))
	}
	f.Add([]byte("image: a/b:1\nisolation: auto\nrun: x\nnetwork: allowlist\nallow_hosts: ['*.a:1']\ncontainer: {entrypoint: [], mounts: [/a:/b:ro, {source: /c, target: /d}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := spec.Parse(data, "f")
		if err != nil {
			e, ok := errors.AsType[*muster.Error](err)
			if !ok {
				t.Fatalf("%q gives %v", data, err)
			}
			for _, p := range e.Fields {
				if p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Fatalf("%q gives a problem without a place: %+v", data, p)
				}
			}
			spec.Format(err, string(data))
			return
		}
		for _, s := range specs {
			if wrong := specvalidate.Spec(s); len(wrong) > 0 {
				t.Fatalf("%q was accepted, but: %v", data, wrong)
			}
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatalf("%q was accepted, but cannot be encoded: %v", data, err)
			}
			again, err := spec.Parse(b, "f")
			if err != nil {
				t.Fatalf("%q was encoded as %s, which is rejected: %v", data, b, err)
			}
			if d := cmp.Diff([]*muster.Spec{s}, again); d != "" {
				t.Fatalf("%q was encoded as %s, which differs: %s", data, b, d)
			}
		}
	})
}
