package mlochost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// tagMerges is the tag of workers that answer the tasks that were merged into theirs, each by itself. A worker of MLOC says
// so by the tag merge: others give wrong answers.
const tagMerges = "mloc-merge"

func mergesTasks(h mloc.WorkerHash) bool { return slices.Contains(h.Tags, "merge") }

// mergeKey is the same for tasks that can be answered at once: their specs differ only in the data and the system prompt.
func mergeKey(d mloc.Document) string {
	s := maps.Clone(d.Spec)
	delete(s, "data")
	delete(s, "_upstreamResults")
	if in := mloc.Lookup(s, "inference"); in != nil {
		in = maps.Clone(in)
		delete(in, "system_prompt")
		delete(in, "systemPrompt")
		s["inference"] = in
	}
	sum := sha256.Sum256([]byte(mloc.EncodeString(s))) // maps are written in the order of their keys
	return hex.EncodeToString(sum[:16])
}

// mergeable says whether others may be merged with a task.
func mergeable(t *task) bool {
	return !t.Alone && len(t.Children) == 0 && (t.Type == "inference" || t.Type == "rag")
}

// mergeWorkers says whether there is a worker that answers merged tasks, and whether one of these is idle.
func (g *Gateway) mergeWorkers() (available, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := map[*remoteWorker]bool{} // what Redis said at the last look may be older
	for _, d := range g.dispatches {
		busy[d.worker] = true
	}
	for id, p := range g.remoteWorkers {
		if p.last.alive && mergesTasks(p.last.hash) && !g.disabled[id] {
			available, idle = true, idle || p.last.hash.Status == mloc.StatusIdle && !busy[p]
		}
	}
	return available, idle
}

// mergeReady merges tasks that are ready and were not submitted yet, if there is a worker that answers merged ones. While
// all of these are busy it returns the tasks that wait for others to be merged with, as they would in a host's queue.
func (g *Gateway) mergeReady() (held map[string]bool, err error) {
	if !g.settings.merge {
		return nil, nil
	}
	available, idle := g.mergeWorkers()
	if !available {
		return nil, nil
	}
	groups := map[string][]task{}
	var order []string
	for _, t := range g.tasks.list(func(t *task) bool {
		return t.State == mloc.StatePending && t.Job == 0 && t.Parent == "" && mergeable(t)
	}) {
		if ready, _ := g.checkNeeds(&t); !ready {
			continue
		}
		doc, err := g.resolveDocument(&t)
		if err != nil || !isHostDestination(mloc.Lookup(doc.Spec, "output", "destination")) {
			continue // submitJob tells of it
		}
		key := mergeKey(doc)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], t)
	}
	held = map[string]bool{}
	for _, key := range order {
		group := groups[key]
		if !idle && time.Since(group[0].Queued) < g.intervals.mergeWait {
			for _, t := range group {
				held[t.ID] = true
			}
			continue
		}
		for batch := range slices.Chunk(group, g.settings.mergeMax) {
			if len(batch) < 2 {
				continue
			}
			if err := g.merge(key, batch); err != nil {
				return held, err
			}
		}
	}
	return held, nil
}

// merge makes all tasks of a batch but the first children of it. A child knows its parent first: after a crash between the two it is
// taken out again, see releaseOrphans.
func (g *Gateway) merge(key string, batch []task) error {
	parent := batch[0].ID
	var ids []string
	for _, t := range batch[1:] {
		ids = append(ids, t.ID)
		if _, err := g.tasks.update(t.ID, func(t *task) error {
			t.State, t.Parent, t.MergeKey, t.Dispatched = mloc.StateDispatched, parent, key, time.Now()
			return nil
		}); err != nil {
			return err
		}
	}
	_, err := g.tasks.update(parent, func(t *task) error { t.Children, t.MergeKey = ids, key; return nil })
	return err
}

// finishChildren ends the tasks that were merged into one, or gives them back, each to be carried out alone: after a failure,
// and where the worker answered only for the parent, whose answers are not theirs.
func (g *Gateway) finishChildren(parent *task) error {
	for _, id := range parent.Children {
		_, err := g.results.get(id)
		if err != nil && muster.CodeOf(err) != muster.NotFound {
			return err
		}
		answered := parent.State == mloc.StateDone && err == nil
		_, err = g.tasks.update(id, func(t *task) error {
			if t.Parent != parent.ID || t.final() {
				return mloc.ErrPending
			}
			if answered && t.Attempt == parent.Attempt {
				t.State, t.Worker, t.Started, t.Finished = mloc.StateDone, parent.Worker, parent.Started, parent.Finished
				return nil
			}
			t.State, t.Parent, t.Alone, t.Dispatched = mloc.StatePending, "", true, time.Time{}
			return nil
		})
		if err != nil && !errors.Is(err, mloc.ErrPending) {
			return err
		}
	}
	wake.Set(g.wake)
	return nil
}

// releaseOrphans gives back tasks whose parent does not have them: the gateway was killed while it merged them, or while it ended them.
func (g *Gateway) releaseOrphans() error {
	for _, t := range g.tasks.list(func(t *task) bool { return t.Parent != "" && !t.final() }) {
		parent, _ := g.tasks.get(t.Parent)
		var err error
		if !slices.Contains(parent.Children, t.ID) {
			_, err = g.tasks.update(t.ID, func(t *task) error { t.State, t.Parent = mloc.StatePending, ""; return nil })
		} else if parent.final() {
			err = g.finishChildren(&parent)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mergedIDs returns the ids of the tasks that were merged into a dispatched one.
func (g *Gateway) mergedIDs(d *dispatch) []string {
	if !d.fromClient {
		return nil
	}
	t, _ := g.tasks.get(d.id)
	return t.Children
}

// children returns tasks that were merged into another one.
func (g *Gateway) children(ids []string) []mloc.Child {
	list := []mloc.Child{}
	for _, id := range ids {
		if doc, err := g.tasks.doc(id, true); err == nil { // else it is carried out alone
			list = append(list, mloc.Child{TaskID: id, Spec: doc.Spec, Metadata: doc.Metadata})
		}
	}
	return list
}

// setElastic enables or disables a worker: one that is disabled finishes what it has, and is given nothing new. It is NotFound for an unknown worker.
func (g *Gateway) setElastic(ctx context.Context, id string, enabled bool) error {
	g.mu.Lock()
	p := g.remoteWorkers[id]
	redisErr := g.redisErr
	g.mu.Unlock()
	if p == nil {
		return muster.Errorf(muster.NotFound, "worker not found")
	}
	if redisErr != nil {
		return redisErr
	}
	change := g.control.SAdd
	if enabled {
		change = g.control.SRem
	}
	if err := change(ctx, mloc.KeyElastic, id).Err(); err != nil {
		return g.control.Unavailable(err)
	}
	g.mu.Lock()
	delete(g.disabled, id)
	if !enabled {
		g.disabled[id] = true
	}
	p.toggledAt = time.Now()
	g.mu.Unlock()
	wake.Set(p.wake)
	return nil
}

// scale disables workers that are idle for long while little waits, and enables them again, the best hardware first, when
// much does. Only with elastic=auto.
func (g *Gateway) scale(ctx context.Context) error {
	if g.settings.elastic != "auto" {
		return nil
	}
	waiting := len(g.tasks.list(func(t *task) bool {
		return t.State == mloc.StatePending && (t.Job != 0 || len(t.Needs) == 0)
	}))
	now := time.Now()
	g.mu.Lock()
	enabled := 0
	var idle, disabled []*remoteWorker
	for id, p := range g.remoteWorkers {
		switch {
		case !p.last.alive:
			p.idleSince = time.Time{}
			continue
		case p.last.hash.Status != mloc.StatusIdle:
			p.idleSince = time.Time{}
		case p.idleSince.IsZero():
			p.idleSince = now
		}
		cooled := now.Sub(p.toggledAt) >= g.settings.cooldown
		if g.disabled[id] {
			if cooled {
				disabled = append(disabled, p)
			}
			continue
		}
		enabled++
		if !p.idleSince.IsZero() && now.Sub(p.idleSince) >= g.settings.elasticIdle && cooled {
			idle = append(idle, p)
		}
	}
	order := func(a, b *remoteWorker) int {
		x, y := a.last.hash.Hardware, b.last.hash.Hardware
		return cmp.Or(cmp.Compare(len(y.GPU.GPUs), len(x.GPU.GPUs)), cmp.Compare(y.Memory.TotalBytes, x.Memory.TotalBytes),
			cmp.Compare(y.CPU.LogicalCores, x.CPU.LogicalCores), cmp.Compare(a.id, b.id))
	}
	slices.SortFunc(idle, order)
	slices.SortFunc(disabled, order)
	g.mu.Unlock()
	backlog := waiting >= g.settings.queueMax
	var change []*remoteWorker
	if backlog {
		change = disabled
	} else if waiting <= g.settings.queueMin {
		slices.Reverse(idle)
		change = idle[:max(0, min(len(idle), enabled-g.settings.minActive))]
	}
	for _, p := range change {
		if err := g.setElastic(ctx, p.id, backlog); err != nil && muster.CodeOf(err) != muster.NotFound {
			return err
		}
	}
	return nil
}
