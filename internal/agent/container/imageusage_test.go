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
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// hasImage reports whether the engine has an image.
func (w *testEnv) hasImage(ref string) bool {
	w.t.Helper()
	_, err := w.cfg.Engine.Image(w.t.Context(), ref)
	if err != nil && !errors.Is(err, docker.ErrNotFound) {
		w.t.Fatal(err)
	}
	return err == nil
}

// pullImage pulls an image.
func (w *testEnv) pullImage(ref string) {
	w.t.Helper()
	img, err := w.ensureImage(w.t.Context(), ref, "", workerAccess(ref), w.lines.add, w.lines.add)
	if err != nil {
		w.t.Fatal(err)
	}
	w.usage.mu.Lock()
	defer w.usage.mu.Unlock()
	if p := w.usage.images[img.ID]; p != nil { // uses have a resolution of a millisecond: this makes them distinct
		p.Used = muster.NewTime(time.Now().Add(-time.Hour)) + muster.Time(testSeq.Add(1)*1000)
	}
}

func TestImagesStayWithinTheirBudget(t *testing.T) {
	w, r := newTestEnv(t, func(c *Config) { c.Budget = 9 << 20 }), containertest.NewRegistry(t)
	owned, _ := pushImage(w, r, "acme/owned:1", 1<<20)
	api := containertest.API(t, w.host)
	stream, err := api.ImagePull(t.Context(), owned, client.ImagePullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.pullImage(owned)
	refs := make([]string, 4) // of about 3 MiB each
	for i := range refs {
		refs[i], _ = pushImage(w, r, "acme/lru"+string(rune('a'+i))+":1", 1<<20)
	}
	w.pullImage(refs[0])
	w.pullImage(refs[1])
	w.pullImage(refs[2])
	w.evictImages(t.Context())
	for _, ref := range refs[:3] {
		if !w.hasImage(ref) {
			t.Fatalf("%s was removed within the budget", ref)
		}
	}
	used := w.mustCreate(newSpec(refs[0], "true"))
	w.pullImage(refs[1]) // refs[2] is now the least recently used one, except refs[0], which has a container
	w.usage.images[mustID(w, refs[0])].Used = 1
	w.pullImage(refs[3])
	w.evictImages(t.Context())
	for i, want := range []bool{true, true, false, true} {
		if w.hasImage(refs[i]) != want {
			t.Errorf("%s is there: %v, want %v", refs[i], !want, want)
		}
	}
	if !w.hasImage(owned) {
		t.Error("an image of the owner was removed")
	}
	if !strings.Contains(w.lines.String(), "image removed: pulled images exceed the budget of 9MiB") {
		t.Errorf("the log does not mention it: %s", &w.lines)
	}
	if err := w.Remove(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	w.pullImage(refs[2])
	w.evictImages(t.Context())
	if w.hasImage(refs[0]) || !w.hasImage(refs[2]) {
		t.Error("without its container, the least recently used image is not removed")
	}
}

func mustID(w *testEnv, ref string) string {
	w.t.Helper()
	img, err := w.cfg.Engine.Image(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return img.ID
}

func TestImagesWithOtherNamesAreKept(t *testing.T) {
	w, r := newTestEnv(t, func(c *Config) { c.Budget = 1 }), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/named:1", 1000)
	w.pullImage(ref)
	own := "muster-test/named:mine"
	if _, err := w.api.ImageTag(t.Context(), client.ImageTagOptions{Source: ref, Target: own}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cfg.Engine.RemoveImage(w.t.Context(), own) })
	w.evictImages(t.Context())
	if !w.hasImage(own) || !w.hasImage(ref) || len(w.usage.images) != 0 {
		t.Errorf("image exists: %v, recorded: %v, want it kept as one of the owner's", w.hasImage(ref), w.usage.images)
	}
	if _, err := w.api.ImageRemove(t.Context(), own, client.ImageRemoveOptions{}); err != nil {
		t.Error(err)
	}
}

func TestImageUsageSurvivesARestart(t *testing.T) {
	w, r := newTestEnv(t, nil), containertest.NewRegistry(t)
	ref, _ := pushImage(w, r, "acme/ledger:1", 1000)
	w.pullImage(ref)
	id := mustID(w, ref)
	next := newTestEnv(t, func(c *Config) { c.Dir, c.Budget = w.cfg.Dir, 1 })
	if got := next.usage.image(id); !slices.Equal(got.Names, []string{ref}) || got.Size == 0 || got.Used == 0 {
		t.Fatalf("the next incarnation knows %+v of the image", got)
	}
	if _, err := w.api.ImageRemove(t.Context(), ref, client.ImageRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	next.evictImages(t.Context()) // images removed by others are forgotten
	if len(next.usage.images) != 0 {
		t.Errorf("the ledger still has %v", next.usage.images)
	}
	path := filepath.Join(w.cfg.Dir, "images.json")
	if err := os.WriteFile(path, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if torn := newTestEnv(t, func(c *Config) { c.Dir = w.cfg.Dir }); len(torn.usage.images) != 0 || !strings.Contains(torn.lines.String(), "they are kept") {
		t.Errorf("a torn ledger: %v, %s", torn.usage.images, &torn.lines)
	}
}

func TestImageWithSeveralTaskNamesIsRemoved(t *testing.T) {
	w, r := newTestEnv(t, func(c *Config) { c.Budget = 1 }), containertest.NewRegistry(t)
	first, digest := pushImage(w, r, "acme/names:1", 1000)
	pinned := strings.TrimSuffix(first, ":1") + "@" + digest
	second := strings.TrimSuffix(first, ":1") + ":2"
	tagImage(t, r, "", "acme/names", "1", "2")
	for _, ref := range []string{first, second, pinned} {
		w.pullImage(ref)
	}
	id := mustID(w, first)
	if mustID(w, second) != id {
		t.Fatal("the names are of different images")
	}
	w.evictImages(t.Context())
	if w.hasImage(id) || len(w.usage.images) != 0 {
		t.Errorf("image exists: %v, recorded: %v, want it removed\n%s", w.hasImage(id), w.usage.images, &w.lines)
	}
}

// tagImage adds a tag to an image in a registry.
func tagImage(t *testing.T, r *containertest.Registry, auth, repo, from, to string) {
	t.Helper()
	if auth != "" {
		auth += "@"
	}
	base := "http://" + auth + r.Addr + "/v2/" + repo + "/manifests/"
	got, err := http.Get(base + from)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+to, got.Body)
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Content-Type", got.Header.Get("Content-Type"))
	resp, err := http.DefaultClient.Do(put)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("tagging: %v, %v", resp, err)
	}
	defer resp.Body.Close()
}
