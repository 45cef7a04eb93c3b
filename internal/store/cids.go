package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Content is a file that a job's result refers to by its content identifier.
type Content struct {
	CID          string // CIDv0
	Job          muster.JobID
	Name         string // of the artifact
	SHA256       string
	Size         int64
	Verification Verification
}

// ContentQuery asks for the files with an identifier.
type ContentQuery struct {
	CID     string  // CIDv0
	Project string  // of their jobs; "" means all
	After   Content // those that come after it; the zero one means all
	Limit   int     // at most that many, at least 1
}

// Verification is whether a file is known to have its identifier, which at first only its worker says.
type Verification int

// The states of a Proof.
const (
	Unverified Verification = iota
	Verified
	Mismatch // it has another one
)

// VerificationStore is what was found of contents. It holds for the file in all jobs.
type VerificationStore interface {
	SetVerification(ctx context.Context, c Content, p Verification) error
}

// PinStore is what becomes of contents in an IPFS node. A file that several jobs have is one.
type PinStore interface {
	// Unpinned lists files that are neither pinned nor refused, by CID and SHA-256, those after the one given; Job and Name
	// are of one of its jobs.
	Unpinned(ctx context.Context, after Content, limit int) ([]Content, error)
	// SetPin notes that the node has a file, or that it is never to be given it.
	SetPin(ctx context.Context, c Content, p PinState) error
}

// PinState is how a file stands with the node.
type PinState int

// The states of a Pin.
const (
	Unpinned PinState = iota
	Pinned
	PinRefused // the node made something else of it, or it is not there
)
