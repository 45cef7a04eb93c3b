// Package machine draws what a worker found out about its machine, for people.
package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/allow"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Draw draws facts in groups, each under its title; groups without anything to tell are left
// out. Wide shows what is too long for most screens.
func Draw(app *frame.App, f *probe.Facts, wide bool) error {
	d := drawing{app: app, f: f, wide: wide}
	for _, group := range []struct {
		title string
		draw  func(title string) error
	}{
		{"MACHINE", d.machine},
		{"DISKS", d.disks},
		{"NETWORK", d.network},
		{"GPUS", d.gpus},
		{"CONTAINERS", d.engines},
		{"PYTHON", d.python},
		{"MODELS", d.models},
		{"LIMITS OF TASKS", d.limits},
		{"OFFER", d.offer},
	} {
		if err := group.draw(group.title); err != nil {
			return err
		}
	}
	return nil
}

type drawing struct {
	app   *frame.App
	f     *probe.Facts
	wide  bool
	later bool // a group was drawn before
}

// heading begins a group.
func (d *drawing) heading(title string) error {
	gap := ""
	if d.later {
		gap = "\n"
	}
	d.later = true
	return frame.Write(d.app.Out, []byte(gap+d.app.Out.Paint(term.Bold, title)+"\n"))
}

// took says how long it took to find a fact out.
func (d *drawing) took(name string) string {
	t, ok := d.f.Took[name]
	if !ok {
		return ""
	}
	return term.Elapsed(time.Duration(float64(t) * float64(time.Second)))
}

// add adds a text of any length, on as many lines as it takes.
func (d *drawing) add(f *frame.Facts, name, text string) {
	const names = 16 // columns that the names take, at most
	for _, line := range wrap(strings.Fields(text), d.app.Out.Width-names) {
		f.Add(name, line)
		name = ""
	}
}

// facts draws a group of names and values.
func (d *drawing) facts(title string, f *frame.Facts) error {
	if err := d.heading(title); err != nil {
		return err
	}
	return f.Draw()
}

// table draws a group of things of one sort.
func (d *drawing) table(title string, rows [][]string, columns ...term.Column) error {
	if len(rows) == 0 {
		return nil
	}
	if err := d.heading(title); err != nil {
		return err
	}
	t := term.NewTable(columns...)
	for _, row := range rows {
		t.Row(row...)
	}
	return t.Draw(d.app.Out)
}

func (d *drawing) machine(title string) error {
	f := frame.Facts{App: d.app}
	s, c, m := &d.f.System, &d.f.CPU, &d.f.Memory
	f.Add("host", d.f.Hostname)
	system := s.OS + " " + s.Arch
	if s.Platform != "" {
		system = s.Platform + ", " + system
	}
	if s.Kernel != "" {
		system += ", kernel " + s.Kernel
	}
	if s.Virtual != "" {
		system += ", a guest of " + s.Virtual
	}
	d.add(&f, "system", system)
	f.Add("processor", c.Model)
	f.Add("cores", cores(c))
	d.add(&f, "features", strings.Join(c.Features, " "))
	if len(c.Load) == 3 {
		d.add(&f, "load", fmt.Sprintf("%g, %g, %g on average of 1, 5 and 15 minutes", c.Load[0], c.Load[1], c.Load[2]))
	}
	memory := fmt.Sprintf("%s, %s available", m.Total, m.Available)
	if m.Usable < m.Total {
		memory += fmt.Sprintf(", limited to %s", m.Usable)
	}
	if m.SwapTotal > 0 {
		memory += fmt.Sprintf("; swap %s, %s free", m.SwapTotal, m.SwapFree)
	}
	d.add(&f, "memory", memory)
	f.Add("accelerators", strings.Join(d.f.Accels, " "))
	return d.facts(title, &f)
}

func cores(c *probe.CPU) string {
	parts := []string{}
	for _, part := range []struct {
		n    int
		name string
	}{{c.Cores, "core"}, {c.Threads, "thread"}, {c.Sockets, "socket"}} {
		if part.n > 0 {
			parts = append(parts, plural(part.n, part.name))
		}
	}
	s := strings.Join(parts, ", ")
	if c.Threads > 0 && c.Count < float64(c.Threads) {
		s += fmt.Sprintf("; limited to %g", c.Count)
	}
	return s
}

func plural(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return fmt.Sprintf("%d %ss", n, name)
}

func (d *drawing) disks(title string) error {
	row := func(k *probe.Disk, note string) []string {
		if k.ReadOnly {
			note = strings.TrimPrefix(note+", read-only", ", ")
		}
		return []string{k.Path, k.Free.String(), k.Total.String(), k.Type, k.Kind, k.Device, note}
	}
	rows := [][]string{row(&d.f.Disk, "the worker's data")}
	for i := range d.f.Disks {
		rows = append(rows, row(&d.f.Disks[i], ""))
	}
	return d.table(title, rows, term.Column{Title: "PATH"}, term.Column{Title: "FREE", Right: true, Whole: true}, term.Column{Title: "TOTAL", Right: true, Whole: true},
		term.Column{Title: "TYPE"}, term.Column{Title: "KIND"}, term.Column{Title: "DEVICE"}, term.Column{Title: "NOTE"})
}

func (d *drawing) network(title string) error {
	var rows [][]string
	for _, i := range d.f.Network.Interfaces {
		state, mtu := "up", ""
		if !i.Up {
			state = "down"
		}
		if i.MTU > 0 {
			mtu = strconv.Itoa(i.MTU)
		}
		rows = append(rows, []string{i.Name, state, speed(i.Speed), mtu, strings.Join(i.Addresses, " ")})
	}
	if most := d.f.Network.Bandwidth; most > 0 {
		title += fmt.Sprintf(" (transfers keep to %s/s)", most)
	}
	return d.table(title, rows, term.Column{Title: "NAME"}, term.Column{Title: "STATE"}, term.Column{Title: "SPEED", Right: true},
		term.Column{Title: "MTU", Right: true}, term.Column{Title: "ADDRESSES"})
}

// speed writes bits a second.
func speed(bits muster.Size) string {
	switch {
	case bits <= 0:
		return ""
	case bits >= 1e9:
		return fmt.Sprintf("%gGbit/s", float64(bits)/1e9)
	default:
		return fmt.Sprintf("%gMbit/s", float64(bits)/1e6)
	}
}

func (d *drawing) gpus(title string) error {
	var rows [][]string
	for i := range d.f.GPUs {
		rows = append(rows, gpuRow(&d.f.GPUs[i]))
	}
	if took := d.took("gpus"); took != "" {
		title += " (found and read in " + took + ")"
	}
	if len(rows) == 0 {
		f := frame.Facts{App: d.app}
		f.Add("none", "that this user may open")
		return d.facts(title, &f)
	}
	return d.table(title, rows, term.Column{Title: "#", Right: true, Whole: true}, term.Column{Title: "NAME"}, term.Column{Title: "MEMORY", Right: true, Whole: true},
		term.Column{Title: "BUSY", Right: true, Whole: true}, term.Column{Title: "TEMP", Right: true, Whole: true}, term.Column{Title: "POWER", Right: true},
		term.Column{Title: "RUNTIME"}, term.Column{Title: "DRIVER"}, term.Column{Title: "UUID"}, term.Column{Title: "NOTE"})
}

func gpuRow(g *gpu.Device) []string {
	r := &g.Reading
	memory, busy, temperature, power := g.Memory.String(), "", "", ""
	if g.Memory == 0 {
		memory = "shared" // with the processor
	}
	if r.Memory != nil {
		memory = r.Memory.String() + "/" + memory
	}
	if r.Utilization != nil {
		busy = term.Percent(*r.Utilization)
	}
	if r.Temperature != nil {
		temperature = fmt.Sprintf("%.0f°C", *r.Temperature)
	}
	if r.Power != nil {
		power = fmt.Sprintf("%.0fW", *r.Power)
		if g.PowerLimit != nil {
			power = fmt.Sprintf("%.0f/%.0fW", *r.Power, *g.PowerLimit)
		}
	}
	notes := slices.Clone(r.Faults)
	if g.MIG != "" {
		notes = append(notes, "MIG "+g.MIG)
	}
	if r.ECC != nil && *r.ECC > 0 {
		notes = append(notes, fmt.Sprintf("%d memory errors", *r.ECC))
	}
	if len(r.Processes) > 0 {
		notes = append(notes, fmt.Sprintf("used by %d", len(r.Processes)))
	}
	return []string{strconv.Itoa(g.Index), g.Name, memory, busy, temperature, power, g.Runtime, g.Driver, g.UUID, strings.Join(notes, ", ")}
}

func (d *drawing) engines(title string) error {
	var rows [][]string
	for _, e := range d.f.Engines {
		note := ""
		if e.Rootless {
			note = "rootless"
		}
		rows = append(rows, []string{e.Name, e.Version, strings.Join(e.GPUs, " "), strings.Join(e.Runtimes, " "), e.Socket + e.Tool, note})
	}
	return d.table(title, rows, term.Column{Title: "ENGINE"}, term.Column{Title: "VERSION"}, term.Column{Title: "HANDS OVER GPUS OF"},
		term.Column{Title: "RUNTIMES"}, term.Column{Title: "AT"}, term.Column{Title: "NOTE"})
}

func (d *drawing) python(title string) error {
	var rows [][]string
	for i := range d.f.Python {
		p := &d.f.Python[i]
		var has []string
		for _, name := range slices.Sorted(maps.Keys(p.Packages)) {
			one := name + " " + p.Packages[name]
			if name == "torch" && p.Torch != "" {
				one += " (" + p.Torch + ")"
			}
			has = append(has, one)
		}
		mark := ""
		if p.Default {
			mark = "python3"
		}
		rows = append(rows, []string{p.Version, mark, p.Source, p.Path, strings.Join(has, ", ")})
	}
	if u := d.f.UV; u != nil {
		rows = append(rows, []string{u.Version, "uv", "", u.Path, "builds environments"})
	}
	return d.table(title, rows, term.Column{Title: "VERSION", Whole: true}, term.Column{Title: "NAME"}, term.Column{Title: "OF"}, term.Column{Title: "PATH"}, term.Column{Title: "HAS"})
}

func (d *drawing) models(title string) error {
	var rows [][]string
	for _, m := range d.f.Models {
		size := m.Size.String()
		if m.Partial {
			size = "over " + size
		}
		rows = append(rows, []string{m.Library, strconv.Itoa(len(m.Models)), size, m.Path, d.some(m.Models)})
	}
	return d.table(title, rows, term.Column{Title: "OF", Whole: true}, term.Column{Title: "MODELS", Right: true, Whole: true}, term.Column{Title: "SIZE", Right: true, Whole: true},
		term.Column{Title: "PATH"}, term.Column{Title: "NAMES"})
}

// some lists the first names, or all of them where there is room.
func (d *drawing) some(names []string) string {
	const most = 5
	if d.wide || len(names) <= most {
		return strings.Join(names, " ")
	}
	return strings.Join(names[:most], " ") + " …"
}

func (d *drawing) limits(title string) error {
	l := d.f.Limits
	if l == nil {
		return nil
	}
	f := frame.Facts{App: d.app}
	way := func(name string, w limit.Enforcement) {
		text := map[string]string{
			limit.ByKernel: "kept by the kernel", limit.ByRlimit: "kept by the kernel for all processes of a user together",
			limit.ByWatch: "watched; a task over it is ended", limit.ByNothing: "not kept",
		}[w.By]
		if w.Why != "" {
			text += ": " + w.Why
		}
		d.add(&f, name, text)
	}
	way("cpus", l.CPUs)
	way("memory", l.Memory)
	way("pids", l.PIDs)
	way("disk", l.Disk)
	way("files", l.Files)
	way("signals", l.Signals)
	way("devices", l.Devices)
	way("processes", l.Processes)
	way("network: none", l.NoNetwork)
	f.Add("control groups", strings.TrimSpace(l.Cgroups+" "+strings.Join(l.Controllers, " ")))
	if l.Landlock > 0 {
		f.Add("landlock", "version "+strconv.Itoa(l.Landlock))
	}
	user := l.User
	if user == limit.DynamicUser {
		user = "a user of its own each"
	}
	f.Add("tasks run as", user)
	return d.facts(title, &f)
}

func (d *drawing) offer(title string) error {
	f := frame.Facts{App: d.app}
	r := &d.f.Resources
	d.add(&f, "offers", fmt.Sprintf("%g cpus, %d slots, %s memory, %s disk, %d gpus", r.CPUs, r.Slots, r.Memory, r.Disk, len(r.GPUs)))
	d.add(&f, "tags", strings.Join(d.f.Tags, " "))
	if d.f.Kinds != nil {
		d.add(&f, "allowed", "kinds: "+cmp.Or(strings.Join(d.f.Kinds, ", "), allow.NoneKeyword))
	}
	for _, w := range allow.Rules(d.f.Allow) {
		d.add(&f, "allowed", w.Subject+": "+w.Allowed)
	}
	for _, note := range d.f.Notes {
		d.add(&f, "note", note)
	}
	return d.facts(title, &f)
}

// wrap puts words on lines of at most width columns; below 1 means no limit.
func wrap(words []string, width int) []string {
	var lines []string
	for _, w := range words {
		if last := len(lines) - 1; last >= 0 && (width < 1 || term.Width(lines[last])+1+term.Width(w) <= width) {
			lines[last] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}
