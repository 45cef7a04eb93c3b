// Package auth decides who may do what: principals, roles, tokens, and the function Can, which reads the one table of permissions.
// It is pure: the caller passes random bytes and stores the keys.
//
// A token is "mst_ROLE_RANDOM". Only its hash is stored, and a key is looked up by the
// hash of the presented token, so that secrets are never compared byte by byte.
package auth

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Role is the purpose of a key.
type Role string

// The roles.
const (
	Admin     Role = "admin"     // everything; with a project, everything in it
	Operator  Role = "operator"  // the fleet and the jobs that run there, but no code of its own and no keys of people
	Submitter Role = "submitter" // jobs and blobs
	Viewer    Role = "viewer"    // read-only
	Worker    Role = "worker"    // connect as one worker, and its blobs
	Join      Role = "join"      // register workers only
)

// Roles lists every role.
var Roles = []Role{Admin, Operator, Submitter, Viewer, Worker, Join}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", muster.Errorf(muster.Invalid, "unknown role %q: use admin, operator, submitter, viewer, worker or join", s)
}

// ForProject reports whether keys of the role may be for one project only.
func (r Role) ForProject() bool { return r == Admin || r == Submitter || r == Viewer || r == Join }

// Principal is the key behind a request.
type Principal struct {
	KeyID   string
	Name    string
	Role    Role
	Project string          // the only project that it may access; "" means all
	Job     muster.JobID    // the only job that it may read; 0 means all
	Worker  muster.WorkerID // the worker of a key with the role worker
	Expires muster.Time     // 0 means never
	File    string          // SHA-256 of the only artifact that it may read; "" means all

	Addresses []netip.Prefix // from which the key may be used; empty means all
	Limited   bool           // the key is a join token with uses, tags or approval
	Token     string         // of a worker: id of the key by which it joined
	Tags      []string       // of a worker: that it has by that key
	Pending   bool           // of a worker: it waits for approval
	Secret    []byte         // of a worker's session token
}

// Object is what a verb applies to. Empty fields mean any.
type Object struct {
	Project string // AllProjects if it does not belong to one
	Job     muster.JobID
	Worker  muster.WorkerID
	Owner   string // id of the key that submitted the job
	Role    Role   // of the key to create
}

// AllProjects is the project of an object that belongs to no single project. It is not the name of a project.
const AllProjects = "*"

// Can returns nil if who may do verb to what, else a Forbidden error that says why and which key may. A verb that is not in Table is
// forbidden to all.
func Can(who Principal, verb Verb, what Object) error {
	rule := ruleOf(verb)
	if !slices.Contains(rule.Roles, who.Role) {
		return muster.Errorf(muster.Forbidden, "the key %q has the role %s, which may not %s: use a key with the role %s",
			who.Name, who.Role, verb, leastRole(verb))
	}
	if who.Pending && verb != ConnectWorker {
		return muster.Errorf(muster.Forbidden, "worker %s waits for approval and may not %s: approve it with muster workers approve", who.Worker, verb)
	}
	if who.Job != 0 && (verb != ReadJobs || what.Job != 0 && what.Job != who.Job) {
		return muster.Errorf(muster.Forbidden, "the key %q only reads job %d and may not %s beyond it: use another key", who.Name, who.Job, verb)
	}
	if who.Project != "" {
		switch {
		case rule.Scope == Fleet || what.Project == AllProjects:
			return muster.Errorf(muster.Forbidden, "the key %q is for project %q only and may not %s: use a key for all projects",
				who.Name, who.Project, verb)
		case what.Project != "" && what.Project != who.Project:
			return muster.Errorf(muster.Forbidden, "the key %q is for project %q only, not for %q", who.Name, who.Project, what.Project)
		}
	}
	switch {
	case rule.Scope == OwnJobs && who.Role != Admin && what.Owner != "" && what.Owner != who.KeyID:
		return muster.Errorf(muster.Forbidden, "the job belongs to another key than %q: use the key that submitted it, or one with the role admin", who.Name)
	case rule.Scope == OwnWorker && (who.Worker == "" || what.Worker != "" && what.Worker != who.Worker):
		return muster.Errorf(muster.Forbidden, "the key %q is of worker %q and may not connect as %q", who.Name, who.Worker, what.Worker)
	case verb == CreateKeys && what.Role != "":
		return canGrant(who, what.Role)
	}
	return nil
}

// canGrant returns nil if who, who may create some key, may create one with a role. A key never grants more than it has.
func canGrant(who Principal, role Role) error {
	if !slices.Contains(Grants[who.Role], role) {
		return muster.Errorf(muster.Forbidden, "the key %q has the role %s, which may not create keys with the role %s: use a key with the role admin", who.Name, who.Role, role)
	}
	if who.Project != "" && !role.ForProject() {
		return muster.Errorf(muster.Forbidden, "the key %q is for project %q only and may not create keys with the role %s, which are for all projects: use a key for all projects",
			who.Name, who.Project, role)
	}
	return nil
}

// Permissions returns the verbs that p may use on some object.
func Permissions(p Principal) []Verb {
	var verbs []Verb
	for i := range Table {
		if Can(p, Table[i].Verb, Object{Project: p.Project, Job: p.Job}) == nil {
			verbs = append(verbs, Table[i].Verb)
		}
	}
	return verbs
}

// CheckAddress returns a Forbidden error unless the key may be used from an IP address; the zero value is an unknown one.
func (p *Principal) CheckAddress(from netip.Addr) error {
	if len(p.Addresses) == 0 {
		return nil
	}
	if slices.ContainsFunc(p.Addresses, func(n netip.Prefix) bool { return n.Contains(from.Unmap().WithZone("")) }) {
		return nil
	}
	text := "an unknown address"
	if from.IsValid() {
		text = from.String()
	}
	return muster.Errorf(muster.Forbidden, "the key %q may not be used from %s, only from %s: use another key, or connect from there",
		p.Name, text, joinPrefixes(p.Addresses))
}

func joinPrefixes(list []netip.Prefix) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = n.String()
	}
	return strings.Join(texts, ", ")
}

// Bearer returns the token of an Authorization header, or "".
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
