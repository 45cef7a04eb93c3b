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
		{vision, auth.ManageKeys, auth.Object{}, "for project \"vision\" only"},
		{vision, auth.ManageWorkers, auth.Object{}, "for project \"vision\" only"},
		{vision, auth.ChangeJobs, auth.Object{Project: "vision"}, ""},
		{submitter, auth.SubmitJobs, auth.Object{Project: "vision"}, ""},
		{submitter, auth.SubmitJobs, auth.Object{Project: "speech"}, "not for \"speech\""},
		{submitter, auth.ManageWorkers, auth.Object{}, "the role admin"},
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
		err := auth.Authorize(tt.who, tt.verb, tt.what)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s may not %s %+v: %v", tt.who.Name, tt.verb, tt.what, err)
		case tt.want != "" && (muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s to %s %+v: got %v, want a refusal with %q", tt.who.Name, tt.verb, tt.what, err, tt.want)
		}
	}
}

func TestEveryRoleHasPermissions(t *testing.T) {
	verbs := []auth.Verb{auth.ReadJobs, auth.SubmitJobs, auth.ChangeJobs, auth.ReadWorkers, auth.ManageWorkers, auth.ManageKeys,
		auth.JoinWorkers, auth.ConnectWorker, auth.ReadBlobs, auth.WriteBlobs}
	used := map[auth.Verb]bool{}
	for _, r := range auth.Roles {
		may := 0
		for _, v := range verbs {
			if auth.Authorize(auth.Principal{Role: r, Worker: "w"}, v, auth.Object{}) == nil {
				used[v] = true
				may++
			}
		}
		if may == 0 {
			t.Errorf("role %s has no permissions", r)
		}
		if got, err := auth.ParseRole(string(r)); got != r || err != nil {
			t.Errorf("ParseRole(%q) = %q, %v", r, got, err)
		}
	}
	for _, v := range verbs {
		if !used[v] {
			t.Errorf("no role may %s", v)
		}
	}
	if _, err := auth.ParseRole("root"); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("ParseRole(root): %v", err)
	}
}

func TestPermissions(t *testing.T) {
	for _, tt := range []struct {
		who  auth.Principal
		want string
	}{
		{auth.Principal{Role: auth.Viewer}, "[read jobs see workers]"},
		{auth.Principal{Role: auth.Viewer, Project: "p", Job: 7}, "[read jobs]"},
		{auth.Principal{Role: auth.Admin, Project: "p"}, "[read jobs submit jobs cancel, retry or edit jobs see workers read blobs write blobs manage notifications remove or keep jobs manage retention execute commands in tasks]"},
		{auth.Principal{Role: auth.Join}, "[join workers]"},
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
		err := auth.Authorize(tt.who, auth.ExecTasks, auth.Object{Project: "p", Job: 7, Owner: tt.owner})
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
