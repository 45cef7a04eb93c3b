package qubix

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/kind"
)

// flavour is which program a worker is. It is seen in what it sends.
type flavour string

const (
	unknown  flavour = ""         // registered, and silent so far
	simple   flavour = "simple"   // computes nothing that was asked for
	enhanced flavour = "enhanced" // runs scripts and trains on MNIST
	browser  flavour = "browser"  // joined by quick-register
	bridged  flavour = "muster"   // a bridge of Muster, which said what it runs
)

// The labels of a worker. They keep what the protocol tells of it over restarts of the server.
const (
	labelFlavour  = "qubix.worker"
	labelAddress  = "qubix.address"
	labelPower    = "qubix.compute_power"
	labelHost     = "hostname"
	labelOS       = "os"
	labelCPU      = "cpu"
	labelGPU      = "qubix.gpu" // as registered; whether it is offered is another matter
	labelVRAM     = "qubix.gpu_vram_gb"
	labelLocation = "location"
	labelKinds    = "qubix.kinds" // of a bridge, joined by +
	labelSeen     = "qubix.gpu_seen"
	labelType     = "qubix.type" // of quick-register: browser or native
)

// The GPU that QUBIX's workers claim to have where nvidia-smi is missing or was not understood.
const (
	inventedGPU  = "NVIDIA GeForce MX150"
	inventedVRAM = 4.0
)

const (
	lowestVRAM = 1.0 / 1024
	mostSlots  = 1000 // of a bridge
)

// MaxPrice is the most that a worker may ask per hour.
const maxPrice = 1e6

// lacks is what no QUBIX worker can carry out, and cannot do while it runs a task.
var lacks = []string{
	muster.FeatureFiles, muster.FeatureInputs, muster.FeatureOutputs, muster.FeatureEnv, muster.FeatureArgs, muster.FeatureShell, muster.FeatureCommand,
	muster.FeaturePython, muster.FeatureRequirements, muster.FeatureInterpreter, muster.FeatureContainer, muster.FeatureGang, muster.FeatureLauncher,
	muster.FeatureNetwork, muster.FeatureElement, muster.FeatureCancel, muster.FeatureLogs, muster.FeatureArtifacts,
}

// lacksBridged is the same of a bridge of Muster: it passes on what a stage says, but no files, sends what was printed, and stops a job
// once the answer to a report says that it was cancelled.
var lacksBridged = []string{
	muster.FeatureFiles, muster.FeatureInputs, muster.FeatureOutputs, muster.FeatureRequirements, muster.FeatureGang, muster.FeatureLauncher,
	muster.FeatureElement, muster.FeatureArtifacts,
}

// factsOf makes a worker of a registration. It accepts whatever a worker says of its machine: what cannot be is left out.
func factsOf(r *registration, remote netip.Addr, key string, defaults float64) fleet.Facts {
	id := r.id()
	price := defaults
	if r.PricePerHour != nil {
		price = bounded(*r.PricePerHour, maxPrice)
	}
	f := fleet.Facts{
		ID: id, Name: nameOf(or(r.Name, "Provider-"+clean(id, 8))), Price: price, Remote: remote, Key: key,
		Labels: map[string]string{}, Lacks: slices.Clone(lacks),
		Resources: muster.Resources{
			CPUs: bounded(r.Specs.CPUCores, 4096), Memory: gigabytes(r.Specs.RAMTotal), Disk: gigabytes(r.Specs.StorageFree), Slots: 1, MaxTasks: 1,
		},
	}
	for name, value := range map[string]string{
		labelAddress: r.Address, labelHost: r.Specs.Hostname, labelOS: r.Specs.OS, labelCPU: r.Specs.CPUModel, labelLocation: r.Location,
		labelPower: number(bounded(r.ComputePower, 1e9)),
	} {
		if value = clean(value, maxText); value != "" {
			f.Labels[name] = value
		}
	}
	if r.Specs.GPUAvailable && strings.TrimSpace(r.Specs.GPUModel) != "" {
		f.Labels[labelGPU] = clean(r.Specs.GPUModel, maxText)
		f.Labels[labelVRAM] = number(bounded(r.Specs.GPUVRAM, 1e5))
	}
	if kinds := known(r.Specs.Kinds); len(kinds) > 0 && strings.HasPrefix(r.Specs.Software, "muster") {
		f.Labels[labelFlavour], f.Labels[labelKinds] = string(bridged), strings.Join(kinds, "+")
		f.Version = clean(r.Specs.Software, maxText)
		f.Lacks = slices.Clone(lacksBridged)
		f.Resources.Slots = min(max(r.Specs.Slots, 1), mostSlots)
		f.Resources.MaxTasks = f.Resources.Slots
	}
	return f
}

// nameOf makes a name of a worker of what it calls itself.
func nameOf(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '/' || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, clean(s, muster.MaxNameSize))
	return or(strings.TrimSpace(s), "worker")
}

// known keeps the kinds that this server has a meaning for, once each, as many as fit into a label.
func known(names []string) []string {
	var list []string
	size := 0
	for _, name := range names {
		usable := kind.IsEmbedded(name) || slices.Contains([]string{muster.KindNoop, muster.KindProcess, muster.KindScript, muster.KindContainer}, name)
		if usable && !slices.Contains(list, name) && size+len(name) < maxText {
			list = append(list, name)
			size += len(name) + 1
		}
	}
	slices.Sort(list)
	return list
}

// settle says what a worker offers, by what is known of it by now. Images that the enhanced worker makes stay on its machine:
// it is given those tasks only if the operator named their kind among those of the option kinds.
func settle(f fleet.Facts, named []string) fleet.Facts {
	flavours := flavoursOf(f.Labels)
	f.Kinds, f.Tags = nil, nil
	add := func(kinds ...string) {
		for _, k := range kinds {
			if !slices.Contains(f.Kinds, k) {
				f.Kinds = append(f.Kinds, k)
			}
		}
	}
	for _, is := range flavours {
		f.Tags = append(f.Tags, Name+":"+string(is))
		switch is {
		case simple, browser:
			add(kind.Foreign)
		case enhanced:
			add(muster.KindScript, kindMNIST)
			if slices.Contains(named, kindDiffusion) {
				add(kindDiffusion)
			}
		case bridged:
			add(strings.Split(f.Labels[labelKinds], "+")...)
		case unknown:
		}
	}
	if place := slug(f.Labels[labelLocation]); place != "" {
		f.Tags = append(f.Tags, "location:"+place)
	}
	f.Resources.GPUs = nil
	if gpu := gpuOf(f); gpu != nil {
		f.Resources.GPUs = []muster.GPU{*gpu}
	}
	return f
}

// flavoursOf reads which programs were seen under a worker's id.
func flavoursOf(labels map[string]string) []flavour {
	var list []flavour
	for word := range strings.SplitSeq(labels[labelFlavour], "+") {
		if word != "" {
			list = append(list, flavour(word))
		}
	}
	return list
}

// seen notes that a worker is of a flavour. It reports whether that is new.
func seen(f *fleet.Facts, is flavour) bool {
	list := flavoursOf(f.Labels)
	if slices.Contains(list, is) || slices.Contains(list, bridged) {
		return false
	}
	list = append(list, is)
	slices.Sort(list)
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	f.Labels = with(f.Labels, labelFlavour, strings.Join(words, "+"))
	return true
}

// unseen takes back that a worker is of a flavour. It reports whether it was.
func unseen(f *fleet.Facts, is flavour) bool {
	var words []string
	for _, w := range flavoursOf(f.Labels) {
		if w != is {
			words = append(words, string(w))
		}
	}
	was := strings.Join(words, "+") != f.Labels[labelFlavour]
	f.Labels = with(f.Labels, labelFlavour, strings.Join(words, "+"))
	return was
}

// measured notes that a GPU was measured. It reports whether that is new.
func measured(f *fleet.Facts) bool {
	if f.Labels[labelSeen] != "" {
		return false
	}
	f.Labels = with(f.Labels, labelSeen, "true")
	return true
}

func with(labels map[string]string, name, value string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	return labels
}

// gpuOf is the GPU that a worker offers, nil for none: not the one that QUBIX's workers make up, unless it was measured.
func gpuOf(f fleet.Facts) *muster.GPU {
	model := f.Labels[labelGPU]
	vram, err := strconv.ParseFloat(f.Labels[labelVRAM], 64)
	if model == "" || err != nil || vram < lowestVRAM || f.Labels[labelType] == string(browser) {
		return nil
	}
	if model == inventedGPU && vram == inventedVRAM && f.Labels[labelSeen] == "" {
		return nil
	}
	return &muster.GPU{UUID: "qubix-" + f.ID + "-0", Vendor: vendor(model), Name: model, Memory: gigabytes(vram)}
}

func vendor(model string) string {
	low := strings.ToLower(model)
	for _, of := range []struct{ vendor, part string }{{"amd", "amd"}, {"amd", "radeon"}, {"intel", "intel"}, {"apple", "apple"}} {
		if strings.Contains(low, of.part) {
			return of.vendor
		}
	}
	return "nvidia"
}

// slug makes a tag of a place: "US East (Virginia)" is us-east-virginia.
func slug(place string) string {
	words := strings.FieldsFunc(strings.ToLower(place), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return clean(strings.Join(words, "-"), 50)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// quickPrice is what a worker asks per hour that says nothing, by the memory of its GPU in gigabytes: as QUBIX's backend has it.
func quickPrice(vram float64) float64 {
	for _, of := range []struct{ least, price float64 }{{24, 2}, {16, 1.5}, {8, 1}, {4, 0.5}} {
		if vram >= of.least {
			return of.price
		}
	}
	return 0.25
}

// loadOf is what a heartbeat tells of the host. gpus are those that the worker offers.
func loadOf(u *usage, r muster.Resources) *muster.Load {
	load := &muster.Load{}
	if v := first(u.CPU, u.CPUSnake); v != nil {
		load.CPU = bounded(*v, 100) / 100
	}
	if u.RAMUsed != nil {
		load.Memory = gigabytes(*u.RAMUsed)
	} else if v := first(u.RAM, u.RAMSnake); v != nil {
		load.Memory = muster.Size(bounded(*v, 100) / 100 * float64(r.Memory))
	}
	if len(r.GPUs) > 0 {
		l := muster.GPULoad{UUID: r.GPUs[0].UUID, Temperature: u.GPUTemp, Power: watts(u.GPUPower)}
		if v := first(u.GPU, u.GPUSnake); v != nil {
			l.Utilization = share(*v)
		}
		if u.GPUMemUsed != nil {
			m := gigabytes(*u.GPUMemUsed / 1024)
			l.Memory = &m
		}
		load.GPUs = []muster.GPULoad{l}
	}
	return load
}

// gpuLoad is the same of a progress report of the enhanced worker; nil if it has no figures.
func gpuLoad(m *gpuMetrics, r muster.Resources) *muster.Load {
	if len(r.GPUs) == 0 || m.Utilization == nil {
		return nil
	}
	l := muster.GPULoad{UUID: r.GPUs[0].UUID, Utilization: share(*m.Utilization), Temperature: m.Temperature, Power: watts(m.Power)}
	if m.MemoryUsed != nil {
		used := gigabytes(*m.MemoryUsed / 1024)
		l.Memory = &used
	}
	return &muster.Load{GPUs: []muster.GPULoad{l}}
}

func share(percent float64) *float64 {
	v := bounded(percent, 100) / 100
	return &v
}

// watts is a figure of power, nil if it is none: drivers of notebooks tell negative ones.
func watts(v *float64) *float64 {
	if v == nil || bounded(*v, 1e5) != *v {
		return nil
	}
	return v
}

func first(values ...*float64) *float64 {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	return nil
}
