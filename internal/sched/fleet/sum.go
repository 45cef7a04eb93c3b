package fleet

import "github.com/muster-dev/muster"

// Sums adds up what connected workers offer, have granted and use.
type Sums struct {
	Workers  int
	Capacity Resources
	Reserved Resources
	Used     Used
	Price    float64 // per hour, of all
	Cost     float64 // per hour, of those with tasks
}

// Used is the use of machines as of their workers' last heartbeats.
type Used struct {
	CPUs      float64 // cores: the load of each machine times the cores that its worker offers
	Memory    muster.Size
	GPUs      float64 // sum of the devices' utilization
	GPUMemory muster.Size
	Power     float64 // watts
}

// Sums adds up all connected workers.
func (p *Snapshot) Sums() (s Sums) {
	for i := range p.Workers {
		w := &p.Workers[i]
		if !w.Connected() {
			continue
		}
		s.Workers++
		s.Price += w.Price
		if w.Running > 0 {
			s.Cost += w.Price
		}
		s.Capacity.add(w.capacity())
		s.Reserved.add(w.Reserved)
		u := w.Used()
		s.Used.CPUs += u.CPUs
		s.Used.Memory += u.Memory
		s.Used.GPUs += u.GPUs
		s.Used.GPUMemory += u.GPUMemory
		s.Used.Power += u.Power
	}
	return s
}

func (a *Resources) add(b Resources) {
	a.Slots += b.Slots
	a.CPUs += b.CPUs
	a.Memory += b.Memory
	a.GPUs += b.GPUs
	a.GPUMemory += b.GPUMemory
}

func (w *Worker) capacity() Resources {
	a := Resources{Slots: w.Offers.Slots, CPUs: w.Offers.CPUs, Memory: w.Offers.Memory, GPUs: len(w.Offers.GPUs)}
	for i := range w.Offers.GPUs {
		a.GPUMemory += w.Offers.GPUs[i].Memory
	}
	return a
}

// Used returns the machine's use as of the worker's last heartbeat, and zeros before the first one.
func (w *Worker) Used() (u Used) {
	if w.Load == nil {
		return u
	}
	u.CPUs, u.Memory = w.Load.CPU*w.Offers.CPUs, w.Load.Memory
	for i := range w.Offers.GPUs {
		if l := w.GPULoad(i); l != nil {
			u.GPUs += orZero(l.Utilization)
			u.GPUMemory += orZero(l.Memory)
			u.Power += orZero(l.Power)
		}
	}
	return u
}

func orZero[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}
