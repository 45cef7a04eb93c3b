package doctor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/origin"
)

func (r *inspection) token(ctx context.Context) []Finding {
	if !r.probed().isMuster {
		return r.notReached("token")
	}
	if r.Server.Token == "" {
		return single("token", Note, "set --token-file or MUSTER_TOKEN to a key: an administrator creates one with `muster keys create --role submitter`",
			"no API key for %s is saved for this user: commands need one", r.Server.URL)
	}
	w, err := r.whoami(ctx, r.Server.URL, r.Server.Token)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("token", Problem, "set --token-file or MUSTER_TOKEN to a valid key: an administrator creates one with `muster keys create --role submitter`",
			"the server refuses this user's API key: %s", err)
	case err != nil:
		return single("token", Warning, "", "cannot check this user's API key: %s", err)
	}
	role := auth.Role(w.Role)
	access := w.Role
	if w.Project != "" {
		access += ", limited to the project " + w.Project
	}
	if role == auth.Worker || role == auth.Join {
		return single("token", Warning, "use a key with the role submitter: `muster keys create --role submitter`", "this user's API key %q has the role %s, which cannot be used for commands", w.Name, access)
	}
	return single("token", OK, "", "the API key %q is valid: %s", w.Name, access)
}

// joinToken checks whether the server lets a worker join with the saved token.
func (r *inspection) joinToken(ctx context.Context) []Finding {
	if !r.probed().isMuster {
		return r.notReached("join-token")
	}
	_, joined, err := agent.LoadIdentity(r.Data)
	joined = joined || err != nil
	if r.Server.JoinToken == "" {
		if joined {
			return single("join-token", OK, "", "no join token is saved, and none is needed: the worker of this machine has joined")
		}
		return single("join-token", Note, "for a worker, set --token-file to the server's join token, or create one: `muster keys create --role join`", "no join token is saved, and no worker of this machine has joined")
	}
	w, err := r.whoami(ctx, r.Server.URL, r.Server.JoinToken)
	severity := Problem
	if joined {
		severity = Note // it is no longer needed
	}
	const fix = "create another one with `muster keys create --role join`, and start the worker with it in --token-file"
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("join-token", severity, fix, "the server refuses the join token: it was revoked, or belongs to another server")
	case err != nil:
		return single("join-token", Warning, "", "cannot check the join token: %s", err)
	case auth.Can(auth.Principal{Name: w.Name, Role: auth.Role(w.Role), Project: w.Project}, auth.JoinWorkers, auth.Object{}) != nil:
		return single("join-token", severity, fix, "the key %q has the role %s: workers cannot join with it", w.Name, w.Role)
	}
	return single("join-token", OK, "", "the server lets a worker join with the saved token")
}

func (r *inspection) saved(context.Context) []Finding {
	info, err := os.Stat(r.SavedPath)
	switch {
	case r.SavedErr != nil:
		return single("saved", Problem, "", "%s", r.SavedErr)
	case r.SavedPath == "" || errors.Is(err, fs.ErrNotExist):
		return single("saved", Note, "", "this user has no saved servers: commands need --server and --token-file, or a server that runs here")
	case err != nil:
		return single("saved", Warning, "", "cannot read the file of saved servers: %s", err)
	case openToOthers(info):
		return single("saved", Problem, "`chmod 600 "+r.SavedPath+"`", "%s contains API keys and is open to other users", r.SavedPath)
	}
	return single("saved", OK, "", "only its owner can access %s", r.SavedPath)
}

func (r *inspection) identity(ctx context.Context) []Finding {
	id, ok, err := agent.LoadIdentity(r.Data)
	switch {
	case err != nil && muster.CodeOf(err) == muster.Invalid:
		return single("identity", Problem, "`mv "+filepath.Join(r.Data, "identity.json")+" "+filepath.Join(r.Data, "identity.json.damaged")+"`, then start the worker with --token-file", "%s", err)
	case err != nil:
		return single("identity", Problem, "run the doctor as the user of the worker", "%s", err)
	case !ok:
		return single("identity", Note, "", "no worker with this data dir has joined a server yet")
	}
	rejoin := "`mv " + filepath.Join(r.Data, "identity.json") + " " + filepath.Join(r.Data, "identity.json.old") + "`, then start the worker with --token-file to join again"
	w, skew, err := r.whoamiWorker(ctx, id)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return single("identity", Problem, "start the worker with --token-file: it joins again", "%s does not know the worker %s: the server lost its data, or is another one", id.Server, id.Worker)
	case muster.CodeOf(err) == muster.Forbidden:
		return single("identity", Problem, rejoin, "the worker %s was removed from %s", id.Worker, id.Server)
	case muster.CodeOf(err) == muster.Invalid:
		return single("identity", Problem, "", "%s refuses the worker %s: %s", id.Server, id.Worker, err)
	case err != nil && strings.TrimRight(id.Server, "/") == strings.TrimRight(r.Server.URL, "/"):
		return single("identity", Note, "", "this is the worker %s of %s, which was not reached", id.Worker, id.Server)
	case err != nil:
		return single("identity", Warning, "start that server, or let the worker join another one: "+rejoin, "this is the worker %s of %s, which does not answer", id.Worker, id.Server)
	case auth.Role(w.Role) != auth.Worker || w.Worker != id.Worker:
		return single("identity", Problem, rejoin, "the key of the worker %s belongs to another one: its role is %s, its worker %q", id.Worker, w.Role, w.Worker)
	case r.ServerSet && strings.TrimRight(id.Server, "/") != strings.TrimRight(r.Server.URL, "/"):
		return single("identity", Note, "", "this is the worker %s of %s, but this user's commands go to %s", id.Worker, id.Server, r.Server.URL)
	}
	return append(single("identity", OK, "", "this is the worker %s of %s, which knows it", id.Worker, id.Server), clockFinding(skew)...)
}

// whoamiWorker asks the server about the worker, and returns how far this clock is ahead of the server's.
func (r *inspection) whoamiWorker(ctx context.Context, id agent.Identity) (w client.Whoami, skew time.Duration, err error) {
	if id.Key != "" { // of an earlier version: the worker replaces it when it starts
		w, err = r.whoami(ctx, id.Server, auth.WithPin(id.Key, id.CA))
		return w, 0, err
	}
	server, err := url.Parse(id.Server)
	if err != nil {
		return w, 0, muster.Errorf(muster.Invalid, "invalid server URL: %w", err)
	}
	o := origin.Options{ClientCert: r.Server.ClientCert, ClientKey: r.Server.ClientKey}
	if id.Server == r.Server.URL {
		o.CA, o.ServerName = r.Server.CA, r.Server.TLSServerName
	}
	h, err := origin.NewClientFor(server, o, id.CA)
	if err != nil {
		return w, 0, err
	}
	h.Timeout = r.effectiveTimeouts().step
	credentials := agent.NewCredentials(id, server, h, r.Data, slog.New(slog.DiscardHandler))
	current, err := credentials.Current(ctx)
	if err != nil {
		return w, 0, err
	}
	w, err = r.whoami(ctx, id.Server, auth.WithPin(current.Token, id.CA))
	return w, credentials.Skew(), err
}

// clockFinding says how far this clock and the server's differ, if that is noticeable.
func clockFinding(skew time.Duration) []Finding {
	if skew.Abs() < agent.MinSkewShown {
		return nil
	}
	where := "ahead of"
	if skew < 0 {
		where = "behind"
	}
	return single("identity", Warning, "synchronize both with NTP, such as `timedatectl set-ntp true`", "this clock is %s %s the server's: beyond %s the server refuses this worker", skew.Abs().Round(time.Second), where, handshake.MaxSkew)
}
