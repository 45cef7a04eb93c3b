package jobschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/muster-dev/muster/internal/spec"
)

var root = filepath.Join("..", "..", "..")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(read(t, Target)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("job.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("job.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate validates each document of a file.
func validate(schema *jsonschema.Schema, file string) error {
	d := yaml.NewDecoder(strings.NewReader(file))
	for {
		var doc any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if doc == nil {
			continue
		}
		text, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		if err := schema.Validate(v); err != nil {
			return err
		}
	}
}

// The schema accepts all jobs of the examples and the documentation.
func TestExamplesMatch(t *testing.T) {
	schema := compile(t)
	n := 0
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || d.Name() == "kind.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		if err := validate(schema, string(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil || n < 4 {
		t.Fatalf("%d examples, %v", n, err)
	}
	for _, name := range []string{Source, "docs/webhooks.md", "docs/kinds.md", "README.md"} {
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, name), -1) {
			if _, err := spec.Parse([]byte(m[1]), "example"); err != nil {
				continue // it is not a job
			}
			if err := validate(schema, m[1]); err != nil {
				t.Errorf("%s: %v\n%s", name, err, m[1])
			}
		}
	}
}

// The schema accepts unusual forms that the parser accepts.
func TestLenientForms(t *testing.T) {
	schema := compile(t)
	for _, file := range []string{
		"run: [1, true, x]\n", "run: x\ntimeout: 90\n", "run: x\ntimeout: 1h30m\nretries: {backoff: 0.5s}\n", "run: x\nenv: {A: 1, B: true}\n",
		"run: x\nresources: {memory: 1.5 GiB, disk: 100}\n", "run: x\narray: 0-9,20,30-39:3\n", "run: x\nmatrix: {lr: [0.1, 0.2], n: 1-3}\n", "run: x\ngang: 4\n", "run: x\ngang: {size: 4}\n",
		"run: x\nx-a: {b: [c]}\n", "script: {url: 'https://example.org/x', sha256: '" + strings.Repeat("0a", 32) + "'}\n", "run: x\ncheckpoint: ckpt\n", "kind: noop\nname: 7\n",
		"image: a\ncontainer: {mounts: ['/a:/b:ro', {source: /a, target: /c}], entrypoint: []}\n", "run: x\nnotify: [{url: 'https://a.b/', on: [failed], after: 10}]\n",
		"tasks: [{name: train, run: x}, {run: y, needs: train}]\n", "run: x\nresources: {gpus: 1}\n", "run: x\nwhere: {tags: fast, not: slow, workers: rig}\noutputs: a.pt\nretries: {max: 1, on: exit:3}\n",
		"run: x\nnotify: [{url: 'https://a.b/', on: failed}]\n",
		"run: x\nnotify: [{url: 'https://a.b/', secret: 'sealed:" + strings.Repeat("a", 720) + "'}]\n",
	} {
		if _, err := spec.Parse([]byte(file), "file"); err != nil && !strings.Contains(file, "after: 10") {
			t.Errorf("%q: %v", file, err)
		}
		if err := validate(schema, file); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// The schema rejects invalid jobs.
func TestInvalidSpecsDoNotMatch(t *testing.T) {
	schema := compile(t)
	for _, file := range []string{
		read(t, "internal/spec/testdata/wrong.yaml"),
		"name: x\n", "run: x\ntimout: 5\n", "run: x\npriority: 101\n", "run: x\npriority: high\n", "run: x\nneeds: {a: b}\n", "run: x\nresources: {gpus: two}\n", "run: x\nresources: {gpus: 1025}\n", "image: a\ncontainer: {entrypoint: sh}\n", "run: x\nresources: {memory: much}\n",
		"run: x\nisolation: jail\n", "run: x\nnetwork: wifi\n", "run: x\nkill: {signal: SIGFOO}\n", "run: x\nretries: {max: 1001}\n", "run: x\nretries: {max: two}\n", "run: x\ntimeout: soon\n",
		"run: x\narray: 10\n", "run: x\narray: a-b\n", "run: x\nmatrix: []\n", "run: x\nenv: [A]\n", "run: {a: b}\n", "tasks: []\n", "tasks: [{name: a}]\n", "tasks: [{run: x, priority: 1}]\n",
		"tasks: [{run: x}]\nrun: y\n", "run: x\nnotify: [{}]\n", "run: x\nnotify: [{url: 'https://a.b/', on: [faild]}]\n", "run: x\nnotify: [{url: 'ftp://a.b/'}]\n", "run: x\nnotify: [{url: 'https://a.b/', preset: irc}]\n",
		"run: x\nnotify: [{url: 'https://a.b/', secret: '" + strings.Repeat("a", 513) + "'}]\n", "run: x\nnotify: [{url: 'https://a.b/', secret: short}]\n",
		"run: x\ndisconnect: {then: wait}\n", "run: x\ngang: 0\n", "run: x\nnproc_per_node: 5000\n", "run: null\n", "run: 5\n", "run: x\nwhere: {tags: {a: b}}\n", "run: x\nproject: a b\n", "run: x\ninputs: [{from: a}]\n",
	} {
		if _, err := spec.Parse([]byte(file), "file"); err == nil {
			t.Errorf("%q is a job", file)
		}
		if validate(schema, file) == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}

// Each field has a description.
func TestFieldsAreDescribed(t *testing.T) {
	var doc struct {
		Defs map[string]struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(read(t, Target)), &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	for def, d := range doc.Defs {
		for name, p := range d.Properties {
			n++
			if p.Description == "" && name != "retries" && name != "kill" && name != "disconnect" {
				t.Errorf("%s.%s has no description", def, name)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d fields", n)
	}
}
