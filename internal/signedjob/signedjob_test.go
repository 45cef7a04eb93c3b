package signedjob_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/sshsig"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newSigner(tb testing.TB) ssh.Signer {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// defaults is a catalog of kinds that gives tasks of kind train memory.
type defaults struct{}

func (defaults) ApplyDefaults(t *muster.TaskSpec) {
	if t.Kind == "train" && t.Resources.Memory == 0 {
		t.Resources.Memory = 4 << 30
	}
}

// jobs remembers nonces in memory.
type jobs map[string]string

func (j jobs) ClaimNonce(nonce, uid string, _, _ muster.Time) (string, error) {
	if j[nonce] == "" {
		j[nonce] = uid
	}
	return j[nonce], nil
}

// world is a signer and a worker that trusts it.
type world struct {
	t        *testing.T
	signer   ssh.Signer
	spec     *muster.Spec
	sig      *muster.Signature
	verifier *signedjob.Verifier
	at       time.Time
}

func newWorld(t *testing.T, text string) *world {
	t.Helper()
	w := &world{t: t, signer: newSigner(t), spec: parse(t, text), at: now}
	w.sig = w.sign(w.spec)
	w.verifier = w.newVerifier(string(ssh.MarshalAuthorizedKey(w.signer.PublicKey())))
	return w
}

func parse(t *testing.T, text string) *muster.Spec {
	t.Helper()
	var s muster.Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s.Normalize()
}

func (w *world) sign(s *muster.Spec) *muster.Signature {
	w.t.Helper()
	sig, err := signedjob.Sign(w.signer, s, now, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return sig
}

func (w *world) newVerifier(trusted string) *signedjob.Verifier {
	w.t.Helper()
	keys, err := sshsig.ParseTrusted([]byte(trusted), signedjob.Namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	return signedjob.NewVerifier(signedjob.Config{Keys: keys, Kinds: defaults{}, Jobs: jobs{}, Worker: "gpu1", Now: func() time.Time { return w.at }})
}

// task returns what an honest server assigns for an element of a stage.
func (w *world) task(stage, element int) *run.Task {
	first := 0
	for i := range stage {
		first += w.spec.Tasks[i].Size()
	}
	group := w.spec.Tasks[stage]
	defaults{}.ApplyDefaults(&group)
	group.SignedBy = sshsig.Fingerprint(w.signer.PublicKey())
	return &run.Task{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: 17, Num: first + element}, N: 1}, Job: "job1", Project: w.spec.Project, Group: group.Name,
		Element: group.Element(element), Spec: overTheWire(w.t, dag.Bind(&group, element, nil)),
		Grant: muster.Grant{CPUs: group.Resources.CPUs, Memory: group.Resources.Memory},
	}
}

// overTheWire returns a spec as the worker decodes it.
func overTheWire(t *testing.T, s *muster.TaskSpec) *muster.TaskSpec {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got muster.TaskSpec
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

func (w *world) refused(what string, t *run.Task, sig *muster.Signature, want string) {
	w.t.Helper()
	spec, err := w.verifier.Verify(t, sig)
	if err == nil || spec != nil || muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%s: %v, want …%s…", what, err, want)
	}
}

const pipeline = `{"name":"pipeline","project":"vision","tasks":[
	{"name":"prepare","run":["prepare","--all"],"env":{"SEED":"1"},"files":"sha256:aa","image":"python:3.12","container":{"entrypoint":[],"mounts":["/data:/data:ro"]}},
	{"name":"sweep","needs":["prepare"],"kind":"train","matrix":{"lr":[0.1,0.01],"seed":[1,2]},"input":{"lr":"${matrix.lr}","name":"run-${index}","big":12345678901234567890},"secrets":["HF_TOKEN"],"resources":{"cpus":2}},
	{"name":"many","array":"5-9","run":"echo ${index} $${index} $HOME","timeout":"90s","retries":{"max":2}}]}`

func TestSignedTasksRun(t *testing.T) {
	w := newWorld(t, pipeline)
	for stage := range w.spec.Tasks {
		for element := range w.spec.Tasks[stage].Size() {
			task := w.task(stage, element)
			got, err := w.verifier.Verify(task, w.sig)
			if err != nil {
				t.Errorf("task %s: %v", task.Attempt, err)
				continue
			}
			if field, err := signedjob.Diff(got, task.Spec); field != "" || err != nil || got.SignedBy != task.Spec.SignedBy {
				t.Errorf("task %s: %s differs, %v", task.Attempt, field, err)
			}
		}
	}
	retried := w.task(0, 0)
	retried.Attempt.N = 2
	if _, err := w.verifier.Verify(retried, w.sig); err != nil {
		t.Errorf("a second attempt: %v", err)
	}
	plain := w.task(0, 0)
	plain.Spec.SignedBy = ""
	if got, err := w.verifier.Verify(plain, w.sig); err != nil || got.SignedBy == "" {
		t.Errorf("what runs is what the server sent: %+v, %v", got, err)
	}
}

func TestChangedTasksAreRefused(t *testing.T) {
	w := newWorld(t, pipeline)
	for what, c := range map[string]struct {
		stage  int
		change func(*run.Task)
		want   string
	}{
		"the command":       {0, func(t *run.Task) { t.Spec.Run.Argv[1] = "--none" }, "run[1]"},
		"one more argument": {0, func(t *run.Task) { t.Spec.Run.Argv = append(t.Spec.Run.Argv, "x") }, "run"},
		"a shell":           {0, func(t *run.Task) { t.Spec.Run = &muster.Command{Shell: "prepare --all"} }, "run"},
		"a variable":        {0, func(t *run.Task) { t.Spec.Env["SEED"] = "2" }, "env.SEED"},
		"one more variable": {0, func(t *run.Task) { t.Spec.Env["LD_PRELOAD"] = "/x.so" }, "env.LD_PRELOAD"},
		"the files":         {0, func(t *run.Task) { t.Spec.Files = "sha256:bb" }, "files"},
		"the image":         {0, func(t *run.Task) { t.Spec.Image = "evil:1" }, "image"},
		"the entrypoint":    {0, func(t *run.Task) { t.Spec.Container.Entrypoint = nil }, "container.entrypoint"},
		"a mount":           {0, func(t *run.Task) { t.Spec.Container.Mounts[0].ReadOnly = false }, "container.mounts[0]"},
		"standard input":    {0, func(t *run.Task) { t.Spec.Stdin = "sha256:cc" }, "stdin"},
		"the network":       {0, func(t *run.Task) { t.Spec.Network = muster.NetworkHost }, "network"},
		"the kind":          {0, func(t *run.Task) { t.Spec.Kind = muster.KindNoop }, "kind"},
		"a checkpoint":      {0, func(t *run.Task) { t.Spec.Checkpoint = &muster.Checkpoint{} }, "checkpoint"},
		"an artifact":       {0, func(t *run.Task) { t.Inputs = []muster.InputFile{{Path: "prepare"}} }, "inputs"},
		"a gang":            {0, func(t *run.Task) { t.Gang = &muster.Membership{Size: 2} }, "gang"},
		"a secret":          {1, func(t *run.Task) { t.Spec.Secrets[0].Env = "LD_PRELOAD" }, "secrets[0]"},
		"another secret":    {1, func(t *run.Task) { t.Spec.Secrets = append(t.Spec.Secrets, muster.Secret{Name: "KEY"}) }, "secrets"},
		"more memory":       {1, func(t *run.Task) { t.Spec.Resources.Memory *= 2 }, "resources.memory"},
		"the input": {1, func(t *run.Task) {
			t.Spec.Input = json.RawMessage(`{"lr":0.5,"name":"run-0","big":12345678901234567890}`)
		}, "input.lr"},
		"a digit of the input": {1, func(t *run.Task) {
			t.Spec.Input = json.RawMessage(`{"lr":0.1,"name":"run-0","big":12345678901234567891}`)
		}, "input.big"},
		"another element's spec": {2, func(t *run.Task) { t.Spec.Run.Shell = "echo 6 ${index} $HOME" }, "run"},
		"another element":        {2, func(t *run.Task) { t.Element = "6" }, "element"},
		"an element outside":     {2, func(t *run.Task) { t.Element, t.Attempt.Task.Num = "10", t.Attempt.Task.Num+5 }, "element"},
		"an element before":      {0, func(t *run.Task) { t.Attempt.Task.Num = -1 }, "element"},
		"no time limit":          {2, func(t *run.Task) { t.Spec.Timeout = 0 }, "timeout"},
		"another stage":          {2, func(t *run.Task) { t.Group = "fourth" }, "the stage fourth"},
		"another stage's name":   {2, func(t *run.Task) { t.Group = "prepare" }, "element"},
		"another project":        {0, func(t *run.Task) { t.Project = "audio" }, "project"},
	} {
		task := w.task(c.stage, 0)
		c.change(task)
		w.refused(what, task, w.sig, c.want)
	}
}

// The grant has each amount that was signed: limits come from it. Of what the job leaves open it may have any.
func TestGrantsHaveTheSignedAmounts(t *testing.T) {
	w := newWorld(t, `{"project":"vision","tasks":[
		{"name":"whole","run":["x"],"resources":{"cpus":0.3,"memory":"1G","disk":"2G","pids":100,"gpus":{"count":2,"memory":"4G"}}},
		{"name":"shared","run":["x"],"resources":{"gpus":{"count":1,"memory":"4G","share":true}}}]}`)
	whole := func() muster.Grant {
		return muster.Grant{CPUs: 300. / 1000, Memory: 1 << 30, Disk: 2 << 30, PIDs: 100, GPUs: []string{"b", "a"}}
	}
	shared := func() muster.Grant {
		return muster.Grant{Slots: 1, Memory: 5, Disk: 6, PIDs: 7, GPUs: []string{"a"}, GPUMemory: 4 << 30}
	}
	for _, c := range []struct {
		stage  int
		grant  muster.Grant
		change func(*muster.Grant)
		want   string
	}{
		{0, whole(), func(*muster.Grant) {}, ""},
		{0, whole(), func(g *muster.Grant) { g.CPUs = 0 }, "cpus"},
		{0, whole(), func(g *muster.Grant) { g.CPUs = 0.301 }, "cpus"},
		{0, whole(), func(g *muster.Grant) { g.Memory = 0 }, "memory"},
		{0, whole(), func(g *muster.Grant) { g.Memory = 1 << 40 }, "memory"},
		{0, whole(), func(g *muster.Grant) { g.Disk = 0 }, "disk"},
		{0, whole(), func(g *muster.Grant) { g.PIDs = -1 }, "pids"},
		{0, whole(), func(g *muster.Grant) { g.GPUs = g.GPUs[:1] }, "gpus"},
		{0, whole(), func(g *muster.Grant) { g.GPUs = []string{"a", "a"} }, "gpus"},
		{0, whole(), func(g *muster.Grant) { g.GPUMemory = 4 << 30 }, "gpu memory"},
		{1, shared(), func(*muster.Grant) {}, ""},
		{1, shared(), func(g *muster.Grant) { g.GPUMemory = 1 }, "gpu memory"},
		{1, shared(), func(g *muster.Grant) { g.GPUMemory = 0 }, "gpu memory"},
	} {
		task := w.task(c.stage, 0)
		task.Grant = c.grant
		c.change(&task.Grant)
		if c.want != "" {
			w.refused(c.want, task, w.sig, "signed: the granted "+c.want)
		} else if _, err := w.verifier.Verify(task, w.sig); err != nil {
			t.Errorf("stage %d: %v", c.stage, err)
		}
	}
}

func TestForeignSignaturesAreRefused(t *testing.T) {
	w := newWorld(t, pipeline)
	task := w.task(0, 0)
	w.refused("no signature", task, nil, "submit the job with --sign")

	stranger := newSigner(t)
	other, err := signedjob.Sign(stranger, w.spec, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.refused("another key", task, other, "signed by "+sshsig.Fingerprint(stranger.PublicKey())+", which the owner")

	changed := *w.sig
	changed.Statement = strings.Replace(changed.Statement, "--all", "--none", 1)
	w.refused("a changed statement", task, &changed, "does not match")

	armored, err := sshsig.Sign(rand.Reader, w.signer, "git", []byte(w.sig.Statement))
	if err != nil {
		t.Fatal(err)
	}
	w.refused("a signature for another purpose", task, &muster.Signature{Statement: w.sig.Statement, Armor: string(armored)}, `namespace "git"`)

	for what, c := range map[string][2]string{
		"a newer version":       {`"version":1`, `"version":2`},
		"an unknown field":      {`"version":1`, `"version":1,"also":true`},
		"a signature for years": {`"expires_at":"2026-`, `"expires_at":"2027-`},
		"artifacts":             {`"kind":"train"`, `"kind":"train","inputs":[{"from":"prepare","name":"x"}]`},
		"two values":            {`{"version":1`, `{} {"version":1`},
		"no nonce":              {`"nonce":"`, `"nonce":"","x":"`},
	} {
		text := strings.Replace(w.sig.Statement, c[0], c[1], 1)
		if text == w.sig.Statement {
			t.Fatalf("%s: %s is not in the statement", what, c[0])
		}
		armored, err := sshsig.Sign(rand.Reader, w.signer, signedjob.Namespace, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		w.refused(what, task, &muster.Signature{Statement: text, Armor: string(armored)}, "")
	}
}

func TestSignaturesExpire(t *testing.T) {
	w := newWorld(t, pipeline)
	task := w.task(0, 0)
	for after, want := range map[time.Duration]string{
		0: "", time.Hour - time.Millisecond: "", time.Hour: "expired at 2026-05-01T13:00:00.000Z", -signedjob.ClockSkew: "", -signedjob.ClockSkew - time.Millisecond: "compare the clocks",
	} {
		w.at = now.Add(after)
		if want != "" {
			w.refused(after.String(), task, w.sig, want)
		} else if _, err := w.verifier.Verify(task, w.sig); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	w.at = now
	for options, want := range map[string]string{"valid-before=20260430Z": "was valid until", "valid-after=20260502Z": "is valid from", "valid-before=202605011230Z": ""} {
		w.verifier = w.newVerifier("ada " + options + " " + string(ssh.MarshalAuthorizedKey(w.signer.PublicKey())))
		if want != "" {
			w.refused(options, task, w.sig, want)
			continue
		}
		if _, err := w.verifier.Verify(task, w.sig); err != nil {
			t.Errorf("%s: %v", options, err)
		}
		w.at = now.Add(45 * time.Minute)
		w.refused("a key that expired after it signed", task, w.sig, "was valid until")
	}
}

func TestOneJobForEachSignature(t *testing.T) {
	w := newWorld(t, pipeline)
	if _, err := w.verifier.Verify(w.task(0, 0), w.sig); err != nil {
		t.Fatal(err)
	}
	again := w.task(0, 0)
	again.Job = "job2"
	w.refused("the same signature for another job", again, w.sig, "another job with this signature")
	if _, err := w.verifier.Verify(again, w.sign(w.spec)); err != nil {
		t.Errorf("the same job, signed again: %v", err)
	}
}

func TestSignedJobsNameTheirWorkers(t *testing.T) {
	for workers, want := range map[string]string{`["gpu1"]`: "", `["x","gpu1"]`: "", `["gpu2","gpu3"]`: "for the workers gpu2, gpu3 only"} {
		w := newWorld(t, `{"project":"vision","tasks":[{"run":["true"],"where":{"workers":`+workers+`}}]}`)
		if want != "" {
			w.refused(workers, w.task(0, 0), w.sig, want)
		} else if _, err := w.verifier.Verify(w.task(0, 0), w.sig); err != nil {
			t.Errorf("%s: %v", workers, err)
		}
	}
}

// BenchmarkVerify measures what a signature adds to each task of an array.
func BenchmarkVerify(b *testing.B) {
	signer := newSigner(b)
	spec := (&muster.Spec{Tasks: []muster.TaskSpec{{
		Run: &muster.Command{Shell: "x ${index}"}, Env: map[string]string{"A": "1", "B": "2"}, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 999}}},
	}}}).Normalize()
	sig, err := signedjob.Sign(signer, spec, now, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	v := signedjob.NewVerifier(signedjob.Config{Keys: []sshsig.TrustedKey{{Key: signer.PublicKey()}}, Kinds: defaults{}, Jobs: jobs{}, Now: func() time.Time { return now }})
	group := spec.Tasks[0]
	group.SignedBy = sshsig.Fingerprint(signer.PublicKey())
	task := &run.Task{Job: "job1", Project: spec.Project, Group: group.Name, Element: "7", Spec: dag.Bind(&group, 7, nil)}
	task.Attempt.Task.Num = 7
	for b.Loop() {
		if _, err := v.Verify(task, sig); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWhatCannotBeSigned(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"b","needs":["a"],"run":"x","inputs":[{"from":"a","name":"m.pt"}]}`: "tasks[1].inputs: a signed job cannot use artifacts",
		`{"name":"b","needs":["a"],"run":"x ${a.result.loss}"}`:                      "tasks[1].run: ${a.result.loss}",
		`{"name":"b","run":"x","gang":2}`:                                            "tasks[1].gang",
		`{"name":"b","needs":["a"],"run":"x","when":"${a.exit_code} == 0"}`:          "tasks[1].when: a signed job cannot have conditions",
		`{"name":"b","needs":["a"],"run":"x","when":"failed"}`:                       "",
		`{"name":"b","needs":["a"],"run":"x","when":"succeeded"}`:                    "",
		`{"name":"b","script":{"url":"https://example.com/a.sh"}}`:                   "tasks[1].script.sha256",
		`{"name":"b","run":"x $${a.result.loss} ${HOME}"}`:                           "",
	} {
		_, err := signedjob.Sign(newSigner(t), parse(t, `{"tasks":[{"name":"a","run":"x"},`+text+`]}`), now, time.Hour)
		if want == "" && err != nil || want != "" && (err == nil || muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want …%s…", text, err, want)
		}
	}
	spec := parse(t, `{"run":["x"],"tasks":[{"run":["x"]}]}`)
	for _, ttl := range []time.Duration{0, -time.Second, signedjob.MaxTTL + time.Second} {
		if _, err := signedjob.Sign(newSigner(t), spec, now, ttl); err == nil {
			t.Errorf("signed for %s", ttl)
		}
	}
	spec.Tasks[0].Env = map[string]string{"A": strings.Repeat("x", muster.MaxStatement)}
	if _, err := signedjob.Sign(newSigner(t), spec, now, time.Hour); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("a large job: %v", err)
	}
}

// allocated returns how many bytes were allocated so far.
func allocated() muster.Size {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return muster.Size(m.TotalAlloc)
}

// A statement with more stages than a job may have is refused before they are decoded, also in a list that a later one replaces.
func TestStagesAreCountedFirst(t *testing.T) {
	w := newWorld(t, pipeline)
	stages := "[{}" + strings.Repeat(",{}", muster.MaxStatement/3-100) + "]"
	for _, statement := range []string{`{"version":1,"tasks":` + stages + `}`, `{"Tasks":` + stages + `,"tasks":[]}`} {
		armored, err := sshsig.Sign(rand.Reader, w.signer, signedjob.Namespace, []byte(statement))
		if err != nil {
			t.Fatal(err)
		}
		sig := &muster.Signature{Statement: statement, Armor: string(armored)}
		before := allocated()
		if _, err := signedjob.Open(sig, now); err == nil || !strings.Contains(err.Error(), "stages, the maximum is 1000") {
			t.Errorf("opened: %v", err)
		}
		w.refused("too many stages", w.task(0, 0), sig, "stages, the maximum is 1000")
		if n := allocated() - before; n > 100<<20 {
			t.Errorf("allocated %s", n)
		}
	}
	unknown := strings.Replace(w.sig.Statement, `"kind":`, `"future":1,"kind":`, 1)
	armored, err := sshsig.Sign(rand.Reader, w.signer, signedjob.Namespace, []byte(unknown))
	if err != nil {
		t.Fatal(err)
	}
	w.refused("a field of a later version", w.task(0, 0), &muster.Signature{Statement: unknown, Armor: string(armored)}, `unknown field "future"`)
}

// Whether the key is trusted is compared before the statement is decoded.
func TestStatementsOfStrangersAreNotDecoded(t *testing.T) {
	w := newWorld(t, pipeline)
	stranger := newSigner(t)
	armored, err := sshsig.Sign(rand.Reader, stranger, signedjob.Namespace, []byte("{"))
	if err != nil {
		t.Fatal(err)
	}
	w.refused("a stranger's", w.task(0, 0), &muster.Signature{Statement: "{", Armor: string(armored)}, "signed by "+sshsig.Fingerprint(stranger.PublicKey()))
}

// The names of the stages are collected once, not for each stage.
func TestCheckingManyStages(t *testing.T) {
	spec := &muster.Spec{Tasks: make([]muster.TaskSpec, muster.MaxStages)}
	for i := range spec.Tasks {
		spec.Tasks[i].Name = "stage" + strconv.Itoa(i)
	}
	before := allocated()
	signedjob.Check(spec)
	if n := allocated() - before; n > 10<<20 {
		t.Errorf("allocated %s", n)
	}
}

func TestCompare(t *testing.T) {
	w := newWorld(t, pipeline)
	signed, err := signedjob.Open(w.sig, now)
	if err != nil {
		t.Fatal(err)
	}
	asSigned := &muster.Spec{Project: signed.Project, Name: signed.Name, Tasks: signed.Tasks}
	if err := signedjob.Compare(asSigned, w.spec); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*muster.Spec){
		"tasks[2].run differs": func(s *muster.Spec) { s.Tasks[2].Run = &muster.Command{Shell: "y"} },
		"in project audio":     func(s *muster.Spec) { s.Project = "audio" },
		"has 2 stages":         func(s *muster.Spec) { s.Tasks = s.Tasks[:2] },
		"has 0 stages":         func(s *muster.Spec) { s.Tasks = nil },
	} {
		changed := *w.spec
		changed.Tasks = slices.Clone(w.spec.Tasks)
		change(&changed)
		if err := signedjob.Compare(asSigned, &changed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := signedjob.Open(w.sig, now.Add(2*time.Hour)); err == nil {
		t.Error("an expired signature is accepted")
	}
}

// FuzzStatement holds that a worker refuses every statement but the signed one, and that no signed statement makes it panic.
func FuzzStatement(f *testing.F) {
	signer := newSigner(f)
	sig, err := signedjob.Sign(signer, (&muster.Spec{Tasks: []muster.TaskSpec{{Run: &muster.Command{Shell: "x ${index}"}, Array: &muster.Array{Ranges: []muster.Range{{First: 1, Last: 3}}}}}}).Normalize(), now, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	keys := []sshsig.TrustedKey{{Key: signer.PublicKey()}}
	f.Add(sig.Statement, "3")
	f.Add(`{"version":1,"nonce":"0123456789abcdef","tasks":[{"name":"task","matrix":{"a":[]}},{"gang":-1}]}`, "")
	f.Fuzz(func(t *testing.T, statement, element string) {
		v := signedjob.NewVerifier(signedjob.Config{Keys: keys, Kinds: defaults{}, Jobs: jobs{}, Now: func() time.Time { return now }})
		task := &run.Task{Job: "job1", Project: "default", Group: "task", Element: element, Spec: &muster.TaskSpec{}}
		if _, err := v.Verify(task, &muster.Signature{Statement: statement, Armor: sig.Armor}); err == nil {
			t.Fatalf("the statement %q is accepted", statement)
		}
		armored, err := sshsig.Sign(rand.Reader, signer, signedjob.Namespace, []byte(statement))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(task, &muster.Signature{Statement: statement, Armor: string(armored)}); err == nil {
			t.Logf("runs %q", statement) // an empty spec that the fuzzer signed
		}
	})
}
