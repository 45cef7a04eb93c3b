package docker

import (
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// CDIDirs are the default directories of CDI specs.
var CDIDirs = []string{"/etc/cdi", "/var/run/cdi"}

// CDISpec is a file that describes devices for containers: see the Container Device Interface.
type CDISpec struct {
	Path string
	Kind string // of its devices, such as nvidia.com/gpu
	Text string // JSON or YAML
}

// CDISpecs reads the specs in directories of a file system.
func CDISpecs(root fs.FS, dirs []string) (specs []CDISpec) {
	for _, dir := range dirs {
		files, _ := fs.Glob(root, strings.TrimPrefix(path.Join(dir, "*"), "/")) // none if it is no directory
		for _, file := range files {
			text, err := readStart(root, file)
			if err != nil || !slices.Contains([]string{".json", ".yaml", ".yml"}, path.Ext(file)) {
				continue
			}
			if kind := cdiKind(text); kind != "" {
				specs = append(specs, CDISpec{Path: "/" + file, Kind: kind, Text: string(text)})
			}
		}
	}
	return specs
}

// maxCDISpec is how much of a spec is read, in bytes.
const maxCDISpec = 4 << 20

func readStart(root fs.FS, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxCDISpec))
}

// cdiKind returns the kind of a spec; it must be at the top level, as all vendors' tools write it.
func cdiKind(text []byte) string {
	var spec struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(text, &spec) == nil {
		return spec.Kind
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.Trim(key, `"'`) == "kind" {
			value, _, _ = strings.Cut(value, " #")
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}
