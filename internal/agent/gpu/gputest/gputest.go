// Package gputest lets tests have GPUs on machines without: a stand-in for
// nvidia-smi, whose devices a test changes while it runs.
package gputest

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

//go:embed smi.sh
var script string

// GPU is a device in the output of the fake tool. Its UUID, name, memory and place are
// made up where they are absent.
type GPU struct {
	UUID        string
	Name        string
	Memory      muster.Size
	Used        muster.Size
	Utilization float64 // 0 to 1
	Temperature float64 // degrees Celsius
	Power       float64 // watts
	ECC         uint64  // memory errors that could not be corrected
	Broken      string  // what is printed in place of readings, such as "[GPU requires reset]"
	Processes   []Process
	Instances   []Instance // MIG instances; with any the device is in MIG mode
}

// Instance is a MIG instance.
type Instance struct {
	UUID      string
	Profile   string // such as "1g.5gb"
	Memory    muster.Size
	Used      muster.Size
	Processes []Process
}

// Process holds memory of a device.
type Process struct {
	PID      int
	Name     string
	Memory   muster.Size
	Graphics bool // it draws, and does not compute
}

// SMI is one stand-in. Its methods may be called while programs run it: they see
// the change in their next sample.
type SMI struct {
	t   testing.TB
	dir string
}

// New makes a stand-in that knows gpus and puts it first on this process's PATH.
func New(tb testing.TB, gpus ...GPU) *SMI {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("the stand-in for nvidia-smi is a shell script")
	}
	s := &SMI{t: tb, dir: tb.TempDir()}
	s.Set(gpus...)
	s.write("nvidia-smi", script, 0o700)
	tb.Setenv("PATH", s.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return s
}

// Set changes what devices there are and how they do.
func (s *SMI) Set(gpus ...GPU) {
	s.t.Helper()
	gpus = append([]GPU(nil), gpus...)
	for i := range gpus {
		gpus[i].setDefaults(i)
	}
	s.write("gpus", gpuTable(gpus), 0o600)
	s.write("apps", appTable(gpus), 0o600)
	s.write("list", list(gpus), 0o600)
	s.write("pids", pids(gpus), 0o600)
	s.write("xml", xmlLog(gpus), 0o600)
}

// Hang makes the tool never answer again, or answer again.
func (s *SMI) Hang(on bool) {
	s.t.Helper()
	if on {
		s.write("hang", "", 0o600)
		return
	}
	s.remove("hang")
}

// Fail makes the tool end with a status and a text, as where the driver is not
// there; status 0 makes it work again.
func (s *SMI) Fail(status int, text string) {
	s.t.Helper()
	if status == 0 {
		s.remove("status")
		return
	}
	s.write("complaint", text+"\n", 0o600)
	s.write("status", strconv.Itoa(status)+"\n", 0o600)
}

// Remove takes the tool away, as where it is not installed.
func (s *SMI) Remove() {
	s.t.Helper()
	s.remove("nvidia-smi")
}

// Restore brings a tool back that was removed.
func (s *SMI) Restore() {
	s.t.Helper()
	s.write("nvidia-smi", script, 0o700)
}

// write changes a file in one step, so that no reader sees half of it.
func (s *SMI) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *SMI) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
}

func (g *GPU) setDefaults(i int) {
	if g.UUID == "" {
		g.UUID = fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i)
	}
	if g.Name == "" {
		g.Name = "NVIDIA A100-SXM4-40GB"
	}
	if g.Memory == 0 {
		g.Memory = 40 << 30
	}
	g.Instances = append([]Instance(nil), g.Instances...)
	for j := range g.Instances {
		p := &g.Instances[j]
		if p.UUID == "" {
			p.UUID = fmt.Sprintf("MIG-%08d-%04d-5000-8000-000000000000", i, j)
		}
		if p.Profile == "" {
			p.Profile = "1g.5gb"
		}
		if p.Memory == 0 {
			p.Memory = 4864 << 20
		}
	}
}

func bus(i int) string { return fmt.Sprintf("00000000:%02X:00.0", i+1) }

func mib(s muster.Size) string { return strconv.FormatInt(int64(s>>20), 10) }

// orBroken returns a value, or what is printed of a broken device.
func (g *GPU) orBroken(value string) string {
	if g.Broken != "" {
		return g.Broken
	}
	return value
}

func (g *GPU) utilization() string {
	if len(g.Instances) > 0 {
		return "[N/A]" // as of a device in MIG mode
	}
	return g.orBroken(strconv.FormatFloat(g.Utilization*100, 'f', 0, 64))
}

func (g *GPU) power() string       { return g.orBroken(strconv.FormatFloat(g.Power, 'f', 2, 64)) }
func (g *GPU) temperature() string { return g.orBroken(strconv.FormatFloat(g.Temperature, 'f', 0, 64)) }
func (g *GPU) ecc() string         { return g.orBroken(strconv.FormatUint(g.ECC, 10)) }

const driver, cuda = "550.54.15", "12.4"

func gpuTable(gpus []GPU) string {
	var b strings.Builder
	b.WriteString(strings.Join([]string{
		"index", "uuid", "name", "memory.total", "driver_version", "pci.bus_id",
		"utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "power.limit", "ecc.errors.uncorrected.volatile.total",
	}, "\t") + "\n")
	for i := range gpus {
		g := &gpus[i]
		b.WriteString(strings.Join([]string{
			strconv.Itoa(i), g.UUID, g.Name, mib(g.Memory), driver, bus(i),
			g.utilization(), g.orBroken(mib(g.Used)), g.temperature(), g.power(), g.orBroken("400.00"), g.ecc(),
		}, "\t") + "\n")
	}
	return b.String()
}

func appTable(gpus []GPU) string {
	var b strings.Builder
	b.WriteString("gpu_uuid\tpid\tprocess_name\tused_gpu_memory\tused_memory\tname\tgpu_bus_id\n")
	for i := range gpus {
		for _, p := range gpus[i].allProcesses() {
			if !p.Graphics {
				fmt.Fprintf(&b, "%s\t%d\t%s\t%s\t%[4]s\t%[3]s\t%s\n", gpus[i].UUID, p.PID, p.Name, mib(p.Memory), bus(i))
			}
		}
	}
	return b.String()
}

// instanceProcess is a process, and the MIG instance in which it is.
type instanceProcess struct {
	Process
	gi, ci string
}

// allProcesses returns the processes of a device and of its MIG instances.
func (g *GPU) allProcesses() []instanceProcess {
	var all []instanceProcess
	for _, p := range g.Processes {
		all = append(all, instanceProcess{p, "N/A", "N/A"})
	}
	for j, instance := range g.Instances {
		for _, p := range instance.Processes {
			all = append(all, instanceProcess{p, strconv.Itoa(j + 1), "0"})
		}
	}
	return all
}

func (p *instanceProcess) kind() string {
	if p.Graphics {
		return "G"
	}
	return "C"
}
