// Package catalog is the server's catalog of kinds of tasks: the core kinds, Muster's own, and custom kinds of workers. Definitions
// of workers are not trusted: a list that is too long, invalid or malicious is ignored with a warning in the log, and names of
// Muster's own kinds are reserved.
package catalog

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/kind"
)

// coreDescriptions describes the core kinds.
var coreDescriptions = map[string]string{
	muster.KindNoop:      "Succeed at once without a process, for tests.",
	muster.KindProcess:   "Run a command.",
	muster.KindScript:    "Run a program that is part of the job, optionally in its own Python environment.",
	muster.KindContainer: "Run a command in a container.",
}

// Catalog caches the parsed kinds of workers. It is safe for concurrent use.
type Catalog struct {
	log *slog.Logger

	mu     sync.Mutex
	parsed map[string][]customKind // by a worker's list; empty if the list is invalid
}

// customKind is a definition from a worker. Two are equal if their encodings are.
type customKind struct {
	kind     *kind.Kind
	encoding string
}

// New returns an empty catalog.
func New(log *slog.Logger) *Catalog { return &Catalog{log: log, parsed: map[string][]customKind{}} }

// Admit returns the problems of how the stages of a job use their kinds, in the order of the stages, and sets the kinds' defaults in
// valid stages. It calls workers only if a stage may use a custom kind.
func (c *Catalog) Admit(s *muster.Spec, workers func() ([]muster.Worker, error)) ([]muster.FieldError, error) {
	var others []*kind.Kind
	if slices.ContainsFunc(s.Tasks, func(t muster.TaskSpec) bool { return needsFleet(t.Kind) }) {
		fleet, err := workers()
		if err != nil {
			return nil, err
		}
		for _, each := range c.customKinds(fleet) {
			for _, o := range each {
				others = append(others, o.kind)
			}
		}
	}
	known := kind.NewCatalog(others...)
	var wrong []muster.FieldError
	for i, t := range s.Normalize().Tasks {
		if t.Kind == "" {
			continue // specvalidate reports it
		}
		found := known.Check(&t)
		for _, e := range found {
			e.Path = "tasks[" + strconv.Itoa(i) + "]." + e.Path
			wrong = append(wrong, e)
		}
		if len(found) == 0 {
			known.ApplyDefaults(&s.Tasks[i])
		}
	}
	return wrong, nil
}

// needsFleet reports whether a kind, or its input, may be defined by workers.
func needsFleet(name string) bool {
	return name != "" && coreDescriptions[name] == "" && name != kind.Foreign && (name == kind.Custom || !kind.IsEmbedded(name))
}

// Version identifies the definition of a kind, for keys of results: "" for core kinds, which are only a command; the program's version for Muster's
// own; and else a digest of all definitions that workers have under the name, or of all custom kinds for kind custom, whose input names one.
func (c *Catalog) Version(name, program string, workers func() []muster.Worker) string {
	switch {
	case coreDescriptions[name] != "":
		return ""
	case !needsFleet(name):
		return "muster " + program
	}
	var definitions []string
	for _, each := range c.customKinds(workers()) {
		for _, k := range each {
			if k.kind.Name == name || name == kind.Custom {
				definitions = append(definitions, k.encoding)
			}
		}
	}
	slices.Sort(definitions)
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Join(slices.Compact(definitions), "\n"))))
}

// customKinds returns the definitions of each worker, by its index. Workers with equal lists share them.
func (c *Catalog) customKinds(workers []muster.Worker) [][]customKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string][]customKind, len(c.parsed))
	all := make([][]customKind, len(workers))
	for i := range workers {
		w := &workers[i]
		if len(w.CustomKinds) == 0 {
			continue
		}
		kinds, known := seen[string(w.CustomKinds)]
		if !known {
			if kinds, known = c.parsed[string(w.CustomKinds)]; !known {
				kinds = c.parse(w)
			}
			seen[string(w.CustomKinds)] = kinds
		}
		all[i] = kinds
	}
	c.parsed = seen // drop lists that no worker has any more
	return all
}

// parse parses the list of a worker.
func (c *Catalog) parse(w *muster.Worker) []customKind {
	log := c.log.With(slog.String("worker", w.Name), slog.String("id", string(w.ID)))
	found, err := safeDecode(w.CustomKinds)
	if err != nil {
		log.Warn("ignoring invalid custom kinds of a worker", slog.Any("why", err))
		return nil
	}
	var kinds []customKind
	for _, k := range found {
		if kind.IsReserved(k.Name) {
			log.Warn("ignoring a custom kind of a worker: its name is reserved", slog.String("kind", k.Name))
			continue
		}
		encoding, err := json.Marshal(k)
		if err != nil {
			log.Warn("ignoring an invalid custom kind of a worker", slog.String("kind", k.Name), slog.Any("why", err))
			continue
		}
		kinds = append(kinds, customKind{k, string(encoding)})
	}
	return kinds
}

// safeDecode is kind.DecodeList for untrusted lists. A schema that makes the library panic is an error.
func safeDecode(raw json.RawMessage) (found []*kind.Kind, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while decoding: %v", p)
		}
	}()
	return kind.DecodeList(raw)
}

// List returns all kinds by name, with the number of workers that have each.
func (c *Catalog) List(workers []muster.Worker) []wire.Kind {
	byName := map[string]*wire.Kind{}
	for name, about := range coreDescriptions {
		byName[name] = &wire.Kind{Name: name, About: about, Run: kind.RunOptional}
	}
	byName[muster.KindNoop].Run, byName[muster.KindProcess].Run = kind.RunNo, kind.RunRequired
	for _, k := range kind.Known() {
		byName[k.Name] = toWire(k)
	}
	custom := c.customKinds(workers)
	chosen := majority(custom)
	for name, o := range chosen {
		byName[name] = toWire(o.kind)
		byName[name].Own = true
	}
	for i := range workers {
		w := &workers[i]
		connected := w.State != muster.WorkerGone && w.State != muster.WorkerUnreachable
		for _, name := range w.Kinds {
			k := byName[name]
			switch {
			case k == nil:
			case connected:
				k.Offered++
				k.Workers = append(k.Workers, w.ID)
			default:
				k.Away++
			}
		}
		for _, o := range custom[i] {
			if o.encoding != chosen[o.kind.Name].encoding {
				byName[o.kind.Name].Differ++
			}
		}
	}
	list := make([]wire.Kind, 0, len(byName))
	for _, k := range byName {
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b wire.Kind) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// majority returns, for each name, the definition that most workers have.
func majority(all [][]customKind) map[string]customKind {
	votes := map[string]int{}
	for _, each := range all {
		for _, o := range each {
			votes[o.encoding]++
		}
	}
	chosen := map[string]customKind{}
	for _, each := range all {
		for _, o := range each {
			best, has := chosen[o.kind.Name]
			if n, m := votes[o.encoding], votes[best.encoding]; !has || n > m || n == m && o.encoding < best.encoding {
				chosen[o.kind.Name] = o
			}
		}
	}
	return chosen
}

// toWire converts a definition for the API.
func toWire(k *kind.Kind) *wire.Kind {
	w := &wire.Kind{
		Name: k.Name, About: k.About, Runtime: k.Runtime, Run: k.Run, Input: k.Input,
		Checkpoint: k.Checkpoint, MergeKey: k.MergeKey, Operation: k.Operation,
	}
	if w.Run == "" {
		w.Run = kind.RunNo
	}
	if k.Resources != (muster.Request{}) {
		w.Resources = &k.Resources
	}
	return w
}
