package gpu

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/gpu/xid"
)

// Stream reads again and again how devices do, from tools that stay: a sample
// starts no program. Of NVIDIA it is nvidia-smi in its loop mode, twice: once
// for the figures, once for the processes; of Intel xpu-smi dump; of AMD the
// files of the kernel. Apple tells nothing to a user who is not root.
type Stream struct {
	host    *host
	devices []Device
	every   time.Duration
	log     *slog.Logger
	again   time.Duration // the first wait before a tool that ended is started again

	mu   sync.Mutex
	each []state // by the order of devices

	looking sync.Mutex
	kernel  *xid.Log // nil while it is not read
}

// state is what is known of a device, from several sources.
type state struct {
	reading Reading
	at      time.Time     // when the reading came
	took    time.Duration // or untold
	until   time.Time     // it is too old from then on

	processes      []Process
	processesAt    time.Time
	processesUntil time.Time
	xids           []past
	reset          time.Time // what was said before does not count
}

// past is a fault that was told once.
type past struct {
	why string
	at  time.Time
}

const untold = -time.Second // as a latency: the tool does not say when it asked

// NewStream prepares the reading of devices, as Probe found them, every period
// of at least 100 ms.
func NewStream(devices []Device, every time.Duration, log *slog.Logger) *Stream {
	every = max(every, 100*time.Millisecond)
	return &Stream{
		host: &host{root: "/"}, devices: slices.Clone(devices), every: every,
		log: log, again: min(time.Second, every), each: make([]state, len(devices)),
	}
}

// Run reads until ctx ends, then stops the tools and returns nil. A tool that
// ends or hangs is started again, after a wait that doubles up to a minute.
func (s *Stream) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	whole := slices.ContainsFunc(s.devices, func(d Device) bool { return d.Vendor == "nvidia" && d.MIG == "" })
	parts := slices.ContainsFunc(s.devices, func(d Device) bool { return d.MIG != "" })
	run := func(f *tool.Feed) { wg.Go(func() { f.Run(ctx) }) }
	if whole {
		run(s.figures())
	}
	switch {
	case parts:
		run(s.logs())
	case whole:
		run(s.pids())
	}
	if whole || parts {
		wg.Go(func() { s.watchFaults(ctx) })
	}
	if slices.ContainsFunc(s.devices, func(d Device) bool { return d.Vendor == "intel" }) {
		run(s.dump())
	}
	if slices.ContainsFunc(s.devices, func(d Device) bool { return d.Vendor == "amd" }) {
		wg.Go(func() { s.readFiles(ctx) })
	}
	return nil
}

// Latest returns the newest reading of each device, or false while there is none
// that is younger than three periods. What is older is absent.
func (s *Stream) Latest() (Readings, bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Readings{Each: make([]Reading, len(s.each))}
	some := false
	for i := range s.each {
		st, r := &s.each[i], &all.Each[i]
		if now.Before(st.until) {
			some = true
			*r = st.reading
			if st.took != untold {
				r.Latency = new(st.took.Seconds())
			}
			if st.at.After(all.At) {
				all.At = st.at
			}
			all.Took = max(all.Took, st.took)
		}
		r.UUID = s.devices[i].UUID
		if now.Before(st.processesUntil) {
			r.Processes = slices.Clone(st.processes)
		}
		r.Faults = slices.Clone(r.Faults)
		for _, x := range st.xids {
			if now.Sub(x.at) < xid.Holds {
				some = true
				r.Faults = adding(r.Faults, x.why)
			}
		}
	}
	if all.At.IsZero() {
		all.At = now
	}
	return all, some
}

// put notes a reading of the devices that match. Processes come by putProcesses.
func (s *Stream) put(now time.Time, took, every time.Duration, match func(*Device) bool, r Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if match(&s.devices[i]) {
			st := &s.each[i]
			r.Processes = nil
			st.reading, st.at, st.took, st.until = r, now, took, now.Add(tool.Late(every))
		}
	}
}

// putProcesses notes who holds memory of the devices that match.
func (s *Stream) putProcesses(now time.Time, every time.Duration, match func(*Device) bool, p []Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if match(&s.devices[i]) {
			st := &s.each[i]
			st.processes, st.processesAt, st.processesUntil = p, now, now.Add(tool.Late(every))
		}
	}
}

// Seen says when a device was asked for its last figures, and when its last list
// of processes came; the zero time stands for never.
func (s *Stream) Seen(uuid string) (figures, processes time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if st := &s.each[i]; s.devices[i].UUID == uuid && !st.at.IsZero() {
			return st.at.Add(-max(0, st.took)), st.processesAt
		}
	}
	return figures, processes
}

// Look reads at once what the kernel says of devices.
func (s *Stream) Look() {
	s.looking.Lock()
	defer s.looking.Unlock()
	if s.kernel != nil {
		s.kernel.Read(func(message string, age time.Duration) { s.fault(time.Now(), message, age) })
	}
}

// Forget drops what the kernel said of a device before a time, also if it is read
// later: the device was reset then.
func (s *Stream) Forget(uuid string, before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if st := &s.each[i]; s.devices[i].UUID == uuid {
			st.reset = before
			st.xids = slices.DeleteFunc(st.xids, func(p past) bool { return p.at.Before(before) })
		}
	}
}

// watchFaults reads what the kernel's log says of devices, and has said of late.
func (s *Stream) watchFaults(ctx context.Context) {
	kernel := xid.Open()
	if kernel == nil {
		s.log.Info("XID faults of GPUs are not read: this user may not read the kernel's log")
		return
	}
	s.reads(kernel)
	defer func() {
		s.reads(nil)
		kernel.Close()
	}()
	tick := time.NewTicker(max(s.every, 5*time.Second)) // faults are rare, wake-ups cost
	defer tick.Stop()
	for {
		s.Look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Stream) reads(kernel *xid.Log) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.kernel = kernel
}

// fault notes a message of the kernel's log, if it is one of a device.
func (s *Stream) fault(now time.Time, message string, age time.Duration) {
	x, ok := xid.Parse(message)
	if !ok || age >= xid.Holds {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if st, at := &s.each[i], now.Add(-age); x.Of(s.devices[i].Bus, s.devices[i].Instance) && !at.Before(st.reset) {
			st.xids = slices.DeleteFunc(st.xids, func(p past) bool { return p.why == x.Why || now.Sub(p.at) >= xid.Holds })
			st.xids = append(st.xids, past{x.Why, at})
		}
	}
}

// readFiles reads the devices of AMD from the kernel.
func (s *Stream) readFiles(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		for i := range s.devices {
			d := &s.devices[i]
			if d.Vendor != "amd" {
				continue
			}
			asked := time.Now()
			r := s.host.amdReading(d.Bus)
			processes := s.host.kfdProcesses(d.Bus)
			now := time.Now()
			same := func(other *Device) bool { return other == d }
			if r.Memory != nil || r.Temperature != nil || r.Utilization != nil {
				s.put(now, now.Sub(asked), s.every, same, r)
			}
			if processes != nil {
				s.putProcesses(now, s.every, same, processes)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
