// Package machine draws the probed facts of a machine for people.
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
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/policy"
	"github.com/muster-dev/muster/internal/workerd"
)

// Draw draws facts and kinds in groups with titles, without empty groups. wide adds values that are too long for most screens.
func Draw(a *app.App, f *probe.Facts, kinds *workerd.KindOffer, wide bool) error {
	d := renderer{app: a, f: f, kinds: kinds, wide: wide}
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
		{"TASK LIMITS", d.limits},
		{"OFFER", d.offer},
	} {
		if err := group.draw(group.title); err != nil {
			return err
		}
	}
	return nil
}

type renderer struct {
	app     *app.App
	f       *probe.Facts
	kinds   *workerd.KindOffer
	wide    bool
	started bool // a group was drawn
}

// heading writes the title of a group.
func (d *renderer) heading(title string) error {
	gap := ""
	if d.started {
		gap = "\n"
	}
	d.started = true
	return app.WriteOutput(d.app.Out, []byte(gap+d.app.Out.Paint(term.Bold, title)+"\n"))
}

// probeTime formats the time that probing a fact took.
func (d *renderer) probeTime(name string) string {
	t, ok := d.f.Took[name]
	if !ok {
		return ""
	}
	return term.FormatDuration(time.Duration(float64(t) * float64(time.Second)))
}

// addWrapped adds a text on several lines.
func (d *renderer) addWrapped(f *app.Details, name, text string) {
	const nameWidth = 16 // maximum width of the names
	for _, line := range term.Wrap(strings.Fields(text), d.app.Out.Width-nameWidth) {
		f.Add(name, line)
		name = ""
	}
}

// details draws names and values as a group.
func (d *renderer) details(title string, f *app.Details) error {
	if err := d.heading(title); err != nil {
		return err
	}
	return f.Draw()
}

// table draws rows as a group.
func (d *renderer) table(title string, rows [][]string, columns ...term.Column) error {
	if len(rows) == 0 {
		return nil
	}
	if err := d.heading(title); err != nil {
		return err
	}
	t := term.NewTable(columns...)
	for _, row := range rows {
		t.AddRow(row...)
	}
	return t.Draw(d.app.Out)
}

func (d *renderer) machine(title string) error {
	f := app.Details{App: d.app}
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
		system += ", virtualized by " + s.Virtual
	}
	d.addWrapped(&f, "system", system)
	f.Add("processor", c.Model)
	f.Add("cores", cores(c))
	d.addWrapped(&f, "features", strings.Join(c.Features, " "))
	if len(c.Load) == 3 {
		d.addWrapped(&f, "load", fmt.Sprintf("%g, %g, %g (average of 1, 5 and 15 minutes)", c.Load[0], c.Load[1], c.Load[2]))
	}
	memory := fmt.Sprintf("%s, %s available", m.Total, m.Available)
	if m.Usable < m.Total {
		memory += fmt.Sprintf(", limited to %s", m.Usable)
	}
	if m.SwapTotal > 0 {
		memory += fmt.Sprintf("; swap %s, %s free", m.SwapTotal, m.SwapFree)
	}
	d.addWrapped(&f, "memory", memory)
	return d.details(title, &f)
}

func cores(c *probe.CPU) string {
	parts := []string{}
	for _, part := range []struct {
		n    int
		name string
	}{{c.Cores, "core"}, {c.Threads, "thread"}, {c.Sockets, "socket"}} {
		if part.n > 0 {
			parts = append(parts, term.Plural(part.n, part.name))
		}
	}
	s := strings.Join(parts, ", ")
	if c.Threads > 0 && c.Count < float64(c.Threads) {
		s += fmt.Sprintf("; limited to %g", c.Count)
	}
	return s
}

func (d *renderer) disks(title string) error {
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
	return d.table(title, rows, term.Column{Title: "PATH"}, term.Column{Title: "FREE", AlignRight: true, NoTruncate: true}, term.Column{Title: "TOTAL", AlignRight: true, NoTruncate: true},
		term.Column{Title: "TYPE"}, term.Column{Title: "KIND"}, term.Column{Title: "DEVICE"}, term.Column{Title: "NOTE"})
}

func (d *renderer) network(title string) error {
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
	if maxRate := d.f.Network.Bandwidth; maxRate > 0 {
		title += fmt.Sprintf(" (transfers limited to %s/s)", maxRate)
	}
	return d.table(title, rows, term.Column{Title: "NAME"}, term.Column{Title: "STATE"}, term.Column{Title: "SPEED", AlignRight: true},
		term.Column{Title: "MTU", AlignRight: true}, term.Column{Title: "ADDRESSES"})
}

// speed formats bits per second.
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

func (d *renderer) gpus(title string) error {
	var rows [][]string
	for i := range d.f.GPUs {
		rows = append(rows, gpuRow(&d.f.GPUs[i]))
	}
	if elapsed := d.probeTime("gpus"); elapsed != "" {
		title += " (probed in " + elapsed + ")"
	}
	if len(rows) == 0 {
		f := app.Details{App: d.app}
		f.Add("none", "accessible to this user")
		return d.details(title, &f)
	}
	return d.table(title, rows, term.Column{Title: "#", AlignRight: true, NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "MEMORY", AlignRight: true, NoTruncate: true},
		term.Column{Title: "BUSY", AlignRight: true, NoTruncate: true}, term.Column{Title: "TEMP", AlignRight: true, NoTruncate: true}, term.Column{Title: "POWER", AlignRight: true},
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
		busy = term.FormatPercent(*r.Utilization)
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

func (d *renderer) engines(title string) error {
	var rows [][]string
	for _, e := range d.f.Engines {
		var notes []string
		if e.Rootless {
			notes = append(notes, "rootless")
		}
		if !e.RunsTasks(d.f.System.OS) {
			note := "not for tasks: its API does not listen"
			if e.Name == "podman" {
				note += "; start podman.socket"
			}
			notes = append(notes, note)
		}
		rows = append(rows, []string{e.Name, e.Version, strings.Join(e.GPUs, " "), strings.Join(e.Runtimes, " "), e.Socket + e.Tool, strings.Join(notes, ", ")})
	}
	return d.table(title, rows, term.Column{Title: "ENGINE"}, term.Column{Title: "VERSION"}, term.Column{Title: "GPU SUPPORT"},
		term.Column{Title: "RUNTIMES"}, term.Column{Title: "AT"}, term.Column{Title: "NOTE"})
}

func (d *renderer) python(title string) error {
	var rows [][]string
	for i := range d.f.Python {
		p := &d.f.Python[i]
		var packages []string
		for _, name := range slices.Sorted(maps.Keys(p.Packages)) {
			entry := name + " " + p.Packages[name]
			if name == "torch" && p.Torch != "" {
				entry += " (" + p.Torch + ")"
			}
			packages = append(packages, entry)
		}
		mark := ""
		if p.Default {
			mark = "python3"
		}
		rows = append(rows, []string{p.Version, mark, p.Source, p.Path, strings.Join(packages, ", ")})
	}
	if u := d.f.UV; u != nil {
		rows = append(rows, []string{u.Version, "uv", "", u.Path, "builds environments"})
	}
	return d.table(title, rows, term.Column{Title: "VERSION", NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "OF"}, term.Column{Title: "PATH"}, term.Column{Title: "HAS"})
}

func (d *renderer) models(title string) error {
	var rows [][]string
	for _, m := range d.f.Models {
		size := m.Size.String()
		if m.Partial {
			size = "over " + size
		}
		rows = append(rows, []string{m.Library, strconv.Itoa(len(m.Models)), size, m.Path, d.firstNames(m.Models)})
	}
	return d.table(title, rows, term.Column{Title: "OF", NoTruncate: true}, term.Column{Title: "MODELS", AlignRight: true, NoTruncate: true}, term.Column{Title: "SIZE", AlignRight: true, NoTruncate: true},
		term.Column{Title: "PATH"}, term.Column{Title: "NAMES"})
}

// firstNames joins the first names, or all if wide.
func (d *renderer) firstNames(names []string) string {
	const maxNames = 5
	if d.wide || len(names) <= maxNames {
		return strings.Join(names, " ")
	}
	return strings.Join(names[:maxNames], " ") + " …"
}

func (d *renderer) limits(title string) error {
	l := d.f.Limits
	if l == nil {
		return nil
	}
	f := app.Details{App: d.app}
	texts := map[string]string{
		isolation.ByKernel: "enforced by the kernel", isolation.ByRlimit: "enforced by the kernel, for all processes of a user together",
		isolation.ByWatch: "monitored; a task above it is killed", isolation.ByNothing: "not enforced",
	}
	for _, limit := range []struct {
		name string
		by   isolation.Enforcement
	}{
		{"cpus", l.CPUs}, {"memory", l.Memory}, {"pids", l.PIDs}, {"disk", l.Disk}, {"files", l.Files}, {"signals", l.Signals},
		{"devices", l.Devices}, {"processes", l.Processes}, {"shared memory", l.IPC}, {"network: none", l.NoNetwork}, {"system calls", l.Syscalls},
	} {
		text := texts[limit.by.By]
		if limit.by.Why != "" {
			text += ": " + limit.by.Why
		}
		d.addWrapped(&f, limit.name, text)
	}
	for _, e := range d.f.Engines {
		if e.Users != nil {
			d.addWrapped(&f, "root in containers", e.Name+": "+describeUsers(e.Users))
		}
	}
	f.Add("control groups", strings.TrimSpace(l.Cgroups+" "+strings.Join(l.Controllers, " ")))
	if l.Landlock > 0 {
		f.Add("landlock", "version "+strconv.Itoa(l.Landlock))
	}
	user := l.User
	if user == isolation.DynamicUser {
		user = "a separate user each"
	}
	f.Add("tasks run as", user)
	return d.details(title, &f)
}

// describeUsers says who root in an engine's containers is outside.
func describeUsers(u *probe.Users) string {
	switch u.Of {
	case userns.Own:
		return "each container has a user namespace of its own"
	case userns.Shared:
		return u.Why
	default:
		return "root of the machine: " + u.Why
	}
}

func (d *renderer) offer(title string) error {
	f := app.Details{App: d.app}
	r := &d.f.Resources
	d.addWrapped(&f, "offers", fmt.Sprintf("%g cpus, %d slots, %s memory, %s disk, %d gpus", r.CPUs, r.Slots, r.Memory, r.Disk, len(r.GPUs)))
	if r.MaxTasks > 0 {
		d.addWrapped(&f, "max tasks", strconv.Itoa(r.MaxTasks)+" at once")
	}
	d.addWrapped(&f, "tags", strings.Join(d.f.Tags, " "))
	d.addWrapped(&f, "kinds", cmp.Or(strings.Join(d.kinds.Offered, " "), policy.NoneKeyword))
	for _, w := range d.kinds.Withheld {
		text := w.Reason
		if len(w.Kinds) > 0 {
			text = strings.Join(w.Kinds, ", ") + ": " + text
		}
		d.addWrapped(&f, "not offered", text)
	}
	if d.f.Kinds != nil {
		d.addWrapped(&f, "allowed", "kinds: "+cmp.Or(strings.Join(d.f.Kinds, ", "), policy.NoneKeyword))
	}
	for _, w := range policy.Rules(d.f.Allow) {
		d.addWrapped(&f, "allowed", w.Subject+": "+w.Allowed)
	}
	for _, note := range d.f.Notes {
		d.addWrapped(&f, "note", note)
	}
	return d.details(title, &f)
}
