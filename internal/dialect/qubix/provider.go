package qubix

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/kind"
)

// flavour is the program of a worker, detected by its requests.
type flavour string

const (
	flavourUnknown  flavour = ""         // no heartbeat yet
	flavourSimple   flavour = "simple"   // computes nothing
	flavourEnhanced flavour = "enhanced" // runs scripts and trains on MNIST
	flavourBrowser  flavour = "browser"  // joined by quick-register
	flavourBridge   flavour = "muster"   // a bridge of Muster, which lists its kinds
)

// The labels of a worker. They keep its properties over restarts of the server.
const (
	labelFlavour  = "qubix.worker"
	labelAddress  = "qubix.address"
	labelPower    = "qubix.compute_power"
	labelHost     = "hostname"
	labelOS       = "os"
	labelCPU      = "cpu"
	labelGPU      = "qubix.gpu" // as registered: see offeredGPU
	labelVRAM     = "qubix.gpu_vram_gb"
	labelLocation = "location"
	labelKinds    = "qubix.kinds" // of a bridge, joined by +
	labelGPUSeen  = "qubix.gpu_seen"
	labelType     = "qubix.type" // of quick-register: browser or native
)

// The GPU that QUBIX's workers report if they cannot use nvidia-smi.
const (
	placeholderGPU  = "NVIDIA GeForce MX150"
	placeholderVRAM = 4.0
)

const (
	minVRAM  = 1.0 / 1024
	maxSlots = 1000 // of a bridge
)

const maxPrice = 1e6 // per hour

// missingFeatures lists the features that no QUBIX worker has.
var missingFeatures = []string{
	muster.FeatureFiles, muster.FeatureInputs, muster.FeatureOutputs, muster.FeatureEnv, muster.FeatureArgs, muster.FeatureShell, muster.FeatureCommand,
	muster.FeaturePython, muster.FeatureRequirements, muster.FeatureProject, muster.FeatureInterpreter, muster.FeatureContainer, muster.FeatureGang, muster.FeatureLauncher,
	muster.FeatureNetwork, muster.FeatureElement, muster.FeatureCancel, muster.FeatureLogs, muster.FeatureArtifacts,
}

// missingFeaturesBridge lists the features that a bridge of Muster does not have. It forwards a stage without files, sends logs, and cancels a
// job when the answer to a report says so.
var missingFeaturesBridge = []string{
	muster.FeatureFiles, muster.FeatureInputs, muster.FeatureOutputs, muster.FeatureRequirements, muster.FeatureProject, muster.FeatureGang, muster.FeatureLauncher,
	muster.FeatureElement, muster.FeatureArtifacts,
}

// newFacts converts a registration. It ignores values that are not plausible.
func newFacts(r *registration, remote netip.Addr, key string, defaults float64) fleet.Facts {
	id := r.id()
	price := defaults
	if r.PricePerHour != nil {
		price = lenient.Within(*r.PricePerHour, maxPrice)
	}
	f := fleet.Facts{
		ID: id, Name: workerName(orDefault(r.Name, "Provider-"+lenient.Text(id, 8))), Price: price, Remote: remote, Key: key,
		Labels: lenient.Labels(map[string]string{
			labelAddress: r.Address, labelHost: r.Specs.Hostname, labelOS: r.Specs.OS, labelCPU: r.Specs.CPUModel, labelLocation: r.Location,
			labelPower: formatNumber(lenient.Within(r.ComputePower, 1e9)),
		}, maxText),
		Lacks: slices.Clone(missingFeatures),
		Resources: muster.Resources{
			CPUs: lenient.Within(r.Specs.CPUCores, 4096), Memory: lenient.GiB(r.Specs.RAMTotal), Disk: lenient.GiB(r.Specs.StorageFree), Slots: 1, MaxTasks: 1,
		},
	}
	if r.Specs.GPUAvailable && strings.TrimSpace(r.Specs.GPUModel) != "" {
		f.Labels[labelGPU] = lenient.Text(r.Specs.GPUModel, maxText)
		f.Labels[labelVRAM] = formatNumber(lenient.Within(r.Specs.GPUVRAM, 1e5))
	}
	if kinds := knownKinds(r.Specs.Kinds); len(kinds) > 0 && strings.HasPrefix(r.Specs.Software, "muster") {
		f.Labels[labelFlavour], f.Labels[labelKinds] = string(flavourBridge), strings.Join(kinds, "+")
		f.Version = lenient.Text(r.Specs.Software, maxText)
		f.Lacks = slices.Clone(missingFeaturesBridge)
		f.Resources.Slots = min(max(r.Specs.Slots, 1), maxSlots)
		f.Resources.MaxTasks = f.Resources.Slots
	}
	return f
}

func workerName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '/' || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, lenient.Name(s))
	return orDefault(strings.TrimSpace(s), "worker")
}

// knownKinds returns the kinds that this server knows, without duplicates, as many as fit into a label.
func knownKinds(names []string) []string {
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

// completeFacts derives kinds, tags and GPUs from the labels. Images of the enhanced worker stay on its machine, so it gets tasks of
// stable_diffusion only if the option kinds lists that kind.
func completeFacts(f fleet.Facts, enabledKinds []string) fleet.Facts {
	f.Kinds, f.Tags = nil, nil
	for _, fl := range parseFlavours(f.Labels) {
		f.Tags = append(f.Tags, Name+":"+fl)
		switch flavour(fl) {
		case flavourSimple, flavourBrowser:
			f.Kinds = append(f.Kinds, kind.Foreign)
		case flavourEnhanced:
			f.Kinds = append(f.Kinds, muster.KindScript, kindMNIST)
			if slices.Contains(enabledKinds, kindDiffusion) {
				f.Kinds = append(f.Kinds, kindDiffusion)
			}
		case flavourBridge:
			f.Kinds = append(f.Kinds, strings.Split(f.Labels[labelKinds], "+")...)
		case flavourUnknown:
		}
	}
	slices.Sort(f.Kinds)
	f.Kinds = slices.Compact(f.Kinds)
	if location := slug(f.Labels[labelLocation]); location != "" {
		f.Tags = append(f.Tags, "location:"+location)
	}
	f.Resources.GPUs = nil
	if gpu := offeredGPU(f); gpu != nil {
		f.Resources.GPUs = []muster.GPU{*gpu}
	}
	return f
}

// parseFlavours returns the programs that use a worker's id.
func parseFlavours(labels map[string]string) []string {
	return strings.FieldsFunc(labels[labelFlavour], func(r rune) bool { return r == '+' })
}

// offeredGPU returns the GPU of a worker, nil for none. The GPU that QUBIX's workers invent counts only if it was measured.
func offeredGPU(f fleet.Facts) *muster.GPU {
	model := f.Labels[labelGPU]
	vram, err := strconv.ParseFloat(f.Labels[labelVRAM], 64)
	if model == "" || err != nil || vram < minVRAM || f.Labels[labelType] == string(flavourBrowser) {
		return nil
	}
	if model == placeholderGPU && vram == placeholderVRAM && f.Labels[labelGPUSeen] == "" {
		return nil
	}
	return &muster.GPU{UUID: "qubix-" + f.ID + "-0", Vendor: vendor(model), Name: model, Memory: lenient.GiB(vram)}
}

func vendor(model string) string {
	low := strings.ToLower(model)
	for _, v := range []struct{ vendor, part string }{{"amd", "amd"}, {"amd", "radeon"}, {"intel", "intel"}, {"apple", "apple"}} {
		if strings.Contains(low, v.part) {
			return v.vendor
		}
	}
	return "nvidia"
}

// slug returns a tag for a place: "US East (Virginia)" becomes us-east-virginia.
func slug(place string) string {
	words := strings.FieldsFunc(strings.ToLower(place), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return lenient.Text(strings.Join(words, "-"), 50)
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// quickPrice returns the default price per hour by the GPU memory in gigabytes, as in QUBIX's backend.
func quickPrice(vram float64) float64 {
	for _, tier := range []struct{ minVRAM, price float64 }{{24, 2}, {16, 1.5}, {8, 1}, {4, 0.5}} {
		if vram >= tier.minVRAM {
			return tier.price
		}
	}
	return 0.25
}

// parseLoad converts the usage of a heartbeat for a worker with resources r.
func parseLoad(u *usage, r muster.Resources) *muster.Load {
	load := &muster.Load{}
	if v := cmp.Or(u.CPU, u.CPUSnake); v != nil {
		load.CPU = lenient.Within(*v, 100) / 100
	}
	if u.RAMUsed != nil {
		load.Memory = lenient.GiB(*u.RAMUsed)
	} else if v := cmp.Or(u.RAM, u.RAMSnake); v != nil {
		load.Memory = muster.Size(lenient.Within(*v, 100) / 100 * float64(r.Memory))
	}
	if len(r.GPUs) > 0 {
		l := muster.GPULoad{UUID: r.GPUs[0].UUID, Temperature: u.GPUTemp, Power: validPower(u.GPUPower)}
		if v := cmp.Or(u.GPU, u.GPUSnake); v != nil {
			l.Utilization = percentToFraction(*v)
		}
		if u.GPUMemUsed != nil {
			l.Memory = new(lenient.GiB(*u.GPUMemUsed / 1024))
		}
		load.GPUs = []muster.GPULoad{l}
	}
	return load
}

// parseGPULoad converts the GPU metrics of a progress report, nil if there are none.
func parseGPULoad(m *gpuMetrics, r muster.Resources) *muster.Load {
	if len(r.GPUs) == 0 || m.Utilization == nil {
		return nil
	}
	l := muster.GPULoad{UUID: r.GPUs[0].UUID, Utilization: percentToFraction(*m.Utilization), Temperature: m.Temperature, Power: validPower(m.Power)}
	if m.MemoryUsed != nil {
		l.Memory = new(lenient.GiB(*m.MemoryUsed / 1024))
	}
	return &muster.Load{GPUs: []muster.GPULoad{l}}
}

func percentToFraction(percent float64) *float64 { return new(lenient.Within(percent, 100) / 100) }

// validPower returns v, nil if it is not plausible: drivers of notebooks report negative values.
func validPower(v *float64) *float64 {
	if v == nil || lenient.Within(*v, 1e5) != *v {
		return nil
	}
	return v
}
