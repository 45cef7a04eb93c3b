package link

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// The bounds of what a worker says of itself and of its attempts. They are far above what honest workers say.
const (
	MaxStep    = 4 << 10 // bytes of Progress.Step
	MaxMetrics = 1_000   // of one Progress

	maxText      = 256      // bytes of a name, a tag, a kind, a label, and of what a GPU is called
	maxTexts     = 512      // tags, kinds and labels, of each
	maxAbout     = 64 << 10 // bytes of all that, with what its owner allows, as JSON: each answer that lists workers has it
	maxDepth     = 100      // of own_kinds
	maxPrice     = 1e6      // per hour
	maxCPUs      = 1 << 20
	maxSlots     = 1 << 20
	maxBytes     = 1 << 60
	maxFigure    = 1e15     // of a usage
	maxArtifacts = 100_000  // of a report
	maxReason    = 16 << 10 // bytes of why a worker takes nothing, or of a pattern of what its owner allows
)

// text refuses what is too long, and control characters, by which a terminal can be led.
func text(s string, most int) error {
	switch {
	case len(s) > most:
		return wrong("has %d bytes: the most is %d", len(s), most)
	case !utf8.ValidString(s):
		return wrong("is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return wrong("is %.80q: control characters are not allowed", s)
	}
	return nil
}

// reason refuses a sentence that is too long. It may come from a tool, with whatever is in it.
func reason(s string) error {
	if len(s) > maxReason {
		return wrong("has %d bytes: the most is %d", len(s), maxReason)
	}
	return nil
}

// texts checks a list of texts.
func texts(field string, list []string, most int) error {
	if len(list) > maxTexts {
		return within(field, wrong("are %d: the most is %d", len(list), maxTexts))
	}
	return within(field, each(list, func(s *string) error { return text(*s, most) }))
}

func boundLabels(labels map[string]string) error {
	if len(labels) > maxTexts {
		return within("labels", wrong("are %d: the most is %d", len(labels), maxTexts))
	}
	for name, value := range labels {
		if err := text(name, maxText); err != nil {
			return within("labels", err)
		}
		if err := text(value, maxText); err != nil {
			return within("labels", within(name, err))
		}
	}
	return nil
}

func boundGPUs(list []muster.GPU) error {
	return within("gpus", each(list, func(g *muster.GPU) error {
		for name, s := range map[string]string{"uuid": g.UUID, "vendor": g.Vendor, "name": g.Name, "mig": g.MIG, "parent": g.Parent} {
			if err := text(s, maxText); err != nil {
				return within(name, err)
			}
		}
		return within("quarantined", reason(g.Quarantined))
	}))
}

func boundAllow(allow *muster.Allow) error {
	if allow == nil {
		return nil
	}
	for field, list := range map[string][]string{"images": allow.Images, "users": allow.Users, "mounts": allow.Mounts, "env": allow.Env} {
		for _, s := range list {
			if err := reason(s); err != nil {
				return within("allow", within(field, err))
			}
		}
	}
	return nil
}

// together refuses parts that take more than maxAbout as JSON, which is how the API lists them: empty elements and
// escaped characters count, too.
func together(what string, parts ...any) error {
	size := 0
	for _, part := range parts {
		b, err := json.Marshal(part)
		if err != nil {
			return wrong("is no JSON: %v", err)
		}
		size += len(b)
	}
	if size > maxAbout {
		return wrong("has %d bytes of %s: the most is %d", size, what, maxAbout)
	}
	return nil
}

// boundHello checks how much a worker says of itself.
func boundHello(h *Hello) error {
	for _, f := range []struct{ name, s string }{{"worker", string(h.Worker)}, {"name", h.Name}, {"build", h.Build}} {
		if err := within(f.name, text(f.s, maxText)); err != nil {
			return err
		}
	}
	if h.Price > maxPrice {
		return within("price", wrong("is %g: the most is %g", h.Price, maxPrice))
	}
	if err := within("constrained", reason(h.Constrained)); err != nil {
		return err
	}
	if err := boundLabels(h.Labels); err != nil {
		return err
	}
	return boundMachine(&machine{h.Tags, h.Kinds, h.Lacks, h.Projects}, h.Labels, &h.Resources, h.Allow)
}

// boundOffer does the same with what replaces a part of it. labels are those of the hello, which an offer does not replace.
func boundOffer(o *Offer, labels map[string]string) error {
	return boundMachine(&machine{o.Tags, o.Kinds, o.Lacks, o.Projects}, labels, &o.Resources, o.Allow)
}

// machine is the lists of texts that a worker says of itself.
type machine struct{ tags, kinds, lacks, projects []string }

func boundMachine(m *machine, labels map[string]string, r *muster.Resources, allow *muster.Allow) error {
	if err := texts("tags", m.tags, maxText); err != nil {
		return err
	}
	if err := texts("kinds", m.kinds, maxText); err != nil {
		return err
	}
	if err := within("lacks", checkLacks(m.lacks)); err != nil {
		return err
	}
	if err := texts("projects", m.projects, muster.MaxNameSize); err != nil {
		return err
	}
	if err := boundGPUs(r.GPUs); err != nil {
		return within("resources", err)
	}
	if err := boundAllow(allow); err != nil {
		return err
	}
	switch {
	case r.CPUs > maxCPUs:
		return within("resources", within("cpus", wrong("is %g: the most is %d", r.CPUs, maxCPUs)))
	case r.Slots > maxSlots:
		return within("resources", within("slots", wrong("is %d: the most is %d", r.Slots, maxSlots)))
	case r.MaxTasks > maxSlots:
		return within("resources", within("max_tasks", wrong("is %d: the most is %d", r.MaxTasks, maxSlots)))
	case r.Memory > maxBytes || r.Disk > maxBytes:
		return within("resources", wrong("has more than %s of memory or disk", muster.Size(maxBytes)))
	}
	parts := []any{m.tags, m.kinds, labels, r.GPUs, allow}
	if m.projects != nil {
		parts = append(parts, m.projects)
	}
	return together("tags, labels, kinds, projects, GPUs and what is allowed", parts...)
}

// checkLacks refuses features that nobody knows: a task that uses one would be placed all the same.
func checkLacks(list []string) error {
	if most := len(muster.SpecFeatures) + len(muster.RunFeatures); len(list) > most {
		return wrong("are %d: the most is %d", len(list), most)
	}
	return each(list, func(s *string) error {
		if !slices.Contains(muster.SpecFeatures, *s) && !slices.Contains(muster.RunFeatures, *s) {
			return wrong("is %.80q, which is not a feature", *s)
		}
		return nil
	})
}

// checkLoad checks what a worker says of the load of its machine.
func checkLoad(l *muster.Load) error {
	if err := within("cpu", amount(l.CPU)); err != nil {
		return err
	}
	if err := within("memory", atLeast(int64(l.Memory), 0)); err != nil {
		return err
	}
	if d := l.Disk; d != nil {
		if err := within("disk.free", atLeast(int64(d.Free), 0)); err != nil {
			return err
		}
		if err := within("disk.total", atLeast(int64(d.Total), 0)); err != nil {
			return err
		}
	}
	if err := within("gpus", devices(l.GPUs, func(g *muster.GPULoad) (string, error) {
		if err := within("uuid", text(g.UUID, maxText)); err != nil {
			return g.UUID, err
		}
		if g.Utilization != nil {
			if err := within("utilization", amount(*g.Utilization)); err != nil {
				return g.UUID, err
			}
		}
		if g.Memory != nil {
			if err := within("memory", atLeast(int64(*g.Memory), 0)); err != nil {
				return g.UUID, err
			}
		}
		if g.Temperature != nil {
			if err := within("temperature", finite(*g.Temperature)); err != nil {
				return g.UUID, err
			}
		}
		if g.Power != nil {
			if err := within("power", amount(*g.Power)); err != nil {
				return g.UUID, err
			}
		}
		if g.Latency != nil {
			return g.UUID, within("latency", amount(*g.Latency))
		}
		return g.UUID, nil
	})); err != nil {
		return err
	}
	return together("readings", l.GPUs)
}

// depthOf returns how deep lists and objects lie in valid JSON.
func depthOf(raw []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// checkArtifacts checks the artifacts of a report: each name is a path inside a folder, and none is there twice.
func checkArtifacts(list []muster.Artifact) error {
	if len(list) > maxArtifacts {
		return wrong("are %d: the most is %d", len(list), maxArtifacts)
	}
	seen := make(map[string]bool, len(list))
	return each(list, func(a *muster.Artifact) error {
		if err := text(a.Name, maxName); err != nil {
			return within("name", err)
		}
		switch {
		case a.Name == "":
			return within("name", wrong("is missing"))
		case !fs.ValidPath(a.Name) || a.Name == ".":
			return within("name", wrong("is %q: it must be a path inside a folder", a.Name))
		case seen[a.Name]:
			return within("name", wrong("is %q, as of one before", a.Name))
		}
		seen[a.Name] = true
		return checkArtifact(a)
	})
}
