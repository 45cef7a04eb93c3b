package serverd

import (
	"context"

	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cidcheck"
	"github.com/muster-dev/muster/internal/ipfs"
	"github.com/muster-dev/muster/internal/store"
)

// cidVerifier verifies the content identifiers of files.
type cidVerifier interface {
	// Verify reports whether a file has its identifier. It returns NotFound if the file is missing.
	Verify(ctx context.Context, c store.Content) (bool, error)
	Close()
}

// ipfsPinner pins files on an IPFS node until ctx ends.
type ipfsPinner interface {
	Run(ctx context.Context) error
}

// buildIPFS sets the verifier of content identifiers and, if a node is configured, the pinner.
func (s *Server) buildIPFS(blobs blob.Store) (err error) {
	s.verifier = cidcheck.New(s.store, blobs, s.log)
	if s.cfg.IPFS != "" {
		s.pinner, err = ipfs.New(ipfs.Config{Node: s.cfg.IPFS, Pins: s.store, Verify: s.verifier.Verify, Blobs: blobs, Log: s.log})
	}
	return err
}
