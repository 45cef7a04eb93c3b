// Package ipfs pins the files that results refer to as ipfs://… on an IPFS node. The node is Kubo or implements its RPC
// API (docs.ipfs.tech/reference/kubo/rpc).
//
// The store records which files are not pinned yet, so pinning continues after a restart of either side. An unreachable, slow or full node
// does not block other work.
package ipfs

import (
	"context"
	"io"
	"log/slog"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

const (
	maxConcurrent = 2
	pageSize      = 100
	pollInterval  = 5 * time.Second // for new files
	maxBackoff    = 5 * time.Minute // after errors of the node
)

// Config configures a Pinner. All fields are required.
type Config struct {
	Node   string // URL of its RPC API, which may have a user and password
	Pins   store.PinStore
	Verify func(context.Context, store.Content) (bool, error) // whether a file has its identifier; NotFound if the file is missing
	Blobs  blob.Store
	Log    *slog.Logger
}

// Pinner pins files on a node.
type Pinner struct {
	Config

	node     *node
	interval time.Duration
}

// New returns a Pinner, or an Invalid error if the URL is invalid. It does not connect to the node.
func New(cfg Config) (*Pinner, error) {
	n, err := newNode(cfg.Node)
	if err != nil {
		return nil, err
	}
	return &Pinner{Config: cfg, node: n, interval: pollInterval}, nil
}

// Run pins files until ctx ends.
func (p *Pinner) Run(ctx context.Context) error {
	defer p.node.http.CloseIdleConnections()
	retry, down := backoff.Backoff{Min: 2 * p.interval, Max: maxBackoff}, false
	for {
		wait := p.interval
		err := p.pinAll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if down {
				p.Log.Info("IPFS node available again", slog.String("node", p.node.url.Redacted()))
			}
			retry.Reset()
			down = false
		default:
			if !down {
				p.Log.Warn("IPFS node unavailable, files are not pinned yet", slog.String("node", p.node.url.Redacted()), slog.Any("why", err))
			}
			wait, down = max(wait, retry.Next()), true
		}
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// pinAll pins all files once. An error means that the node or the store does not work.
func (p *Pinner) pinAll(ctx context.Context) error {
	var after store.Content
	for {
		list, err := p.Pins.Unpinned(ctx, after, pageSize)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := p.pinBatch(ctx, list); err != nil {
			return err
		}
		after = list[len(list)-1]
	}
}

// pinBatch pins several files, maxConcurrent at a time, and starts no more after the first error.
func (p *Pinner) pinBatch(ctx context.Context, list []store.Content) error {
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for _, c := range list {
		group.Go(func() error {
			if failed.Err() != nil {
				return nil //nolint:nilerr // another file has failed
			}
			return p.pinOne(ctx, c)
		})
	}
	return group.Wait()
}

// pinOne pins a file. If no node could pin it, it records that and returns nil.
func (p *Pinner) pinOne(ctx context.Context, c store.Content) error {
	log := p.Log.With(slog.String("cid", c.CID), slog.String("artifact", c.Name), slog.String("job", c.Job.String()))
	valid, err := p.Verify(ctx, c)
	if err == nil && !valid { // Verify has logged it
		return p.Pins.SetPin(ctx, c, store.PinRefused)
	}
	var content io.ReadSeekCloser
	if err == nil {
		content, err = p.Blobs.Open(ctx, c.SHA256)
	}
	if err != nil {
		if muster.CodeOf(err) != muster.NotFound {
			return err
		}
		log.Error("cannot pin a file: the server does not have it any more")
		return p.Pins.SetPin(ctx, c, store.PinRefused)
	}
	defer func() { _ = content.Close() }() // it was only read
	got, err := p.node.add(ctx, path.Base(c.Name), content)
	if err != nil {
		return err
	}
	if got == c.CID {
		log.Debug("file pinned")
		return p.Pins.SetPin(ctx, c, store.Pinned)
	}
	log.Error("the IPFS node computed another CID for a file, because it ignores the chunking options; not retrying",
		slog.String("node", got))
	if err := p.node.unpin(ctx, got); err != nil {
		log.Warn("cannot unpin the file", slog.String("cid", got), slog.Any("why", err))
	}
	return p.Pins.SetPin(ctx, c, store.PinRefused)
}
