package placement

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Need is what a task requires of a worker. Make it with Limits.Need. Tasks whose Needs
// have equal Keys are interchangeable for placement.
type Need struct {
	Kind    string
	Engine  bool // it must run in a container
	Request muster.Request
	Where   muster.Where
	Gang    int // size of the gang, or 0

	mcpu        int64
	features    features         // that the task uses and some worker lacks
	project     string           // of the task; "" if no worker names it
	ownerPolicy *muster.TaskSpec // the part of the spec that a worker's owner may refuse, or nil
	key         string
}

func newNeed(t *muster.TaskSpec, uses features, project string) *Need {
	n := &Need{Kind: t.Kind, Request: t.Resources, Where: t.Where, mcpu: Milli(t.Resources.CPUs), features: uses, project: project}
	n.Where.Tags, n.Where.ExcludeTags, n.Where.Workers = sortedUnique(t.Where.Tags), sortedUnique(t.Where.ExcludeTags), sortedUnique(t.Where.Workers)
	r, w := &n.Request, &n.Where
	r.GPUs.Vendor, r.GPUs.Model = strings.ToLower(r.GPUs.Vendor), strings.ToLower(r.GPUs.Model)

	b := make([]byte, 0, 64)
	b = strconv.AppendQuote(b, n.Kind)
	for _, v := range []int64{n.mcpu, int64(r.Memory), int64(r.Disk), int64(r.PIDs), int64(r.GPUs.Count), int64(r.GPUs.Memory)} {
		b = strconv.AppendInt(append(b, ' '), v, 10)
	}
	if r.GPUs.Count > 0 {
		b = strconv.AppendBool(append(b, ' '), n.sharesGPU())
		b = strconv.AppendQuote(append(b, ' '), r.GPUs.Vendor)
		b = strconv.AppendQuote(append(b, ' '), r.GPUs.Model)
	}
	for _, list := range [][]string{w.Tags, w.ExcludeTags, w.Workers} {
		b = append(b, ';')
		for _, s := range list {
			b = strconv.AppendQuote(b, s)
		}
	}
	b = strconv.AppendFloat(append(b, ';'), w.MaxPrice, 'g', -1, 64)
	if t.Gang != nil {
		n.Gang = t.Gang.Size
		b = strconv.AppendInt(append(b, " gang "...), int64(n.Gang), 10)
	}
	if uses != 0 {
		b = strconv.AppendUint(append(b, " uses "...), uint64(uses), 10)
	}
	if project != "" {
		b = strconv.AppendQuote(append(b, " project "...), project)
	}
	n.key = string(n.addOwnerPolicy(b, t))
	return n
}

// addOwnerPolicy copies what package policy checks, and appends it to the key. Most tasks have nothing of it.
func (n *Need) addOwnerPolicy(b []byte, t *muster.TaskSpec) []byte {
	n.Engine = t.Isolation == muster.IsolationContainer || t.Kind == muster.KindContainer
	if !n.Engine && len(t.Env) == 0 {
		return b
	}
	n.ownerPolicy = &muster.TaskSpec{Kind: t.Kind, Isolation: t.Isolation, Env: make(map[string]string, len(t.Env))}
	b = append(b, " env"...)
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		n.ownerPolicy.Env[name] = "" // only names matter; values may be secret
		b = strconv.AppendQuote(append(b, ' '), name)
	}
	if !n.Engine {
		return b
	}
	n.ownerPolicy.Image, n.ownerPolicy.Network = t.Image, t.Network
	b = strconv.AppendQuote(append(b, " image "...), t.Image)
	b = strconv.AppendBool(append(b, ' '), t.Network == muster.NetworkHost)
	if t.Container == nil {
		return b
	}
	c := &muster.Container{User: t.Container.User, Mounts: t.Container.Mounts}
	n.ownerPolicy.Container = c
	b = strconv.AppendQuote(append(b, ' '), c.User)
	for i := range c.Mounts {
		b = strconv.AppendQuote(append(b, ' '), c.Mounts[i].Source)
		b = strconv.AppendBool(append(b, ' '), c.Mounts[i].ReadOnly)
	}
	return b
}

// Key is equal for equal Needs only.
func (n *Need) Key() string { return n.key }

// sharesGPU reports whether devices are granted by memory rather than as a whole.
func (n *Need) sharesGPU() bool { return n.Request.GPUs.Share && n.Request.GPUs.Memory > 0 }

// Milli converts cores to thousandths.
func Milli(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

// sortedUnique returns a sorted copy of the list without duplicates.
func sortedUnique(list []string) []string {
	if len(list) < 2 {
		return list
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
