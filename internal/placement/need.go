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

	amounts     amounts
	features    features // that the task uses and some worker lacks
	project     string   // of the task; "" if no worker names it
	durations   taskDurations
	ownerPolicy *muster.TaskSpec // the part of the spec that a worker's owner may refuse; plain if there is none
	key         string
}

func newNeed(t *muster.TaskSpec, uses features, project string, d taskDurations) *Need {
	n := &Need{Kind: t.Kind, Request: t.Resources, Where: t.Where, features: uses, project: project, durations: d}
	n.Where.Tags, n.Where.ExcludeTags, n.Where.Workers = sortedUnique(t.Where.Tags), sortedUnique(t.Where.ExcludeTags), sortedUnique(t.Where.Workers)
	r, w := &n.Request, &n.Where
	n.amounts = amounts{MaxTasks: 1, CPUs: Milli(r.CPUs), Memory: int64(r.Memory), Disk: int64(r.Disk)}
	if n.amounts[CPUs] == 0 {
		n.amounts[Slots] = 1
	}
	r.GPUs.Vendor, r.GPUs.Model = strings.ToLower(r.GPUs.Vendor), strings.ToLower(r.GPUs.Model)

	b := make([]byte, 0, 64)
	b = strconv.AppendQuote(b, n.Kind)
	for _, v := range []int64{n.amounts[CPUs], int64(r.Memory), int64(r.Disk), int64(r.PIDs), int64(r.GPUs.Count), int64(r.GPUs.Memory)} {
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
	if d.grace > 0 {
		b = strconv.AppendInt(append(b, " grace "...), int64(d.grace), 10)
	}
	n.key = string(n.addOwnerPolicy(b, t))
	return n
}

// plain is the ownerPolicy of tasks that only a worker which requires a signature refuses. It must not be changed.
var plain = new(muster.TaskSpec)

// addOwnerPolicy copies what package policy checks, and appends it to the key. Most tasks have nothing of it.
func (n *Need) addOwnerPolicy(b []byte, t *muster.TaskSpec) []byte {
	n.Engine = t.Isolation == muster.IsolationContainer || t.Kind == muster.KindContainer
	if !n.Engine && len(t.Env) == 0 && len(t.Secrets) == 0 && t.SignedBy == "" && n.durations.timeout == 0 {
		n.ownerPolicy = plain
		return b
	}
	n.ownerPolicy = &muster.TaskSpec{Kind: t.Kind, Isolation: t.Isolation, Env: make(map[string]string, len(t.Env)), SignedBy: t.SignedBy, Timeout: n.durations.timeout}
	b = strconv.AppendQuote(append(b, " signed by "...), t.SignedBy)
	b = strconv.AppendInt(append(b, " timeout "...), int64(n.durations.timeout), 10)
	for i := range t.Secrets {
		s := &t.Secrets[i]
		n.ownerPolicy.Secrets = append(n.ownerPolicy.Secrets, *s)
		b = strconv.AppendQuote(append(b, " secret "...), s.Name)
		b = strconv.AppendQuote(append(b, ' '), s.Variable())
	}
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

// features is a set of muster.SpecFeatures, by their positions.
type features uint32

// featuresOf returns the set that a list names. It ignores other names, such as muster.RunFeatures.
func featuresOf(list []string) (set features) {
	for _, name := range list {
		if i := slices.Index(muster.SpecFeatures, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// names lists the features of a set in order.
func (set features) names() []string {
	var list []string
	for i, name := range muster.SpecFeatures {
		if set&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// Limits counts the features that workers of a fleet lack, the projects that they are
// restricted to, and their maximum timeouts and heartbeats. Only these features and projects, and
// durations that exclude some worker, make Needs differ, so that a fleet without such workers has
// fewer shapes.
// The zero value is of a fleet without workers.
type Limits struct {
	lacks    [32]int // number of workers that lack a feature, by its position
	lacked   features
	projects map[string]int // number of workers that name a project
	timeouts durations      // maximum timeouts
	beats    durations      // minimums of disconnect.grace, because of the workers' heartbeats
}

// Count adds a worker (sign 1), or removes one that was added (sign -1). It reports whether
// earlier Needs may have become too coarse, which Current checks.
func (l *Limits) Count(w *muster.Worker, sign int) (refined bool) {
	for i, set := 0, featuresOf(w.UnsupportedFeatures); set != 0; i, set = i+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		l.lacks[i] += sign
		switch bit := features(1) << i; {
		case l.lacks[i] == 0:
			l.lacked &^= bit
		case l.lacked&bit == 0:
			l.lacked |= bit
			refined = true
		}
	}
	for i, name := range w.Projects {
		if slices.Contains(w.Projects[:i], name) {
			continue
		}
		if l.projects == nil {
			l.projects = map[string]int{}
		}
		l.projects[name] += sign
		switch l.projects[name] {
		case 0:
			delete(l.projects, name)
		case sign: // the first one
			refined = true
		}
	}
	lowest, highest := l.timeouts.lowest(), l.beats.highest()
	if w.Allow != nil {
		l.timeouts.count(w.Allow.MaxTaskTimeout, sign)
	}
	l.beats.count(minGrace(w), sign)
	now := l.timeouts.lowest()
	return refined || now > 0 && (lowest == 0 || now < lowest) || l.beats.highest() > highest
}

// durations counts workers by a duration that they have.
type durations map[muster.Duration]int

// count adds sign workers with d, unless it is 0.
func (m *durations) count(d muster.Duration, sign int) {
	switch {
	case d == 0:
		return
	case *m == nil:
		*m = durations{}
	}
	if (*m)[d] += sign; (*m)[d] == 0 {
		delete(*m, d)
	}
}

// lowest returns the lowest duration, or 0 if there is none.
func (m durations) lowest() (lowest muster.Duration) {
	for d := range m {
		if lowest == 0 || d < lowest {
			lowest = d
		}
	}
	return lowest
}

// highest returns the highest duration, or 0 if there is none.
func (m durations) highest() (highest muster.Duration) {
	for d := range m {
		highest = max(highest, d)
	}
	return highest
}

// Need makes the Need of the tasks of a normalized stage of a project.
func (l *Limits) Need(project string, t *muster.TaskSpec) *Need {
	uses, project, d := l.relevant(project, t)
	return newNeed(t, uses, project, d)
}

// Current reports whether Need would still return an equal of n.
func (l *Limits) Current(n *Need, project string, t *muster.TaskSpec) bool {
	uses, project, d := l.relevant(project, t)
	return n.features == uses && n.project == project && n.durations == d
}

// relevant returns the features of a stage that some worker lacks, its project if some worker
// names it, and its durations.
func (l *Limits) relevant(project string, t *muster.TaskSpec) (features, string, taskDurations) {
	var uses features
	if l.lacked != 0 {
		uses = featuresOf(muster.Features(t)) & l.lacked
	}
	if l.projects[project] == 0 {
		project = ""
	}
	var d taskDurations
	if lowest := l.timeouts.lowest(); lowest > 0 && t.Timeout > lowest {
		d.timeout = t.Timeout
	}
	if grace := t.Disconnect.Grace.Or(muster.DefaultDisconnectGrace); grace < l.beats.highest() {
		d.grace = grace
	}
	return uses, project, d
}

// taskDurations has the durations of a task's spec that exclude some worker, and 0 for others.
type taskDurations struct {
	timeout muster.Duration // longer than the maximum of some worker's owner
	grace   muster.Duration // disconnect.grace, shorter than some worker's heartbeats need
}

// minGrace returns the minimum of disconnect.grace of tasks on a worker, or 0 if the server has checked it.
func minGrace(w *muster.Worker) muster.Duration { return muster.MinGraceHeartbeats * w.Heartbeat }
