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
	"github.com/muster-dev/muster/internal/sched/effect"
)

func sumOf(text string) string {
	sum := hash.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// reaching is an engine that remembers little, without Run, and a number of trees of some files each.
func reaching(t *testing.T, trees, files int) (e *Engine, sums []string) {
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
	e.reaches.most, e.reaches.mostOfAll = 100*reachEntry, 350*reachEntry
	return e, sums
}

// needOf is what an attempt of a job needs that has a tree and an input.
func needOf(job muster.JobID, tree string) sched.Need {
	return sched.Need{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: job}, N: 1}, Trees: []string{tree},
		Inputs: []effect.Input{{SHA256: sumOf("input " + strconv.Itoa(int(job))), Size: 7}},
	}
}

// know has a worker's needs found out, as find does once it has asked.
func (e *Engine) know(t *testing.T, w muster.WorkerID, needs []sched.Need, q *query) *reach {
	t.Helper()
	r := e.reaches.get(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	e.reaches.resize(w, r, e.fill(t.Context(), r, needs, q))
	return r
}

func (r *reach) entries() (n int) {
	for _, sizes := range r.sizes {
		n += 1 + len(sizes)
	}
	return n
}

// Attempts that need more than is remembered of a worker may have all of it all the same, and nothing else.
func TestWhatOneWorkerNeedsTakesBoundedMemory(t *testing.T) {
	e, trees := reaching(t, 50, 20)
	var needs []sched.Need
	for i, tree := range trees {
		needs = append(needs, needOf(muster.JobID(i+1), tree), needOf(muster.JobID(i+1), tree))
	}
	for i := range trees {
		job := muster.JobID(i + 1)
		mine := []string{trees[i], sumOf(strconv.Itoa(i) + "/19"), sumOf("input " + strconv.Itoa(i+1))}
		for _, q := range []*query{newQuery(job, mine...), newQuery(0, mine...)} {
			r := e.know(t, "w", needs, q)
			if len(q.open) != 0 || len(q.sizes) != 3 {
				t.Fatalf("of job %d it needs %v, and not %v", job, q.sizes, q.open)
			}
			if n := r.entries(); n*reachEntry > e.reaches.most || !r.partial {
				t.Fatalf("%d blobs are remembered, partly: %t", n, r.partial)
			}
		}
		other := newQuery(job, sumOf(strconv.Itoa(i+1)+"/0"), sumOf("nothing"))
		if e.know(t, "w", needs, other); len(other.sizes) != 0 {
			t.Fatalf("job %d is said to need %v", job, other.sizes)
		}
	}
	if e.reaches.bytes > e.reaches.most {
		t.Errorf("%d bytes are accounted for", e.reaches.bytes)
	}
}

// What is remembered of all workers is bounded, and those are forgotten that asked longest ago.
func TestWhatWorkersNeedTakesBoundedMemory(t *testing.T) {
	e, trees := reaching(t, 40, 50)
	worker := func(i int) muster.WorkerID { return muster.WorkerID("w" + strconv.Itoa(i)) }
	for i, tree := range trees {
		r := e.know(t, worker(i), []sched.Need{needOf(1, tree)}, newQuery(0))
		if r.partial || r.entries() != 53 {
			t.Fatalf("of %s %d blobs are remembered, partly: %t", worker(i), r.entries(), r.partial)
		}
		e.know(t, "steady", []sched.Need{needOf(1, trees[0])}, newQuery(0))
		sum := 0
		for _, r := range e.reaches.of {
			sum += r.entries() * reachEntry
		}
		if sum != e.reaches.bytes || sum > e.reaches.mostOfAll {
			t.Fatalf("after %d workers %d bytes are remembered, and %d accounted for", i+1, sum, e.reaches.bytes)
		}
	}
	for w, there := range map[muster.WorkerID]bool{"steady": true, worker(39): true, worker(0): false, worker(30): false} {
		if _, ok := e.reaches.of[w]; ok != there {
			t.Errorf("%s is remembered: %t", w, ok)
		}
	}
	// They do not add up in number either.
	for i := range 3 * maxReaches {
		e.know(t, worker(i), nil, newQuery(0))
	}
	if len(e.reaches.of) > maxReaches || e.reaches.bytes != 0 {
		t.Errorf("%d workers with %d bytes are remembered", len(e.reaches.of), e.reaches.bytes)
	}
}

// A hash in a tree counts in lower case only.
func TestOnlyHashesAreNeeded(t *testing.T) {
	q := newQuery(0, sumOf("a"), "x", "")
	if len(q.open) != 1 {
		t.Errorf("%d hashes", len(q.open))
	}
	for _, text := range []string{"", "x", sumOf("a")[:63], sumOf("a") + "0", "A" + sumOf("a")[1:]} {
		if _, ok := lowerHash(text); ok {
			t.Errorf("%q is taken for a hash", text)
		}
	}
}
