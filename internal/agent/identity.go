package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
)

// Identity identifies this worker to its server. It is stored in the data dir.
type Identity struct {
	Worker muster.WorkerID `json:"worker"`
	Key    string          `json:"key"`
	Server string          `json:"server"`         // that it joined
	Name   string          `json:"name,omitempty"` // of its last start with --name
	Tags   string          `json:"tags,omitempty"` // of its last start, separated by commas
	CA     string          `json:"ca,omitempty"`   // fingerprint of the server's certificate authority, "" for those of the system
}

const identityFile = "identity.json"

// LoadIdentity reads the identity from the data dir. ok is false if there is none.
func LoadIdentity(dir string) (id Identity, ok bool, err error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, muster.Errorf(muster.Internal, "cannot read the worker's identity: %w", err)
	}
	if err := json.Unmarshal(b, &id); err != nil || id.Worker == "" || id.Key == "" {
		return Identity{}, false, muster.Errorf(muster.Invalid, "%s is damaged: delete it and start the worker with --token-file to join again", path)
	}
	return id, true, nil
}

const (
	joinTimeout     = 15 * time.Second // of one request
	maxJoinResponse = 64 << 10         // bytes
)

// Join exchanges a join token for an identity and saves it in the data dir. It retries until the server answers or ctx ends.
func Join(ctx context.Context, client *http.Client, server *url.URL, token, name, dir string, log *slog.Logger) (Identity, error) {
	id, err := join(ctx, client, server, token, name, log)
	if err != nil {
		return Identity{}, err
	}
	return id, id.saveJoined(dir, log)
}

// Rejoin is Join for a worker whose identity the server does not know. Once the server has accepted the token, cleanup removes everything
// that belongs to the old identity, whose file is renamed. A crash at any time leaves the old identity or none.
func Rejoin(ctx context.Context, client *http.Client, server *url.URL, token, name, dir string, old Identity, cleanup func() error, log *slog.Logger) (Identity, error) {
	id, err := join(ctx, client, server, token, name, log)
	if err != nil {
		return Identity{}, err
	}
	if err := cleanup(); err != nil {
		return Identity{}, err
	}
	path := filepath.Join(dir, identityFile)
	backup := path + "." + filepath.Base(string(old.Worker)) + ".old"
	if err := os.Rename(path, backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Identity{}, muster.Errorf(muster.Internal, "cannot rename the worker's old identity to %s: %w", backup, err)
	}
	log.Warn("the server does not know this worker: joined again with the join token; earlier tasks were stopped, their results and logs dropped",
		slog.String("old_worker", string(old.Worker)), slog.String("old_server", old.Server), slog.String("old_identity", backup))
	return id, id.saveJoined(dir, log)
}

// saveJoined saves an identity that a server has just issued.
func (id Identity) saveJoined(dir string, log *slog.Logger) error {
	if err := id.Save(dir); err != nil {
		return err
	}
	log.Info("joined", slog.String("server", id.Server), slog.String("worker", string(id.Worker)))
	return nil
}

// Save replaces the identity in the data dir.
func (id Identity) Save(dir string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, identityFile), append(b, '\n'), 0o600)
	}
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot save the worker's identity: %w", err)
	}
	return nil
}

// join requests an identity until the server answers.
func join(ctx context.Context, client *http.Client, server *url.URL, token, name string, log *slog.Logger) (Identity, error) {
	var pause backoff.Backoff
	for {
		id, err := joinOnce(ctx, client, server, token, name)
		if err == nil {
			return id, nil
		}
		if ctx.Err() != nil || muster.CodeOf(err) != muster.Unavailable {
			return Identity{}, err
		}
		log.Warn("join failed, retrying", slog.Any("error", err))
		if err := backoff.Sleep(ctx, pause.NextAfter(err)); err != nil {
			return Identity{}, err
		}
	}
}

func joinOnce(ctx context.Context, client *http.Client, server *url.URL, token, name string) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	body, err := json.Marshal(link.JoinRequest{Name: name})
	if err != nil {
		return Identity{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.JoinPath(link.PathJoin).String(), bytes.NewReader(body))
	if err != nil {
		return Identity{}, muster.Errorf(muster.Invalid, "invalid server URL: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return Identity{}, muster.Errorf(muster.Unavailable, "cannot reach the server at %s: %w", server, err)
	}
	defer resp.Body.Close()
	respBody, err := io.ReadAll(io.LimitReader(resp.Body, maxJoinResponse))
	if err != nil {
		return Identity{}, muster.Errorf(muster.Unavailable, "the response of %s ended early: %w", server, err)
	}
	if resp.StatusCode != http.StatusOK {
		err := joinError(server, resp.StatusCode, respBody)
		if err.Code == muster.Unavailable {
			err.Err = backoff.Delayed(resp.Header)
		}
		return Identity{}, err
	}
	var joined link.Joined
	if err := json.Unmarshal(respBody, &joined); err != nil || joined.Worker == "" || joined.Key == "" {
		return Identity{}, muster.Errorf(muster.Invalid, "%s is not a muster server: check --server", server)
	}
	return Identity{Worker: joined.Worker, Key: joined.Key, Server: server.String()}, nil
}

func joinError(server *url.URL, status int, respBody []byte) *muster.Error {
	var problem struct {
		Detail string `json:"detail"`
	}
	switch {
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && json.Unmarshal(respBody, &problem) == nil && problem.Detail != "":
		return muster.Errorf(muster.Unauthenticated, "%s rejects the join token: %s; muster keys create --role join makes another one", server, problem.Detail)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return muster.Errorf(muster.Unauthenticated,
			"%s rejects the join token: create a new one with muster keys create --role join", server)
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return muster.Errorf(muster.Unavailable, "%s answered %d: %s", server, status, firstLine(respBody))
	case json.Unmarshal(respBody, &problem) == nil && problem.Detail != "":
		return muster.Errorf(muster.Invalid, "%s rejects this worker: %s", server, problem.Detail)
	default:
		return muster.Errorf(muster.Invalid, "%s answered the join request with %d (%s): check that --server is a muster server", server, status, firstLine(respBody))
	}
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	const limit = 200
	if len(line) > limit {
		line = line[:limit] + "…"
	}
	return line
}
