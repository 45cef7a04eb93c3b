package storetest

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

func cacheEntry(project, key string, origin muster.TaskID, at, expires muster.Time) muster.CacheEntry {
	code := 0
	return muster.CacheEntry{
		Project: project, Key: strings.Repeat(key, 64/len(key)), Kind: "script", Name: "train", Origin: origin, CreatedAt: at, ExpiresAt: expires,
		Fields: []muster.CacheField{{Name: "env.SEED", Value: "1"}, {Name: "run", Value: `"train"`}}, ExitCode: &code, Metrics: map[string]float64{"loss": 0.5},
		Result: []byte(`{"a":1}`), Artifacts: []muster.Artifact{{Name: "m.pt", Size: 3, SHA256: hexOf(key)}}, Image: "python@sha256:1",
	}
}

// listed is an entry as lists have it.
func listed(e muster.CacheEntry) muster.CacheEntry {
	e.Metrics, e.Result = nil, nil
	return e
}

func cacheEntries(t *testing.T, f *fixture) {
	t.Helper()
	a, b := cacheEntry("red", "a", muster.TaskID{Job: 1, Num: 2}, 10, 100), cacheEntry("red", "b", muster.TaskID{Job: 2}, 20, 50)
	other := cacheEntry("blue", "a", muster.TaskID{Job: 1}, 30, 100)
	b.Kind, b.ExitCode, b.Metrics, b.Result, b.Image = "noop", nil, nil, nil, ""
	f.mustCommit(t, muster.Rows{CacheEntries: []muster.CacheEntry{a, b, other}})
	f.reopen(t)
	for _, want := range []muster.CacheEntry{a, b, other} {
		got, found, err := f.CacheEntry(t.Context(), want.Project, want.Key)
		noError(t, err)
		wantEqual(t, "an entry", want, got)
		if !found {
			t.Errorf("the entry %s of %s was not found", want.Key, want.Project)
		}
	}
	if _, found, err := f.CacheEntry(t.Context(), "green", a.Key); err != nil || found {
		t.Errorf("of another project: %t, %v", found, err)
	}
	wantEqual(t, "list", []muster.CacheEntry{listed(b), listed(a)}, must(f.CacheEntries(t.Context(), store.CacheQuery{Project: "red", Now: 49, Limit: 9}))(t))
	wantEqual(t, "first of the list", []muster.CacheEntry{listed(b)}, must(f.CacheEntries(t.Context(), store.CacheQuery{Project: "red", Now: 49, Limit: 1}))(t))
	wantEqual(t, "those that have not expired", []muster.CacheEntry{listed(a)}, must(f.CacheEntries(t.Context(), store.CacheQuery{Project: "red", Now: 50, Limit: 9}))(t))

	f.mustCommit(t, muster.Rows{CacheHits: []muster.CacheHit{{Project: "red", Key: a.Key, At: 60}, {Project: "red", Key: a.Key, At: 70}, {Project: "green", Key: a.Key, At: 70}}})
	a.Hits, a.HitAt = 2, 70
	got, _, err := f.CacheEntry(t.Context(), "red", a.Key)
	noError(t, err)
	wantEqual(t, "after hits", a, got)
	a.Origin, a.CreatedAt, a.Hits, a.HitAt = muster.TaskID{Job: 9}, 80, 0, 0
	f.mustCommit(t, muster.Rows{CacheEntries: []muster.CacheEntry{a}})
	got, _, err = f.CacheEntry(t.Context(), "red", a.Key)
	noError(t, err)
	wantEqual(t, "replaced", a, got)

	f.wantCacheBlobs(t, 49, hexOf("a"), hexOf("b"), hexOf("a"))
	f.wantCacheBlobs(t, 50, hexOf("a"), hexOf("a"))

	for _, d := range []store.CacheSelection{
		{Project: "green"}, {Project: "red", Job: 1}, {Project: "red", Job: 9, Kind: "noop"}, {Project: "red", Name: "test"}, {Project: "red", Key: "ab"},
	} {
		if n := must(f.DeleteCacheEntries(t.Context(), d))(t); n != 0 {
			t.Errorf("%+v deletes %d entries", d, n)
		}
	}
	if n := must(f.DeleteCacheEntries(t.Context(), store.CacheSelection{Project: "red", Job: 9, Kind: "script", Name: "train", Key: "aa"}))(t); n != 1 {
		t.Errorf("%d entries were deleted", n)
	}
	if n := must(f.DeleteExpiredCacheEntries(t.Context(), 49, 9))(t); n != 0 {
		t.Errorf("%d entries expired before they do", n)
	}
	if n := must(f.DeleteExpiredCacheEntries(t.Context(), 100, 1))(t); n != 1 {
		t.Errorf("%d entries were deleted, the limit is 1", n)
	}
	if n := must(f.DeleteExpiredCacheEntries(t.Context(), 100, 9))(t); n != 1 {
		t.Errorf("%d entries remained", n)
	}
	f.wantCacheBlobs(t, 0)
}

func (f *fixture) wantCacheBlobs(t *testing.T, at muster.Time, want ...string) {
	t.Helper()
	var got []string
	for after, done := int64(0), false; !done; {
		var page []store.BlobRef
		var err error
		page, after, done, err = f.CacheBlobs(t.Context(), at, after, 1)
		noError(t, err)
		for _, ref := range page {
			got = append(got, ref.Blobs[0].SHA256)
		}
	}
	wantEqual(t, "blobs", want, got)
}
