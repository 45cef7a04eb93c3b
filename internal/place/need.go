package place

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Need is what a task asks of a worker. Make it with NewNeed: tasks whose Needs
// have equal Keys are interchangeable to the placement.
type Need struct {
	Kind    string
	Request muster.Request
	Where   muster.Where
	Gang    int // so many must be placed at once, or none; 0 for a task by itself

	mcpu int64
	key  string
}

// NewNeed makes the Need of a stage's tasks.
func NewNeed(t *muster.TaskSpec) *Need {
	n := &Need{Kind: t.Kind, Request: t.Resources, Where: t.Where, mcpu: Milli(t.Resources.CPUs)}
	n.Where.Tags, n.Where.Not, n.Where.Workers = sorted(t.Where.Tags), sorted(t.Where.Not), sorted(t.Where.Workers)
	r, w := &n.Request, &n.Where
	r.GPUs.Vendor, r.GPUs.Model = strings.ToLower(r.GPUs.Vendor), strings.ToLower(r.GPUs.Model)

	b := make([]byte, 0, 64)
	b = strconv.AppendQuote(b, n.Kind)
	for _, v := range []int64{n.mcpu, int64(r.Memory), int64(r.Disk), int64(r.PIDs), int64(r.GPUs.Count), int64(r.GPUs.Memory)} {
		b = strconv.AppendInt(append(b, ' '), v, 10)
	}
	if r.GPUs.Count > 0 {
		b = strconv.AppendBool(append(b, ' '), n.shares())
		b = strconv.AppendQuote(append(b, ' '), r.GPUs.Vendor)
		b = strconv.AppendQuote(append(b, ' '), r.GPUs.Model)
	}
	for _, list := range [][]string{w.Tags, w.Not, w.Workers} {
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
	n.key = string(b)
	return n
}

// Key is equal for two Needs exactly if they ask the same.
func (n *Need) Key() string { return n.key }

// shares reports whether devices are given by memory rather than whole.
func (n *Need) shares() bool { return n.Request.GPUs.Share && n.Request.GPUs.Memory > 0 }

// Milli counts cores in thousandths.
func Milli(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

// sorted returns the list sorted and without doubles, leaving the argument alone.
func sorted(list []string) []string {
	if len(list) < 2 {
		return list
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
