package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

const gib = muster.Size(1 << 30)

// readings are those of devices; a test changes them.
type readings struct {
	mu      sync.Mutex
	current map[string]gpu.Reading
	hung    map[string]bool // no longer read
	stale   time.Time       // when everything was read, unless zero
	xids    map[string]string
	polls   int
}

func newReadings() *readings {
	return &readings{current: map[string]gpu.Reading{}, hung: map[string]bool{}, xids: map[string]string{}}
}

func (r *readings) set(uuid string, used muster.Size, processes ...gpu.Process) {
	r.change(uuid, func(g *gpu.Reading) {
		*g = gpu.Reading{GPULoad: muster.GPULoad{UUID: uuid, Memory: &used}, Processes: append([]gpu.Process{}, processes...)}
	})
}

func (r *readings) change(uuid string, change func(*gpu.Reading)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.current[uuid]
	change(&g)
	r.current[uuid] = g
}

func (r *readings) hang(uuid string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung[uuid] = on
}

func (r *readings) Latest() (all gpu.Readings, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uuid, g := range r.current {
		if r.hung[uuid] {
			continue
		}
		g.Faults = slices.Clone(g.Faults)
		if x := r.xids[uuid]; x != "" {
			g.Faults = append(g.Faults, x)
		}
		all.Devices = append(all.Devices, g)
	}
	return all, len(all.Devices) > 0
}

func (r *readings) LastSampled(uuid string) (metrics, processes time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung[uuid] {
		return metrics, processes
	}
	if !r.stale.IsZero() {
		return r.stale, r.stale
	}
	return time.Now(), time.Now()
}

// freeze fixes the time of the readings; the zero time ends that.
func (r *readings) freeze(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = at
}

func (r *readings) PollFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls++
}

func (r *readings) ForgetFaults(uuid string, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.xids, uuid)
}

func (r *readings) xid(uuid, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.xids[uuid] = why
}

// testAllocator is an Allocator with its environment.
type testAllocator struct {
	*Allocator
	r   *readings
	cfg Config

	mu       sync.Mutex
	withheld map[string]string
}

func device(uuid, vendor string, index int) gpu.Device {
	d := gpu.Device{GPU: muster.GPU{UUID: uuid, Vendor: vendor, Index: index, Name: "card", Memory: 40 * gib}}
	d.Reading = gpu.Reading{GPULoad: muster.GPULoad{UUID: uuid, Memory: new(muster.Size)}, Processes: []gpu.Process{}}
	return d
}

func newTestAllocator(t *testing.T, found ...gpu.Device) *testAllocator {
	t.Helper()
	b := &testAllocator{r: newReadings()}
	b.cfg = Config{
		Data: t.TempDir(), BootID: "this", Readings: b.r, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Withhold: func(why map[string]string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.withheld = why
		},
	}
	for _, d := range found {
		b.r.set(d.UUID, 0)
	}
	b.restart(found...)
	return b
}

// restart starts a new incarnation of the allocator.
func (b *testAllocator) restart(found ...gpu.Device) {
	b.Allocator = New(b.cfg, found)
	b.timeouts = timeouts{poll: time.Millisecond, cleanup: 50 * time.Millisecond, reading: 50 * time.Millisecond, migReading: 50 * time.Millisecond, recheck: 10 * time.Millisecond}
}

// running runs the allocator until the test ends.
func (b *testAllocator) running(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (b *testAllocator) withheldReason(uuid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.withheld[uuid]
}

func (b *testAllocator) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.AwaitNil(t, what, testkit.Limit, func() error {
		if !cond() {
			return fmt.Errorf("withheld: %v", b.Quarantined())
		}
		return nil
	})
}

// polls returns how often the allocator polled for faults.
func (b *testAllocator) polls() int {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	return b.r.polls
}

func attempt(n int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 17, Num: n}, N: 1}
}

func grantOf(uuids ...string) *muster.Grant { return &muster.Grant{GPUs: uuids} }

// use is one attempt that acquires devices, calls do and releases them.
func (b *testAllocator) use(t *testing.T, n int, g *muster.Grant, do func()) error {
	t.Helper()
	b.Acquire(t.Context(), attempt(n), g)
	if do != nil {
		do()
	}
	return b.Release(t.Context(), attempt(n), g, "MUSTER_OUT=/nowhere/"+t.Name())
}

func wantHealthy(t *testing.T, b *testAllocator, err error) {
	t.Helper()
	if q := b.Quarantined(); err != nil || len(q) > 0 {
		t.Errorf("err %v, in quarantine: %v", err, q)
	}
}

func wantFault(t *testing.T, err error, part string) {
	t.Helper()
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != muster.GPUFault || !strings.Contains(f.Message, part) {
		t.Errorf("got %v, want a gpu_fault with %q", err, part)
	}
}

// A task sees its devices by their vendor's names.
func TestEnviron(t *testing.T) {
	none := []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void", "ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK=65535"}
	with := func(entries ...string) []string {
		env := slices.Clone(none)
		for _, e := range entries {
			name, _, _ := strings.Cut(e, "=")
			env = append(slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") }), e)
		}
		slices.Sort(env)
		return env
	}
	nvidia, mig := device("GPU-5c89852c-1111-2222-3333-444444444444", "nvidia", 0), device("MIG-7aa50bd8-0000-5000-8000-000000000000", "nvidia", 1)
	amd, old := device("GPU-4b2c1a9f8d3e6f7a", "amd", 0), device("amd-0000:03:00.0-1", "amd", 1)
	intel := device("00000000-0000-0029-0000-002f0bda8086", "intel", 2)
	apple := device("apple-0", "apple", 0)
	all := []gpu.Device{nvidia, mig, amd, old, intel, apple}
	for name, tc := range map[string]struct {
		there    []gpu.Device
		released []gpu.Device
		want     []string
	}{
		"nothing is given":            {all, nil, with()},
		"nothing is there":            {nil, nil, with()},
		"a device of NVIDIA":          {all, []gpu.Device{nvidia}, with("CUDA_VISIBLE_DEVICES="+nvidia.UUID, "NVIDIA_VISIBLE_DEVICES="+nvidia.UUID)},
		"in the order of the grant":   {all, []gpu.Device{mig, nvidia}, with("CUDA_VISIBLE_DEVICES="+mig.UUID+","+nvidia.UUID, "NVIDIA_VISIBLE_DEVICES="+mig.UUID+","+nvidia.UUID)},
		"of AMD, beside NVIDIA":       {all, []gpu.Device{old, amd}, with("ROCR_VISIBLE_DEVICES=1,"+amd.UUID, "HIP_VISIBLE_DEVICES=0,1")},
		"of AMD, where there is none": {[]gpu.Device{amd, old}, []gpu.Device{amd}, with("ROCR_VISIBLE_DEVICES="+amd.UUID, "HIP_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0")},
		"of Intel":                    {all, []gpu.Device{intel}, with("ZE_AFFINITY_MASK=2", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE")},
		"of Apple":                    {all, []gpu.Device{apple}, with()},
		"of several makers": {all, []gpu.Device{nvidia, amd, intel}, with("CUDA_VISIBLE_DEVICES="+nvidia.UUID, "NVIDIA_VISIBLE_DEVICES="+nvidia.UUID,
			"ROCR_VISIBLE_DEVICES="+amd.UUID, "HIP_VISIBLE_DEVICES=0", "ZE_AFFINITY_MASK=2", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE")},
		"an unknown one": {all, []gpu.Device{device("GPU-x", "nvidia", 9)}, with()},
	} {
		b := newTestAllocator(t, tc.there...)
		g := &muster.Grant{}
		for _, d := range tc.released {
			g.GPUs = append(g.GPUs, d.UUID)
		}
		got := b.Environ(g)
		slices.Sort(got)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A device in its earlier state is free again; one whose memory stays in use is not, until the memory is freed.
func TestUnreleasedMemory(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	wantHealthy(t, b, b.use(t, 1, grantOf("GPU-a"), func() { b.r.set("GPU-a", 100<<20) }))
	if b.polls() == 0 {
		t.Error("faults were not polled")
	}
	if err := b.use(t, 2, grantOf("GPU-a"), func() { b.r.set("GPU-a", 12*gib) }); err != nil {
		t.Errorf("the task fails for it: %v", err)
	}
	if why := b.withheldReason("GPU-a"); !strings.Contains(why, "of its memory was not freed after task 17.2") {
		t.Errorf("withheld: %q", why)
	}
	b.running(t)
	b.Heal("GPU-a")
	b.await(t, "the check", func() bool {
		b.Allocator.mu.Lock()
		defer b.Allocator.mu.Unlock()
		return b.record("GPU-a").Healed != 0
	})
	for polled := b.polls(); b.polls() < polled+3; time.Sleep(time.Millisecond) {
		if b.withheldReason("GPU-a") == "" {
			t.Fatal("it is released before its memory is freed")
		}
	}
	b.r.set("GPU-a", 0)
	b.await(t, "its release", func() bool { return b.withheldReason("GPU-a") == "" })
}

// A device that is healed right after its repair is judged by a reading from after that.
func TestHealWaitsForANewReading(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	b.timeouts.reading = time.Minute
	b.r.change("GPU-a", func(g *gpu.Reading) { g.Faults = []string{"GPU requires reset"} })
	b.running(t)
	b.await(t, "the quarantine", func() bool { return b.withheldReason("GPU-a") != "" })
	b.r.freeze(time.Now())
	b.Heal("GPU-a")
	for polled := b.polls(); b.polls() == polled; time.Sleep(time.Millisecond) {
	}
	time.Sleep(20 * b.timeouts.poll)
	b.r.change("GPU-a", func(g *gpu.Reading) { g.Faults = nil })
	b.r.freeze(time.Time{})
	b.await(t, "its release", func() bool { return b.withheldReason("GPU-a") == "" })
}

// Release waits for memory that is freed late.
func TestMemoryReleasedLate(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	b.timeouts.cleanup = time.Minute
	b.Acquire(t.Context(), attempt(1), grantOf("GPU-a"))
	b.r.set("GPU-a", 12*gib)
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), attempt(1), grantOf("GPU-a"), "MUSTER_OUT=/nowhere") }()
	b.await(t, "the check", func() bool { return b.polls() > 0 })
	select {
	case err := <-released:
		t.Errorf("it was released at once: %v", err)
	default:
	}
	b.r.set("GPU-a", 0)
	wantHealthy(t, b, <-released)
}

// Processes of others on a device are not the task's fault.
func TestOtherProcessesOnTheDevice(t *testing.T) {
	game := gpu.Process{PID: os.Getpid(), Name: "game", Memory: 6 * gib}
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	wantHealthy(t, b, b.use(t, 1, grantOf("GPU-a"), func() { b.r.set("GPU-a", 6*gib, game) }))
	wantHealthy(t, b, b.use(t, 2, grantOf("GPU-a"), func() { b.r.set("GPU-a", 0) }))
	b.r.set("GPU-a", 6*gib, game)
	if err := b.use(t, 3, grantOf("GPU-a"), func() { b.r.set("GPU-a", 9*gib, game) }); err != nil || b.withheldReason("GPU-a") == "" {
		t.Errorf("memory in addition to the game's is not detected: %v, %q", err, b.withheldReason("GPU-a"))
	}
}

// A process whose memory is unknown explains everything.
func TestUnreportedMemoryOfOthers(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	wantHealthy(t, b, b.use(t, 1, grantOf("GPU-a"), func() { b.r.set("GPU-a", 6*gib, gpu.Process{PID: os.Getpid()}) }))
}

// Many small leaks add up; what the owner does in between does not count.
func TestSmallLosses(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	used := muster.Size(0)
	for n := 1; b.withheldReason("GPU-a") == ""; n++ {
		if n > 10 {
			t.Fatalf("%s leaked and were not found", used)
		}
		if err := b.use(t, n, grantOf("GPU-a"), func() { used += 200 << 20; b.r.set("GPU-a", used) }); err != nil {
			t.Fatal(err)
		}
	}
	b = newTestAllocator(t, device("GPU-a", "nvidia", 0))
	for n := range 10 {
		b.r.set("GPU-a", muster.Size(n)*gib)
		wantHealthy(t, b, b.use(t, n, grantOf("GPU-a"), nil))
	}
}

// The memory of a shared device is compared when its last task ends.
func TestSharedDevice(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	g := &muster.Grant{GPUs: []string{"GPU-a"}, GPUMemory: 10 * gib}
	b.Acquire(t.Context(), attempt(1), g)
	b.r.set("GPU-a", 8*gib)
	b.Acquire(t.Context(), attempt(2), g)
	wantHealthy(t, b, b.Release(t.Context(), attempt(1), g, "MUSTER_OUT=/1"))
	wantHealthy(t, b, b.use(t, 3, g, nil))
	if err := b.Release(t.Context(), attempt(2), g, "MUSTER_OUT=/2"); err != nil || b.withheldReason("GPU-a") == "" {
		t.Errorf("the last one: %v, %q", err, b.withheldReason("GPU-a"))
	}
}

// A device that fails under a task is reported as gpu_fault, and stays in quarantine until it is healed.
func TestFaults(t *testing.T) {
	const fell = "XID 79: GPU has fallen off the bus"
	for name, tc := range map[string]struct {
		fail, repair func(r *readings)
		why          string
	}{
		"XID": {func(r *readings) { r.xid("GPU-a", fell) }, func(*readings) {}, fell},
		"its tool asks for a reset": {
			func(r *readings) {
				r.change("GPU-a", func(g *gpu.Reading) { g.Faults = []string{"GPU requires reset"} })
			},
			func(r *readings) { r.set("GPU-a", 0) }, "GPU requires reset",
		},
		"errors of its memory": {
			func(r *readings) { r.change("GPU-a", func(g *gpu.Reading) { g.ECC = new(uint64(3)) }) },
			func(*readings) {}, "(ECC): 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := device("GPU-a", "nvidia", 0)
			a.Reading.ECC = new(uint64(0))
			b := newTestAllocator(t, a, device("GPU-b", "nvidia", 1))
			wantFault(t, b.use(t, 1, grantOf("GPU-b", "GPU-a"), func() { tc.fail(b.r) }), tc.why)
			if d := cmp.Diff([]string{"GPU-a"}, keys(b.Quarantined())); d != "" || !strings.Contains(b.withheldReason("GPU-a"), tc.why) {
				t.Errorf("%s; %q", d, b.withheldReason("GPU-a"))
			}
			b.restart(a, device("GPU-b", "nvidia", 1)) // a restart of the worker
			if why := b.Quarantined()["GPU-a"]; !strings.Contains(why, tc.why) {
				t.Errorf("after a restart: %q", why)
			}
			b.running(t)
			if name == "its tool asks for a reset" {
				b.Heal()
				polled := func() bool {
					b.Allocator.mu.Lock()
					defer b.Allocator.mu.Unlock()
					return b.record("GPU-a").Healed != 0
				}
				b.await(t, "the check", polled)
				if why := b.Quarantined()["GPU-a"]; why == "" {
					t.Error("it is released and is not healthy")
				}
			}
			tc.repair(b.r)
			b.Heal("GPU-a")
			b.await(t, "its release", func() bool { return len(b.Quarantined()) == 0 })
			wantHealthy(t, b, b.use(t, 2, grantOf("GPU-a"), nil))
		})
	}
}

func keys(m map[string]string) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// A fault that returns after the device was healed counts again, and so does one that is found while no task runs.
func TestFaultOfAnIdleDevice(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	b.running(t)
	for range 2 {
		b.r.xid("GPU-a", "XID 48: Double Bit ECC Error")
		b.await(t, "the quarantine", func() bool { return strings.Contains(b.withheldReason("GPU-a"), "XID 48") })
		b.Heal()
		b.await(t, "its release", func() bool { return b.withheldReason("GPU-a") == "" })
	}
}

// A fault in the kernel's log from before a device was healed does not count after a restart.
func TestIgnoredFaults(t *testing.T) {
	const why = "XID 79: GPU has fallen off the bus"
	d := device("GPU-a", "nvidia", 0)
	b := newTestAllocator(t, d)
	wantFault(t, b.use(t, 1, grantOf("GPU-a"), func() { b.r.xid("GPU-a", why) }), why)
	b.running(t)
	b.Heal()
	b.await(t, "its release", func() bool { return b.withheldReason("GPU-a") == "" })
	d.Reading.Faults = []string{why}
	b.restart(d)
	wantHealthy(t, b, nil)
	d.Reading.Faults = []string{"XID 48: Double Bit ECC Error"}
	b.restart(d)
	if q := b.Quarantined()["GPU-a"]; q == "" {
		t.Error("another fault is ignored, too")
	}
}

// A device that can no longer be read is in quarantine until it can.
func TestMissingReadings(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	wantFault(t, b.use(t, 1, grantOf("GPU-a"), func() { b.r.hang("GPU-a", true) }), "no longer reports")
	b.running(t)
	b.await(t, "the quarantine", func() bool { return b.withheldReason("GPU-a") != "" })
	b.r.hang("GPU-a", false)
	b.await(t, "its release", func() bool { return b.withheldReason("GPU-a") == "" })
}

// A device that never reported anything is healthy.
func TestDeviceWithoutReadings(t *testing.T) {
	d := device("apple-0", "apple", 0)
	d.Reading = gpu.Reading{}
	b := newTestAllocator(t)
	b.SetDevices([]gpu.Device{d})
	wantHealthy(t, b, b.use(t, 1, grantOf("apple-0"), nil))
}

// The baseline of a device in use survives a restart of the worker, which checks devices whose task ended meanwhile.
func TestAfterRestart(t *testing.T) {
	d := device("GPU-a", "nvidia", 0)
	b := newTestAllocator(t, d)
	b.r.set("GPU-a", 2*gib)
	b.Acquire(t.Context(), attempt(1), grantOf("GPU-a"))
	b.r.set("GPU-a", 20*gib)
	b.cfg.Recovered = []muster.AttemptID{attempt(1)}
	b.restart(d)
	if err := b.Release(t.Context(), attempt(1), grantOf("GPU-a"), "MUSTER_OUT=/1"); err != nil || !strings.HasPrefix(b.withheldReason("GPU-a"), "18GiB") {
		t.Errorf("%v, %q", err, b.withheldReason("GPU-a"))
	}

	b = newTestAllocator(t, d)
	b.Acquire(t.Context(), attempt(1), grantOf("GPU-a"))
	b.r.set("GPU-a", 20*gib)
	b.restart(d) // the attempt is not recovered
	b.running(t)
	b.await(t, "the quarantine", func() bool { return b.withheldReason("GPU-a") != "" })

	b.cfg.BootID = "another"
	b.restart(d)
	wantHealthy(t, b, nil) // a restart of the machine clears the memory
}

// A damaged file is logged and ignored.
func TestDamagedFile(t *testing.T) {
	d := device("GPU-a", "nvidia", 0)
	b := newTestAllocator(t, d)
	for _, text := range []string{"{", `{"devices":{"GPU-a":null}}`, `{"boot":"this","devices":null}`, ""} {
		if err := os.WriteFile(filepath.Join(b.cfg.Data, "gpus.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.restart(d)
		wantHealthy(t, b, b.use(t, 1, grantOf("GPU-a"), nil))
	}
}
