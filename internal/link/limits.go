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

	maxText        = 256      // bytes of a name, a tag, a kind, a label, and of what a GPU is called
	maxListLen     = 512      // tags, kinds and labels, of each
	maxDescription = 64 << 10 // bytes of all that, with what its owner allows, as JSON: each answer that lists workers has it
	maxDepth       = 100      // of own_kinds
	maxPrice       = 1e6      // per hour
	maxCPUs        = 1 << 20
	maxSlots       = 1 << 20
	maxBytes       = 1 << 60
	maxUsageValue  = 1e15     // of a usage
	maxArtifacts   = 100_000  // of a report
	maxReason      = 16 << 10 // bytes of why a worker takes nothing, or of a pattern of what its owner allows
)

// checkText refuses what is too long, and control characters, by which a terminal can be led.
func checkText(s string, limit int) error {
	switch {
	case len(s) > limit:
		return fieldErrorf("has %d bytes: the most is %d", len(s), limit)
	case !utf8.ValidString(s):
		return fieldErrorf("is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return fieldErrorf("is %.80q: control characters are not allowed", s)
	}
	return nil
}

// checkSentence refuses a sentence that is too long. It may come from a tool, with whatever is in it.
func checkSentence(s string) error {
	if len(s) > maxReason {
		return fieldErrorf("has %d bytes: the most is %d", len(s), maxReason)
	}
	return nil
}

// checkTexts checks a list of texts.
func checkTexts(field string, list []string, limit int) error {
	if len(list) > maxListLen {
		return inField(field, fieldErrorf("are %d: the most is %d", len(list), maxListLen))
	}
	return inField(field, checkEach(list, func(s *string) error { return checkText(*s, limit) }))
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxListLen {
		return inField("labels", fieldErrorf("are %d: the most is %d", len(labels), maxListLen))
	}
	for name, value := range labels {
		if err := checkText(name, maxText); err != nil {
			return inField("labels", err)
		}
		if err := checkText(value, maxText); err != nil {
			return inField("labels", inField(name, err))
		}
	}
	return nil
}

func checkGPUs(list []muster.GPU) error {
	return inField("gpus", checkEach(list, func(g *muster.GPU) error {
		for name, s := range map[string]string{"uuid": g.UUID, "vendor": g.Vendor, "name": g.Name, "mig": g.MIG, "parent": g.Parent} {
			if err := checkText(s, maxText); err != nil {
				return inField(name, err)
			}
		}
		return inField("quarantined", checkSentence(g.Quarantined))
	}))
}

func checkAllow(allow *muster.Allow) error {
	if allow == nil {
		return nil
	}
	for field, list := range map[string][]string{"images": allow.Images, "users": allow.Users, "mounts": allow.Mounts, "env": allow.Env} {
		for _, s := range list {
			if err := checkSentence(s); err != nil {
				return inField("allow", inField(field, err))
			}
		}
	}
	return nil
}

// checkTotalSize refuses parts that take more than maxDescription as JSON, which is how the API lists them: empty elements and
// escaped characters count, too.
func checkTotalSize(desc string, parts ...any) error {
	size := 0
	for _, part := range parts {
		b, err := json.Marshal(part)
		if err != nil {
			return fieldErrorf("is no JSON: %v", err)
		}
		size += len(b)
	}
	if size > maxDescription {
		return fieldErrorf("has %d bytes of %s: the most is %d", size, desc, maxDescription)
	}
	return nil
}

// checkHelloLimits checks how much a worker says of itself.
func checkHelloLimits(h *Hello) error {
	for _, f := range []struct{ name, s string }{{"worker", string(h.Worker)}, {"name", h.Name}, {"build", h.Build}} {
		if err := inField(f.name, checkText(f.s, maxText)); err != nil {
			return err
		}
	}
	if h.Price > maxPrice {
		return inField("price", fieldErrorf("is %g: the most is %g", h.Price, maxPrice))
	}
	if err := inField("constrained", checkSentence(h.Constrained)); err != nil {
		return err
	}
	if err := checkLabels(h.Labels); err != nil {
		return err
	}
	return checkMachineLimits(&machine{h.Tags, h.Kinds, h.Lacks, h.Projects}, h.Labels, &h.Resources, h.Allow)
}

// checkOfferLimits does the same with what replaces a part of it. labels are those of the hello, which an offer does not replace.
func checkOfferLimits(o *Offer, labels map[string]string) error {
	return checkMachineLimits(&machine{o.Tags, o.Kinds, o.Lacks, o.Projects}, labels, &o.Resources, o.Allow)
}

// machine is the lists of texts that a worker says of itself.
type machine struct{ tags, kinds, lacks, projects []string }

func checkMachineLimits(m *machine, labels map[string]string, r *muster.Resources, allow *muster.Allow) error {
	if err := checkTexts("tags", m.tags, maxText); err != nil {
		return err
	}
	if err := checkTexts("kinds", m.kinds, maxText); err != nil {
		return err
	}
	if err := inField("lacks", checkLacks(m.lacks)); err != nil {
		return err
	}
	if err := checkTexts("projects", m.projects, muster.MaxNameSize); err != nil {
		return err
	}
	if err := checkGPUs(r.GPUs); err != nil {
		return inField("resources", err)
	}
	if err := checkAllow(allow); err != nil {
		return err
	}
	switch {
	case r.CPUs > maxCPUs:
		return inField("resources", inField("cpus", fieldErrorf("is %g: the most is %d", r.CPUs, maxCPUs)))
	case r.Slots > maxSlots:
		return inField("resources", inField("slots", fieldErrorf("is %d: the most is %d", r.Slots, maxSlots)))
	case r.MaxTasks > maxSlots:
		return inField("resources", inField("max_tasks", fieldErrorf("is %d: the most is %d", r.MaxTasks, maxSlots)))
	case r.Memory > maxBytes || r.Disk > maxBytes:
		return inField("resources", fieldErrorf("has more than %s of memory or disk", muster.Size(maxBytes)))
	}
	parts := []any{m.tags, m.kinds, labels, r.GPUs, allow}
	if m.projects != nil {
		parts = append(parts, m.projects)
	}
	return checkTotalSize("tags, labels, kinds, projects, GPUs and what is allowed", parts...)
}

// checkLacks refuses features that nobody knows: a task that uses one would be placed all the same.
func checkLacks(list []string) error {
	if limit := len(muster.SpecFeatures) + len(muster.RunFeatures); len(list) > limit {
		return fieldErrorf("are %d: the most is %d", len(list), limit)
	}
	return checkEach(list, func(s *string) error {
		if !slices.Contains(muster.SpecFeatures, *s) && !slices.Contains(muster.RunFeatures, *s) {
			return fieldErrorf("is %.80q, which is not a feature", *s)
		}
		return nil
	})
}

// checkLoad checks what a worker says of the load of its machine.
func checkLoad(l *muster.Load) error {
	if err := inField("cpu", checkAmount(l.CPU)); err != nil {
		return err
	}
	if err := inField("memory", checkMin(int64(l.Memory), 0)); err != nil {
		return err
	}
	if d := l.Disk; d != nil {
		if err := inField("disk.free", checkMin(int64(d.Free), 0)); err != nil {
			return err
		}
		if err := inField("disk.total", checkMin(int64(d.Total), 0)); err != nil {
			return err
		}
	}
	if err := inField("gpus", checkDevices(l.GPUs, func(g *muster.GPULoad) (string, error) {
		if err := inField("uuid", checkText(g.UUID, maxText)); err != nil {
			return g.UUID, err
		}
		if g.Utilization != nil {
			if err := inField("utilization", checkAmount(*g.Utilization)); err != nil {
				return g.UUID, err
			}
		}
		if g.Memory != nil {
			if err := inField("memory", checkMin(int64(*g.Memory), 0)); err != nil {
				return g.UUID, err
			}
		}
		if g.Temperature != nil {
			if err := inField("temperature", checkFinite(*g.Temperature)); err != nil {
				return g.UUID, err
			}
		}
		if g.Power != nil {
			if err := inField("power", checkAmount(*g.Power)); err != nil {
				return g.UUID, err
			}
		}
		if g.Latency != nil {
			return g.UUID, inField("latency", checkAmount(*g.Latency))
		}
		return g.UUID, nil
	})); err != nil {
		return err
	}
	return checkTotalSize("readings", l.GPUs)
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
		return fieldErrorf("are %d: the most is %d", len(list), maxArtifacts)
	}
	seen := make(map[string]bool, len(list))
	return checkEach(list, func(a *muster.Artifact) error {
		if err := checkText(a.Name, maxName); err != nil {
			return inField("name", err)
		}
		switch {
		case a.Name == "":
			return inField("name", fieldErrorf("is missing"))
		case !fs.ValidPath(a.Name) || a.Name == ".":
			return inField("name", fieldErrorf("is %q: it must be a path inside a folder", a.Name))
		case seen[a.Name]:
			return inField("name", fieldErrorf("is %q, as of one before", a.Name))
		}
		seen[a.Name] = true
		return checkArtifact(a)
	})
}
