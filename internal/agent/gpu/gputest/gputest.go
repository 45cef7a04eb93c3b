// Package gputest lets tests have GPUs on machines without: a stand-in for
// nvidia-smi, whose devices a test changes while it runs.
package gputest

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/muster-dev/muster"
)

//go:embed smi.sh
var script string

// outputs has what the tool prints, by the names of the files that script reads. The XML has only what package gpu reads.
//
//go:embed smi.tmpl
var outputs string

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
	s := Install(tb, gpus...)
	_, path, _ := strings.Cut(s.Path(), "=")
	tb.Setenv("PATH", path)
	return s
}

// Install makes a stand-in that knows gpus, for programs that run with Path.
func Install(tb testing.TB, gpus ...GPU) *SMI {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("the stand-in for nvidia-smi is a shell script")
	}
	s := &SMI{t: tb, dir: tb.TempDir()}
	s.Set(gpus...)
	s.write("nvidia-smi", script, 0o700)
	return s
}

// Path is the variable PATH of programs that find the stand-in first.
func (s *SMI) Path() string {
	return "PATH=" + s.dir + string(os.PathListSeparator) + os.Getenv("PATH")
}

// Set changes what devices there are and how they do.
func (s *SMI) Set(gpus ...GPU) {
	s.t.Helper()
	gpus = slices.Clone(gpus)
	for i := range gpus {
		gpus[i].setDefaults(i)
	}
	for _, name := range []string{"gpus", "apps", "list", "pids", "xml"} {
		var b strings.Builder
		if err := templates.ExecuteTemplate(&b, name, gpus); err != nil {
			s.t.Fatal(err)
		}
		s.write(name, b.String(), 0o600)
	}
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
	g.UUID = cmp.Or(g.UUID, fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i))
	g.Name = cmp.Or(g.Name, "NVIDIA A100-SXM4-40GB")
	g.Memory = cmp.Or(g.Memory, 40<<30)
	g.Instances = slices.Clone(g.Instances)
	for j := range g.Instances {
		p := &g.Instances[j]
		p.UUID = cmp.Or(p.UUID, fmt.Sprintf("MIG-%08d-%04d-5000-8000-000000000000", i, j))
		p.Profile = cmp.Or(p.Profile, "1g.5gb")
		p.Memory = cmp.Or(p.Memory, 4864<<20)
	}
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"bus": func(i int) string { return fmt.Sprintf("00000000:%02X:00.0", i+1) },
	"mib": func(s muster.Size) int64 { return int64(s >> 20) },

	"instanceID":  instanceID,
	"reading":     reading,
	"utilization": utilization,
	"temperature": func(g GPU) string { return reading(g, fmt.Sprintf("%.0f", g.Temperature)) },
	"power":       func(g GPU) string { return reading(g, fmt.Sprintf("%.2f", g.Power)) },
	"needsReset":  func(g GPU) bool { return strings.Contains(g.Broken, "reset") },
	"unit":        withUnit,
	"processes":   allProcesses,
}).Parse(outputs))

// reading returns a value, or what is printed of a broken device.
func reading(g GPU, value any) string { return cmp.Or(g.Broken, fmt.Sprint(value)) }

func utilization(g GPU) string {
	if len(g.Instances) > 0 {
		return "[N/A]" // as of a device in MIG mode
	}
	return reading(g, fmt.Sprintf("%.0f", g.Utilization*100))
}

// withUnit returns a reading as in the XML: a value with its unit, or what stands for it without brackets.
func withUnit(unit, value string) string {
	if value = strings.Trim(value, "[]"); unit == "" || value == "" || value[0] < '0' || value[0] > '9' {
		return value
	}
	return value + " " + unit
}

// instanceProcess is a process, and the GPU and compute instance in which it is.
type instanceProcess struct {
	Process
	GI, CI string
}

func instanceID(j int) string { return strconv.Itoa(j + 1) }

// allProcesses returns the processes of a device and of its MIG instances.
func allProcesses(g GPU) []instanceProcess {
	var all []instanceProcess
	for _, p := range g.Processes {
		all = append(all, instanceProcess{p, "N/A", "N/A"})
	}
	for j, instance := range g.Instances {
		for _, p := range instance.Processes {
			all = append(all, instanceProcess{p, instanceID(j), "0"})
		}
	}
	return all
}

// Type returns how the process uses the device, as the tool prints it.
func (p instanceProcess) Type() string {
	if p.Graphics {
		return "G"
	}
	return "C"
}
