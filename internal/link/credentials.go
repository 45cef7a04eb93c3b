package link

import (
	"context"

	"github.com/muster-dev/muster"
)

// Credential is what a worker presents to the server: a bearer token for a request or a connection, and the secret that both sides derived
// for it.
type Credential struct {
	Token  string
	Secret []byte // 32 bytes; nil for a worker that has none
}

// Credentials are the source of a worker's credential, which is renewed while it runs. Its methods may be called concurrently.
type Credentials interface {
	// Current returns the credential for a new request or connection. It may ask the server for one first. An Unauthenticated or Forbidden error
	// means that the server refuses this worker.
	Current(ctx context.Context) (Credential, error)
	// Refused says that the server answered a request with token by 401 or 403, which is err. It returns nil if the request is to be repeated with the then
	// current credential, else the error of the request.
	Refused(token string, err error) error
}

// StaticToken is a credential that does not change, and has no secret.
type StaticToken string

// Current implements Credentials.
func (s StaticToken) Current(context.Context) (Credential, error) {
	return Credential{Token: string(s)}, nil
}

// Refused implements Credentials.
func (s StaticToken) Refused(_ string, err error) error { return err }

// Peer is the worker that opened a connection, as the transport authenticated it.
type Peer struct {
	Worker muster.WorkerID
	Secret []byte // of the worker's credential; nil if it has none
}
