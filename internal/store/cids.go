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

// ContentQuery selects the files with an identifier.
type ContentQuery struct {
	CID     string  // CIDv0
	Project string  // of their jobs; "" means all
	After   Content // only those after it; the zero value means all
	Limit   int     // at least 1
}

// Verification is whether the server has verified the identifier of a file, which a worker reported.
type Verification int

// The values of Verification.
const (
	Unverified Verification = iota
	Verified
	Mismatch // the file has another identifier
)

// VerificationStore stores results of verification. A result holds for the file in all jobs.
type VerificationStore interface {
	SetVerification(ctx context.Context, c Content, p Verification) error
}

// PinStore stores which files are pinned on an IPFS node. A file that several jobs have is one file.
type PinStore interface {
	// Unpinned lists files that are neither pinned nor refused, by CID and SHA-256, from the one after the given one; Job and Name
	// are of one of its jobs.
	Unpinned(ctx context.Context, after Content, limit int) ([]Content, error)
	SetPin(ctx context.Context, c Content, p PinState) error
}

// PinState is the state of a file on the IPFS node.
type PinState int

// The values of PinState.
const (
	Unpinned PinState = iota
	Pinned
	PinRefused // never to be pinned: the node computes another CID, or the file is missing
)
