package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestServiceOptions checks that the service gets the options and variables of the command, but neither its token nor its own options.
func TestServiceOptions(t *testing.T) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "MUSTER_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("MUSTER_SLOTS", "4")
	t.Setenv("MUSTER_SERVER", "lab")
	t.Setenv("MUSTER_JOIN_TOKEN", "mst_join_secret")
	c := newInstallConfig()
	flags := c.flags()
	args, env, err := c.serviceOptions([]string{
		"--dry-run", "--name", "a b", "--token", "mst_join_secret", "--server", "lab", "--label=gpu=yes", "--user", "--token-file=join", "--allow-read", "/data", "--allow-host-network", "--data=/d",
	}, "http://10.0.0.5:8700", flags)
	testkit.NoError(t, err)
	want := []string{"worker", "--server", "http://10.0.0.5:8700", "--name", "a b", "--label=gpu=yes", "--allow-read", "/data", "--allow-host-network", "--data=/d"}
	if !slices.Equal(args, want) || !slices.Equal(env, []string{"MUSTER_SLOTS=4"}) {
		t.Errorf("the arguments are %q, the variables %q", args, env)
	}
	for _, relative := range [][]string{{"--data", "data"}, {"--wheels=wheels"}, {"--name", "x", "--kinds-dir", "./kinds"}} {
		if _, _, err := c.serviceOptions(relative, "http://x", flags); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "use an absolute path") {
			t.Errorf("%q: %v", relative, err)
		}
	}
	t.Setenv("MUSTER_DATA", "data")
	if _, _, err := c.serviceOptions(nil, "http://x", flags); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "MUSTER_DATA is the relative path data") {
		t.Errorf("a relative path in a variable: %v", err)
	}
}

// TestJoinIsChecked checks which tokens and identities worker install accepts.
func TestJoinIsChecked(t *testing.T) {
	s := apitest.Start(t, nil)
	empty, joined, forgotten := t.TempDir(), t.TempDir(), t.TempDir()
	join := s.CreateKey(t, auth.Join, "", "")
	id := agent.Identity{Server: s.URL, Worker: "w-1", Key: s.CreateKey(t, auth.Worker, "", "w-1")}
	testkit.NoError(t, id.Save(joined))
	id.Key = "mst_worker_0123456789abcdef0123456789"
	testkit.NoError(t, id.Save(forgotten))
	damaged := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(damaged, "identity.json"), []byte("{"), 0o600))
	for _, tc := range []struct {
		name, token, data string
		code              muster.Code
		want              string
	}{
		{"a join token", join, empty, "", ""},
		{"the token of an administrator", s.CreateKey(t, auth.Admin, "", ""), empty, "", ""},
		{"a worker that has joined", "", joined, "", ""},
		{"a worker that has joined, with a wrong token", "wrong", joined, "", ""},
		{"a worker that the server forgot, with a token", join, forgotten, "", ""},
		{"a worker that the server forgot", "", forgotten, muster.Unauthenticated, ""},
		{"no token", "", empty, muster.Unauthenticated, "muster keys create --role join"},
		{"an unknown token", "mst_join_0123456789abcdef0123456789", empty, muster.Unauthenticated, "does not accept this join token"},
		{"an API key", s.CreateKey(t, auth.Submitter, "p", ""), empty, muster.Forbidden, "this is the key of a submitter"},
		{"a damaged identity", join, damaged, muster.Invalid, "is damaged"},
	} {
		err := checkJoin(t.Context(), &remote.Server{URL: s.URL, JoinToken: tc.token}, tc.data)
		if (err == nil) != (tc.code == "") || err != nil && (muster.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if err := checkJoin(t.Context(), &remote.Server{URL: "http://127.0.0.1:1", JoinToken: join}, empty); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("without a server: %v", err)
	}
}
