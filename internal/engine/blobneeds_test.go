package engine

import (
	"bytes"
	hash "crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strconv"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/sched"
)

func sumOf(text string) string {
	sum := hash.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// newNeedsEngine returns an engine with a small needs cache, without Run, and some trees of some files each.
func newNeedsEngine(t *testing.T, trees, files int) (e *Engine, sums []string) {
	t.Helper()
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range trees {
		var tree muster.Tree
		for k := range files {
			name := strconv.Itoa(i) + "/" + strconv.Itoa(k)
			tree.Files = append(tree.Files, muster.File{Path: name, SHA256: sumOf(name), Size: int64(k)})
		}
		b, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sumOf(string(b)))
		if err := blobs.Put(t.Context(), sums[i], 0, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	e = New(Config{Blobs: blobs, Log: slog.New(slog.DiscardHandler)})
	e.needs.maxPerWorker, e.needs.maxTotal = 100*needsEntrySize, 350*needsEntrySize
	return e, sums
}

// needOf returns the needs of an attempt with a tree and an input.
func needOf(job muster.JobID, tree string) sched.BlobRefs {
	return sched.BlobRefs{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: job}, N: 1}, Trees: []string{tree},
		Inputs: []muster.InputFile{{SHA256: sumOf("input " + strconv.Itoa(int(job))), Size: 7}},
	}
}

// updateNeeds refreshes a worker's needs like findNeeded.
func (e *Engine) updateNeeds(t *testing.T, w muster.WorkerID, needs []sched.BlobRefs, q *blobQuery) *workerNeeds {
	t.Helper()
	r := e.needs.get(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	e.needs.resize(w, r, e.refreshNeeds(t.Context(), r, needs, q))
	return r
}

func (r *workerNeeds) entries() (n int) {
	for _, sizes := range r.sizes {
		n += 1 + len(sizes)
	}
	return n
}

// Attempts that need more blobs than fit in the cache can read all of them, and nothing else.
func TestBlobNeedsOfOneWorkerAreBounded(t *testing.T) {
	e, trees := newNeedsEngine(t, 50, 20)
	var needs []sched.BlobRefs
	for i, tree := range trees {
		needs = append(needs, needOf(muster.JobID(i+1), tree), needOf(muster.JobID(i+1), tree))
	}
	for i := range trees {
		job := muster.JobID(i + 1)
		own := []string{trees[i], sumOf(strconv.Itoa(i) + "/19"), sumOf("input " + strconv.Itoa(i+1))}
		for _, q := range []*blobQuery{newQuery(job, own...), newQuery(0, own...)} {
			r := e.updateNeeds(t, "w", needs, q)
			if len(q.missing) != 0 || len(q.found) != 3 {
				t.Fatalf("of job %d it needs %v, and not %v", job, q.found, q.missing)
			}
			if n := r.entries(); n*needsEntrySize > e.needs.maxPerWorker || !r.partial {
				t.Fatalf("%d blobs are cached, partly: %t", n, r.partial)
			}
		}
		other := newQuery(job, sumOf(strconv.Itoa(i+1)+"/0"), sumOf("nothing"))
		if e.updateNeeds(t, "w", needs, other); len(other.found) != 0 {
			t.Fatalf("job %d needs %v", job, other.found)
		}
	}
	if e.needs.bytes > e.needs.maxPerWorker {
		t.Errorf("%d bytes are accounted for", e.needs.bytes)
	}
}

// The cache is bounded, and evicts the workers that asked longest ago.
func TestBlobNeedsOfAllWorkersAreBounded(t *testing.T) {
	e, trees := newNeedsEngine(t, 40, 50)
	worker := func(i int) muster.WorkerID { return muster.WorkerID("w" + strconv.Itoa(i)) }
	for i, tree := range trees {
		r := e.updateNeeds(t, worker(i), []sched.BlobRefs{needOf(1, tree)}, newQuery(0))
		if r.partial || r.entries() != 53 {
			t.Fatalf("of %s %d blobs are cached, partly: %t", worker(i), r.entries(), r.partial)
		}
		e.updateNeeds(t, "steady", []sched.BlobRefs{needOf(1, trees[0])}, newQuery(0))
		sum := 0
		for _, r := range e.needs.byWorker {
			sum += r.entries() * needsEntrySize
		}
		if sum != e.needs.bytes || sum > e.needs.maxTotal {
			t.Fatalf("after %d workers %d bytes are remembered, and %d accounted for", i+1, sum, e.needs.bytes)
		}
	}
	for w, want := range map[muster.WorkerID]bool{"steady": true, worker(39): true, worker(0): false, worker(30): false} {
		if _, ok := e.needs.byWorker[w]; ok != want {
			t.Errorf("%s is remembered: %t", w, ok)
		}
	}
	// They do not add up in number either.
	for i := range 3 * maxNeedsWorkers {
		e.updateNeeds(t, worker(i), nil, newQuery(0))
	}
	if len(e.needs.byWorker) > maxNeedsWorkers || e.needs.bytes != 0 {
		t.Errorf("%d workers with %d bytes are remembered", len(e.needs.byWorker), e.needs.bytes)
	}
}

// A hash in a tree counts in lower case only.
func TestBlobNeedsAreHashes(t *testing.T) {
	q := newQuery(0, sumOf("a"), "x", "")
	if len(q.missing) != 1 {
		t.Errorf("%d hashes", len(q.missing))
	}
	for _, text := range []string{"", "x", sumOf("a")[:63], sumOf("a") + "0", "A" + sumOf("a")[1:]} {
		if _, ok := parseHash(text); ok {
			t.Errorf("%q is taken for a hash", text)
		}
	}
}
