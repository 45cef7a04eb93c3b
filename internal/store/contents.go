package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Content is a file that a job's result refers to by its content identifier.
type Content struct {
	CID    string // CIDv0
	Job    muster.JobID
	Name   string // of the artifact
	SHA256 string
	Size   int64
}

// Pins is what becomes of contents in an IPFS node. A file that several jobs have is one.
type Pins interface {
	// Unpinned lists files that are neither pinned nor refused, by CID and SHA-256, those after the one given; Job and Name
	// are of one of its jobs.
	Unpinned(ctx context.Context, after Content, limit int) ([]Content, error)
	// SetPin notes that the node has a file, or that it is never to be given it.
	SetPin(ctx context.Context, c Content, p Pin) error
}

// Pin is how a file stands with the node.
type Pin int

// The states of a Pin.
const (
	Unpinned Pin = iota
	Pinned
	PinRefused // the node made something else of it, or it is not there
)
