// Package auth decides who may do what: principals, roles, tokens, and the function
// Authorize. It is pure: the caller passes random bytes and stores the keys.
//
// A token is "mst_ROLE_RANDOM". Only its hash is stored, and a key is looked up by the
// hash of the presented token, so that secrets are never compared byte by byte.
package auth

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Role is the purpose of a key.
type Role string

// The roles.
const (
	Admin     Role = "admin"     // everything
	Submitter Role = "submitter" // jobs and blobs
	Viewer    Role = "viewer"    // read-only
	Worker    Role = "worker"    // connect as one worker, and its blobs
	Join      Role = "join"      // register workers only
)

// Roles lists every role.
var Roles = []Role{Admin, Submitter, Viewer, Worker, Join}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", muster.Errorf(muster.Invalid, "unknown role %q: use admin, submitter, viewer, worker or join", s)
}

// Principal is the key behind a request.
type Principal struct {
	KeyID   string
	Name    string
	Role    Role
	Project string          // the only project that it may access; "" means all
	Job     muster.JobID    // the only job that it may read; 0 means all
	Worker  muster.WorkerID // the worker of a key with the role worker
	Expires muster.Time     // 0 means never
}

// Verb is an operation that needs a permission.
type Verb string

// The verbs.
const (
	ReadJobs      Verb = "read jobs"
	SubmitJobs    Verb = "submit jobs"
	ChangeJobs    Verb = "cancel, retry or edit jobs"
	ReadWorkers   Verb = "see workers"
	ManageWorkers Verb = "steer workers"
	ManageKeys    Verb = "manage keys"
	JoinWorkers   Verb = "join workers"
	ConnectWorker Verb = "connect as this worker"
	ReadBlobs     Verb = "read blobs"
	WriteBlobs    Verb = "write blobs"
	ManageNotify  Verb = "manage notifications"
	RemoveJobs    Verb = "remove or keep jobs"

	ManageRetention Verb = "manage retention"
	BackUp          Verb = "back up the server"
	ExecTasks       Verb = "execute commands in tasks"
)

var roleVerbs = map[Role][]Verb{
	Admin: {ReadJobs, SubmitJobs, ChangeJobs, ReadWorkers, ManageWorkers, ManageKeys, JoinWorkers, ReadBlobs,
		WriteBlobs, ManageNotify, RemoveJobs, ManageRetention, BackUp, ExecTasks},
	Submitter: {ReadJobs, SubmitJobs, ChangeJobs, ReadWorkers, ReadBlobs, WriteBlobs, RemoveJobs, ExecTasks},
	Viewer:    {ReadJobs, ReadWorkers},
	Worker:    {ConnectWorker, ReadBlobs, WriteBlobs},
	Join:      {JoinWorkers},
}

// Verbs lists every verb.
var Verbs = []Verb{ReadJobs, SubmitJobs, ChangeJobs, ReadWorkers, ManageWorkers, ManageKeys, JoinWorkers, ConnectWorker, ReadBlobs, WriteBlobs, ManageNotify, RemoveJobs, ManageRetention, BackUp, ExecTasks}

// Permissions returns the verbs that p may use on some object.
func Permissions(p Principal) []Verb {
	var verbs []Verb
	for _, v := range Verbs {
		if Authorize(p, v, Object{Project: p.Project, Job: p.Job}) == nil {
			verbs = append(verbs, v)
		}
	}
	return verbs
}

// fleetWide lists the verbs whose effect is not limited to one project.
var fleetWide = []Verb{ManageWorkers, ManageKeys, JoinWorkers, BackUp}

// Object is what a verb applies to. Empty fields mean any.
type Object struct {
	Project string
	Job     muster.JobID
	Worker  muster.WorkerID
	Owner   string // id of the key that submitted the job
}

// Authorize returns nil if p may use verb on obj, else a Forbidden error that names the
// role that may.
func Authorize(p Principal, verb Verb, obj Object) error {
	if !slices.Contains(roleVerbs[p.Role], verb) {
		return muster.Errorf(muster.Forbidden, "the key %q has the role %s, which may not %s: use a key with the role %s",
			p.Name, p.Role, verb, leastRole(verb))
	}
	if p.Job != 0 && (verb != ReadJobs || obj.Job != 0 && obj.Job != p.Job) {
		return muster.Errorf(muster.Forbidden, "the key %q only reads job %d and may not %s beyond it: use another key", p.Name, p.Job, verb)
	}
	if p.Project != "" && slices.Contains(fleetWide, verb) {
		return muster.Errorf(muster.Forbidden, "the key %q is for project %q only and may not %s: use a key for all projects",
			p.Name, p.Project, verb)
	}
	if p.Project != "" && obj.Project != "" && obj.Project != p.Project {
		return muster.Errorf(muster.Forbidden, "the key %q is for project %q only, not for %q", p.Name, p.Project, obj.Project)
	}
	if verb == ExecTasks && p.Role != Admin && obj.Owner != "" && obj.Owner != p.KeyID {
		return muster.Errorf(muster.Forbidden, "the job belongs to another key than %q: use the key that submitted it, or one with the role admin", p.Name)
	}
	if verb == ConnectWorker && (p.Worker == "" || (obj.Worker != "" && obj.Worker != p.Worker)) {
		return muster.Errorf(muster.Forbidden, "the key %q is of worker %q and may not connect as %q", p.Name, p.Worker, obj.Worker)
	}
	return nil
}

// leastRole returns the role with the fewest permissions that may use verb.
func leastRole(verb Verb) Role {
	for _, r := range []Role{Join, Viewer, Worker, Submitter} {
		if slices.Contains(roleVerbs[r], verb) {
			return r
		}
	}
	return Admin
}

// RandomBytes is how many random bytes NewToken needs: 160 bits.
const RandomBytes = 20

// MinToken and MaxToken limit the length of a token that a user chose.
const (
	MinToken = 16
	MaxToken = 256
)

// NewToken makes a token for a role from random bytes.
func NewToken(role Role, random [RandomBytes]byte) string {
	return "mst_" + string(role) + "_" + encode(random[:])
}

// NewID makes the public id of a key from random bytes.
func NewID(random [5]byte) string { return "k" + encode(random[:]) }

func encode(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// Hash returns the SHA-256 of a token in hex, by which its key is found.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// CheckToken returns an Invalid error if a token that a user chose is not usable.
func CheckToken(token string) error {
	if len(token) < MinToken || len(token) > MaxToken {
		return muster.Errorf(muster.Invalid, "a token has %d to %d characters, this one has %d", MinToken, MaxToken, len(token))
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			return muster.Errorf(muster.Invalid, "a token must be visible ASCII without spaces: character %d is not", i+1)
		}
	}
	return nil
}

// Bearer returns the token of an Authorization header, or "".
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
