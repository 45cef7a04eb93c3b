// Package testworker has both sides of a worker's identity, for tests that are a worker or a server themselves.
package testworker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

// Worker is a worker that has joined, and has a session token.
type Worker struct {
	Worker  muster.WorkerID
	Key     string // its session token
	Secret  []byte // of the session
	Private ed25519.PrivateKey
	Server  string // id of the server
}

// StatusError is the answer of a server that refuses a request.
type StatusError struct {
	Status int
	Header http.Header
	Body   string
}

// Error implements error.
func (r *StatusError) Error() string { return fmt.Sprintf("%d: %s", r.Status, r.Body) }

// Join makes a key pair and joins the server at a base URL by a token, and requests a session. A refusal is a *StatusError.
func Join(ctx context.Context, client *http.Client, base, token, name string) (Worker, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Worker{}, err
	}
	w, err := JoinWith(ctx, client, base, token, name, private)
	if err != nil {
		return Worker{}, err
	}
	g, err := w.Request(ctx, client, base)
	w.Key, w.Secret = g.Token, g.Secret
	return w, err
}

// JoinWith joins by a key pair, without a session.
func JoinWith(ctx context.Context, client *http.Client, base, token, name string, private ed25519.PrivateKey) (Worker, error) {
	var joined link.Joined
	err := Post(ctx, client, base+link.PathJoin, token, JoinRequest(token, name, private), &joined)
	return Worker{Worker: joined.Worker, Server: joined.Server, Private: private}, err
}

// JoinRequest returns the request of a worker with a key pair.
func JoinRequest(token, name string, private ed25519.PrivateKey) link.JoinRequest {
	now := muster.NewTime(time.Now())
	return link.JoinRequest{Name: name, PublicKey: private[ed25519.SeedSize:], At: now, Proof: handshake.ProveJoin(private, auth.Hash(token), name, now)}
}

// Request requests a session token.
func (w Worker) Request(ctx context.Context, client *http.Client, base string) (link.Credential, error) {
	r, ephemeral, err := handshake.NewRequest(w.Private, w.Worker, w.Server, muster.NewTime(time.Now()))
	if err != nil {
		return link.Credential{}, err
	}
	var g handshake.SessionGrant
	if err := Post(ctx, client, base+link.PathSession, "", r, &g); err != nil {
		return link.Credential{}, err
	}
	secret, err := r.Confirm(ephemeral, &g)
	return link.Credential{Token: g.Token, Secret: secret}, err
}

// Post sends a request and reads the answer.
func Post(ctx context.Context, client *http.Client, url, token string, content, answer any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return &StatusError{resp.StatusCode, resp.Header, string(text)}
	}
	return json.Unmarshal(text, answer)
}

// Current implements link.Credentials.
func (w Worker) Current(context.Context) (link.Credential, error) {
	return link.Credential{Token: w.Key, Secret: w.Secret}, nil
}

// Refused implements link.Credentials.
func (w Worker) Refused(_ string, err error) error { return err }

// Serve makes mux answer joins, and requests for sessions with a token, as a server that gives each worker the same id. It returns a function that returns
// the secret of the newest session, nil before the first: the worker expects frames that are signed by it.
func Serve(mux *http.ServeMux, worker muster.WorkerID, token string) (secret func() []byte) {
	var newest atomic.Pointer[[]byte]
	_, identity, _ := ed25519.GenerateKey(nil) // never fails
	answer := func(w http.ResponseWriter, content any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content) // the worker may be gone
	}
	mux.HandleFunc(link.PathJoin, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, link.Joined{Worker: worker, Server: handshake.ServerID(ed25519.PublicKey(identity[ed25519.SeedSize:]))})
	})
	mux.HandleFunc(link.PathSession, func(w http.ResponseWriter, r *http.Request) {
		var request handshake.SessionRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		now := muster.NewTime(time.Now())
		g, secret, err := handshake.Grant(identity, &request, token, now.Add(muster.Duration(time.Hour)), now)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		newest.Store(&secret)
		answer(w, g)
	})
	return func() []byte {
		if s := newest.Load(); s != nil {
			return *s
		}
		return nil
	}
}
