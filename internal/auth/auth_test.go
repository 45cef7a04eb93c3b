package auth_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

func TestCan(t *testing.T) {
	admin := auth.Principal{Name: "root", Role: auth.Admin}
	vision := auth.Principal{Name: "vision", Role: auth.Admin, Project: "vision"}
	operator := auth.Principal{Name: "ops", Role: auth.Operator}
	submitter := auth.Principal{Name: "ci", Role: auth.Submitter, Project: "vision"}
	viewer := auth.Principal{Name: "eyes", Role: auth.Viewer}
	worker := auth.Principal{Name: "w", Role: auth.Worker, Worker: "w1"}
	join := auth.Principal{Name: "j", Role: auth.Join}
	link := auth.Principal{Name: "link", Role: auth.Viewer, Project: "vision", Job: 7}
	tests := []struct {
		who  auth.Principal
		verb auth.Verb
		what auth.Object
		want string // "" for yes, else a part of the refusal
	}{
		{admin, auth.ManageKeys, auth.Object{}, ""},
		{admin, auth.JoinWorkers, auth.Object{}, ""},
		{admin, auth.SubmitJobs, auth.Object{Project: "any"}, ""},
		{admin, auth.ConnectWorker, auth.Object{Worker: "w1"}, "use a key with the role worker"},
		{vision, auth.ManageKeys, auth.Object{Project: "vision"}, ""},
		{vision, auth.ManageKeys, auth.Object{Project: "speech"}, "not for \"speech\""},
		{vision, auth.ManageKeys, auth.Object{Project: auth.AllProjects}, "use a key for all projects"},
		{vision, auth.CreateKeys, auth.Object{Project: "vision", Role: auth.Admin}, ""},
		{vision, auth.CreateKeys, auth.Object{Project: "vision", Role: auth.Submitter}, ""},
		{vision, auth.CreateKeys, auth.Object{Project: "speech", Role: auth.Viewer}, "not for \"speech\""},
		{vision, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Viewer}, "use a key for all projects"},
		{vision, auth.CreateKeys, auth.Object{Project: "vision", Role: auth.Join}, ""},
		{vision, auth.CreateKeys, auth.Object{Project: "vision", Role: auth.Operator}, "which are for all projects"},
		{vision, auth.ReadMetrics, auth.Object{}, "use a key for all projects"},
		{admin, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Operator}, ""},
		{admin, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Worker}, "may not create keys with the role worker"},
		{operator, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Join}, ""},
		{operator, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Viewer}, "may not create keys with the role viewer"},
		{operator, auth.CreateKeys, auth.Object{Project: auth.AllProjects, Role: auth.Operator}, "may not create keys with the role operator"},
		{operator, auth.ManageWorkers, auth.Object{}, ""},
		{operator, auth.ChangeJobs, auth.Object{Project: "speech"}, ""},
		{operator, auth.SubmitJobs, auth.Object{}, "use a key with the role submitter"},
		{operator, auth.ExecTasks, auth.Object{}, "may not execute commands"},
		{operator, auth.ReadBlobs, auth.Object{}, "may not read blobs"},
		{operator, auth.ManageKeys, auth.Object{}, "use a key with the role admin"},
		{operator, auth.BackUp, auth.Object{}, "use a key with the role admin"},
		{submitter, auth.CreateKeys, auth.Object{Project: "vision", Role: auth.Viewer}, "may not create keys"},
		{admin, "fly", auth.Object{}, "may not fly"},
		{vision, auth.ManageWorkers, auth.Object{}, "for project \"vision\" only"},
		{vision, auth.ChangeJobs, auth.Object{Project: "vision"}, ""},
		{submitter, auth.SubmitJobs, auth.Object{Project: "vision"}, ""},
		{submitter, auth.SubmitJobs, auth.Object{Project: "speech"}, "not for \"speech\""},
		{submitter, auth.ManageWorkers, auth.Object{}, "the role operator"},
		{viewer, auth.ReadJobs, auth.Object{Project: "speech"}, ""},
		{viewer, auth.SubmitJobs, auth.Object{}, "may not submit jobs"},
		{link, auth.ReadJobs, auth.Object{Project: "vision", Job: 7}, ""},
		{link, auth.ReadJobs, auth.Object{Project: "vision", Job: 8}, "only reads job 7"},
		{link, auth.ReadJobs, auth.Object{Project: "speech", Job: 7}, "not for \"speech\""},
		{link, auth.ReadWorkers, auth.Object{}, "only reads job 7"},
		{auth.Principal{Role: auth.Admin, Job: 7}, auth.ChangeJobs, auth.Object{Job: 7}, "only reads job 7"},
		{viewer, auth.ReadBlobs, auth.Object{}, "may not read blobs"},
		{worker, auth.ConnectWorker, auth.Object{Worker: "w1"}, ""},
		{worker, auth.ConnectWorker, auth.Object{Worker: "w2"}, "may not connect as \"w2\""},
		{worker, auth.WriteBlobs, auth.Object{}, ""},
		{worker, auth.ReadJobs, auth.Object{}, "may not read jobs"},
		{join, auth.JoinWorkers, auth.Object{}, ""},
		{join, auth.ConnectWorker, auth.Object{}, "may not connect"},
		{auth.Principal{Name: "x", Role: "root"}, auth.ReadJobs, auth.Object{}, "may not"},
		{auth.Principal{Name: "x", Role: auth.Worker}, auth.ConnectWorker, auth.Object{}, "may not connect"},
	}
	for _, tt := range tests {
		err := auth.Can(tt.who, tt.verb, tt.what)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s may not %s %+v: %v", tt.who.Name, tt.verb, tt.what, err)
		case tt.want != "" && (muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s to %s %+v: got %v, want a refusal with %q", tt.who.Name, tt.verb, tt.what, err, tt.want)
		}
	}
}

// Each verb has one rule, which some role has; each role has a permission.
func TestTableIsComplete(t *testing.T) {
	seen := map[auth.Verb]bool{}
	for _, r := range auth.Table {
		if seen[r.Verb] || len(r.Roles) == 0 || r.Text == "" {
			t.Errorf("the rule of %q is repeated, without roles or without a text", r.Verb)
		}
		seen[r.Verb] = true
	}
	for _, r := range auth.Roles {
		if len(auth.Permissions(auth.Principal{Role: r, Worker: "w"})) == 0 {
			t.Errorf("role %s has no permissions", r)
		}
		if got, err := auth.ParseRole(string(r)); got != r || err != nil {
			t.Errorf("ParseRole(%q) = %q, %v", r, got, err)
		}
	}
	if _, err := auth.ParseRole("root"); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("ParseRole(root): %v", err)
	}
}

// principals draws the key of a request.
func principals(projects ...string) *rapid.Generator[auth.Principal] {
	return rapid.Custom(func(t *rapid.T) auth.Principal {
		return auth.Principal{
			Name: "k", KeyID: rapid.SampledFrom([]string{"k1", "k2"}).Draw(t, "id"), Role: rapid.SampledFrom(append(auth.Roles, "root")).Draw(t, "role"),
			Project: rapid.SampledFrom(projects).Draw(t, "project"), Job: muster.JobID(rapid.IntRange(0, 2).Draw(t, "job")),
			Worker: muster.WorkerID(rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker")),
		}
	})
}

// A restriction of a key never adds a permission: what a key for one project or one job may do, the same key without the restriction may do, too.
// A key for one project may do nothing to another one, and nothing that is for all.
func TestRestrictionsOnlyTakeAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		who := principals("", "a", "b").Draw(t, "who")
		verb := rapid.SampledFrom(auth.Table).Draw(t, "rule").Verb
		what := auth.Object{
			Project: rapid.SampledFrom([]string{"", "a", "b", auth.AllProjects}).Draw(t, "project"), Job: muster.JobID(rapid.IntRange(0, 2).Draw(t, "object")),
			Worker: muster.WorkerID(rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "of")), Owner: rapid.SampledFrom([]string{"", "k1", "k2"}).Draw(t, "owner"),
			Role: rapid.SampledFrom(append(auth.Roles, "")).Draw(t, "grant"),
		}
		if auth.Can(who, verb, what) != nil {
			return
		}
		wider := who
		wider.Project, wider.Job = "", 0
		if err := auth.Can(wider, verb, what); err != nil {
			t.Fatalf("%+v may %s %+v, but without its restriction: %v", who, verb, what, err)
		}
		if who.Project != "" && what.Project != "" && what.Project != who.Project {
			t.Fatalf("%+v may %s %+v", who, verb, what)
		}
		if who.Job != 0 && (verb != auth.ReadJobs || what.Job != 0 && what.Job != who.Job) {
			t.Fatalf("a link %+v may %s %+v", who, verb, what)
		}
	})
}

// A key that creates a key gains nothing by it: the new one may do nothing that the creator may not.
func TestGrantsAreNoMoreThanTheGranterHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		who := principals("", "a").Draw(t, "who")
		made := auth.Principal{Name: "new", KeyID: "k3", Role: rapid.SampledFrom(auth.Roles).Draw(t, "role"), Project: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "for")}
		of := made.Project
		if of == "" {
			of = auth.AllProjects
		}
		if auth.Can(who, auth.CreateKeys, auth.Object{Project: of, Role: made.Role}) != nil {
			return
		}
		for _, r := range auth.Table {
			for _, project := range []string{"a", "b", auth.AllProjects} {
				what := auth.Object{Project: project}
				if auth.Can(made, r.Verb, what) == nil && auth.Can(who, r.Verb, what) != nil {
					t.Fatalf("%+v may not %s in %s, but may create %+v, which may", who, r.Verb, project, made)
				}
			}
		}
	})
}

func TestPermissions(t *testing.T) {
	for _, tt := range []struct {
		who  auth.Principal
		want string
	}{
		{auth.Principal{Role: auth.Viewer}, "[read jobs see workers read metrics]"},
		{auth.Principal{Role: auth.Viewer, Project: "p"}, "[read jobs see workers]"},
		{auth.Principal{Role: auth.Viewer, Project: "p", Job: 7}, "[read jobs]"},
		{auth.Principal{Role: auth.Admin, Project: "p"}, "[read jobs submit jobs cancel, retry or edit jobs see workers create keys manage keys join workers read blobs write blobs manage notifications manage secrets remove or keep jobs manage retention execute commands in tasks read the audit log]"},
		{auth.Principal{Role: auth.Operator}, "[read jobs cancel, retry or edit jobs see workers steer workers create keys join workers remove or keep jobs manage retention read metrics]"},
		{auth.Principal{Role: auth.Join}, "[join workers]"},
		{auth.Principal{Role: auth.Join, Project: "p"}, "[join workers]"},
		{auth.Principal{Role: auth.Worker, Worker: "w1", Project: "p", Pending: true}, "[connect as this worker]"},
		{auth.Principal{Role: auth.Worker, Worker: "w1"}, "[connect as this worker read blobs write blobs]"},
		{auth.Principal{Role: "root"}, "[]"},
	} {
		if got := fmt.Sprint(auth.Permissions(tt.who)); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.who, got, tt.want)
		}
	}
}

func TestExecTasksIsForOwners(t *testing.T) {
	for _, tt := range []struct {
		who   auth.Principal
		owner string
		ok    bool
	}{
		{auth.Principal{Role: auth.Submitter, KeyID: "k1"}, "k1", true},
		{auth.Principal{Role: auth.Submitter, KeyID: "k1"}, "k2", false},
		{auth.Principal{Role: auth.Admin, KeyID: "k1"}, "k2", true},
		{auth.Principal{Role: auth.Admin, KeyID: "k1", Project: "other"}, "k1", false},
		{auth.Principal{Role: auth.Viewer, KeyID: "k1"}, "k1", false},
		{auth.Principal{Role: auth.Viewer, KeyID: "k1", Job: 7}, "k1", false},
		{auth.Principal{Role: auth.Worker, KeyID: "k1", Worker: "w1"}, "k1", false},
		{auth.Principal{Role: auth.Join, KeyID: "k1"}, "k1", false},
	} {
		err := auth.Can(tt.who, auth.ExecTasks, auth.Object{Project: "p", Job: 7, Owner: tt.owner})
		if (err == nil) != tt.ok || err != nil && muster.CodeOf(err) != muster.Forbidden {
			t.Errorf("%+v in a job of %s: %v", tt.who, tt.owner, err)
		}
	}
}

func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (b [auth.RandomBytes]byte) {
			copy(b[:], rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, label))
			return b
		}
		a, b := draw("a"), draw("b")
		role := rapid.SampledFrom(auth.Roles).Draw(t, "role")
		x, y := auth.NewToken(role, a), auth.NewToken(role, b)
		if (x == y) != (a == b) || (auth.Hash(x) == auth.Hash(y)) != (a == b) {
			t.Fatalf("tokens %q and %q do not distinguish %x and %x", x, y, a, b)
		}
		if !strings.HasPrefix(x, "mst_"+string(role)+"_") || auth.CheckToken(x) != nil {
			t.Fatalf("token %q is not of the form", x)
		}
		if got := auth.Bearer("Bearer " + x); got != x {
			t.Fatalf("Bearer returned %q, want %q", got, x)
		}
	})
	for _, bad := range []string{"", "short", "with a space in it", "umlaut-äöü-and-more", strings.Repeat("x", 257)} {
		if auth.CheckToken(bad) == nil {
			t.Errorf("CheckToken takes %q", bad)
		}
	}
	for header, want := range map[string]string{"": "", "Bearer": "", "Basic abc": "", "bearer  abc ": "abc", "BEARER abc": "abc"} {
		if got := auth.Bearer(header); got != want {
			t.Errorf("Bearer(%q) = %q, want %q", header, got, want)
		}
	}
}
