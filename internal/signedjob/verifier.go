package signedjob

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sshsig"
)

// Config configures a Verifier.
type Config struct {
	Keys   []sshsig.TrustedKey
	Kinds  Kinds
	Jobs   Jobs
	Worker string           // the name of this worker. The server chose its id, so that jobs cannot name it by that
	Now    func() time.Time // nil means time.Now
}

// Kinds sets the defaults of a stage's kind, as the server does.
type Kinds interface{ ApplyDefaults(t *muster.TaskSpec) }

// Jobs remembers which job a nonce belongs to, also when the worker restarts.
type Jobs interface {
	// ClaimNonce returns the UID of the job that first claimed the nonce: uid for a new nonce, which is stored before it returns and may
	// be forgotten after until. It returns a Forbidden error for a new nonce of a job that has claimed another one.
	ClaimNonce(nonce, uid string, until, now muster.Time) (owner string, err error)
}

// Verifier decides which tasks a worker runs. It is safe for concurrent use.
type Verifier struct {
	cfg Config

	mu     sync.Mutex
	opened map[[sha256.Size]byte]*verified
}

// maxOpened is how many verified statements are cached: verifying one takes 0.1 ms, and parsing it more.
const maxOpened = 64

// verified is a statement of a trusted key.
type verified struct {
	*Signed

	key    *sshsig.TrustedKey
	stages []stage
}

// stage is what the worker makes of a stage of the statement.
type stage struct {
	spec       *muster.TaskSpec // with defaults and signed_by
	first      int              // number of the stage's first task
	perElement bool
}

// NewVerifier returns a Verifier.
func NewVerifier(cfg Config) *Verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{cfg: cfg, opened: map[[sha256.Size]byte]*verified{}}
}

// Verify returns the spec that the owner of a trusted key signed for a task that the server assigned: this is what to run, nothing of the
// server's. The error says in one sentence what does not match the signature. A saved checkpoint is not covered by it: the caller must not use one.
func (v *Verifier) Verify(t *run.Task, sig *muster.Signature) (*muster.TaskSpec, error) {
	if sig == nil {
		return nil, muster.Errorf(muster.Forbidden, "this worker runs only jobs that are signed by a key that its owner trusts: submit the job with --sign")
	}
	now := v.cfg.Now()
	job, err := v.open(sig)
	if err != nil {
		return nil, muster.Errorf(muster.Forbidden, "%w", err)
	}
	for _, at := range []time.Time{job.SignedAt.Std(), now} {
		if err := job.key.ValidAt(at); err != nil {
			return nil, muster.Errorf(muster.Forbidden, "%w", err)
		}
	}
	if err := job.CheckTime(now); err != nil {
		return nil, muster.Errorf(muster.Forbidden, "%w", err)
	}
	spec, err := job.taskSpec(t, v.cfg.Worker)
	if err != nil {
		return nil, err
	}
	if amount := otherAmount(&spec.Resources, &t.Grant); amount != "" {
		return nil, job.differs("the granted " + amount)
	}
	owner, err := v.cfg.Jobs.ClaimNonce(job.Nonce, t.Job, job.ExpiresAt, muster.NewTime(now))
	if err != nil {
		return nil, err
	}
	if owner != t.Job {
		return nil, muster.Errorf(muster.Forbidden, "this worker has run another job with this signature: sign and submit the job again")
	}
	return spec, nil
}

// open verifies a signature by a trusted key, and caches the result.
func (v *Verifier) open(sig *muster.Signature) (*verified, error) {
	h := sha256.New()
	h.Write([]byte(sig.Armor))
	h.Write([]byte{0}) // not in an armor that is valid
	h.Write([]byte(sig.Statement))
	id := [sha256.Size]byte(h.Sum(nil))
	v.mu.Lock()
	job := v.opened[id]
	v.mu.Unlock()
	if job != nil {
		return job, nil
	}
	parsed, err := sshsig.Parse([]byte(sig.Armor))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(v.cfg.Keys, func(k sshsig.TrustedKey) bool { return bytes.Equal(k.Key.Marshal(), parsed.Key.Marshal()) })
	if i < 0 { // checked first: what a stranger wrote is not decoded
		return nil, fmt.Errorf("the job is signed by %s, which the owner of this worker does not trust", sshsig.Fingerprint(parsed.Key))
	}
	signed, err := open(sig, parsed)
	if err != nil {
		return nil, err
	}
	job = &verified{Signed: signed, key: &v.cfg.Keys[i]}
	if fields := Check(&muster.Spec{Tasks: signed.Tasks}); len(fields) > 0 {
		return nil, fmt.Errorf("the signed statement: %s", fields[0])
	}
	first := 0
	for i := range signed.Tasks {
		t := signed.Tasks[i]
		size := t.Size()
		if size < 1 || size > muster.MaxTasks-first {
			return nil, fmt.Errorf("the stage %s of the signed statement has %d tasks: a job has from 1 to %d", t.Name, size, muster.MaxTasks)
		}
		v.cfg.Kinds.ApplyDefaults(&t)
		t.SignedBy = signed.Fingerprint
		job.stages = append(job.stages, stage{spec: &t, first: first, perElement: dag.PerElement(&t)})
		first += size
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.opened) >= maxOpened {
		clear(v.opened)
	}
	v.opened[id] = job
	return job, nil
}

// otherAmount returns which amount of a request a grant does not have, "" if it has them all. What the request leaves open is for the grant.
func otherAmount(r *muster.Request, g *muster.Grant) string {
	milli := func(cpus float64) float64 { return math.Round(cpus * 1000) }
	var share muster.Size
	if r.GPUs.Share {
		share = r.GPUs.Memory
	}
	devices := slices.Sorted(slices.Values(g.GPUs))
	switch {
	case milli(r.CPUs) > 0 && milli(r.CPUs) != milli(g.CPUs):
		return "cpus"
	case r.Memory > 0 && r.Memory != g.Memory:
		return "memory"
	case r.Disk > 0 && r.Disk != g.Disk:
		return "disk"
	case r.PIDs > 0 && r.PIDs != g.PIDs:
		return "pids"
	case r.GPUs.Count > 0 && r.GPUs.Count != len(slices.Compact(devices)):
		return "gpus"
	case r.GPUs.Count > 0 && share != g.GPUMemory:
		return "gpu memory"
	}
	return ""
}

// differs returns the error for a task of which something is not as it was signed.
func (job *verified) differs(what string) error {
	return muster.Errorf(muster.Forbidden, "what the server asks for differs from what %s signed: %s", job.Fingerprint, what)
}

// taskSpec returns the signed spec of a task, and an error if the server asks for another one, or for another worker than the signed ones.
func (job *verified) taskSpec(t *run.Task, worker string) (*muster.TaskSpec, error) {
	i := slices.IndexFunc(job.stages, func(s stage) bool { return s.spec.Name == t.Group })
	switch {
	case t.Project != job.Project:
		return nil, job.differs("project")
	case i < 0:
		return nil, job.differs("the stage " + muster.Truncate(t.Group))
	case len(t.Inputs) > 0:
		return nil, job.differs("inputs")
	case t.Gang != nil:
		return nil, job.differs("gang")
	}
	s := &job.stages[i]
	element := t.Attempt.Task.Num - s.first
	if element < 0 || element >= s.spec.Size() || t.Element != s.spec.Element(element) {
		return nil, job.differs("the element of the stage")
	}
	spec := s.spec
	if named := spec.Where.Workers; len(named) > 0 && !slices.Contains(named, worker) {
		return nil, muster.Errorf(muster.Forbidden, "the signed job is for the workers %s only", strings.Join(named, ", "))
	}
	if s.perElement {
		spec = dag.Bind(spec, element, nil)
	}
	if reflect.DeepEqual(spec, t.Spec) {
		return spec, nil
	}
	field, err := Diff(spec, t.Spec)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "compare the spec with the signed one: %w", err)
	}
	if field != "" {
		return nil, job.differs(field)
	}
	return spec, nil
}
