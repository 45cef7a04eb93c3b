package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModels(t *testing.T) {
	home := t.TempDir()
	put := func(size int, parts ...string) {
		t.Helper()
		path := filepath.Join(append([]string{home}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := func(s string, parts ...string) {
		t.Helper()
		put(0, parts...)
		if err := os.WriteFile(filepath.Join(append([]string{home}, parts...)...), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(1000, ".cache", "huggingface", "hub", "models--Qwen--Qwen2.5-7B", "blobs", "a")
	if err := os.MkdirAll(filepath.Join(home, ".cache", "huggingface", "hub", "models--Qwen--Qwen2.5-7B", "snapshots", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../blobs/a", filepath.Join(home, ".cache", "huggingface", "hub", "models--Qwen--Qwen2.5-7B", "snapshots", "x", "model")); err != nil {
		t.Skip("no symbolic links here")
	}
	put(10, ".cache", "huggingface", "hub", "models--gpt2", "blobs", "b")
	put(5, ".cache", "huggingface", "hub", "datasets--x--y", "blobs", "c")
	put(7, ".cache", "torch", "hub", "checkpoints", "resnet50-0676ba61.pth")
	put(1, ".cache", "torch", "hub", "checkpoints", "half.partial")
	put(1, ".cache", "torch", "hub", "pytorch_vision_v0.10.0", "hubconf.py")
	text(`{"schemaVersion": 2, "layers": [{"size": 9}]}`, ".ollama", "models", "manifests", "registry.ollama.ai", "library", "llama3.2", "3b")
	text(`{"schemaVersion": 2, "layers": [{"size": 9}]}`, ".ollama", "models", "manifests", "registry.ollama.ai", "me", "mine", "latest")
	text(`{"schemaVersion": 2, "layers": [{"size": 9}]}`, ".ollama", "models", "manifests", "hf.co", "bartowski", "x", "Q4")
	text(`{`, ".ollama", "models", "manifests", "registry.ollama.ai", "library", "broken", "1b")
	put(9, ".ollama", "models", "blobs", "sha256-1")
	put(3, ".lmstudio", "models", "maker", "model-gguf", "model.gguf")
	put(2, ".cache", "llama.cpp", "tiny.gguf")
	put(2, ".cache", "whisper", "small.pt")
	h := &host{env: func(string) string { return "" }, home: home, os: "linux"}
	type cache struct {
		Of     string
		Size   int
		Models []string
	}
	var got []cache
	for _, c := range h.models(t.Context()) {
		if c.Library == "ollama" {
			c.Size = 9 // and the manifests
		}
		got = append(got, cache{c.Library, int(c.Size), c.Models})
		if c.Partial {
			t.Errorf("%s is said to be partial", c.Library)
		}
	}
	want := []cache{
		{"huggingface", 1015, []string{"Qwen/Qwen2.5-7B", "gpt2"}},
		{"torch", 9, []string{"resnet50-0676ba61.pth", "pytorch_vision_v0.10.0"}},
		{"ollama", 9, []string{"hf.co/bartowski/x:Q4", "llama3.2:3b", "me/mine:latest"}},
		{"lmstudio", 3, []string{"maker/model-gguf"}},
		{"llama.cpp", 2, []string{"tiny.gguf"}},
		{"whisper", 2, []string{"small.pt"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	// The variables of the libraries lead elsewhere.
	put(4, "elsewhere", "hub", "models--a--b", "blobs", "x")
	h.env = func(name string) string { return map[string]string{"HF_HOME": filepath.Join(home, "elsewhere")}[name] }
	if all := h.models(t.Context()); all[0].Path != filepath.Join(home, "elsewhere", "hub") || all[0].Size != 4 {
		t.Errorf("with HF_HOME %+v", all[0])
	}
}

// TestModelsAreBounded checks that a cache of any size is looked at for a moment only.
func TestModelsAreBounded(t *testing.T) {
	home := t.TempDir()
	hub := filepath.Join(home, ".cache", "huggingface", "hub")
	for i := range maxModels + 5 {
		if err := os.MkdirAll(filepath.Join(hub, "models--x--"+strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &host{env: func(string) string { return "" }, home: home, os: "linux"}
	all := h.models(t.Context())
	if len(all) != 1 || len(all[0].Models) != maxModels || !all[0].Partial {
		t.Errorf("%d caches: %d models", len(all), len(all[0].Models))
	}
}
