package container

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/mustertest/engines"
)

// here says whether the engine has an image.
func (w *world) has(ref string) bool {
	w.t.Helper()
	_, err := w.cfg.Engine.Image(w.t.Context(), ref)
	if err != nil && !errors.Is(err, docker.ErrMissing) {
		w.t.Fatal(err)
	}
	return err == nil
}

// brought has an image brought here.
func (w *world) brought(ref string) {
	w.t.Helper()
	img, err := w.bring(w.t.Context(), ref, "", w.lines.add, w.lines.add)
	if err != nil {
		w.t.Fatal(err)
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	if p := w.ledger.images[img.ID]; p != nil { // uses are noted by the millisecond: these are told apart for sure
		p.Used = muster.NewTime(time.Now().Add(-time.Hour)) + muster.Time(numbers.Add(1)*1000)
	}
}

func TestImagesAreKeptWithinTheirBudget(t *testing.T) {
	w, r := newWorld(t, func(c *Config) { c.Budget = 9 << 20 }), engines.NewRegistry(t)
	owned, _ := pushed(w, r, "acme/owned:1", 1<<20)
	api := engines.API(t, w.host)
	said, err := api.ImagePull(t.Context(), owned, client.ImagePullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := said.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.brought(owned)
	refs := make([]string, 4) // of about 3 MiB each
	for i := range refs {
		refs[i], _ = pushed(w, r, "acme/lru"+string(rune('a'+i))+":1", 1<<20)
	}
	w.brought(refs[0])
	w.brought(refs[1])
	w.brought(refs[2])
	w.trim(t.Context())
	for _, ref := range refs[:3] {
		if !w.has(ref) {
			t.Fatalf("%s was removed within the budget", ref)
		}
	}
	used := w.must(box(refs[0], "true"))
	w.brought(refs[1]) // refs[2] is now what was used least recently, but for refs[0], of which there is a container
	w.ledger.images[mustID(w, refs[0])].Used = 1
	w.brought(refs[3])
	w.trim(t.Context())
	for i, want := range []bool{true, true, false, true} {
		if w.has(refs[i]) != want {
			t.Errorf("%s is there: %v, want %v", refs[i], !want, want)
		}
	}
	if !w.has(owned) {
		t.Error("an image of the owner was removed")
	}
	if !strings.Contains(w.lines.String(), "removed an image: those of tasks take more than the 9MiB") {
		t.Errorf("the log does not tell: %s", &w.lines)
	}
	if err := w.Remove(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	w.brought(refs[2])
	w.trim(t.Context())
	if w.has(refs[0]) || !w.has(refs[2]) {
		t.Error("without its container the image that was used least recently goes, and not another one")
	}
}

func mustID(w *world, ref string) string {
	w.t.Helper()
	img, err := w.cfg.Engine.Image(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return img.ID
}

func TestAnImageWithAnotherNameIsItsOwners(t *testing.T) {
	w, r := newWorld(t, func(c *Config) { c.Budget = 1 }), engines.NewRegistry(t)
	ref, _ := pushed(w, r, "acme/named:1", 1000)
	w.brought(ref)
	own := "muster-test/named:mine"
	if _, err := w.api.ImageTag(t.Context(), client.ImageTagOptions{Source: ref, Target: own}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cfg.Engine.RemoveImage(w.t.Context(), own) })
	w.trim(t.Context())
	if !w.has(own) || !w.has(ref) || len(w.ledger.images) != 0 {
		t.Errorf("the image is there: %v, and noted: %v: want it kept, as one of the owner's", w.has(ref), w.ledger.images)
	}
	if _, err := w.api.ImageRemove(t.Context(), own, client.ImageRemoveOptions{}); err != nil {
		t.Error(err)
	}
}

func TestTheLedgerOutlivesTheWorker(t *testing.T) {
	w, r := newWorld(t, nil), engines.NewRegistry(t)
	ref, _ := pushed(w, r, "acme/ledger:1", 1000)
	w.brought(ref)
	id := mustID(w, ref)
	next := newWorld(t, func(c *Config) { c.Dir, c.Budget = w.cfg.Dir, 1 })
	if got := next.ledger.of(id); !slices.Equal(got.Names, []string{ref}) || got.Size == 0 || got.Used == 0 {
		t.Fatalf("the next life knows %+v of the image", got)
	}
	if _, err := w.api.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	next.trim(t.Context()) // what somebody else removed is forgotten
	if len(next.ledger.images) != 0 {
		t.Errorf("the ledger still has %v", next.ledger.images)
	}
	path := filepath.Join(w.cfg.Dir, "images.json")
	if err := os.WriteFile(path, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if torn := newWorld(t, func(c *Config) { c.Dir = w.cfg.Dir }); len(torn.ledger.images) != 0 || !strings.Contains(torn.lines.String(), "they are kept") {
		t.Errorf("a torn ledger: %v, %s", torn.ledger.images, &torn.lines)
	}
}

func TestAnImageThatTasksKnowByManyNamesIsRemoved(t *testing.T) {
	w, r := newWorld(t, func(c *Config) { c.Budget = 1 }), engines.NewRegistry(t)
	first, digest := pushed(w, r, "acme/names:1", 1000)
	pinned := strings.TrimSuffix(first, ":1") + "@" + digest
	second := strings.TrimSuffix(first, ":1") + ":2"
	tagged(t, r, "acme/names", "1", "2")
	for _, ref := range []string{first, second, pinned} {
		w.brought(ref)
	}
	id := mustID(w, first)
	if mustID(w, second) != id {
		t.Fatal("the names are of different images")
	}
	w.trim(t.Context())
	if w.has(id) || len(w.ledger.images) != 0 {
		t.Errorf("the image is there: %v, and noted: %v: want it removed\n%s", w.has(id), w.ledger.images, &w.lines)
	}
}

// tagged gives what a registry has by one tag another one as well.
func tagged(t *testing.T, r *engines.Registry, repo, from, to string) {
	t.Helper()
	at := "http://" + r.Addr + "/v2/" + repo + "/manifests/"
	got, err := http.Get(at + from)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at+to, got.Body)
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Content-Type", got.Header.Get("Content-Type"))
	said, err := http.DefaultClient.Do(put)
	if err != nil || said.StatusCode != http.StatusCreated {
		t.Fatalf("tagging: %v, %v", said, err)
	}
	defer said.Body.Close()
}
