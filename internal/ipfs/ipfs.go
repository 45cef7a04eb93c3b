package ipfs

import (
	"context"
	"io"
	"log/slog"
	"path"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

const (
	maxConcurrent = 2
	pageSize      = 100
	pollInterval  = 5 * time.Second // for what is new
	maxBackoff    = 5 * time.Minute // between tries at a node that does not take files
)

// Config says what is given to which node. All of it is needed.
type Config struct {
	Node   string // URL of its RPC interface; a user and password in it are sent
	Pins   store.PinStore
	Verify func(context.Context, store.Content) (bool, error) // whether a file has its identifier; NotFound if it is not there
	Blobs  blob.Store
	Log    *slog.Logger
}

// Pinner gives files to a node.
type Pinner struct {
	Config

	node     *node
	interval time.Duration
}

// New returns an Invalid error if the URL is none. It does not ask whether there is a node.
func New(cfg Config) (*Pinner, error) {
	n, err := newNode(cfg.Node)
	if err != nil {
		return nil, err
	}
	return &Pinner{Config: cfg, node: n, interval: pollInterval}, nil
}

// Run gives the node what it has not got, until ctx ends.
func (p *Pinner) Run(ctx context.Context) error {
	defer p.node.http.CloseIdleConnections()
	backoff, down := p.interval, false
	for {
		err := p.pinAll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if down {
				p.Log.Info("the IPFS node takes files again", slog.String("node", p.node.url.Redacted()))
			}
			backoff, down = p.interval, false
		default:
			if !down {
				p.Log.Warn("the IPFS node does not take files: they wait", slog.String("node", p.node.url.Redacted()), slog.Any("why", err))
			}
			backoff, down = min(2*backoff, maxBackoff), true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
	}
}

// pinAll goes once through what is to be given. An error says that the node, or the store, does not work.
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

// pinBatch gives several files, a few at once, and stops at the first error.
func (p *Pinner) pinBatch(ctx context.Context, list []store.Content) error {
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		next     int
		firstErr error
	)
	nextIndex := func() int {
		mu.Lock()
		defer mu.Unlock()
		if next == len(list) || firstErr != nil || ctx.Err() != nil {
			return -1
		}
		next++
		return next - 1
	}
	for range min(maxConcurrent, len(list)) {
		wg.Go(func() {
			for i := nextIndex(); i >= 0; i = nextIndex() {
				if err := p.pinOne(ctx, list[i]); err != nil {
					mu.Lock()
					firstErr = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return firstErr
}

// pinOne gives a file. What cannot be given, whatever the node is like, is noted and no error.
func (p *Pinner) pinOne(ctx context.Context, c store.Content) error {
	log := p.Log.With(slog.String("cid", c.CID), slog.String("artifact", c.Name), slog.String("job", c.Job.String()))
	valid, err := p.Verify(ctx, c)
	if err == nil && !valid { // whoever found that has told of it
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
		log.Error("a file cannot be given to the IPFS node: the server does not have it any more")
		return p.Pins.SetPin(ctx, c, store.PinRefused)
	}
	defer func() { _ = content.Close() }() // it was only read
	got, err := p.node.add(ctx, path.Base(c.Name), content)
	if err != nil {
		return err
	}
	if got == c.CID {
		log.Debug("the IPFS node has a file")
		return p.Pins.SetPin(ctx, c, store.Pinned)
	}
	log.Error("the IPFS node calls a file otherwise than it is called: it does not heed how files are to be cut; the file is not given again",
		slog.String("node", got))
	if err := p.node.unpin(ctx, got); err != nil {
		log.Warn("the IPFS node keeps the file", slog.String("cid", got), slog.Any("why", err))
	}
	return p.Pins.SetPin(ctx, c, store.PinRefused)
}
