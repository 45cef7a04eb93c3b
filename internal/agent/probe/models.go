package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// ModelCache is a directory in which a library caches models.
type ModelCache struct {
	Library string      `json:"of"` // huggingface, torch, ollama, lmstudio, llama.cpp or whisper
	Path    string      `json:"path"`
	Size    muster.Size `json:"size"`              // bytes of all files
	Models  []string    `json:"models"`            // names, at most 500
	Partial bool        `json:"partial,omitempty"` // there are more models or files than were counted
}

const (
	maxModels       = 500
	maxCacheEntries = 20000 // files and directories of one cache that are counted
	modelTimeout    = 2 * time.Second
)

// models returns the caches of this user's libraries, at the places that each library documents.
func (h *host) models(ctx context.Context) []ModelCache {
	found := []ModelCache{}
	for _, c := range h.modelCaches() {
		for _, dir := range c.dirs {
			if info, err := os.Stat(dir); dir == "" || err != nil || !info.IsDir() {
				continue
			}
			one := ModelCache{Library: c.library, Path: dir, Models: c.names(dir)}
			if one.Size, one.Partial = folderSize(ctx, dir); len(one.Models) == 0 {
				break // the cache is empty
			}
			if len(one.Models) > maxModels {
				one.Models, one.Partial = one.Models[:maxModels], true
			}
			found = append(found, one)
			break
		}
	}
	return found
}

// modelCache is a library's cache: the first directory that exists.
type modelCache struct {
	library string
	dirs    []string
	names   func(dir string) []string
}

func (h *host) modelCaches() []modelCache {
	cache := cmp.Or(h.env("XDG_CACHE_HOME"), under(h.home, ".cache"))
	ollama := []string{under(h.home, ".ollama", "models"), "/usr/share/ollama/.ollama/models"}
	if dir := h.env("OLLAMA_MODELS"); dir != "" {
		ollama = []string{dir}
	}
	llama := cache
	if h.os == "darwin" {
		llama = under(h.home, "Library", "Caches")
	}
	return []modelCache{
		{"huggingface", []string{cmp.Or(h.env("HF_HUB_CACHE"), h.env("HUGGINGFACE_HUB_CACHE"), under(h.env("HF_HOME"), "hub"), under(cache, "huggingface", "hub"))}, hubModels},
		{"torch", []string{cmp.Or(under(h.env("TORCH_HOME"), "hub"), under(cache, "torch", "hub"))}, torchModels},
		{"ollama", ollama, ollamaModels},
		{"lmstudio", []string{under(h.home, ".lmstudio", "models"), under(h.home, ".cache", "lm-studio", "models")}, makerModels},
		{"llama.cpp", []string{cmp.Or(h.env("LLAMA_CACHE"), under(llama, "llama.cpp"))}, func(dir string) []string { return files(dir, ".gguf") }},
		{"whisper", []string{under(cache, "whisper")}, func(dir string) []string { return files(dir, ".pt") }},
	}
}

// hubModels reads directories such as models--Qwen--Qwen2.5-7B, one for each model.
func hubModels(dir string) []string {
	models := []string{}
	for _, name := range glob(dir, "models--?*") {
		models = append(models, strings.ReplaceAll(strings.TrimPrefix(name, "models--"), "--", "/"))
	}
	return models
}

// torchModels lists weight files, and repositories such as pytorch_vision_v0.10.0.
func torchModels(dir string) []string {
	models := []string{}
	for _, name := range files(filepath.Join(dir, "checkpoints"), "") {
		if ext := filepath.Ext(name); ext == ".pt" || ext == ".pth" || ext == ".bin" || ext == ".safetensors" {
			models = append(models, name)
		}
	}
	for _, name := range readDirNames(dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); name != "checkpoints" && err == nil && info.IsDir() {
			models = append(models, name)
		}
	}
	return models
}

// ollamaModels reads manifests/HOST/NAMESPACE/MODEL/TAG. Models of Ollama's own library have their short names: llama3.2:3b.
func ollamaModels(dir string) []string {
	models := []string{}
	for _, file := range glob(dir, "manifests/*/*/*/*") {
		name, tag := path.Split(strings.TrimPrefix(file, "manifests/"))
		name = strings.TrimPrefix(name, "registry.ollama.ai/")
		name = strings.TrimPrefix(name, "library/")
		if isManifest(filepath.Join(dir, filepath.FromSlash(file))) {
			models = append(models, strings.TrimSuffix(name, "/")+":"+tag)
		}
	}
	return models
}

// isManifest reports whether a file is a manifest, not the rest of a failed download.
func isManifest(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var m struct {
		Layers []json.RawMessage `json:"layers"`
	}
	return json.Unmarshal(readLimited(f, 1<<20), &m) == nil && len(m.Layers) > 0
}

// makerModels lists directories MAKER/MODEL.
func makerModels(dir string) []string {
	return append([]string{}, glob(dir, "*/*")...)
}

// glob lists the files in a directory whose paths match a pattern, with slashes.
func glob(dir, pattern string) []string {
	names, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is right
	return names
}

// files lists the regular files in a directory with a suffix.
func files(dir, suffix string) []string {
	all := []string{}
	for _, name := range readDirNames(dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && strings.HasSuffix(name, suffix) {
			all = append(all, name)
		}
	}
	return all
}

var errLimitReached = errors.New("limit reached")

// folderSize adds up the sizes of the files below a directory, without following links, until it reaches a limit of entries or
// time.
func folderSize(ctx context.Context, dir string) (size muster.Size, partial bool) {
	ctx, cancel := context.WithTimeout(ctx, modelTimeout)
	defer cancel()
	seen := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if seen++; seen > maxCacheEntries || ctx.Err() != nil {
			return errLimitReached
		}
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read does not count
		}
		if info, err := d.Info(); err == nil {
			size += muster.Size(info.Size())
		}
		return nil
	})
	return size, err != nil
}
