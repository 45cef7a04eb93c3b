package kubo

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
	atOnce   = 2
	page     = 100
	lookEach = 5 * time.Second // for what is new
	longWait = 5 * time.Minute // between tries at a node that does not take files
)

// Config says what is given to which node. All of it is needed.
type Config struct {
	Node  string // URL of its RPC interface; a user and password in it are sent
	Pins  store.PinStore
	Prove func(context.Context, store.Content) (bool, error) // whether a file has its identifier; NotFound if it is not there
	Blobs blob.Store
	Log   *slog.Logger
}

// Giver gives files to a node.
type Giver struct {
	Config

	node *node
	look time.Duration
}

// New returns an Invalid error if the URL is none. It does not ask whether there is a node.
func New(cfg Config) (*Giver, error) {
	n, err := newNode(cfg.Node)
	if err != nil {
		return nil, err
	}
	return &Giver{Config: cfg, node: n, look: lookEach}, nil
}

// Run gives the node what it has not got, until ctx ends.
func (g *Giver) Run(ctx context.Context) error {
	defer g.node.http.CloseIdleConnections()
	wait, down := g.look, false
	for {
		err := g.all(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if down {
				g.Log.Info("the IPFS node takes files again", slog.String("node", g.node.at.Redacted()))
			}
			wait, down = g.look, false
		default:
			if !down {
				g.Log.Warn("the IPFS node does not take files: they wait", slog.String("node", g.node.at.Redacted()), slog.Any("why", err))
			}
			wait, down = min(2*wait, longWait), true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// all goes once through what is to be given. An error says that the node, or the store, does not work.
func (g *Giver) all(ctx context.Context) error {
	var after store.Content
	for {
		list, err := g.Pins.Unpinned(ctx, after, page)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := g.some(ctx, list); err != nil {
			return err
		}
		after = list[len(list)-1]
	}
}

// some gives several files, a few at once, and stops at the first error.
func (g *Giver) some(ctx context.Context, list []store.Content) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		fail error
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if next == len(list) || fail != nil || ctx.Err() != nil {
			return -1
		}
		next++
		return next - 1
	}
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for i := take(); i >= 0; i = take() {
				if err := g.one(ctx, list[i]); err != nil {
					mu.Lock()
					fail = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return fail
}

// one gives a file. What cannot be given, whatever the node is like, is noted and no error.
func (g *Giver) one(ctx context.Context, c store.Content) error {
	log := g.Log.With(slog.String("cid", c.CID), slog.String("artifact", c.Name), slog.String("job", c.Job.String()))
	right, err := g.Prove(ctx, c)
	if err == nil && !right { // whoever found that has told of it
		return g.Pins.SetPin(ctx, c, store.PinRefused)
	}
	var content io.ReadSeekCloser
	if err == nil {
		content, err = g.Blobs.Open(ctx, c.SHA256)
	}
	if err != nil {
		if muster.CodeOf(err) != muster.NotFound {
			return err
		}
		log.Error("a file cannot be given to the IPFS node: the server does not have it any more")
		return g.Pins.SetPin(ctx, c, store.PinRefused)
	}
	defer func() { _ = content.Close() }() // it was only read
	got, err := g.node.add(ctx, path.Base(c.Name), content)
	if err != nil {
		return err
	}
	if got == c.CID {
		log.Debug("the IPFS node has a file")
		return g.Pins.SetPin(ctx, c, store.Pinned)
	}
	log.Error("the IPFS node calls a file otherwise than it is called: it does not heed how files are to be cut; the file is not given again",
		slog.String("node", got))
	if err := g.node.unpin(ctx, got); err != nil {
		log.Warn("the IPFS node keeps the file", slog.String("cid", got), slog.Any("why", err))
	}
	return g.Pins.SetPin(ctx, c, store.PinRefused)
}
