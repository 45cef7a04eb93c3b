package probe

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// tags returns the facts that jobs can ask for; docs/workers.md documents each. Versions appear twice, as cuda:12 and cuda:12.4.
func tags(f *Facts) []string {
	t := tagSet{}
	t.add(f.System.OS, f.System.Arch)
	for _, feature := range []string{"avx2", "avx512", "amx", "neon", "sve"} {
		if slices.Contains(f.CPU.Features, feature) {
			t.add(feature)
		}
	}
	for i := range f.GPUs {
		t.device(&f.GPUs[i])
	}
	for i := range f.Engines {
		if !f.Engines[i].RunsTasks(f.System.OS) {
			continue
		}
		t.add(f.Engines[i].Name)
		if slices.Contains(f.Engines[i].GPUs, "nvidia") && slices.Contains(t, "nvidia") {
			t.add("nvidia-container")
		}
	}
	for i := range f.Python {
		t.python(&f.Python[i])
	}
	if f.UV != nil && f.UV.Version != "" {
		t.add("uv")
	}
	return t
}

// tagSet is a list of tags without duplicates.
type tagSet []string

func (t *tagSet) add(tags ...string) {
	for _, tag := range tags {
		if tag = strings.ToLower(tag); validTag(tag) && !slices.Contains(*t, tag) {
			*t = append(*t, tag)
		}
	}
}

// validTag reports whether a text, perhaps from a tool's output, can be a tag.
func validTag(tag string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789.:_+-"
	return tag != "" && len(tag) <= muster.MaxNameSize && strings.Trim(tag, allowed) == ""
}

// version adds NAME:MAJOR and NAME:MAJOR.MINOR.
func (t *tagSet) version(name, version string) {
	number := version[:len(version)-len(strings.TrimLeft(version, "0123456789."))]
	major, rest, ok := strings.Cut(strings.Trim(number, "."), ".")
	if major == "" {
		return
	}
	t.add(name + ":" + major)
	if minor, _, _ := strings.Cut(rest, "."); ok && minor != "" {
		t.add(name + ":" + major + "." + minor)
	}
}

// platforms are the compute platforms of vendors' GPUs.
var platforms = map[string]string{"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "apple": "mps"}

func (t *tagSet) device(g *gpu.Device) {
	t.add("gpu", g.Vendor)
	platform, ok := platforms[g.Vendor]
	if !ok {
		return
	}
	t.add(platform)
	if platform == "cuda" || platform == "rocm" {
		t.version(platform, g.Runtime)
	}
	if g.MIG != "" {
		t.add("mig")
	}
}

// frameworks are the packages that have a tag.
var frameworks = []struct{ pkg, tag string }{
	{"torch", "torch"}, {"vllm", "vllm"}, {"transformers", "transformers"}, {"diffusers", "diffusers"}, {"onnxruntime", "onnxruntime"},
	{"onnxruntime-gpu", "onnxruntime"}, {"onnxruntime-directml", "onnxruntime"}, {"onnxruntime-openvino", "onnxruntime"},
	{"tensorflow", "tensorflow"}, {"jax", "jax"}, {"scikit-learn", "scikit-learn"}, {"mlx", "mlx"}, {"openvino", "openvino"},
}

// python adds the version of an interpreter, and the packages of the default one.
func (t *tagSet) python(p *Python) {
	t.version("python", p.Version)
	if !p.Default {
		return
	}
	t.add("python")
	for _, f := range frameworks {
		if version, ok := p.Packages[f.pkg]; ok {
			t.add(f.tag)
			t.version(f.tag, version)
		}
	}
	if platform, _, _ := strings.Cut(p.Torch, " "); platform != "" && platform != "cpu" {
		t.add("torch-" + platform)
	}
}
