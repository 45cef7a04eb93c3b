package workerd

import (
	"maps"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// offers puts together what the worker offers: what was found out about the
// machine, without the devices that somebody withholds.
type offers struct {
	onChange func(tags, kinds []string, res muster.Resources)

	mu       sync.Mutex
	tags     []string
	kinds    []string
	found    muster.Resources
	disabled map[string]bool              // kinds that cannot be run now
	withheld map[string]map[string]string // why, by source and UUID
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

// withhold takes all that one source has to say of devices, by UUID. It replaces
// what that source said before.
func (o *offers) withhold(source string, devices map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withheld[source] = maps.Clone(devices)
	o.publish()
}

// setEnabled takes whether tasks of a kind can be run.
func (o *offers) setEnabled(kind string, enabled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disabled[kind] = !enabled
	o.publish()
}

// setFound takes what was found out about the machine, anew.
func (o *offers) setFound(tags []string, found muster.Resources) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tags, o.found = tags, found
	o.publish()
}

// devices lists those that were found.
func (o *offers) devices() []muster.GPU {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found.GPUs
}

// publish says what is offered now. The lock is held, so that nothing is overtaken.
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
