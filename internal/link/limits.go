package link

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Limits of what a worker reports about itself and its attempts. They are far above what honest workers send.
const (
	MaxStep = 4 << 10 // bytes of Progress.Step

	maxMetrics     = 1_000    // of one Progress
	maxText        = 256      // bytes of a name, a tag, a kind, a label, a GPU's UUID or model
	maxHost        = 253      // bytes of a host name (RFC 1035)
	maxListLen     = 512      // tags, kinds and labels, of each
	maxDescription = 64 << 10 // bytes of all of these and of the allow lists, as JSON: each response that lists workers has them
	maxDepth       = 100      // levels of own_kinds
	maxResultDepth = 9_000    // levels of a result: package json reads 10,000 of a whole frame
	maxPrice       = 1e6      // per hour
	maxCPUs        = 1 << 20
	maxSlots       = 1 << 20
	maxBytes       = 1 << 60
	maxUsageValue  = 1e15
	maxArtifacts   = 100_000 // of a report
	minHeartbeat   = muster.Duration(time.Millisecond)
	maxHeartbeat   = muster.Duration(24 * time.Hour)
	maxReason      = 16 << 10 // bytes of why a worker takes no tasks, or of a pattern of an allow list
)

// checkText checks the length of a text, and refuses control characters, which could steer a terminal.
func checkText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return checkLength(field, s, limit)
	case !utf8.ValidString(s):
		return inField(field, fieldErrorf("is not UTF-8"))
	case strings.ContainsFunc(s, unicode.IsControl):
		return inField(field, fieldErrorf("is %.80q: control characters are not allowed", s))
	}
	return nil
}

func checkTexts(field string, list []string, limit int) error {
	return cmp.Or(checkCount(field, len(list), maxListLen), checkEach(field, list, func(s *string) error { return checkText("", *s, limit) }))
}

func checkHello(h *Hello) error {
	if h.Worker == "" {
		return inField("worker", fieldErrorf("is missing"))
	}
	return cmp.Or(
		checkText("worker", string(h.Worker), maxText),
		checkText("name", h.Name, maxText),
		checkText("build", h.Build, maxText),
		checkAtMost("price", h.Price, maxPrice),
		checkLength("constrained", h.Constrained, maxReason),
		inField("labels", checkLabels(h.Labels)),
		checkDescription(&h.Offer, h.Labels),
		inField("heartbeat", CheckHeartbeat(h.Heartbeat)),
		inField("address", CheckAddress(h.Address)),
		checkEach("held", h.Held, checkAttempt),
		checkEach("stale", h.Stale, checkAttempt),
	)
}

// CheckHeartbeat returns an error unless a worker may ask for this interval, or d is 0.
func CheckHeartbeat(d muster.Duration) error {
	if d != 0 && (d < MinHeartbeat || d > MaxHeartbeat) {
		return fieldErrorf("is %s: it must be from %s to %s", d, MinHeartbeat, MaxHeartbeat)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if err := checkCount("", len(labels), maxListLen); err != nil {
		return err
	}
	for name, value := range labels {
		if err := cmp.Or(checkText("", name, maxText), checkText(name, value, maxText)); err != nil {
			return err
		}
	}
	return nil
}

// checkDescription checks what a worker reports of its machine, with the labels of its hello.
func checkDescription(o *muster.Offer, labels map[string]string) error {
	err := cmp.Or(
		checkTexts("tags", o.Tags, maxText),
		checkTexts("kinds", o.Kinds, maxText),
		checkFeatures("lacks", o.Lacks),
		checkTexts("projects", o.Projects, muster.MaxNameSize),
		checkOptional("allow", o.Allow, checkAllow),
		inField("resources", checkResources(&o.Resources)),
		inField("own_kinds", checkOwnKinds(o.OwnKinds)),
	)
	if err != nil {
		return err
	}
	parts := []any{o.Tags, o.Kinds, labels, o.Resources.GPUs, o.Allow}
	if o.Projects != nil {
		parts = append(parts, o.Projects)
	}
	return checkTotalSize("tags, labels, kinds, projects, GPUs and allow lists", parts...)
}

// checkTotalSize refuses parts that take more than maxDescription bytes as JSON, which is how the API lists them.
func checkTotalSize(desc string, parts ...any) error {
	size := 0
	for _, part := range parts {
		b, err := json.Marshal(part)
		if err != nil {
			return fieldErrorf("cannot be encoded as JSON: %v", err)
		}
		size += len(b)
	}
	if size > maxDescription {
		return fieldErrorf("has %d bytes of %s: the most is %d", size, desc, maxDescription)
	}
	return nil
}

// checkFeatures refuses unknown features: a task that uses one would be placed all the same.
func checkFeatures(field string, list []string) error {
	return cmp.Or(checkCount(field, len(list), len(muster.SpecFeatures)+len(muster.RunFeatures)), checkEach(field, list, func(s *string) error {
		if !slices.Contains(muster.SpecFeatures, *s) && !slices.Contains(muster.RunFeatures, *s) {
			return fieldErrorf("is %.80q, which is not a feature", *s)
		}
		return nil
	}))
}

func checkAllow(allow *muster.Allow) error {
	for field, list := range map[string][]string{"images": allow.Images, "users": allow.Users, "mounts": allow.Mounts, "env": allow.Env, "secrets": allow.Secrets, "signed_by": allow.SignedBy} {
		for _, s := range list {
			if err := checkLength(field, s, maxReason); err != nil {
				return err
			}
		}
	}
	for field, d := range map[string]muster.Duration{"task_timeout": allow.TaskTimeout, "max_task_timeout": allow.MaxTaskTimeout} {
		if d < 0 || d > muster.MaxTimeout {
			return inField(field, fieldErrorf("is %s: it must be from 0s to %s", d, muster.MaxTimeout))
		}
	}
	return nil
}

// checkOwnKinds checks only that raw is a list of limited size and depth. Its readers check the elements.
func checkOwnKinds(raw json.RawMessage) error {
	switch {
	case len(raw) > MaxOwnKinds:
		return checkLength("", raw, MaxOwnKinds)
	case len(raw) > 0 && raw[0] != '[':
		return fieldErrorf("is not a list")
	case depthOf(raw) > maxDepth:
		return fieldErrorf("is deeper than %d levels", maxDepth)
	}
	return nil
}

func checkResources(r *muster.Resources) error {
	return cmp.Or(
		checkAtMost("cpus", r.CPUs, maxCPUs),
		checkAtMost("memory", int64(r.Memory), maxBytes),
		checkAtMost("disk", int64(r.Disk), maxBytes),
		checkAtMost("slots", r.Slots, maxSlots),
		checkAtMost("max_tasks", r.MaxTasks, maxSlots),
		checkDevices(r.GPUs, func(g *muster.GPU) (string, error) {
			return g.UUID, cmp.Or(
				checkText("vendor", g.Vendor, maxText),
				checkText("name", g.Name, maxText),
				checkText("mig", g.MIG, maxText),
				checkText("parent", g.Parent, maxText),
				checkLength("quarantined", g.Quarantined, maxReason),
				checkNumber("memory", int64(g.Memory)),
			)
		}),
	)
}

func checkLoad(l *muster.Load) error {
	notNegative := func(v *float64) error { return checkNumber("", *v) }
	err := cmp.Or(
		checkNumber("cpu", l.CPU),
		checkNumber("memory", int64(l.Memory)),
		checkOptional("disk", l.Disk, func(d *muster.DiskLoad) error {
			return cmp.Or(checkNumber("free", int64(d.Free)), checkNumber("total", int64(d.Total)))
		}),
		checkDevices(l.GPUs, func(g *muster.GPULoad) (string, error) {
			return g.UUID, cmp.Or(
				checkOptional("utilization", g.Utilization, notNegative),
				checkOptional("memory", g.Memory, func(v *muster.Size) error { return checkNumber("", int64(*v)) }),
				checkOptional("temperature", g.Temperature, func(v *float64) error { return checkFinite("", *v) }),
				checkOptional("power", g.Power, notNegative),
				checkOptional("latency", g.Latency, notNegative),
			)
		}),
	)
	if err != nil {
		return err
	}
	return checkTotalSize("readings", l.GPUs)
}

// checkDevices checks a list with one entry per GPU: not too many, and each with a unique UUID.
func checkDevices[T any](list []T, check func(*T) (uuid string, err error)) error {
	if len(list) > maxGPUs {
		return inField("gpus", fieldErrorf("lists %d devices: the most is %d", len(list), maxGPUs))
	}
	seen := make(map[string]bool, len(list))
	return checkEach("gpus", list, func(g *T) error {
		uuid, err := check(g)
		return cmp.Or(checkText("uuid", uuid, maxText), err, checkUnique("uuid", seen, uuid))
	})
}

// depthOf returns how deep lists and objects are nested in valid JSON.
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
