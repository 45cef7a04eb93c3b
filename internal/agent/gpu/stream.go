package gpu

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/gpu/xid"
	"github.com/muster-dev/muster/internal/wake"
)

// Stream monitors devices with tools that keep running: a sample starts no program. For NVIDIA it runs nvidia-smi in its loop mode
// twice, for metrics and for processes; for AMD it reads files of the kernel. Devices of Intel and Apple are not monitored: no guide
// asks for them, and Apple's tools report nothing to users other than root.
type Stream struct {
	host       *host
	interval   time.Duration
	log        *slog.Logger
	minBackoff time.Duration // the first pause before a tool is restarted
	changed    chan struct{} // holds one token after there are other devices

	mu      sync.Mutex
	devices []Device      // replaced, not changed
	states  []deviceState // by the order of devices

	kernelMu sync.Mutex
	kernel   *xid.Log // nil while it is not read
}

// deviceState is what is known of a device.
type deviceState struct {
	reading Reading
	at      time.Time     // of the reading
	latency time.Duration // or unknownLatency
	expires time.Time     // when the reading becomes too old

	processes       []Process
	processesAt     time.Time
	processesExpire time.Time
	faults          []pastFault
	resetAt         time.Time // earlier faults do not count
}

type pastFault struct {
	reason string
	at     time.Time
}

const unknownLatency = -time.Second // the tool does not report when it queried the driver

// NewStream returns a Stream of devices, as Probe returned them, with an interval of at least 100 ms.
func NewStream(devices []Device, interval time.Duration, log *slog.Logger) *Stream {
	interval = max(interval, 100*time.Millisecond)
	return &Stream{
		host: &host{root: "/"}, devices: slices.Clone(devices), interval: interval,
		log: log, minBackoff: min(time.Second, interval), states: make([]deviceState, len(devices)), changed: wake.New(),
	}
}

// SetDevices replaces the devices, as Probe returned them. If there are others than before, they are read from the start.
func (s *Stream) SetDevices(devices []Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := slices.EqualFunc(devices, s.devices, func(a, b Device) bool { return a.UUID == b.UUID })
	s.devices = slices.Clone(devices)
	if same {
		return
	}
	s.states = make([]deviceState, len(devices))
	wake.Set(s.changed)
}

// Devices lists the devices. The list must not be changed.
func (s *Stream) Devices() []Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices
}

// Run monitors the devices until ctx ends, then stops the tools and returns nil. It restarts a tool that exits or hangs, after a
// pause that doubles up to a minute.
func (s *Stream) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		toolCtx, cancel := context.WithCancel(ctx)
		var tools sync.WaitGroup
		tools.Go(func() { s.runTools(toolCtx, s.Devices()) })
		select {
		case <-ctx.Done():
		case <-s.changed:
		}
		cancel()
		tools.Wait()
	}
	return nil
}

func (s *Stream) runTools(ctx context.Context, devices []Device) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wholeDevices := slices.ContainsFunc(devices, func(d Device) bool { return d.Vendor == "nvidia" && d.MIG == "" })
	instances := slices.ContainsFunc(devices, func(d Device) bool { return d.MIG != "" })
	run := func(f *tool.Stream) { wg.Go(func() { f.Run(ctx) }) }
	if wholeDevices {
		run(s.nvidiaMetrics())
	}
	switch {
	case instances:
		run(s.nvidiaLogs())
	case wholeDevices:
		run(s.nvidiaProcesses())
	}
	if wholeDevices || instances {
		wg.Go(func() { s.watchFaults(ctx) })
	}
	if slices.ContainsFunc(devices, func(d Device) bool { return d.Vendor == "amd" }) {
		wg.Go(func() { s.pollAMD(ctx, devices) })
	}
}

// Latest returns the newest reading of each device, or false if none is younger than three intervals. Older values are absent.
func (s *Stream) Latest() (Readings, bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Readings{Devices: make([]Reading, len(s.states))}
	fresh := false
	for i := range s.states {
		st, r := &s.states[i], &all.Devices[i]
		if now.Before(st.expires) {
			fresh = true
			*r = st.reading
			if st.latency != unknownLatency {
				r.Latency = new(st.latency.Seconds())
			}
			if st.at.After(all.At) {
				all.At = st.at
			}
			all.Latency = max(all.Latency, st.latency)
		}
		r.UUID = s.devices[i].UUID
		if now.Before(st.processesExpire) {
			r.Processes = slices.Clone(st.processes)
		}
		r.Faults = slices.Clone(r.Faults)
		for _, x := range st.faults {
			if now.Sub(x.at) < xid.FaultTTL {
				fresh = true
				r.Faults = appendFault(r.Faults, x.reason)
			}
		}
	}
	if all.At.IsZero() {
		all.At = now
	}
	return all, fresh
}

// update changes the states of the devices that match.
func (s *Stream) update(match func(*Device) bool, change func(*deviceState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if match(&s.devices[i]) {
			change(&s.states[i])
		}
	}
}

// setReading stores a reading of the devices that match. Processes are stored by setProcesses.
func (s *Stream) setReading(now time.Time, latency, interval time.Duration, match func(*Device) bool, r Reading) {
	r.Processes = nil
	s.update(match, func(st *deviceState) {
		st.reading, st.at, st.latency, st.expires = r, now, latency, now.Add(tool.StaleAfter(interval))
	})
}

func (s *Stream) setProcesses(now time.Time, interval time.Duration, match func(*Device) bool, p []Process) {
	s.update(match, func(st *deviceState) {
		st.processes, st.processesAt, st.processesExpire = p, now, now.Add(tool.StaleAfter(interval))
	})
}

// LastSampled returns when the last figures of a device were requested, and when its last list of processes came; the zero time means
// never.
func (s *Stream) LastSampled(uuid string) (metrics, processes time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if st := &s.states[i]; s.devices[i].UUID == uuid && !st.at.IsZero() {
			return st.at.Add(-max(0, st.latency)), st.processesAt
		}
	}
	return metrics, processes
}

// PollFaults reads new faults in the kernel's log.
func (s *Stream) PollFaults() {
	s.kernelMu.Lock()
	defer s.kernelMu.Unlock()
	if s.kernel != nil {
		s.kernel.Read(func(message string, age time.Duration) { s.recordFault(time.Now(), message, age) })
	}
}

// ForgetFaults drops faults of a device from before a time, also those that are read later: the device was reset then.
func (s *Stream) ForgetFaults(uuid string, before time.Time) {
	s.update(func(d *Device) bool { return d.UUID == uuid }, func(st *deviceState) {
		st.resetAt = before
		st.faults = slices.DeleteFunc(st.faults, func(p pastFault) bool { return p.at.Before(before) })
	})
}

// watchFaults reads faults in the kernel's log, including recent ones.
func (s *Stream) watchFaults(ctx context.Context) {
	kernel := xid.Open()
	if kernel == nil {
		s.log.Info("XID faults of GPUs are not monitored: this user has no permission to read the kernel's log")
		return
	}
	s.setKernelLog(kernel)
	defer func() {
		s.setKernelLog(nil)
		kernel.Close()
	}()
	tick := time.NewTicker(max(s.interval, 5*time.Second)) // faults are rare, wake-ups cost
	defer tick.Stop()
	for {
		s.PollFaults()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Stream) setKernelLog(kernel *xid.Log) {
	s.kernelMu.Lock()
	defer s.kernelMu.Unlock()
	s.kernel = kernel
}

// recordFault stores the fault in a message of the kernel's log.
func (s *Stream) recordFault(now time.Time, message string, age time.Duration) {
	x, ok := xid.Parse(message)
	if !ok || age >= xid.FaultTTL {
		return
	}
	s.update(func(d *Device) bool { return x.Matches(d.Bus, d.Instance) }, func(st *deviceState) {
		if at := now.Add(-age); !at.Before(st.resetAt) {
			st.faults = slices.DeleteFunc(st.faults, func(p pastFault) bool { return p.reason == x.Reason || now.Sub(p.at) >= xid.FaultTTL })
			st.faults = append(st.faults, pastFault{x.Reason, at})
		}
	})
}

func (s *Stream) pollAMD(ctx context.Context, devices []Device) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		for i := range devices {
			d := &devices[i]
			if d.Vendor != "amd" {
				continue
			}
			asked := time.Now()
			r := s.host.amdReading(d.Bus)
			processes := s.host.kfdProcesses(d.Bus)
			now := time.Now()
			same := func(other *Device) bool { return other.UUID == d.UUID }
			if r.Memory != nil || r.Temperature != nil || r.Utilization != nil {
				s.setReading(now, now.Sub(asked), s.interval, same, r)
			}
			if processes != nil {
				s.setProcesses(now, s.interval, same, processes)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
