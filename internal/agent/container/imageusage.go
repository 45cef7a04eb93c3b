package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// imageUsage records the images that tasks pulled, in a file that survives restarts. All other images belong to the machine's owner.
type imageUsage struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	images map[string]*pulledImage // by image ID
}

type pulledImage struct {
	Names []string    `json:"names"` // canonical names by which tasks pulled it
	Size  muster.Size `json:"size"`
	Used  muster.Time `json:"used"` // last use

	saved muster.Time // when Used was saved
}

// String returns its names.
func (p *pulledImage) String() string { return strings.Join(p.Names, ", ") }

// openImageUsage reads the record of a data dir. If that is unreadable, it starts empty, and the images are kept.
func openImageUsage(dir string, log *slog.Logger) *imageUsage {
	l := &imageUsage{path: filepath.Join(dir, "images.json"), log: log, images: map[string]*pulledImage{}}
	b, err := os.ReadFile(l.path)
	if err == nil {
		err = json.Unmarshal(b, &l.images)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("reading the record of pulled images failed: they are kept", slog.Any("error", err))
	}
	if l.images == nil {
		l.images = map[string]*pulledImage{}
	}
	maps.DeleteFunc(l.images, func(_ string, p *pulledImage) bool { return p == nil })
	return l
}

// add records that an image was pulled by a name. An image that existed before the pull is only added if it is recorded by another name.
func (l *imageUsage) add(id, name string, size muster.Size, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.images[id]
	switch {
	case p == nil && !isNew:
		return
	case p == nil || isNew: // new in spite of an entry: it was removed meanwhile
		p = &pulledImage{Size: size}
		l.images[id] = p
	case slices.Contains(p.Names, name):
		return
	}
	p.Names, p.Used = append(p.Names, name), muster.NewTime(time.Now())
	l.save()
}

// touch records the use of a recorded image. It saves at most once a minute, so that many short tasks do not wait for the disk.
func (l *imageUsage) touch(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.images[id]
	if p == nil {
		return
	}
	p.Used = muster.NewTime(time.Now())
	if p.Used.Sub(p.saved) > muster.Duration(time.Minute) {
		p.saved = p.Used
		l.save()
	}
}

func (l *imageUsage) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.images, id)
	l.save()
}

// save writes the file, which only the next incarnation reads.
func (l *imageUsage) save() {
	b, err := json.Marshal(l.images)
	if err == nil {
		err = atomicfile.Write(l.path, b, 0o600)
	}
	if err != nil {
		l.log.Warn("writing the record of pulled images failed", slog.Any("error", err))
	}
}

// evictable returns by how much the images exceed a budget, and those unused since a time, least recently used first.
func (l *imageUsage) evictable(budget muster.Size, unusedSince time.Time) (ids []string, over muster.Size) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.images {
		over += p.Size
	}
	over -= budget
	if over <= 0 {
		return nil, 0
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.images), func(a, b string) int {
		return cmp.Compare(l.images[a].Used, l.images[b].Used)
	}) {
		if l.images[id].Used.Std().Before(unusedSince) {
			ids = append(ids, id)
		}
	}
	return ids, over
}

func (l *imageUsage) image(id string) pulledImage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.images[id]; p != nil {
		return *p
	}
	return pulledImage{}
}

// evictImages removes images that tasks pulled until they are within the budget.
func (c *Containers) evictImages(ctx context.Context) {
	if c.cfg.Budget == 0 {
		return
	}
	ids, over := c.usage.evictable(c.cfg.Budget, time.Now().Add(-c.timeouts.minUnused))
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	ctrs, err := c.list(ctx, "", "")
	if err != nil {
		return // Run retries
	}
	for _, id := range ids {
		if over <= 0 || ctx.Err() != nil {
			return
		}
		if slices.ContainsFunc(ctrs, func(l docker.ContainerSummary) bool { return l.Image == id }) {
			continue
		}
		over -= c.evictImage(ctx, id)
	}
}

// evictImage removes an image and returns how much it reduces the recorded size.
func (c *Containers) evictImage(ctx context.Context, id string) muster.Size {
	known := c.usage.image(id)
	img, err := c.cfg.Engine.Image(ctx, id)
	switch {
	case errors.Is(err, docker.ErrNotFound):
		c.usage.remove(id)
		return known.Size
	case err != nil:
		return 0
	}
	for _, tag := range img.Tags {
		if ref, ok := canonicalRef(tag); ok && !slices.Contains(known.Names, ref) {
			c.usage.remove(id)
			c.cfg.Log.Info("pulled image has another name now and is kept", slog.String("image", known.String()), slog.String("name", tag))
			return known.Size
		}
	}
	for _, tag := range img.Tags[:max(0, len(img.Tags)-1)] { // engines do not remove an image with several tags
		err = errors.Join(err, c.cfg.Engine.RemoveImage(ctx, tag))
	}
	if err == nil {
		err = c.cfg.Engine.RemoveImage(ctx, id)
	}
	switch {
	case errors.Is(err, docker.ErrConflict): // a container was just created from it
		return 0
	case err != nil && !errors.Is(err, docker.ErrNotFound):
		c.cfg.Log.Warn("removing an image over the budget failed", imageAttrs(known.String(), err)...)
		return 0
	}
	c.usage.remove(id)
	c.cfg.Log.Info(fmt.Sprintf("image removed: pulled images exceed the budget of %s", c.cfg.Budget),
		slog.String("image", known.String()), slog.String("size", known.Size.String()), slog.String("used", known.Used.String()))
	return known.Size
}
