package mlocbridge

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// maxInbox is how many messages may wait for their turn.
const maxInbox = 1000

// inboxItem is a message of the host that this worker was given and has not handed to Muster yet.
type inboxItem struct {
	ID      string          `json:"id"`   // of this dispatch: a host may dispatch a task again
	Task    string          `json:"task"` // its task_id
	At      time.Time       `json:"at"`   // when it came
	Message json.RawMessage `json:"message"`
	Refused string          `json:"refused,omitempty"` // why it cannot be carried out; only its report is missing

	file string
}

// inbox keeps messages on disk from when they arrive: Redis forgets them at once, and a worker of MLOC carries out one
// task at a time.
type inbox struct {
	dir string

	mu   sync.Mutex
	list []inboxItem // oldest first
	next int
	wake chan struct{} // gets a token with each message
}

func openInbox(dir string, signal chan struct{}) (*inbox, error) {
	b := &inbox{dir: dir, wake: signal}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot make %s: %w", dir, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read %s: %w", dir, err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil {
			return nil, muster.Errorf(muster.Internal, "cannot read a task that waits: %w", err)
		}
		p := inboxItem{file: n.Name()}
		if err := mloc.Decode(data, 3*mloc.MaxMessage, &p); err != nil {
			return nil, muster.Errorf(muster.Internal, "%s is damaged: remove it: %w", filepath.Join(dir, n.Name()), err)
		}
		b.list = append(b.list, p)
		if _, err := fmt.Sscanf(n.Name(), "%d", &b.next); err == nil {
			b.next++
		}
	}
	return b, nil
}

// add keeps a message. One of a task that waits already takes its place: the host has dispatched it again.
func (b *inbox) add(p inboxItem) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.list, func(q inboxItem) bool { return q.Task == p.Task })
	switch {
	case at >= 0 && b.list[at].ID == p.ID:
		return nil
	case at >= 0:
		p.file = b.list[at].file
	case len(b.list) >= maxInbox:
		return muster.Errorf(muster.Unavailable, "%d tasks wait for their turn already", len(b.list))
	default:
		p.file = fmt.Sprintf("%012d.json", b.next)
		b.next++
	}
	if err := mloc.WriteJSON(filepath.Join(b.dir, p.file), p); err != nil {
		return err
	}
	if at >= 0 {
		b.list[at] = p
	} else {
		b.list = append(b.list, p)
	}
	wake.Set(b.wake)
	return nil
}

// first returns the oldest one, nil if none waits.
func (b *inbox) first() *inboxItem {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return nil
	}
	p := b.list[0]
	return &p
}

// markRefused notes why a message cannot be carried out.
func (b *inbox) markRefused(p *inboxItem, reason string) error {
	p.Refused = mloc.Truncate(reason, mloc.MaxText)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := mloc.WriteJSON(filepath.Join(b.dir, p.file), p); err != nil {
		return err
	}
	if i := slices.IndexFunc(b.list, func(q inboxItem) bool { return q.file == p.file }); i >= 0 {
		b.list[i] = *p
	}
	return nil
}

// remove forgets a message that was processed or answered.
func (b *inbox) remove(p *inboxItem) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = slices.DeleteFunc(b.list, func(q inboxItem) bool { return q.file == p.file && q.ID == p.ID })
	if slices.ContainsFunc(b.list, func(q inboxItem) bool { return q.file == p.file }) {
		return nil // a newer one of the same task has its file
	}
	if err := os.Remove(filepath.Join(b.dir, p.file)); err != nil && !os.IsNotExist(err) {
		return muster.Errorf(muster.Internal, "cannot forget task %s: %w", p.Task, err)
	}
	return nil
}

// clear forgets all: the worker is unregistered, and the host gives its tasks to others.
func (b *inbox) clear() {
	for p := b.first(); p != nil; p = b.first() {
		if b.remove(p) != nil {
			return
		}
	}
}
