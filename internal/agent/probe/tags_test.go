package probe

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/specvalidate"
)

func allFacts() *Facts {
	return &Facts{
		System: System{OS: "linux", Arch: "amd64"},
		CPU:    CPU{Features: []string{"sse4_2", "avx2", "avx512", "amx", "neon", "sve"}},
		GPUs: []gpu.Device{
			{GPU: muster.GPU{Vendor: "nvidia", MIG: "1g.5gb"}, Runtime: "12.4"},
			{GPU: muster.GPU{Vendor: "nvidia"}, Runtime: "12.4"},
			{GPU: muster.GPU{Vendor: "amd"}, Runtime: "6.1.2"},
			{GPU: muster.GPU{Vendor: "intel"}},
			{GPU: muster.GPU{Vendor: "apple"}, Runtime: "Metal 3"},
		},
		Engines: []Engine{{Name: "docker", Socket: "/run/docker.sock", GPUs: []string{"nvidia"}}, {Name: "podman", Socket: "/run/podman/podman.sock"}, {Name: "nerdctl", Tool: "/usr/bin/nerdctl"}},
		Python: []Python{
			{Version: "3.11.7", Default: true, Torch: "cuda 12.1", Packages: map[string]string{
				"torch": "2.4.0+cu121", "transformers": "4.44.0", "diffusers": "0.30.0", "vllm": "0.5.4", "onnxruntime-gpu": "1.18.1",
				"tensorflow": "2.17.0", "jax": "0.4.31", "scikit-learn": "1.5.1", "mlx": "0.16.1", "openvino": "2024.3.0", "numpy": "2.0",
			}},
			{Version: "3.12.1", Packages: map[string]string{"vllm": "0.6.0"}},
		},
		UV: &UV{Path: "/usr/bin/uv", Version: "0.4.0"},
	}
}

func TestTags(t *testing.T) {
	want := strings.Fields(`linux amd64 avx2 avx512 amx neon sve
		gpu nvidia cuda cuda:12 cuda:12.4 mig amd rocm rocm:6 rocm:6.1 intel xpu apple mps
		docker nvidia-container podman
		python:3 python:3.11 python torch torch:2 torch:2.4 vllm vllm:0 vllm:0.5 transformers transformers:4 transformers:4.44
		diffusers diffusers:0 diffusers:0.30 onnxruntime onnxruntime:1 onnxruntime:1.18 tensorflow tensorflow:2 tensorflow:2.17
		jax jax:0 jax:0.4 scikit-learn scikit-learn:1 scikit-learn:1.5 mlx mlx:0 mlx:0.16 openvino openvino:2024 openvino:2024.3
		torch-cuda python:3.12 uv`)
	if d := cmp.Diff(want, tags(allFacts())); d != "" {
		t.Error(d)
	}
}

// TestEngineWithoutSocketHasNoTag checks that an engine is a tag only where tasks can use it.
func TestEngineWithoutSocketHasNoTag(t *testing.T) {
	for os, want := range map[string][]string{"linux": {"linux", "amd64"}, "windows": {"windows", "amd64", "docker"}} {
		f := &Facts{System: System{OS: os, Arch: "amd64"}, Engines: []Engine{{Name: "docker", Tool: "docker", GPUs: []string{"nvidia"}}, {Name: "podman", Tool: "podman"}}}
		if d := cmp.Diff(want, tags(f)); d != "" {
			t.Error(d)
		}
	}
}

// TestTagsAreValidInSpecs checks that a job can name every tag.
func TestTagsAreValidInSpecs(t *testing.T) {
	spec := &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Where: muster.Where{Tags: tags(allFacts())}}}}
	if wrong := specvalidate.Spec(spec.Normalize()); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestTagsAreDocumented checks that the table in docs/workers.md has every tag, and only existing ones.
func TestTagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Tags\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("docs/workers.md has no section about tags")
	}
	documented := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				name, _, _ := strings.Cut(m[1], ":")
				documented[name] = true
			}
		}
	}
	given := map[string]bool{}
	for _, tag := range tags(allFacts()) {
		name, _, _ := strings.Cut(tag, ":")
		given[name] = true
		if !documented[name] && tag != "linux" && tag != "amd64" {
			t.Errorf("%s is not in the table", tag)
		}
	}
	rest := []string{
		"linux", "darwin", "windows", "amd64", "arm64", "torch-rocm", "torch-xpu",
		"tpu", "neuron", "hailo", "coral", "npu", "qaic", "tenstorrent",
	}
	for name := range documented {
		if !given[name] && !slices.Contains(rest, name) {
			t.Errorf("%s is in the table, and never given", name)
		}
	}
}

func TestInvalidTags(t *testing.T) {
	var s tagSet
	s.add("", "ok", "OK", "with space", "with,comma", "naïve", strings.Repeat("x", 100))
	s.version("a", "")
	s.version("b", "x1.2")
	s.version("c", "1")
	s.version("d", "1.")
	s.version("e", "2.4.0+cu121")
	s.version("f", "1.2rc1")
	if d := cmp.Diff(tagSet{"ok", "c:1", "d:1", "e:2", "e:2.4", "f:1", "f:1.2"}, s); d != "" {
		t.Error(d)
	}
}
