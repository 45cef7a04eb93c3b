//go:build unix

package attack

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/sshsig"
)

// owner is a user who signs jobs.
type owner struct {
	t      *testing.T
	signer ssh.Signer
}

func newOwner(t *testing.T) *owner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t: t, signer: signer}
}

func (o *owner) fingerprint() string { return sshsig.Fingerprint(o.signer.PublicKey()) }

func (o *owner) sign(spec *muster.Spec, at time.Time) *muster.Signature {
	o.t.Helper()
	sig, err := signedjob.Sign(o.signer, spec, at, time.Hour)
	if err != nil {
		o.t.Fatal(err)
	}
	return sig
}

// signedSpec returns a job of one stage with a little of everything.
func signedSpec(change func(*muster.TaskSpec)) *muster.Spec {
	t := muster.TaskSpec{Name: "t", Kind: muster.KindProcess, Run: &muster.Command{Argv: []string{"true"}}, Env: map[string]string{"SEED": "1"}}
	if change != nil {
		change(&t)
	}
	return (&muster.Spec{Project: "vision", Tasks: []muster.TaskSpec{t}}).Normalize()
}

// strictWorker is a real worker that trusts one owner, connected to a server that is not trusted.
type strictWorker struct {
	*hostileServer

	owner *owner
	conn  link.ServerConn
	ref   int
}

func newStrictWorker(t *testing.T, other http.HandlerFunc) *strictWorker {
	t.Helper()
	w := &strictWorker{hostileServer: newHostileServer(t, other), owner: newOwner(t)}
	keys := filepath.Join(t.TempDir(), "trusted")
	if err := os.WriteFile(keys, ssh.MarshalAuthorizedKey(w.owner.signer.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.conn = w.startWorker("--trust-keys", keys)
	return w
}

// frame assigns the first task of a job's first stage. Each is of another job.
func (w *strictWorker) frame(spec *muster.Spec, sig *muster.Signature) *link.ToWorker {
	w.ref++
	group := spec.Tasks[0]
	group.SignedBy = w.owner.fingerprint() // so says the server
	return &link.ToWorker{
		Specs:  []link.GroupSpec{{Ref: w.ref, UID: "u" + strconv.Itoa(w.ref), Name: group.Name, Spec: group, Project: spec.Project, Signature: sig}},
		Assign: []link.Assign{{Attempt: muster.AttemptID{Task: muster.TaskID{Job: muster.JobID(w.ref)}, N: 1}, Ref: w.ref, Element: group.Element(0), Grant: muster.Grant{Slots: 1}}},
	}
}

// rejects expects that the worker rejects what the frame assigns, for good, with a message that has the text.
func (w *strictWorker) rejects(f *link.ToWorker, want string) {
	w.t.Helper()
	w.send(w.conn, f)
	attempt := f.Assign[0].Attempt
	w.receive(w.conn, "a rejection", func(f *link.ToServer) bool {
		for _, id := range f.Accepted {
			if id == attempt {
				w.t.Fatalf("the worker accepted %s", id)
			}
		}
		for _, r := range f.Finished {
			if r.Attempt == attempt {
				w.t.Fatalf("the worker ran %s: %s %s", attempt, r.Outcome, r.Message)
			}
		}
		for _, r := range f.Rejected {
			if r.Attempt == attempt {
				if !r.Final || !strings.Contains(r.Message, want) {
					w.t.Errorf("rejected with %+v, want …%s…", r, want)
				}
				return true
			}
		}
		return false
	})
}

// runs expects that the worker runs what the frame assigns.
func (w *strictWorker) runs(f *link.ToWorker) {
	w.t.Helper()
	w.send(w.conn, f)
	w.receive(w.conn, "a report", func(f *link.ToServer) bool {
		for _, r := range f.Rejected {
			w.t.Fatalf("rejected: %s", r.Message)
		}
		for _, r := range f.Finished {
			if r.Outcome != muster.AttemptSucceeded {
				w.t.Fatalf("%s: %s", r.Outcome, r.Message)
			}
		}
		return len(f.Finished) > 0
	})
}

// TestWorkersRunWhatTheirOwnerSigned assigns a signed task, and again as a second attempt; and the same without a signature, which the server
// says to be there.
func TestWorkersRunWhatTheirOwnerSigned(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	w.runs(f)
	f.Assign[0].Attempt.N++
	w.runs(&link.ToWorker{Assign: f.Assign})
	w.rejects(w.frame(spec, nil), "submit the job with --sign")
}

// TestSignaturesOfOtherKeysAreRejected assigns a task that a key signed which the worker does not trust.
func TestSignaturesOfOtherKeysAreRejected(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec, stranger := signedSpec(nil), newOwner(t)
	w.rejects(w.frame(spec, stranger.sign(spec, time.Now())), "signed by "+stranger.fingerprint())
}

// TestSignaturesForOtherPurposesAreRejected assigns a task whose statement a trusted key signed as something else than a job.
func TestSignaturesForOtherPurposesAreRejected(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	sig := w.owner.sign(spec, time.Now())
	armored, err := sshsig.Sign(rand.Reader, w.owner.signer, "git", []byte(sig.Statement))
	if err != nil {
		t.Fatal(err)
	}
	sig.Armor = string(armored)
	w.rejects(w.frame(spec, sig), "namespace")
}

// TestAlteredStatementsAreRejected assigns a task with a statement that was changed after it was signed.
func TestAlteredStatementsAreRejected(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	sig := w.owner.sign(signedSpec(nil), time.Now())
	sig.Statement = strings.Replace(sig.Statement, `"SEED":"1"`, `"SEED":"2"`, 1)
	w.rejects(w.frame(signedSpec(func(t *muster.TaskSpec) { t.Env["SEED"] = "2" }), sig), "does not match")
}

// TestExpiredSignaturesAreRejected assigns a task whose signature has expired.
func TestExpiredSignaturesAreRejected(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	w.rejects(w.frame(spec, w.owner.sign(spec, time.Now().Add(-61*time.Minute))), "expired")
}

// TestSignaturesOfTheFutureAreRejected assigns a task that was signed in the future, and would be valid for longer than it says.
func TestSignaturesOfTheFutureAreRejected(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	w.rejects(w.frame(spec, w.owner.sign(spec, time.Now().Add(10*time.Minute))), "compare the clocks")
}

// TestSignedJobsAreNotReplayed assigns a signed task as that of one job, and then as that of another.
func TestSignedJobsAreNotReplayed(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	sig := w.owner.sign(spec, time.Now())
	w.runs(w.frame(spec, sig))
	w.rejects(w.frame(spec, sig), "another job with this signature")
}

// TestServerCannotChangeSignedTasks assigns signed tasks with one field changed each.
func TestServerCannotChangeSignedTasks(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(func(t *muster.TaskSpec) { t.Timeout = muster.Duration(time.Minute) })
	sig := w.owner.sign(spec, time.Now())
	for want, change := range map[string]func(*muster.TaskSpec){
		"run":              func(t *muster.TaskSpec) { t.Run = &muster.Command{Argv: []string{"true", "--evil"}} },
		"env.LD_PRELOAD":   func(t *muster.TaskSpec) { t.Env["LD_PRELOAD"] = "/tmp/evil.so" },
		"env.SEED":         func(t *muster.TaskSpec) { t.Env["SEED"] = "2" },
		"files":            func(t *muster.TaskSpec) { t.Files = "sha256:" + strings.Repeat("0", 64) },
		"stdin":            func(t *muster.TaskSpec) { t.Stdin = "sha256:" + strings.Repeat("0", 64) },
		"image":            func(t *muster.TaskSpec) { t.Image = "evil:1" },
		"container.user":   func(t *muster.TaskSpec) { t.Container = &muster.Container{User: "root"} },
		"resources.memory": func(t *muster.TaskSpec) { t.Resources.Memory = 1 << 20 },
		"timeout":          func(t *muster.TaskSpec) { t.Timeout = 0 },
		"kind":             func(t *muster.TaskSpec) { t.Kind = muster.KindNoop },
	} {
		changed := signedSpec(func(t *muster.TaskSpec) {
			t.Timeout = muster.Duration(time.Minute)
			change(t)
		})
		changed.Tasks[0].Isolation = "" // as it was signed, also with an image
		w.rejects(w.frame(changed, sig), "signed: "+want)
	}
}

// TestServerCannotLiftSignedLimits assigns a signed task with a grant that does not have the memory that was signed: none would be enforced.
func TestServerCannotLiftSignedLimits(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(func(t *muster.TaskSpec) { t.Resources.Memory = 64 << 20 })
	w.rejects(w.frame(spec, w.owner.sign(spec, time.Now())), "signed: the granted memory")
}

// TestServerCannotMoveSignedTasks assigns a signed task in another project.
func TestServerCannotMoveSignedTasks(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	f.Specs[0].Project = "audio"
	w.rejects(f, "project")
}

// TestServerCannotUseOtherWorkers assigns tasks that were signed for another worker, as a server could that has them from another fleet; it may
// give a worker the id of that one.
func TestServerCannotUseOtherWorkers(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(func(t *muster.TaskSpec) { t.Where.Workers = []string{"other"} })
	w.rejects(w.frame(spec, w.owner.sign(spec, time.Now())), "for the workers other only")
	spec = signedSpec(func(t *muster.TaskSpec) { t.Where.Workers = []string{"w-victim"} }) // the id that the server gave it
	w.rejects(w.frame(spec, w.owner.sign(spec, time.Now())), "for the workers w-victim only")
	spec = signedSpec(func(t *muster.TaskSpec) { t.Where.Workers = []string{"victim"} })
	w.runs(w.frame(spec, w.owner.sign(spec, time.Now())))
}

// TestServerCannotInventElements assigns an element that a signed array does not have.
func TestServerCannotInventElements(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(func(t *muster.TaskSpec) { t.Array = &muster.Array{Ranges: []muster.Range{{First: 1, Last: 3}}} })
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	f.Assign[0].Element = "4; evil"
	w.rejects(f, "element")
}

// TestServerCannotAddInputs assigns a signed task with a file for its folder that was not signed.
func TestServerCannotAddInputs(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	f.Assign[0].Inputs = []muster.InputFile{{Path: "sitecustomize.py", SHA256: strings.Repeat("0", 64)}}
	w.rejects(f, "inputs")
}

// TestServerCannotMakeGangs assigns a signed task as a member of a gang, whose master could be any machine.
func TestServerCannotMakeGangs(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	f.Assign[0].Gang = &muster.Membership{Size: 2, Rank: 1, Master: "127.0.0.1", Port: 9}
	w.rejects(f, "gang")
}

// TestServerCannotReplaceCheckpoints assigns a signed task with a saved checkpoint: the worker does not ask for it.
func TestServerCannotReplaceCheckpoints(t *testing.T) {
	t.Parallel()
	tree := strings.Repeat("ab", 32)
	asked := make(chan string, 100)
	w := newStrictWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, tree) {
			asked <- r.URL.Path
		}
		http.NotFound(rw, r)
	})
	spec := signedSpec(func(t *muster.TaskSpec) { t.Checkpoint = &muster.Checkpoint{Path: "ckpt"} })
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	f.Assign[0].Checkpoint = tree
	w.send(w.conn, f)
	w.receive(w.conn, "a report", func(f *link.ToServer) bool { return len(f.Finished) > 0 })
	select {
	case path := <-asked:
		t.Errorf("the worker asked for %s", path)
	default:
	}
}

// TestServerCannotPlantCheckpoints runs attempts that leave a file in the checkpoint folder of their task. Each begins with an empty one.
func TestServerCannotPlantCheckpoints(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(func(t *muster.TaskSpec) {
		t.Run = &muster.Command{Argv: []string{"sh", "-c", `[ -z "$(ls -A "$MUSTER_CHECKPOINT")" ] || exit 9; touch "$MUSTER_CHECKPOINT/planted"; exit 7`}}
	})
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	for range 2 {
		w.send(w.conn, f)
		w.receive(w.conn, "a report", func(f *link.ToServer) bool {
			for _, r := range f.Finished {
				if r.ExitCode == nil || *r.ExitCode != 7 {
					t.Errorf("attempt %s: %s %s", r.Attempt, r.Outcome, r.Message)
				}
			}
			return len(f.Finished) > 0
		})
		f.Assign[0].Attempt.N++
	}
}

// TestServerCannotReuseIDsOfSignedJobs assigns a signed task under the UID of another signed job, whose folders are named by it.
func TestServerCannotReuseIDsOfSignedJobs(t *testing.T) {
	t.Parallel()
	w := newStrictWorker(t, http.NotFound)
	spec := signedSpec(nil)
	first := w.frame(spec, w.owner.sign(spec, time.Now()))
	w.runs(first)
	second := w.frame(spec, w.owner.sign(spec, time.Now()))
	second.Specs[0].UID = first.Specs[0].UID
	w.rejects(second, "another signature")
}

// TestServerCannotExecuteCommands asks a worker for the connection of a command in a signed task: it opens none.
func TestServerCannotExecuteCommands(t *testing.T) {
	t.Parallel()
	opened := make(chan string, 100)
	w := newStrictWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, link.PathExec) {
			opened <- r.URL.Path
		}
		http.NotFound(rw, r)
	})
	spec := signedSpec(func(t *muster.TaskSpec) { t.Run = &muster.Command{Argv: []string{"sleep", "600"}} })
	f := w.frame(spec, w.owner.sign(spec, time.Now()))
	w.send(w.conn, f)
	w.receive(w.conn, "the start", func(f *link.ToServer) bool { return len(f.Started) > 0 })
	w.send(w.conn, &link.ToWorker{Exec: []link.Exec{{ID: "0123456789abcdef", Attempt: f.Assign[0].Attempt}}})
	w.send(w.conn, &link.ToWorker{Cancel: []link.Cancel{{Attempt: f.Assign[0].Attempt, Reason: muster.CancelledByUser}}})
	w.receive(w.conn, "the end", func(f *link.ToServer) bool { return len(f.Finished) > 0 })
	select {
	case path := <-opened:
		t.Errorf("the worker connected to %s", path)
	default:
	}
}

// TestUnsignedJobsAreNotPlacedOnStrictWorkers submits jobs without a signature, of which one claims to have one: a worker that requires one gets none,
// and explain says why.
func TestUnsignedJobsAreNotPlacedOnStrictWorkers(t *testing.T) {
	t.Parallel()
	e, o := newEnv(t), newOwner(t)
	worker := e.join("strict")
	conn := e.dial(worker)
	h := hello(worker, "strict")
	h.Allow = &muster.Allow{SignedBy: []string{o.fingerprint()}}
	e.send(conn, &link.ToServer{Hello: h})
	e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	for name, change := range map[string]func(*muster.TaskSpec){
		"plain":          func(t *muster.TaskSpec) { t.Env = nil },
		"with variables": nil,
		"a false claim":  func(t *muster.TaskSpec) { t.SignedBy = o.fingerprint() },
	} {
		spec := signedSpec(change)
		spec.Tasks[0].Kind, spec.Tasks[0].Run = muster.KindNoop, nil
		job, err := e.Client.Submit(t.Context(), spec, client.SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Client.Explain(t.Context(), muster.TaskID{Job: job.ID})
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := json.Marshal(x); !strings.Contains(string(text), "without a signature by a trusted key") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestServerRefusesSignaturesOfOtherJobs submits a job with the signature of another one.
func TestServerRefusesSignaturesOfOtherJobs(t *testing.T) {
	t.Parallel()
	e, o := newEnv(t), newOwner(t)
	spec := signedSpec(nil)
	spec.Signature = o.sign(spec, time.Now())
	if _, err := e.Client.Submit(t.Context(), spec, client.SubmitOptions{}); err != nil {
		t.Errorf("the signed job: %v", err)
	}
	spec.Tasks[0].Run = &muster.Command{Argv: []string{"false"}}
	if _, err := e.Client.Submit(t.Context(), spec, client.SubmitOptions{}); muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "run[0] differs from what was signed") {
		t.Errorf("another job: %v", err)
	}
}

// TestStatementsWithTooManyStagesAreRefused submits a job with a statement of 170,000 stages, which any key may sign: decoded they take 570 MB.
func TestStatementsWithTooManyStagesAreRefused(t *testing.T) {
	t.Parallel()
	e, o := newEnv(t), newOwner(t)
	spec := signedSpec(nil)
	statement := `{"version":1,"tasks":[{}` + strings.Repeat(",{}", 170_000) + `]}`
	armored, err := sshsig.Sign(rand.Reader, o.signer, signedjob.Namespace, []byte(statement))
	if err != nil {
		t.Fatal(err)
	}
	spec.Signature = &muster.Signature{Statement: statement, Armor: string(armored)}
	if _, err := e.Client.Submit(t.Context(), spec, client.SubmitOptions{}); muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "stages, the maximum is 1000") {
		t.Errorf("submitted: %v", err)
	}
}

// TestStatementsDoNotShowVariables reads a signed job with a key that does not see values of variables.
func TestStatementsDoNotShowVariables(t *testing.T) {
	t.Parallel()
	e, o := newEnv(t), newOwner(t)
	spec := signedSpec(func(t *muster.TaskSpec) { t.Env["PASSWORD"] = "correct-horse" })
	spec.Signature = o.sign(spec, time.Now())
	job, err := e.Client.Submit(t.Context(), spec, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answer := e.do(e.request(http.MethodGet, "/api/v1/jobs/"+job.ID.String(), e.key(string(auth.Viewer), "", 0).Secret, nil))
	if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), "correct-horse") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
