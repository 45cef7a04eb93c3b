package workerd

import (
	"maps"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// offers computes what the worker offers: the resources of the machine, without devices that are withheld and kinds that are disabled.
type offers struct {
	onChange func(tags, kinds []string, res muster.Resources)

	mu       sync.Mutex
	tags     []string
	kinds    []string
	found    muster.Resources
	disabled map[string]bool              // kinds
	withheld map[string]map[string]string // reasons by source and UUID
}

func newOffers(tags, kinds []string, found muster.Resources, onChange func(tags, kinds []string, res muster.Resources)) *offers {
	return &offers{onChange: onChange, tags: tags, kinds: kinds, found: found, disabled: map[string]bool{}, withheld: map[string]map[string]string{}}
}

func kindsOf(executors []run.Executor) []string {
	var kinds []string
	for _, ex := range executors {
		kinds = append(kinds, ex.Kind())
	}
	return kinds
}

// withhold sets the devices that one source withholds, by UUID with the reason. It replaces the previous ones of that source.
func (o *offers) withhold(source string, devices map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withheld[source] = maps.Clone(devices)
	o.publish()
}

// setEnabled sets whether tasks of a kind can run.
func (o *offers) setEnabled(kind string, enabled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disabled[kind] = !enabled
	o.publish()
}

// setFound sets what was found on the machine.
func (o *offers) setFound(tags []string, found muster.Resources) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tags, o.found = tags, found
	o.publish()
}

// devices lists the devices that were found.
func (o *offers) devices() []muster.GPU {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found.GPUs
}

// publish calls onChange. The caller holds the lock, so that calls are in order.
func (o *offers) publish() {
	res := o.found
	res.GPUs = slices.Clone(res.GPUs)
	for i := range res.GPUs {
		d := &res.GPUs[i]
		for _, source := range slices.Sorted(maps.Keys(o.withheld)) {
			if why := o.withheld[source][d.UUID]; why != "" && d.Quarantined == "" {
				d.Quarantined = why
			}
		}
	}
	kinds := slices.DeleteFunc(slices.Clone(o.kinds), func(kind string) bool { return o.disabled[kind] })
	o.onChange(o.tags, kinds, res)
}
