package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
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
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

// Identity identifies this worker to its server. It is stored in the data dir, which one process at a time uses.
type Identity struct {
	Worker     muster.WorkerID `json:"worker"`
	PrivateKey string          `json:"private_key,omitempty"` // seed of its Ed25519 key, in base64
	ServerID   string          `json:"server_id,omitempty"`   // that it saw when it joined, see handshake.ServerID
	Token      string          `json:"token,omitempty"`       // begin of the hash of the join token, to tell whether another one is given
	Key        string          `json:"key,omitempty"`         // bearer key of earlier versions, until the server has the public key
	Server     string          `json:"server"`                // that it joined
	Name       string          `json:"name,omitempty"`        // of its last start with --name
	Tags       string          `json:"tags,omitempty"`        // of its last start, separated by commas
	CA         string          `json:"ca,omitempty"`          // fingerprint of the server's certificate authority, "" for those of the system
}

const (
	identityFile = "identity.json"
	joiningFile  = "joining.json" // key pair of a join that has not been answered
)

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
	if err := json.Unmarshal(b, &id); err != nil || id.Worker == "" || id.Key == "" && (!id.hasKeyPair() || id.ServerID == "") {
		return Identity{}, false, muster.Errorf(muster.Invalid, "%s is damaged: delete it and start the worker with --token-file to join again", path)
	}
	return id, true, nil
}

// JoinedBy reports whether the worker is known to have joined by a token. Of a worker that joined by an earlier version that is not known.
func (id *Identity) JoinedBy(token string) bool { return id.Token == tokenMark(token) }

// tokenMark returns a part of a token's hash, from which the token cannot be found.
func tokenMark(token string) string { return auth.Hash(token)[:16] }

func (id *Identity) seed() []byte {
	seed, _ := base64.StdEncoding.DecodeString(id.PrivateKey) // hasKeyPair checks it
	return seed
}

func (id *Identity) hasKeyPair() bool { return len(id.seed()) == ed25519.SeedSize }

// privateKey returns the worker's key, if it has one.
func (id *Identity) privateKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(id.seed()) }

const (
	joinTimeout     = 15 * time.Second // of one request
	maxJoinResponse = 64 << 10         // bytes
)

// Registration is what a worker asks for when it joins.
type Registration struct {
	Name   string
	Worker muster.WorkerID // its id; "" for one that the server makes
}

// Join exchanges a join token for an identity and saves it in the data dir. It retries until the server answers or ctx ends.
func Join(ctx context.Context, client *http.Client, server *url.URL, token string, reg Registration, dir string, log *slog.Logger) (Identity, error) {
	id, err := join(ctx, client, server, token, reg, dir, "", log)
	if err != nil {
		return Identity{}, err
	}
	return id, id.saveJoined(dir, log)
}

// Rejoin is Join for a worker whose identity the server does not know. Once the server has accepted the token, cleanup removes everything
// that belongs to the old identity, whose file is renamed. A crash at any time leaves the old identity or none. Without TLS the server must be that
// which the worker knows: anything on the way could answer instead.
func Rejoin(ctx context.Context, client *http.Client, server *url.URL, token string, reg Registration, dir string, old Identity, cleanup func() error, log *slog.Logger) (Identity, error) {
	id, err := join(ctx, client, server, token, reg, dir, old.Worker, log)
	if err != nil {
		return Identity{}, err
	}
	if old.ServerID != "" && id.ServerID != old.ServerID && !authenticated(server) {
		return Identity{}, muster.Errorf(muster.Forbidden, "%s answers with another identity than the server that this worker joined: if it is to be trusted, delete %s and restart the worker with --token-file",
			server, filepath.Join(dir, identityFile))
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
func (id *Identity) saveJoined(dir string, log *slog.Logger) error {
	if err := id.Save(dir); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, joiningFile)); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove the key pair of the join: %w", err)
	}
	log.Info("joined", slog.String("server", id.Server), slog.String("worker", string(id.Worker)))
	return nil
}

// Save replaces the identity in the data dir.
func (id *Identity) Save(dir string) error { return id.save(dir, identityFile) }

func (id *Identity) save(dir, file string) error {
	b, err := json.MarshalIndent(id, "", "  ") //nolint:gosec // the key is for this file, which only its user can read
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, file), append(b, '\n'), 0o600)
	}
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot save the worker's identity: %w", err)
	}
	return nil
}

// joining returns the key pair with which to join by a token: that of an earlier try whose answer was lost, so that the server recognizes the
// worker and takes no further use of the token, or a new one, which it saves first.
func joining(dir, token string) (id Identity, err error) {
	path := filepath.Join(dir, joiningFile)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, muster.Errorf(muster.Internal, "cannot read %s: %w", path, err)
	}
	if err == nil && json.Unmarshal(b, &id) == nil && id.hasKeyPair() && id.Token == tokenMark(token) {
		return id, nil
	}
	id = Identity{PrivateKey: newSeed(), Token: tokenMark(token)}
	return id, id.save(dir, joiningFile)
}

func newSeed() string {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	return base64.StdEncoding.EncodeToString(seed)
}

// join requests an identity until the server answers.
func join(ctx context.Context, client *http.Client, server *url.URL, token string, reg Registration, dir string, replaces muster.WorkerID, log *slog.Logger) (Identity, error) {
	id, err := joining(dir, token)
	if err != nil {
		return Identity{}, err
	}
	var pause backoff.Backoff
	for {
		joined, err := joinOnce(ctx, client, server, token, reg, replaces, &id)
		if err == nil {
			id.Worker, id.ServerID, id.Server = joined.Worker, joined.Server, server.String()
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

func joinOnce(ctx context.Context, client *http.Client, server *url.URL, token string, reg Registration, replaces muster.WorkerID, id *Identity) (joined link.Joined, err error) {
	key, now := id.privateKey(), muster.NewTime(time.Now())
	status, header, body, err := post(ctx, client, server, link.PathJoin, token, link.JoinRequest{
		Name: reg.Name, Worker: reg.Worker, PublicKey: publicOf(key), At: now, Proof: handshake.ProveJoin(key, auth.Hash(token), reg.Name, now), Replaces: replaces,
	})
	if err != nil {
		return joined, err
	}
	if status != http.StatusOK {
		err := joinError(server, status, body)
		if err.Code == muster.Unavailable {
			err.Err = backoff.Delayed(header)
		}
		return joined, err
	}
	if err := json.Unmarshal(body, &joined); err != nil || joined.Worker == "" {
		return joined, muster.Errorf(muster.Invalid, "%s is not a muster server: check --server", server)
	}
	if _, err := handshake.ParseServerID(joined.Server); err != nil {
		return joined, muster.Errorf(muster.Invalid, "%s is not a muster server of this version: %w", server, err)
	}
	if reg.Worker != "" && joined.Worker != reg.Worker {
		return joined, muster.Errorf(muster.Conflict, "the join token is for worker %[1]s, and not for %[2]s: start the worker with --worker-id %[1]s, or with another token", joined.Worker, reg.Worker)
	}
	return joined, nil
}

func publicOf(key ed25519.PrivateKey) []byte { return key[ed25519.SeedSize:] }

// post sends a JSON body. An error means that there is no answer.
func post(ctx context.Context, client *http.Client, server *url.URL, path, token string, content any) (status int, header http.Header, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	body, err := json.Marshal(content)
	if err != nil {
		return 0, nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, muster.Errorf(muster.Invalid, "invalid server URL: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, muster.Errorf(muster.Unavailable, "cannot reach the server at %s: %w", server, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxJoinResponse))
	if err != nil {
		return 0, nil, nil, muster.Errorf(muster.Unavailable, "the response of %s ended early: %w", server, err)
	}
	return resp.StatusCode, resp.Header, answer, nil
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
