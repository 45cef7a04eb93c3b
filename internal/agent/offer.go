package agent

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/wake"
)

// machine is what the offer is made from: what the machine has, without devices that are withheld and kinds that are disabled.
type machine struct {
	resources muster.Resources
	disabled  map[string]bool              // kinds
	withheld  map[string]map[string]string // reasons by source and UUID
}

// SetMachine replaces the tags and resources of the machine. Running tasks continue, even if they use more than it has.
func (a *Agent) SetMachine(tags []string, res muster.Resources) {
	a.changeOffer(func(tbl *attemptTable) {
		tbl.offer.Tags, tbl.machine.resources = slices.Clone(tags), res
	})
}

// EnableKind sets whether new tasks of a kind of Config.Executors are accepted.
func (a *Agent) EnableKind(kind string, on bool) {
	a.changeOffer(func(tbl *attemptTable) { tbl.machine.disabled[kind] = !on })
}

// Withhold sets the devices that one source withholds, by UUID with the reason. It replaces the previous ones of that source.
func (a *Agent) Withhold(source string, devices map[string]string) {
	a.changeOffer(func(tbl *attemptTable) { tbl.machine.withheld[source] = maps.Clone(devices) })
}

// Devices lists the devices of the machine, including those that are withheld.
func (a *Agent) Devices() []muster.GPU {
	a.table.mu.Lock()
	defer a.table.mu.Unlock()
	return a.table.machine.resources.GPUs
}

// changeOffer makes the offer again after a change.
func (a *Agent) changeOffer(change func(tbl *attemptTable)) {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	change(tbl)
	m := &tbl.machine
	res := m.resources
	res.GPUs = slices.Clone(res.GPUs)
	for i := range res.GPUs {
		d := &res.GPUs[i]
		for _, source := range slices.Sorted(maps.Keys(m.withheld)) {
			if why := m.withheld[source][d.UUID]; why != "" && d.Quarantined == "" {
				d.Quarantined = why
			}
		}
	}
	tbl.offer.Kinds = slices.DeleteFunc(a.kinds(), func(kind string) bool { return m.disabled[kind] })
	tbl.offer.Resources, tbl.capacity.offer = res, res
	tbl.offerDirty = tbl.connected // else the next hello has it
	wake.Set(tbl.wake)
}
