package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/auth"
)

// token asks the server whose the saved key is.
func (r *inspection) token(ctx context.Context) []Finding {
	if !r.probed().isMuster {
		return r.notReached("token")
	}
	if r.Server.Token == "" {
		return single("token", Note, "give --token-file or MUSTER_TOKEN with a key: an administrator makes one with `muster keys create --role submitter`",
			"no API key for %s is saved here: commands of this user need one", r.Server.URL)
	}
	w, err := r.whoami(ctx, r.Server.URL, r.Server.Token)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("token", Problem, "give --token-file or MUSTER_TOKEN with a key that is valid: an administrator makes one with `muster keys create --role submitter`",
			"the server refuses this user's API key: %s", err)
	case err != nil:
		return single("token", Warning, "", "the server does not say whose this user's API key is: %s", err)
	}
	role := auth.Role(w.Role)
	access := w.Role
	if w.Project != "" {
		access += ", for the project " + w.Project + " only"
	}
	if role == auth.Worker || role == auth.Join {
		return single("token", Warning, "use a key with the role submitter: `muster keys create --role submitter`", "this user's API key %q has the role %s: it is of no use for commands", w.Name, access)
	}
	return single("token", OK, "", "the API key %q is valid: %s", w.Name, access)
}

// joinToken asks the server whether it would let a worker join.
func (r *inspection) joinToken(ctx context.Context) []Finding {
	if !r.probed().isMuster {
		return r.notReached("join-token")
	}
	_, joined, err := agent.LoadIdentity(r.Data)
	joined = joined || err != nil
	if r.Server.JoinToken == "" {
		if joined {
			return single("join-token", OK, "", "none is saved here, and none is needed: the worker of this machine has joined")
		}
		return single("join-token", Note, "for a worker, give --token-file with the server's join token, or make one: `muster keys create --role join`", "none is saved here, and no worker of this machine has joined")
	}
	w, err := r.whoami(ctx, r.Server.URL, r.Server.JoinToken)
	severity := Problem
	if joined {
		severity = Note // it is not needed any more
	}
	const fix = "make another one: `muster keys create --role join`, and give it to muster worker with --token-file"
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("join-token", severity, fix, "the server refuses the join token: it was revoked, or is of another server")
	case err != nil:
		return single("join-token", Warning, "", "the server does not say whether the join token is valid: %s", err)
	case auth.Authorize(auth.Principal{Name: w.Name, Role: auth.Role(w.Role), Project: w.Project}, auth.JoinWorkers, auth.Object{}) != nil:
		return single("join-token", severity, fix, "the key %q has the role %s, with which workers cannot join", w.Name, w.Role)
	}
	return single("join-token", OK, "", "the server would let a worker join")
}

// saved looks at the file with this user's servers.
func (r *inspection) saved(context.Context) []Finding {
	info, err := os.Stat(r.SavedPath)
	switch {
	case r.SavedErr != nil:
		return single("saved", Problem, "", "%s", r.SavedErr)
	case r.SavedPath == "" || errors.Is(err, fs.ErrNotExist):
		return single("saved", Note, "", "this user has no saved servers: commands need --server and --token-file, or up or server run here")
	case err != nil:
		return single("saved", Warning, "", "the file of saved servers cannot be looked at: %s", err)
	case openToOthers(info):
		f := newFinding("saved", Problem, "`chmod 600 "+r.SavedPath+"`", "%s, which has API keys in it, is open to other users", r.SavedPath)
		f.repair = removeModeBits([]string{r.SavedPath}, 0o077)
		return []Finding{f}
	}
	return single("saved", OK, "", "%s is for its owner only", r.SavedPath)
}

// identity asks the server that the worker has joined whether it knows it.
func (r *inspection) identity(ctx context.Context) []Finding {
	id, ok, err := agent.LoadIdentity(r.Data)
	switch {
	case err != nil && muster.CodeOf(err) == muster.Invalid:
		return single("identity", Problem, "`mv "+filepath.Join(r.Data, "identity.json")+" "+filepath.Join(r.Data, "identity.json.damaged")+"`, then start the worker with --token-file", "%s", err)
	case err != nil:
		return single("identity", Problem, "run the doctor as the user whom the worker runs as", "%s", err)
	case !ok:
		return single("identity", Note, "", "no worker with this data dir has joined a server yet")
	}
	rejoin := "`mv " + filepath.Join(r.Data, "identity.json") + " " + filepath.Join(r.Data, "identity.json.old") + "`, then start the worker with --token-file to join again"
	w, err := r.whoami(ctx, id.Server, id.Key)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("identity", Problem, "start the worker with --token-file: it joins again", "%s does not know the worker %s: the server lost its data, or is another one", id.Server, id.Worker)
	case muster.CodeOf(err) == muster.Forbidden:
		return single("identity", Problem, rejoin, "the worker %s was removed from %s", id.Worker, id.Server)
	case err != nil && strings.TrimRight(id.Server, "/") == strings.TrimRight(r.Server.URL, "/"):
		return single("identity", Note, "", "the worker is %s of %s, which was not reached", id.Worker, id.Server)
	case err != nil:
		return single("identity", Warning, "start that server, or have the worker join another one: "+rejoin, "the worker is %s of %s, which does not answer", id.Worker, id.Server)
	case auth.Role(w.Role) != auth.Worker || w.Worker != id.Worker:
		return single("identity", Problem, rejoin, "the key of the worker %s is another one's: its role is %s, its worker %q", id.Worker, w.Role, w.Worker)
	case r.ServerSet && strings.TrimRight(id.Server, "/") != strings.TrimRight(r.Server.URL, "/"):
		return single("identity", Note, "", "the worker is %s of %s, and this user's commands go to %s", id.Worker, id.Server, r.Server.URL)
	}
	return single("identity", OK, "", "the worker is %s of %s, which knows it", id.Worker, id.Server)
}
