// Package signedjob signs jobs and verifies them on workers, so that a worker runs only what the owner of a trusted key submitted,
// whatever the server says.
//
// The signed bytes are a Statement: the project, the name and all stages of the normalized job, with the hashes of its uploaded files, a nonce and an expiry.
// They travel with the job to each worker, which takes the spec of its task from the statement (defaults of its own kinds, values of the
// element) and compares it with that of the server. What cannot be known when a job is signed is refused by Check: values, artifacts and
// addresses of other tasks.
package signedjob

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sshsig"
)

// Namespace is that of the signatures. It keeps signatures for other purposes, such as of Git commits, from use for jobs.
const Namespace = "muster-job"

const (
	// DefaultTTL is how long tasks of a signed job may start.
	DefaultTTL = 7 * 24 * time.Hour
	// MaxTTL is the most that a worker accepts.
	MaxTTL = 90 * 24 * time.Hour
	// ClockSkew is by how much the clock of a worker may be behind that of the signer.
	ClockSkew = 5 * time.Minute
)

const version = 1

// Statement is what is signed, as JSON.
type Statement struct {
	Version   int         `json:"version"`
	Nonce     string      `json:"nonce"` // random: one job for each
	SignedAt  muster.Time `json:"signed_at"`
	ExpiresAt muster.Time `json:"expires_at"` // no task starts from then on

	Project string `json:"project"`
	Name    string `json:"name"`
	Tasks   stages `json:"tasks"` // normalized, without defaults of kinds
}

// stages are at most muster.MaxStages. A decoded one takes 1,000 times the memory of the shortest that is written.
type stages []muster.TaskSpec

// UnmarshalJSON counts the stages before it decodes them.
func (s *stages) UnmarshalJSON(data []byte) error {
	var counted []struct{} // takes no memory
	if err := json.Unmarshal(data, &counted); err != nil {
		return err
	}
	if len(counted) > muster.MaxStages {
		return fmt.Errorf("it has %d stages, the maximum is %d", len(counted), muster.MaxStages)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // the setting of the outer decoder does not reach here
	return d.Decode((*[]muster.TaskSpec)(s))
}

// Signed is a statement whose signature is that of Key. Whether Key is trusted is another question.
type Signed struct {
	Statement

	Key         ssh.PublicKey
	Fingerprint string
}

// Sign signs a job whose files are uploaded, for ttl from now. The spec may lack defaults, but its project must be set.
func Sign(signer ssh.Signer, spec *muster.Spec, now time.Time, ttl time.Duration) (*muster.Signature, error) {
	if ttl <= 0 || ttl > MaxTTL {
		return nil, muster.Errorf(muster.Invalid, "a signature is valid for up to %s, not %s", muster.Duration(MaxTTL), muster.Duration(ttl))
	}
	n := spec.Normalize()
	if fields := Check(n); len(fields) > 0 {
		err := muster.Errorf(muster.InvalidSpec, "the job cannot be signed: %s", fields[0])
		err.Fields = fields
		return nil, err
	}
	for i := range n.Tasks {
		n.Tasks[i].SignedBy = ""
	}
	statement, err := json.Marshal(Statement{
		Version: version, Nonce: rand.Text(), SignedAt: muster.NewTime(now), ExpiresAt: muster.NewTime(now.Add(ttl)),
		Project: n.Project, Name: n.Name, Tasks: n.Tasks,
	})
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "encode the statement: %w", err)
	}
	if len(statement) > muster.MaxStatement {
		return nil, muster.Errorf(muster.TooLarge, "a signed job has at most %s as JSON, this one has %s: pass data as files", muster.Size(muster.MaxStatement), muster.Size(len(statement)))
	}
	armored, err := sshsig.Sign(rand.Reader, signer, Namespace, statement)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "sign the job: %w", err)
	}
	return &muster.Signature{Statement: string(statement), Armor: string(armored)}, nil
}

// Check returns why the stages of a normalized job cannot be signed: what they take from other tasks or from the network is not known yet.
func Check(s *muster.Spec) []muster.FieldError {
	var wrong []muster.FieldError
	add := func(stage int, field, format string, args ...any) {
		wrong = append(wrong, muster.FieldError{
			Path: "tasks[" + strconv.Itoa(stage) + "]." + field, Message: fmt.Sprintf(format, args...), Hint: "submit the job without a signature, or its stages as jobs of their own",
		})
	}
	graph := dag.New(s)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if len(t.Inputs) > 0 {
			add(i, "inputs", "a signed job cannot use artifacts of other stages, which do not exist when it is signed")
		}
		if path, ref := graph.FirstRef(i); ref != "" {
			add(i, path, "${%s}: a signed job cannot use values of other stages, which are not known when it is signed", ref)
		}
		if t.WhenExpression() != "" {
			add(i, "when", "a signed job cannot have conditions on results, which only the server evaluates")
		}
		if t.Gang != nil {
			add(i, "gang", "a signed job cannot have a gang, whose members connect to addresses that the server names")
		}
		if t.Script != nil && t.Script.URL != "" && t.Script.SHA256 == "" {
			wrong = append(wrong, muster.FieldError{Path: "tasks[" + strconv.Itoa(i) + "].script.sha256", Message: "required in a signed job: what is at the URL may change",
				Hint: "set it to the SHA-256 of the script"})
		}
	}
	return wrong
}

// Open verifies the signature of a statement, and that its time has come and not passed.
func Open(sig *muster.Signature, now time.Time) (*Signed, error) {
	parsed, err := sshsig.Parse([]byte(sig.Armor))
	if err != nil {
		return nil, err
	}
	s, err := open(sig, parsed)
	if err != nil {
		return nil, err
	}
	return s, s.CheckTime(now)
}

// open verifies and decodes the statement of sig, whose armor is parsed.
func open(sig *muster.Signature, parsed *sshsig.Signature) (*Signed, error) {
	if len(sig.Statement) > muster.MaxStatement {
		return nil, fmt.Errorf("the signed statement has more than %d bytes", muster.MaxStatement)
	}
	if err := parsed.Verify(Namespace, []byte(sig.Statement)); err != nil {
		return nil, err
	}
	s := &Signed{Key: parsed.Key, Fingerprint: sshsig.Fingerprint(parsed.Key)}
	d := json.NewDecoder(bytes.NewReader([]byte(sig.Statement)))
	d.DisallowUnknownFields() // of a newer version, whose meaning would be lost
	if err := d.Decode(&s.Statement); err != nil {
		return nil, fmt.Errorf("the signed statement is not one of this version: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the signed statement has more than one value")
	}
	switch {
	case s.Version != version:
		return nil, fmt.Errorf("the signed statement has version %d, this build reads %d", s.Version, version)
	case len(s.Nonce) < minNonce || len(s.Nonce) > maxNonce:
		return nil, fmt.Errorf("the nonce of the signed statement must have from %d to %d characters", minNonce, maxNonce)
	case s.ExpiresAt.Sub(s.SignedAt) > muster.Duration(MaxTTL):
		return nil, fmt.Errorf("the signature is valid for more than %s", muster.Duration(MaxTTL))
	}
	return s, nil
}

// rand.Text makes nonces of 26 characters.
const (
	minNonce = 16
	maxNonce = 64
)

// CheckTime returns an error unless tasks of the job may start now.
func (s *Statement) CheckTime(now time.Time) error {
	switch at := muster.NewTime(now); {
	case at >= s.ExpiresAt:
		return fmt.Errorf("the signature of the job expired at %s: submit the job again", s.ExpiresAt)
	case at.Add(muster.Duration(ClockSkew)) < s.SignedAt:
		return fmt.Errorf("the job was signed at %s, which is in the future here: compare the clocks", s.SignedAt)
	}
	return nil
}

// Compare returns an error unless a job has the project and the stages of the signed one.
func Compare(asSigned, spec *muster.Spec) error {
	switch {
	case asSigned.Project != spec.Project:
		return fmt.Errorf("the job is in project %s, and was signed for %s", spec.Project, asSigned.Project)
	case len(asSigned.Tasks) != len(spec.Tasks):
		return fmt.Errorf("the job has %d stages, and was signed with %d", len(spec.Tasks), len(asSigned.Tasks))
	}
	if fields := Check(asSigned); len(fields) > 0 {
		return errors.New(fields[0].String())
	}
	for i := range spec.Tasks {
		field, err := Diff(&asSigned.Tasks[i], &spec.Tasks[i])
		if err != nil {
			return err
		}
		if field != "" {
			return fmt.Errorf("tasks[%d].%s differs from what was signed", i, field)
		}
	}
	return nil
}

// Diff returns the path of the first field that differs between two specs of a stage, and "" if none does. It ignores signed_by.
func Diff(a, b *muster.TaskSpec) (string, error) {
	left, err := decode(a)
	if err != nil {
		return "", err
	}
	right, err := decode(b)
	if err != nil {
		return "", err
	}
	return diff("", left, right), nil
}

// decode returns a spec as JSON values, numbers as they are written.
func decode(t *muster.TaskSpec) (map[string]any, error) {
	c := *t
	c.SignedBy = ""
	data, err := json.Marshal(&c)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v map[string]any
	return v, d.Decode(&v)
}

// emptyLike returns an empty object for an object, so that the path of a difference continues in it.
func emptyLike(v any) any {
	if _, ok := v.(map[string]any); ok {
		return map[string]any{}
	}
	return nil
}

func diff(path string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return path
		}
		names := make([]string, 0, len(a)+len(b))
		for name := range a {
			names = append(names, name)
		}
		for name := range b {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			left, inA := a[name]
			right, inB := b[name]
			at := name
			if path != "" {
				at = path + "." + name
			}
			if !inA {
				left = emptyLike(right)
			}
			if !inB {
				right = emptyLike(left)
			}
			if d := diff(at, left, right); d != "" {
				return d
			}
			if inA != inB {
				return at
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return path
		}
		for i := range a {
			if d := diff(path+"["+strconv.Itoa(i)+"]", a[i], b[i]); d != "" {
				return d
			}
		}
		return ""
	default:
		if a != b { // strings, numbers, true, false and null
			return path
		}
		return ""
	}
}
